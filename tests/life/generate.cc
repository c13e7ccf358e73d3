// A life is drawn in three steps: its kind (medium, threads, sizes); its favourite groups of calls,
// some frequent and some absent, so that the remaining ones meet often; and then step after step.
#include "generate.h"

#include "maker.h"

namespace tenuto::life {
namespace {

constexpr const char* kGroupNames[Group::kGroups] = {
    "writes",  "many",  "large",   "reads",        "scans",
    "making",  "bulk",  "moments", "transactions", "making-in-transactions",
    "cursors", "views", "upkeep",  "objects",      "time",
    "threads", "ends",  "forks",   "files",        "faults"};

}  // namespace

Story Maker::make() {
  begin();
  const std::uint64_t length =
      length_ != 0 ? length_ : 30 + random_.below(random_.one_in(4) ? 400 : 120);
  while (story_.steps.size() < length) meets_ ? meeting() : one();
  return std::move(story_);
}

void Maker::draw_life(std::uint64_t seed, const Wanted& wanted) {
  story_.seed = seed;
  static constexpr Medium kMedia[] = {Medium::cache, Medium::line, Medium::journal};
  const Medium drawn = kMedia[random_.below(3)];
  story_.medium = wanted.medium == Medium::automatic ? drawn : wanted.medium;
  const auto threads = one_in(2) ? 1 : static_cast<unsigned>(2 + below(3));
  story_.threads = wanted.threads == 0 ? threads : wanted.threads;
  const bool at_once = story_.threads > 1 && one_in(3);
  story_.at_once = wanted.at_once < 0 ? at_once : wanted.at_once != 0;
  story_.numbers = one_in(6);
  static constexpr std::uint64_t kMost[] = {8u << 20, 16u << 20, 32u << 20, 64u << 20};
  story_.pool_bytes_max = kMost[random_.below(4)];
  story_.sync_ms = one_in(3) ? 1 + random_.below(5) : 0;
  story_.reclaim_ms = one_in(8) ? 1 : 0;
  story_.snapshot_bytes_max = one_in(20) ? 10'000 + random_.below(200'000) : 0;
  // Tables that grow, one page that displaces, none.
  static constexpr std::uint64_t kLookups[] = {256u << 20, 4096, 0};
  story_.lookup_bytes = kLookups[random_.below(3)];
  story_.records_from = one_in(2) ? 1 : 0;
  story_.unread = one_in(2) ? 1 : 0;
  // Drawn also where it is not used, so that a seed draws the same life on each medium.
  static constexpr std::uint64_t kConsistencies[] = {1, 1, 2, 3};
  const std::uint64_t consistency = kConsistencies[random_.below(4)];
  if (story_.medium != Medium::journal) story_.consistency = consistency;
  // From numbers of their own: the rest of the life is the same with them and without.
  Random heap{~seed};
  static constexpr std::uint64_t kNodes[] = {0, 0, 2, 3};
  story_.nodes = kNodes[heap.below(4)];
  story_.canaries = heap.below(3) == 0 ? 1 : 0;
  static constexpr std::uint64_t kWear[] = {0, 0, 0, 1, 2, 3, 100};
  story_.wear = kWear[heap.below(7)];
  story_.side = heap.below(3) == 0 ? 1 : 0;
  if (story_.unread != 0 && heap.below(2) == 0) story_.unread = 2;
  two_stores_ = one_in(6);
  hot_ = static_cast<std::uint64_t>(4 + below(60));
  near_ = static_cast<std::uint64_t>(below(kKeys / 2));
  static constexpr unsigned kFond[] = {0, 1, 1, 3, 8};
  for (unsigned g = 0; g < Group::kGroups; ++g) fond_[g] = kFond[random_.below(5)];
  fond_[Group::kWrites] += 2;
  fond_[Group::kReads] += 1;
  if (fond_[Group::kEnds] > 3) fond_[Group::kEnds] = 2;
  if (fond_[Group::kForks] > 1) fond_[Group::kForks] = one_in(2) ? 1 : 0;
  if (fond_[Group::kFiles] > 1) fond_[Group::kFiles] = one_in(2) ? 1 : 0;
  if (fond_[Group::kLarge] > 3) fond_[Group::kLarge] = 2;
  fond_[Group::kFaults] = one_in(4) ? 1 + random_.below(3) : 0;
  if (story_.threads == 1) fond_[Group::kThreads] = 0;
  system_faults_ = one_in(3);
  paths_ = fond_[Group::kFiles] != 0;
  draw_kind(wanted.kind);
  if (fond_[Group::kFiles] != 0) story_.side = 0;  // copies and rescues of one of two pools
  paths_ = paths_ && (wanted.without >> Group::kFiles & 1) == 0;
  refuses_ = (wanted.without >> Group::kFaults & 1) == 0;
  for (unsigned g = 1; g < Group::kGroups; ++g) {
    if ((wanted.without >> g & 1) != 0) fond_[g] = 0;
  }
  for (const std::uint64_t f : fond_) all_ += f;
}

void Maker::begin() {
  add(Verb::open, {0, 0});
  if (two_stores_) add(Verb::open, {1, 0});
  for (N i = below(4); i > 0; --i) {
    const N c = made_slot();
    add(Verb::create, {store(), c, name(), encoding()});
    if (one_in(2)) add(Verb::fill, {store(), c, key(), 10 + below(150), length()});
  }
  if (one_in(2)) add(Verb::fill, {0, 0, key(), 10 + below(200), length()});
}

void Maker::look_elsewhere() {
  if (focus_.left != 0) {
    --focus_.left;
  } else if (!one_in(3)) {
    focus_.c = one_in(3) ? 0 : below(slots_);
    focus_.key = narrow_ || one_in(2) ? static_cast<N>(near_) + below(hot_) : below(300);
    focus_.width = 1 + random_.below(one_in(3) ? 40 : 8);
    focus_.x = below(handles_);
    focus_.n = below(handles_);
    focus_.i = below(handles_);
    focus_.thread = static_cast<unsigned>(below(story_.threads));
    focus_.left = 5 + static_cast<unsigned>(below(30));
  }
  const bool same = attends() || one_in(3);
  thread_ = same && focus_.left != 0 ? focus_.thread : static_cast<unsigned>(below(story_.threads));
}

void Maker::one() {
  look_elsewhere();
  call(group());
}

unsigned Maker::group() {
  std::uint64_t draw = random_.below(all_);
  unsigned g = 0;
  while (draw >= fond_[g]) draw -= fond_[g++];
  return g;
}

void Maker::call(unsigned group) {
  switch (group) {
    case Group::kWrites:
      return write();
    case Group::kMany:
      return many();
    case Group::kLarge:
      return large();
    case Group::kReads:
      return read();
    case Group::kScans:
      return add(Verb::scan, {store(), slot(), below(2)});
    case Group::kMaking:
      return making();
    case Group::kBulk:
      return add(Verb::bulk, {store(), slot(), key(), 1 + below(300), length()});
    case Group::kMoments:
      return narrow_ && one_in(6) ? era() : moment();
    case Group::kTransactions:
      return narrow_ && one_in(4) ? visit(!meets_) : transaction();
    case Group::kMakingInTransactions:
      return making_in_transaction();
    case Group::kCursors:
      return cursor();
    case Group::kViews:
      return one_in(3) ? add(Verb::drop_view, {below(kViewsMax)})
                       : add(Verb::hold_view, {below(kViewsMax), store(), slot(), key()});
    case Group::kUpkeep:
      return upkeep();
    case Group::kObjectCalls:
      return objects();
    case Group::kTime:
      return add(Verb::clock, {one_in(4) ? -below(400) : below(one_in(6) ? 100'000 : 300)});
    case Group::kThreads:
      return add(Verb::thread_end, {1 + below(kThreadsMax - 1)});
    case Group::kEnds:
      return end();
    case Group::kForks:
      return add(Verb::fork_child, {below(6)});
    case Group::kFiles:
      return files();
    default:
      return fault();
  }
}

void Maker::open_again() {
  standing_ = {};
  if (fond_[Group::kTime] != 0 && one_in(3))
    add(Verb::clock, {below(2) != 0 ? -below(400) : -below(200'000)});
  add(Verb::open, {0, path(), one_in(12)});
  if (story_.steps.back().a[2] != 0) {
    // First some read-only steps. Then the store is opened for writing.
    for (N i = below(6); i > 0; --i) one_in(2) ? read() : cursor();
    add(Verb::close, {0});
    add(Verb::open, {0, story_.steps.back().a[1]});
  }
  if (two_stores_) add(Verb::open, {1, path()});
  if (story_.unread != 0 && refuses_ && one_in(2)) first_fails();
}

void Maker::end() {
  switch (below(6)) {
    case 0:
      add(Verb::kill, {});
      break;
    case 1: {
      const N by = below(3);
      add(Verb::kill_soon, {by, by == 2 ? 1 + below(20'000) : 1 + below(by == 0 ? 400 : 40)});
      for (N i = below(20); i > 0; --i) {
        story_.side != 0 ? objects() : one_in(2) ? write() : many();
      }
      add(Verb::leave, {1});
      break;
    }
    case 2:
      add(Verb::close, {store()});
      break;
    default:
      add(Verb::leave, {below(5)});
  }
  open_again();
}

// Ends the life of the store in one of several ways.
void Maker::end_of_life() {
  switch (below(4)) {
    case 0:
      return add(Verb::close, {0});
    case 1:
      return add(Verb::leave, {below(5)});
    default:
      add(Verb::kill, {});
  }
}

void Maker::files() {
  switch (below(8)) {
    case 6:
      one_in(2) ? add(Verb::close, {0}) : add(Verb::kill, {});
      add(Verb::rescue, {0});
      return open_again();
    case 0:
      return add(Verb::other_opens, {store(), below(3)});
    case 1:
      return add(Verb::forge, {store(), below(1u << 30)});
    case 2: {
      const N to = below(kCopies);
      add(Verb::copy, {0, to});
      if (one_in(2)) return;
      // A copy of files in use: more is written, and then the copy is put back.
      for (N n = 1 + below(8); n > 0; --n) one_in(2) ? large() : write();
      end_of_life();
      add(Verb::restore, {0, to, below(4)});
      return open_again();
    }
    case 3:
      end_of_life();
      add(Verb::copy, {0, below(kCopies)});
      return open_again();
    case 4:
    case 5: {
      end_of_life();
      const N from = below(kCopies);
      const N journal = one_in(3) ? 0 : 1 + below(3);
      add(Verb::restore, {0, from, journal});
      add(Verb::open, {0, 0});
      if (journal != 0 && !one_in(4)) {
        add(Verb::close, {0});
        add(Verb::restore, {0, from, 0});
      }
      return open_again();
    }
    default:
      end_of_life();
      return open_again();
  }
}

// Memory is refused to the first call that needs the heap after an open.
void Maker::first_fails() {
  add(Verb::fail_alloc, {1 + below(one_in(2) ? 8 : 40)});
  const unsigned thread = thread_;
  for (N i = below(3); i >= 0; --i) {
    one_in(8) ? transaction() : one_in(8) ? upkeep() : one_in(3) ? objects() : write();
    story_.steps.back().thread = thread;
  }
}

void Maker::fault() {
  if (system_faults_ && one_in(3)) {
    return add(Verb::fail_call, {1 + below(30), below(3), one_in(3)});
  }
  add(Verb::fail_alloc, {1 + below(one_in(3) ? 60 : one_in(3) ? 600 : 10)});
  const unsigned thread = thread_;
  switch (below(8)) {
    case 0:
      moment();
      break;
    case 1:
      transaction();
      break;
    case 2:
      cursor();
      break;
    case 3:
      making();
      break;
    case 4:
      read();
      break;
    case 5:
      many();
      break;
    default:
      write();
  }
  story_.steps.back().thread = thread;
}

bool read_groups(const std::string& names, std::uint64_t& bits) {
  bits = 0;
  for (std::size_t from = 0; from < names.size();) {
    const std::size_t to = std::min(names.find(',', from), names.size());
    unsigned g = 0;
    while (g < Group::kGroups && names.substr(from, to - from) != kGroupNames[g]) ++g;
    if (g == Group::kGroups) return false;
    bits |= 1ull << g;
    from = to + 1;
  }
  return true;
}

std::string group_names() {
  std::string names;
  for (const char* name : kGroupNames) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

Story make_story(std::uint64_t seed, const Wanted& wanted) { return Maker(seed, wanted).make(); }

}  // namespace tenuto::life

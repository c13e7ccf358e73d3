#include "support/tx_world.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "support/explored_medium.h"
#include "tenuto/p.h"

namespace tenuto::test {

namespace {

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  o.heap.morph_occupancy = 0.3;  // of the world's slab, with two more blocks
  return on_explored_medium(o);
}

constexpr std::uint64_t kTypes = 3;

// What a step's choice number selects.
struct Picks {
  explicit Picks(std::uint64_t choice)
      : a(choice % World::kWords),
        b((choice >> 8) % World::kWords),
        d((choice >> 16) % World::kDests),
        tag(choice >> 20 | 1) {}
  std::size_t a, b, d;
  std::uint64_t tag;
  std::size_t spaced(std::size_t i) const { return (a + 7 * i) % World::kWords; }
};

}  // namespace

void WorldState::apply(Op op, std::uint64_t choice) {
  const Picks p(choice);
  switch (op) {
    case Op::transfer:
      word[p.a] += 5;
      word[p.b] -= 5;
      break;
    case Op::one_by_one:
      for (std::size_t i = 0; i < 3; ++i) word[p.spaced(i)] += i + 1;
      break;
    case Op::replace:
      word[p.a] += 1;
      tag[p.d] = p.tag;
      type[p.d] = 0;
      break;
    case Op::link:
    case Op::late_link:
    case Op::link_page:
    case Op::link_large:
      tag[p.d] = p.tag;
      type[p.d] = 0;
      break;
    case Op::link_typed:
    case Op::link_typed_large:
      tag[p.d] = p.tag;
      type[p.d] = 1 + p.tag / 2 % kTypes;
      break;
    case Op::unlink:
      tag[p.d] = 0;
      type[p.d] = 0;
      break;
    case Op::cancel:
      word[p.a] += 1;
      break;
    case Op::batch:
      for (std::size_t i = 0; i < World::kWords; i += 2) word[i] += 1;
      break;
    case Op::overflow:
      spread += 1;
      break;
    case Op::field_stores:
    case Op::field_mixed:
      for (std::size_t i = 0; i < 3; ++i) word[p.spaced(i)] += i + 3;
      break;
    case Op::field_link:
      word[p.a] += 2;
      tag[p.d] = p.tag;
      type[p.d] = 0;
      break;
    case Op::field_many:
      spread += 1;
      break;
    case Op::link_many:
      many = p.tag;
      break;
    case Op::unlink_many:
      many = 0;
      break;
    case Op::append:
      used += 1;
      break;
    case Op::abort_stores:
    case Op::abort_early:
    case Op::abort_overflow:
    case Op::abort_fields:
    case Op::abort_append:
    case Op::cancel_many:
    case Op::drain:
    case Op::sparse:
      break;
  }
}

bool WorldState::shown_by(const World& w) const {
  const auto shows = [](const Ptr<std::uint64_t>& p, std::uint64_t t) {
    return p ? *p == t : t == 0;
  };
  for (std::size_t i = 0; i < World::kWords; ++i) {
    if (w.word[i] != word[i]) return false;
  }
  for (std::size_t d = 0; d < World::kDests; ++d) {
    if (!shows(w.dest[d], tag[d])) return false;
  }
  for (const auto& p : w.many) {
    if (!shows(p, many)) return false;
  }
  for (const auto& s : w.spread) {
    if (s.word != spread) return false;
  }
  for (std::size_t i = 0; i < used; ++i) {
    if (w.slot[i] != i * 7 + 1) return false;
  }
  return w.used == used;
}

namespace {

Status put(Transaction& tx, std::uint64_t& word, std::uint64_t value) {
  TENUTO_TRY(tx.add(word));
  word = value;
  return Status::ok;
}

// Frees the block of dest, and makes one with this tag, unless the tag is 0.
Status set_dest(Transaction& tx, Ptr<std::uint64_t>& dest, std::uint64_t bytes, std::uint64_t tag,
                bool add_first, std::uint64_t type = 0) {
  if (add_first) TENUTO_TRY(tx.add(dest));
  if (dest) TENUTO_TRY(tx.destroy(dest.get()));
  std::uint64_t* block = nullptr;
  if (tag != 0) {
    const Result<void*> fresh = tx.alloc(bytes, {.type = type});
    if (!fresh) return fresh.error();
    block = static_cast<std::uint64_t*>(*fresh);
    *block = tag;
  }
  TENUTO_TRY(tx.add(dest));
  dest = block;
  return Status::ok;
}

Status cancel(Transaction& tx, std::size_t count, std::uint64_t bytes) {
  std::vector<void*> made;
  for (std::size_t i = 0; i < count; ++i) {
    const Result<void*> block = tx.alloc(bytes);
    if (!block) return block.error();
    made.push_back(*block);
  }
  for (void* block : made) TENUTO_TRY(tx.free(block));
  return Status::ok;
}

Status add_spread(Transaction& tx, World& w, std::uint64_t more) {
  for (auto& s : w.spread) TENUTO_TRY(tx.add_later(s.word));
  TENUTO_TRY(tx.ready());
  for (auto& s : w.spread) s.word += more;
  return Status::ok;
}

constexpr std::uint64_t kLargeBytes = 20'000;

// The same bytes as fields.
using Field = p<std::uint64_t>;
Field& field(std::uint64_t& word) { return reinterpret_cast<Field&>(word); }
p<std::uint64_t*>& field(Ptr<std::uint64_t>& dest) {
  return reinterpret_cast<p<std::uint64_t*>&>(dest);
}

Status field_link(Transaction& tx, World& w, const Picks& at, const WorldState& after) {
  const Result<void*> fresh = tx.alloc(64);
  if (!fresh) return fresh.error();
  p<std::uint64_t*>& dest = field(w.dest[at.d]);
  if (dest.get() != nullptr) TENUTO_TRY(tx.free(dest.get()));
  auto* const block = static_cast<std::uint64_t*>(*fresh);
  field(*block) = after.tag[at.d];
  dest = block;
  if (dest.get() != block || *dest.get() != after.tag[at.d]) return Status::corrupt;
  field(w.word[at.a]) = after.word[at.a];
  return Status::ok;
}

// The slot is stored at once, before the fence of any entry.
Status append(Transaction& tx, World& w) {
  TENUTO_TRY(tx.overwrite(&w.slot[w.used], sizeof w.slot[0]));
  w.slot[w.used] = w.used * 7 + 1;
  field(w.used) += 1;
  return Status::ok;
}

Status body(Transaction& tx, World& w, Op op, std::uint64_t choice, const WorldState& after) {
  const Picks p(choice);
  switch (op) {
    case Op::transfer:
      TENUTO_TRY(tx.add_later(w.word[p.a]));
      TENUTO_TRY(tx.add_later(w.word[p.b]));
      TENUTO_TRY(tx.ready());
      w.word[p.a] = after.word[p.a];
      w.word[p.b] = after.word[p.b];
      return Status::ok;
    case Op::one_by_one:
      for (std::size_t i = 0; i < 3; ++i) {
        TENUTO_TRY(put(tx, w.word[p.spaced(i)], after.word[p.spaced(i)]));
      }
      return Status::ok;
    case Op::replace:
      TENUTO_TRY(set_dest(tx, w.dest[p.d], 100, after.tag[p.d], false));
      return put(tx, w.word[p.a], after.word[p.a]);
    case Op::link:
    case Op::unlink:
      return set_dest(tx, w.dest[p.d], 64, after.tag[p.d], false);
    case Op::late_link:
      return set_dest(tx, w.dest[p.d], 64, after.tag[p.d], true);
    case Op::link_page:
      return set_dest(tx, w.dest[p.d], 4096, after.tag[p.d], false);
    case Op::link_large:
      return set_dest(tx, w.dest[p.d], kLargeBytes, after.tag[p.d], false);
    case Op::link_typed:
    case Op::link_typed_large: {
      const std::uint64_t bytes = op == Op::link_typed ? 64 : kLargeBytes;
      return set_dest(tx, w.dest[p.d], bytes, after.tag[p.d], false, after.type[p.d]);
    }
    case Op::link_many:
    case Op::unlink_many:
      for (auto& dest : w.many) TENUTO_TRY(set_dest(tx, dest, kLargeBytes, after.many, false));
      return Status::ok;
    case Op::cancel:
      TENUTO_TRY(put(tx, w.word[p.a], after.word[p.a]));
      return cancel(tx, 1, 64);
    case Op::batch:
      for (std::size_t i = 0; i < World::kWords; i += 2) TENUTO_TRY(tx.add_later(w.word[i]));
      TENUTO_TRY(tx.ready());
      for (std::size_t i = 0; i < World::kWords; i += 2) w.word[i] = after.word[i];
      return Status::ok;
    case Op::overflow:
      return add_spread(tx, w, 1);
    case Op::abort_stores:
      TENUTO_TRY(put(tx, w.word[p.a], 1234567));
      TENUTO_TRY(set_dest(tx, w.dest[p.d], 64, 7654321, false, choice % 2));
      TENUTO_TRY(put(tx, w.word[p.b], 2345678));
      return Status::aborted;
    case Op::abort_early: {
      TENUTO_TRY(tx.add_later(w.word[p.a]));
      const Result<void*> block = tx.alloc(64);
      return block ? Status::aborted : block.error();
    }
    case Op::abort_overflow:
      TENUTO_TRY(add_spread(tx, w, 1000));
      return Status::aborted;
    case Op::field_stores:
      field(w.word[p.spaced(0)]) = 99;
      for (std::size_t i = 0; i < 3; ++i) field(w.word[p.spaced(i)]) = after.word[p.spaced(i)];
      return field(w.word[p.spaced(0)]) == after.word[p.spaced(0)] ? Status::ok : Status::corrupt;
    case Op::field_link:
      return field_link(tx, w, p, after);
    case Op::field_mixed:
      field(w.word[p.spaced(0)]) = after.word[p.spaced(0)];
      TENUTO_TRY(put(tx, w.word[p.spaced(1)], after.word[p.spaced(1)]));
      if (w.word[p.spaced(0)] != after.word[p.spaced(0)]) return Status::corrupt;
      field(w.word[p.spaced(2)]) = after.word[p.spaced(2)];
      return Status::ok;
    case Op::field_many:
      for (auto& s : w.spread) field(s.word) += 1;
      return Status::ok;
    case Op::abort_fields:
      field(w.word[p.a]) = 1234567;
      TENUTO_TRY(field_link(tx, w, p, after));
      field(w.word[p.b]) = 2345678;
      if (choice % 2 == 0) TENUTO_TRY(tx.ready());
      return Status::aborted;
    case Op::append:
      return append(tx, w);
    case Op::abort_append:
      TENUTO_TRY(append(tx, w));
      w.slot[w.used] = 99;
      if (w.used == 0) return Status::aborted;
      TENUTO_TRY(tx.add_later(w.slot[w.used - 1]));
      TENUTO_TRY(tx.overwrite(&w.slot[w.used - 1], sizeof w.slot[0]));
      w.slot[w.used - 1] = 99;
      return Status::aborted;
    case Op::cancel_many:
    case Op::drain:
    case Op::sparse:
      return Status::ok;
  }
  return Status::ok;
}

Status perform(TxParts& p, World& w, Op op, std::uint64_t choice, const WorldState& after) {
  if (op == Op::drain) {
    p.engine->mine().drain();
    p.engine->mine().trim(0);
    return Status::ok;
  }
  if (op == Op::sparse) {
    const auto none = p.heap->reserve(p.file->bytes() - (1u << 20), heap::Kind::logged);
    return !none && none.error() == Status::full ? Status::ok : Status::invalid_argument;
  }
  const Status s = p.run([&](Transaction& tx) { return body(tx, w, op, choice, after); });
  return s == Status::aborted && after.shown_by(w) ? Status::ok : s;
}

}  // namespace

// A thread with its own lane that runs one function at a time for the main thread.
class TxCrash::Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker() {
    run({});
    thread_.join();
  }
  void run(std::function<void()> f) {
    std::unique_lock lock(mu_);
    task_ = std::move(f);
    given_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !given_; });
  }

 private:
  void loop() {
    for (bool more = true; more;) {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return given_; });
      more = static_cast<bool>(task_);
      if (more) task_();
      given_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool given_ = false;
  std::thread thread_;
};

void TxCrash::setup(const std::string& path) {
  TxParts p;
  ASSERT_EQ(p.create(path, tiny()), Status::ok) << p.report.text();
  p.make_root<World>(0);
  ASSERT_EQ(p.close(), Status::ok);
}

void TxCrash::workload(CrashContext& c) const {
  c.update([&] { states_.assign(1, WorldState{}); });
  TxParts p;
  ASSERT_EQ(p.open(c.path(), tiny()), Status::ok) << p.report.text();
  World& w = p.get_root<World>(0);
  std::mt19937_64 rng(seed_);
  p.engine->mine();  // gives the main thread the first lane
  {
    Worker worker;
    const auto step = [&](const Step& s) {
      const std::uint64_t choice = rng();
      WorldState after = states_.back();
      after.apply(s.op, choice);
      c.update([&] { states_.push_back(after); });
      c.invoke();
      const auto work = [&] { EXPECT_EQ(perform(p, w, s.op, choice, after), Status::ok); };
      if (s.lane == 0) {
        work();
      } else {
        worker.run(work);
      }
      c.ack();
    };
    for (std::size_t i = 0; i < script_.size(); ++i) {
      if (script_[i].op != Op::cancel_many) {
        step(script_[i]);
        continue;
      }
      Transaction tx(p.engine->mine());
      ASSERT_EQ(cancel(tx, World::kMany, kLargeBytes), Status::ok);
      step(script_.at(++i));  // REQUIRES: the step is on the other lane
      ASSERT_EQ(tx.commit(), Status::ok);
    }
  }
  ASSERT_EQ(p.close(), Status::ok);
}

namespace {
// A walk by type shows exactly the blocks of the state.
bool types_are_right(TxParts& p, const World& w, const WorldState& state) {
  for (std::uint64_t type = 1; type <= kTypes; ++type) {
    std::vector<PoolOffset> want, shown;
    for (std::size_t d = 0; d < World::kDests; ++d) {
      if (state.type[d] == type) want.push_back(p.file->offset_of(w.dest[d].get()));
    }
    std::sort(want.begin(), want.end());
    for (PoolOffset o = p.heap->find_typed({0}, type); o; o = p.heap->find_typed(o + 1, type)) {
      shown.push_back(o);
    }
    if (shown != want) return false;
  }
  return true;
}
}  // namespace

std::string TxCrash::check_blocks(TxParts& p, const World& w, const WorldState& state) const {
  std::size_t named = 1;
  const auto missing = [&](const Ptr<std::uint64_t>& dest) {
    if (!dest) return false;
    named += 1;
    return !p.heap->find_allocated(p.file->offset_of(dest.get()));
  };
  for (const auto& dest : w.dest) {
    if (missing(dest)) return "a reachable block is free";
  }
  for (const auto& dest : w.many) {
    if (missing(dest)) return "a reachable block is free";
  }
  if (p.allocated_blocks().size() != named) return "a block leaked";
  if (!types_are_right(p, w, state)) return "other blocks of a type than there are";
  if (p.heap->validate(&p.report) != Status::ok) return "heap: " + p.report.text();
  if (p.engine->validate(&p.report) != Status::ok) return "tx: " + p.report.text();
  return {};
}

// The recovered pool works, and the next open does not undo that.
std::string TxCrash::use_again(TxParts& p, const CrashImage& image, const WorldState& found) const {
  const std::uint64_t choice = seed_ * 0x9e3779b97f4a7c15u;
  WorldState after = found;
  for (const Op op : {Op::transfer, Op::replace}) {
    after.apply(op, choice);
    if (perform(p, p.get_root<World>(0), op, choice, after) != Status::ok) {
      return "a transaction after recovery failed";
    }
  }
  p.crash();
  if (p.open(image.path(), tiny()) != Status::ok) return "open again: " + p.report.text();
  const World& w = p.get_root<World>(0);
  if (!after.shown_by(w)) return "a later open changed the world";
  if (std::string e = check_blocks(p, w, after); !e.empty()) return "later open: " + e;
  return p.close() == Status::ok ? "" : "close failed";
}

std::string TxCrash::check(const CrashImage& image) const {
  TxParts p;
  if (p.open(image.path(), tiny()) != Status::ok) return "open: " + p.report.text();
  const World& w = p.get_root<World>(0);
  const WorldState* found = nullptr;
  for (std::size_t n = image.acknowledged(); n <= image.invoked(); ++n) {
    if (states_.at(n).shown_by(w)) found = &states_[n];
  }
  if (found == nullptr) return "the world after no number of steps";
  if (std::string e = check_blocks(p, w, *found); !e.empty()) return e;
  image.recovered();
  return use_again(p, image, *found);
}

CrashResult TxCrash::run(CrashOptions options) const {
  options.seed = seed_;
  return CrashRunner(options).run(
      setup, [this](CrashContext& c) { workload(c); },
      [this](const CrashImage& i) { return check(i); });
}

}  // namespace tenuto::test

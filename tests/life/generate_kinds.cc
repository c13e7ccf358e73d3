// Kinds of lives: their favourite calls, how few things they use, and how their steps follow each
// other. All kinds are general: another kind may find what one of them finds soonest.
#include "maker.h"

namespace tenuto::life {
namespace {

constexpr const char* kKindNames[] = {"any", "whole", "few", "meetings", "places", "pools", "held"};
static_assert(std::size(kKindNames) == static_cast<std::size_t>(Kind::kKinds));

}  // namespace

const char* name_of(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

void Maker::draw_kind(Kind kind) {
  if (kind == Kind::any) {
    static constexpr Kind kDrawn[] = {Kind::whole, Kind::whole, Kind::pools,  Kind::few,
                                      Kind::few,   Kind::held,  Kind::places, Kind::few};
    kind = kDrawn[random_.below(std::size(kDrawn))];
    if (kind == Kind::few && story_.at_once) kind = Kind::meetings;
  }
  switch (kind) {
    case Kind::few:
      return draw_few();
    case Kind::meetings:
      return draw_meetings();
    case Kind::places:
      return draw_places();
    case Kind::pools:
      return draw_pools();
    case Kind::held:
      return draw_held();
    default:
      return;
  }
}

void Maker::draw_few() {
  static constexpr unsigned kMeet[] = {
      Group::kMany,         Group::kMaking,       Group::kMaking,
      Group::kBulk,         Group::kMoments,      Group::kMoments,
      Group::kTransactions, Group::kTransactions, Group::kMakingInTransactions,
      Group::kCursors,      Group::kCursors,      Group::kUpkeep,
      Group::kTime};
  fond_ = {};
  fond_[Group::kWrites] = 2 + random_.below(3);
  fond_[Group::kReads] = random_.below(2);
  for (std::uint64_t i = 2 + random_.below(3); i > 0; --i) {
    fond_[kMeet[random_.below(std::size(kMeet))]] += 2 + random_.below(4);
  }
  if (one_in(4)) fond_[Group::kEnds] = 1;
  if (one_in(4)) fond_[Group::kFaults] = 1 + random_.below(2);
  narrow_ = true;
  two_stores_ = false;
  hot_ = one_in(3) ? 4 + random_.below(60) : 2 + random_.below(6);
  near_ = 1 + random_.below(40);
  slots_ = 2 + random_.below(2);
  names_ = 2;
  handles_ = 1 + random_.below(2);
  length_ = 60 + random_.below(140);
  story_.snapshot_bytes_max = 0;
}

void Maker::draw_meetings() {
  draw_few();
  if (story_.threads < 2) story_.threads = 2 + static_cast<unsigned>(below(2));
  story_.at_once = true;
  story_.gusts_us = 50 + random_.below(1000);
  fond_[Group::kEnds] = 0;
  // A collection that comes and goes, because most other calls can meet that.
  if (one_in(2)) fond_[Group::kMaking] += 3;
  if (one_in(2)) {
    fond_[Group::kTransactions] += 2;
    fond_[Group::kMakingInTransactions] += random_.below(3);
  } else if (one_in(2)) {
    fond_[Group::kTransactions] = 0;
    fond_[Group::kMakingInTransactions] = 0;
    fond_[Group::kMoments] += 3;
    fond_[Group::kBulk] += random_.below(4);
  }
  if (one_in(3)) fond_[Group::kScans] += 1;
  meets_ = true;
  length_ = 200 + random_.below(400);
}

void Maker::draw_places() {
  fond_ = {};
  fond_[Group::kWrites] = 4;
  fond_[Group::kMany] = random_.below(2);
  fond_[Group::kLarge] = random_.below(4);
  fond_[Group::kMaking] = random_.below(2);
  fond_[Group::kUpkeep] = 1;
  fond_[Group::kObjectCalls] = one_in(4) ? 1 : 0;
  fond_[Group::kEnds] = 1;
  fond_[Group::kFiles] = 2 + random_.below(2);
  story_.threads = 1;
  story_.at_once = false;
  story_.pool_bytes_max = 16u << 20;
  if (!one_in(4)) story_.sync_ms = 0;
  if (!one_in(4)) story_.reclaim_ms = 0;
  two_stores_ = false;
  paths_ = true;
  handles_ = 2;
  length_ = 40 + random_.below(80);
}

void Maker::draw_pools() {
  fond_ = {};
  fond_[Group::kObjectCalls] = 8;
  fond_[Group::kWrites] = 2;
  fond_[Group::kMany] = random_.below(2);
  fond_[Group::kUpkeep] = random_.below(2);
  fond_[Group::kThreads] = random_.below(2);
  fond_[Group::kForks] = one_in(4) ? 1 : 0;
  fond_[Group::kEnds] = 1 + random_.below(2);
  fond_[Group::kFaults] = one_in(3) ? 1 : 0;
  story_.side = 1;
  paths_ = false;
  handles_ = 2;
  length_ = 40 + random_.below(160);
}

void Maker::draw_held() {
  fond_ = {};
  fond_[Group::kWrites] = 4;
  fond_[Group::kMany] = 3;
  fond_[Group::kReads] = 1;
  fond_[Group::kUpkeep] = 2;
  fond_[Group::kCursors] = random_.below(3);
  fond_[Group::kViews] = random_.below(3);
  fond_[Group::kThreads] = random_.below(2);
  fond_[Group::kMaking] = random_.below(2);
  if (one_in(4)) fond_[Group::kMoments] = 1;
  if (one_in(4)) fond_[Group::kTransactions] = 1;
  story_.threads = 2 + static_cast<unsigned>(below(kThreadsMax - 1));
  story_.at_once = false;
  story_.pool_bytes_max = 8u << 20;
  story_.reclaim_ms = 0;
  two_stores_ = false;
  narrow_ = true;
  hot_ = 4 + random_.below(200);
  handles_ = 1 + random_.below(3);
  slots_ = 2 + random_.below(3);
  weight_ = 100 + random_.below(one_in(2) ? 4000 : 400);
  length_ = 60 + random_.below(160);
}

// A transaction as in programs: it reads, by keys or with a cursor; others write; it writes, and
// commits.
void Maker::visit(bool ends) {
  const N x = transaction_slot(), i = cursor_slot();
  const bool walks = one_in(fond_[Group::kCursors] != 0 ? 2 : 4);
  const bool makes = fond_[Group::kMakingInTransactions] != 0 && one_in(2);
  const unsigned thread = thread_;
  standing().transaction[x] = true;
  add(Verb::begin, {store(), x, 0});
  if (walks) {
    const N c = slot();
    standing().cursor[i] = true;
    add(Verb::cursor, {i, 2, x, c, 0, 0});
    add(one_in(2) ? Verb::seek_first : one_in(2) ? Verb::seek_last : Verb::seek, {i, key()});
  }
  const auto read_some = [&] {
    for (N n = below(5); n > 0; --n) {
      if (walks) {
        add(one_in(2) ? Verb::next : Verb::prev, {i, one_in(5) ? 100 : 1 + below(2)});
      } else {
        add(Verb::tx_get, {x, slot(), key()});
      }
    }
  };
  const auto write_some = [&] {
    for (N n = 1 + below(2); n > 0; --n) {
      if (makes) {
        one_in(2) ? add(Verb::tx_drop, {x, made_slot()})
                  : add(Verb::tx_create, {x, made_slot(), name(), encoding()});
      }
      if (!makes || one_in(2)) {
        one_in(4) ? add(Verb::tx_erase, {x, slot(), key()})
                  : add(Verb::tx_put, {x, slot(), key(), length(), ttl()});
      }
    }
  };
  read_some();
  if (one_in(3)) write_some();
  if (ends) {
    thread_ = static_cast<unsigned>(below(story_.threads));
    for (N n = below(3); n > 0; --n) {
      fond_[Group::kMaking] != 0 && one_in(3) ? making() : write();
    }
    thread_ = thread;
  }
  read_some();
  write_some();
  if (!ends) return;
  standing().transaction[x] = false;
  add(Verb::commit, {x, buffered()});
}

// Takes a snapshot, and then erases or replaces what it shows.
void Maker::era() {
  const N s = store(), c = slot(), from = key(), count = 1 + below(50);
  add(Verb::fill, {s, c, from, count, length()});
  const N n = snapshot_slot();
  snapshot_stands(n) = true;
  add(Verb::snapshot, {s, n});
  one_in(2) ? add(Verb::erase_range, {s, c, -1, -1})
            : add(Verb::fill, {s, c, from, count, length()});
}

// Collections come back. Then each thread makes calls by itself, one after the other. Then all
// threads make calls at once.
void Maker::meeting() {
  focus_.left = 0;
  look_elsewhere();
  focus_.left = 60;
  const bool visits = fond_[Group::kTransactions] != 0 && !one_in(3);
  thread_ = static_cast<unsigned>(below(story_.threads));
  for (N c = 1; c < static_cast<N>(slots_); ++c) {
    if (one_in(2)) add(Verb::create, {0, c, c, 1});
    if (one_in(4)) add(Verb::fill, {0, c, key(), 1 + below(40), 30});
    if (one_in(4)) add(Verb::erase_range, {0, c, -1, -1});
  }
  add(Verb::meet, {});
  for (unsigned t = 0; t < story_.threads; ++t) {
    thread_ = t;
    if (fond_[Group::kMoments] != 0 && !visits && one_in(2)) era();
    for (N i = below(4); i > 0; --i) call(group());
    add(Verb::meet, {});
  }
  // What a transaction reads now is still so when the threads meet.
  for (unsigned t = 0; t < story_.threads; ++t) {
    thread_ = t;
    if (visits && !one_in(4)) visit(false);
    add(Verb::meet, {});
  }
  for (unsigned t = 0; t < story_.threads; ++t) {
    thread_ = t;
    const N x = transaction_slot(), n = snapshot_slot();
    if (standing().transaction[x] && !one_in(4)) {
      standing().transaction[x] = false;
      add(Verb::commit, {x, buffered()});
    } else if (snapshot_stands(n) && !one_in(3)) {
      snapshot_stands(n) = false;
      add(Verb::snap_release, {n});
    } else {
      call(group());
    }
    for (N i = below(3); i > 0; --i) {
      thread_ = t;
      one_in(2) ? read() : call(group());
    }
  }
  add(Verb::meet, {});
  if (one_in(3)) add(Verb::look, {0});
  if (one_in(8)) add(Verb::validate, {0});
}

bool read_kind(const std::string& name, Kind& kind) {
  for (std::size_t i = 0; i < std::size(kKindNames); ++i) {
    if (name != kKindNames[i]) continue;
    kind = static_cast<Kind>(i);
    return true;
  }
  return false;
}

}  // namespace tenuto::life

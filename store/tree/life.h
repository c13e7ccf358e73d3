// Whether a collection exists: one word for each collection. Every call reads it (CollectionUse).
// Commits and batches read it again under their locks (batch.cc). The code that makes and drops
// collections writes it (collections.cc, catalog_changes.cc).
//
// **Where a drop is in the order of all changes.** A drop is a change of the catalog. Its place in
// the order is its load of the version store's word (versions.h). Call that load d. The dropping
// thread
// 1. stores `dropping`, the announcement;
// 2. loads the word (d) and changes the catalog durably;
// 3. stores the outcome: `dropped`, or `open` when the drop failed.
//
// Every other call is either before the drop or after it:
// - A read that finds `open` asked before the announcement, hence before d. So it began before the
//   drop ended, and may be ordered before it.
// - A read that finds `dropping` cannot know the outcome. It waits for it, as a reader waits for a
//   locked leaf. The dropping thread waits for no reader.
// - A snapshot whose addition came after d sees what the drop's batch wrote. It asks after its
//   addition, so it does not find `open`: it sees all of the drop. A snapshot whose addition came
//   before d finds nothing left of the collection. A transaction that sees this cannot commit
//   (TransactionState::met).
// - A commit that read the collection, or writes to it, asks again under its locks, after its own
//   load c. If it finds `open`, the announcement comes later and d later still: c < d. Otherwise it
//   returns conflict at once. It must not wait, because the dropping thread may wait for its locks.
// - Every other write asks again under its leaf's lock, after its load (Tree::still_there). If it
//   finds `open`, it has its lock before the dropping transaction validates its own reads. That
//   validation then finds the lock or the change. So what a transaction read in a collection that
//   it drops was not written in between. Otherwise the write unlocks the leaf and waits for the
//   outcome.
//
// **A close** ends all of them (shut). A write finds that under its leaf's lock, as it finds a
// drop; a read, after it was pinned. Calls that began before are waited for (PoolCall, epoch.h).
// The store opens them again when the close cannot begin.
//
// A collection that a transaction has made is `unborn` until the commit: it exists for that
// transaction only. All loads and stores of the state are sequentially consistent. Such a load
// costs as much as a plain one.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "pm/plant.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

class CollectionLife {
 public:
  // ok | not_found | closed. ok: a collection that can be dropped stays usable while the caller's
  // epoch lasts, if the caller pinned it before. May wait for a drop's outcome. REQUIRES: the
  // caller has locked no leaf.
  Status alive() const {
    const State now = state_.load(std::memory_order_seq_cst);
    return now == State::open ? Status::ok : when_decided(now);
  }
  // The same for the transaction that makes the collection.
  Status alive_to_maker() const {
    return state_.load(std::memory_order_seq_cst) == State::unborn ? Status::ok : alive();
  }
  // For a commit under its locks: no drop is announced. Never waits.
  bool is_open() const { return state_.load(std::memory_order_seq_cst) == State::open; }

  // Of a dropped collection: whether a snapshot with this timestamp may be older than the drop, and
  // may have seen the collection.
  bool dropped_after(std::uint64_t timestamp) const {
    return timestamp < drop_clock_.load(std::memory_order_relaxed);
  }

  // These REQUIRE the collections' lock.
  void unborn() {
    if (!TENUTO_PLANT("store_unborn_is_there")) set(State::unborn);
  }
  void born() { set(State::open); }
  void begin_drop() {
    if (!TENUTO_PLANT("store_drop_unannounced")) set(State::dropping);
  }
  // `clock`: of the version store, read after the drop's own load.
  void dropped(std::uint64_t clock) {
    drop_clock_.store(clock, std::memory_order_relaxed);
    set(State::dropped);
  }
  // The drop failed and changed nothing. After dropped() this does nothing.
  void end_drop() { change(State::dropping, State::open); }
  void closed() { set(State::closed); }
  // For the beginning of a close, and for one that could not begin.
  void shut() { change(State::open, State::closed); }
  void reopen() { change(State::closed, State::open); }

 private:
  enum class State : std::uint8_t { open, unborn, dropping, dropped, closed };

  void set(State s) { state_.store(s, std::memory_order_seq_cst); }
  void change(State from, State to) {
    state_.compare_exchange_strong(from, to, std::memory_order_seq_cst);
  }

  Status when_decided(State now) const {
    for (; now == State::dropping; now = state_.load(std::memory_order_seq_cst)) {
      std::this_thread::yield();
    }
    if (now == State::open) return Status::ok;
    return now == State::closed ? Status::closed : Status::not_found;
  }

  std::atomic<State> state_{State::open};
  std::atomic<std::uint64_t> drop_clock_{0};  // stored before `dropped`
};

// From the announcement of a drop to its outcome. Without a call of dropped() the collection stays.
class Dropping {
 public:
  explicit Dropping(CollectionLife& life) : life_(life) { life_.begin_drop(); }
  ~Dropping() { life_.end_drop(); }
  Dropping(const Dropping&) = delete;
  Dropping& operator=(const Dropping&) = delete;

 private:
  CollectionLife& life_;
};

}  // namespace TENUTO_NS::store

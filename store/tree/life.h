// Whether a collection is there. One word for each, asked by every call (CollectionUse), by commits
// and batches (batch.cc), and changed by what makes collections go (collections.cc).
//
// A drop is a change of the catalog, and has its place in the order of all changes by its load of
// the history's word (versions.h): let d be that moment. Whoever drops says so before d
// (`dropping`) and says what became of it when the change is durable, so:
//   - A read that finds `open` asked before the dropper said so, hence before d, or began before
//     the drop ended: it may come before the drop. What finds `dropping` cannot know, and waits;
//     the wait is that of a reader at a locked leaf, and its dropper waits for no reader.
//   - A snapshot whose addition came after d sees what the dropper's batch wrote, and finds the
//     collection on its way out, for it asks after the addition: both or neither. A snapshot that
//     came before d finds nothing left of the collection; a transaction that meets that ends.
//   - A commit that read a collection, or writes to it, asks again after its own load c, holding
//     locks. `open`: the dropper says so later, and loads later: c < d. Else it is a conflict at
//     once, for the dropper may wait for its locks.
//   - So does every other write, after its load and under its leaf's lock (Tree::still_there). One
//     that finds `open` has its lock before the dropper validates what it read itself, which then
//     meets the lock or the change: what a transaction read in a collection that it drops was not
//     written between. Else it lets go of the leaf, and waits for what becomes of the drop.
//
// A collection that a transaction has made is `unborn` until its commit: there for its maker alone.
// All of them are sequentially consistent, which costs a plain load where nobody writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "pm/plant.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

class CollectionLife {
 public:
  // ok | not_found | closed. Of a collection that can be dropped it is true while the caller's
  // epoch lasts, if that was pinned before. REQUIRES: no leaf is locked by the caller.
  Status alive() const {
    const State now = state_.load(std::memory_order_seq_cst);
    return now == State::open ? Status::ok : when_decided(now);
  }
  // The same for the transaction that makes it.
  Status alive_to_maker() const {
    return state_.load(std::memory_order_seq_cst) == State::unborn ? Status::ok : alive();
  }
  // For a commit under its locks: nobody has said that it goes.
  bool is_open() const { return state_.load(std::memory_order_seq_cst) == State::open; }

  // Of a dropped one: whether a snapshot of this moment may be older than the drop, and have seen
  // the collection.
  bool dropped_after(std::uint64_t timestamp) const {
    return timestamp < drop_clock_.load(std::memory_order_relaxed);
  }

  // REQUIRES: the collections' lock, for these.
  void unborn() {
    if (!TENUTO_PLANT("store_unborn_is_there")) set(State::unborn);
  }
  void born() { set(State::open); }
  void begin_drop() {
    if (!TENUTO_PLANT("store_drop_unannounced")) set(State::dropping);
  }
  // `clock`: the history's, later than the drop's own load.
  void dropped(std::uint64_t clock) {
    drop_clock_.store(clock, std::memory_order_relaxed);
    set(State::dropped);
  }
  // The drop failed, having changed nothing; a no-op after dropped().
  void end_drop() {
    State expected = State::dropping;
    state_.compare_exchange_strong(expected, State::open, std::memory_order_seq_cst);
  }
  void closed() { set(State::closed); }

 private:
  enum class State : std::uint8_t { open, unborn, dropping, dropped, closed };

  void set(State s) { state_.store(s, std::memory_order_seq_cst); }

  Status when_decided(State now) const {
    for (; now == State::dropping; now = state_.load(std::memory_order_seq_cst)) {
      std::this_thread::yield();
    }
    if (now == State::open) return Status::ok;
    return now == State::closed ? Status::closed : Status::not_found;
  }

  std::atomic<State> state_{State::open};
  std::atomic<std::uint64_t> drop_clock_{0};  // before `dropped`
};

// From the announcement of a drop to its end. What was not dropped() meanwhile stays.
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

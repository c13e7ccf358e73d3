// The process that will be killed. It opens the pool, reports what it finds, waits for the judge,
// and then works in threads until it is killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "crash_kill.h"
#include "crash_kill_state.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/transaction.h"

namespace tenuto::tool {

inline constexpr int kKillExitFailed = 3;

// The orders for one child.
struct KillOrder {
  std::string path;
  Medium medium = Medium::automatic;
  std::uint64_t seed = 0;
  std::uint64_t pool_bytes = 0, pool_bytes_max = 0;
  std::uint32_t threads = 1;
  std::uint32_t engines = kEngineAll;
  KillMix mix = KillMix::uniform;
  bool emptying = false;  // mix fill: mostly erases instead of mostly puts
  bool reopen = false;    // close and open once more before working
  KillBug bug = KillBug::none;
};

struct KillRng {
  std::uint64_t s;
  std::uint64_t operator()() { return kill_hash(s += 0x9e3779b97f4a7c15ull, 0); }
  std::uint64_t below(std::uint64_t n) { return (*this)() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
};

// The objects of the pool. A node's filling follows from its id.
struct KillNode {
  Ptr<KillNode> next;
  std::uint64_t id;
  std::uint64_t words;  // of filling, after this struct
  std::uint64_t filling(std::uint64_t i) const { return kill_hash(id, i); }
  std::uint64_t* at(std::uint64_t i) { return reinterpret_cast<std::uint64_t*>(this + 1) + i; }
};
struct KillChain {
  Ptr<KillNode> head;
  std::uint64_t count;
};
struct KillRoot {
  std::uint64_t balance[kBalances];
  KillChain chain[kChains];
  Ptr<std::uint64_t> slot[kPlainSlots];
  VPtr<std::uint64_t> versioned[kSlots - kPlainSlots];

  std::uint64_t* block(std::uint32_t i) const {
    return i < kPlainSlots ? slot[i].get() : versioned[i - kPlainSlots].get();
  }
};

class KillChild {
 public:
  KillChild(KillState& state, KillOrder order) : state_(state), order_(std::move(order)) {}
  [[noreturn]] void run();

 private:
  friend class KvWork;
  friend class ObjectWork;
  friend class HeapWork;

  [[noreturn]] void fail(const std::string& what);
  void check(Status s, const char* what) {
    if (s != Status::ok) fail(std::string(what) + ": " + status_name(s));
  }
  void open();
  void open_collections();
  void look();
  void look_at_keys(const Collection& collection);
  // The collection of a key.
  Collection& home_of(std::uint32_t key) { return collection_[state_.records->named(key) ? 1 : 0]; }
  void look_at_chains();
  void look_at_slots();
  void add_extent(const void* p, std::uint64_t bytes, const char* what);
  void wait_for_the_judge();
  [[noreturn]] void work(std::uint32_t thread);

  // One atomic step on cells. begin_step announces it before it starts.
  void begin_step(KillThreadLog& log, std::initializer_list<KillStep::Change> changes);
  void end_step(KillThreadLog& log);     // acknowledged: updates the model
  void cancel_step(KillThreadLog& log);  // nothing was done

  KillState& state_;
  const KillOrder order_;
  std::unique_ptr<Store> store_;
  Collection collection_[2];  // the default one, and a named one in reverse order
  KillRoot* root_ = nullptr;
  std::mutex cell_mu_[kSlotCells];       // of balances and chains
  std::atomic<bool> slot_held_[kSlots];  // initially false
  std::atomic<std::uint64_t> slot_bytes_ = 0;
};

class KvWork {
 public:
  KvWork(KillChild& child, std::uint32_t thread, std::uint64_t seed);
  bool room() const;  // in the log, for a whole batch
  void single();
  void batch();
  void compact();

 private:
  KillOp& announce(KillVerb verb, std::uint32_t key, std::uint64_t value, std::uint32_t batch);
  void acknowledge(KillOp& op, Status s);
  std::uint32_t draw_key();
  bool next_missing(std::uint32_t& key);
  void put_one(std::uint32_t key);
  std::uint64_t draw_value(std::uint64_t ticket);
  Status do_put(std::uint32_t key, std::uint64_t value);
  Status do_erase(std::uint32_t key);
  void do_get(KillOp& op);
  void sync();
  void note_got(KillOp& op, Status s, const std::string& got);
  std::vector<std::uint32_t> draw_keys();
  // Writes everything announced since `from`, atomically. With `only`, just the entries of that
  // collection.
  Status write_batch(std::uint32_t from, const Collection* only);
  Status write_transaction(std::uint32_t from);
  Status do_in(StoreTransaction& tx, KillOp& op);
  Status write_torn(std::uint32_t from);  // for the bugs torn_batch and parted_batch

  KillChild& child_;
  KillThreadLog& log_;
  KillRng rng_;
  const KillRecords& records_;
  std::uint32_t written_ = 0;
  std::uint32_t load_at_, load_step_;  // mix ycsb_a: the next key that may be missing
  std::string text_;
  std::string key_text_;
  std::unique_ptr<std::uint64_t[]> remembered_;  // for the bug stale_read
};

class ObjectWork {
 public:
  ObjectWork(KillChild& child, std::uint32_t thread, std::uint64_t seed);
  void one();

 private:
  void transfer();
  void push_or_pop();
  void move();
  Status pop(Transaction& tx, KillChain& chain);
  Status transfer_in(Transaction& tx, std::uint32_t from, std::uint32_t to);
  // Runs `body`, and sometimes aborts it at its end.
  template <class Body>
  void transaction(Body body);
  void begin(Transaction& tx, std::initializer_list<KillStep::Change> changes);

  KillChild& child_;
  KillThreadLog& log_;
  KillRng rng_;
};

class HeapWork {
 public:
  HeapWork(KillChild& child, std::uint32_t thread, std::uint64_t seed);
  void one();

 private:
  void allocate(std::uint32_t slot);
  void reserve(std::uint32_t slot);
  void release(std::uint32_t slot);
  void fill(std::uint32_t slot);
  // On versioned words: exchange two blocks; allocate or free three neighbours at once.
  void swap(std::uint32_t slot);
  void batch(std::uint32_t slot);
  // Runs f() while it holds all `slots`. Does nothing if another thread holds one of them.
  template <class F>
  void holding(std::initializer_list<std::uint32_t> slots, const F& f);
  std::uint64_t stamp_of(std::uint32_t slot) const { return child_.state_.cell[kSlotCells + slot]; }
  std::uint64_t draw_bytes();
  std::uint64_t draw_stamp(std::uint64_t bytes);

  KillChild& child_;
  KillThreadLog& log_;
  KillRng rng_;
};

// Keys and values are computed from numbers: a value from (key, version), its length from both.
const KillRecords& numbered_records();
// A chain's ids as one number, not counting its first `skip` nodes.
std::uint64_t kill_chain_state(const KillChain& chain, std::uint32_t skip = 0);
// A slot's stamp holds a number and the size in bytes; the block's words follow from the stamp.
void kill_fill_slot(std::uint64_t* block, std::uint64_t stamp);
inline std::uint64_t kill_stamp_bytes(std::uint64_t stamp) { return stamp & 0xfffff; }

}  // namespace tenuto::tool

// Threads that use every way into a store at once, and record what they did and saw for the
// isolation checker. They run transactions over lists and registers, with cursors and keys for
// update; snapshots; and single gets. They write single puts and batches of registers that only one
// thread writes, so that their order is known. Filler keys come and go in between, so that leaves
// split and vanish. isolation_stress (threads, and processes that are killed) and the crash
// explorer's scenario (kv_isolation_world.cc) use this.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/isolation.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {

// A thread's transactions as numbers, in memory that may outlive the process. A write is in the log
// before the store sees it. The outcome is added afterwards.
class TxnLog {
 public:
  // The words are zero, or hold the log of an earlier process.
  explicit TxnLog(std::span<std::uint64_t> words) : words_(words) {}

  // Returns false if the log is full.
  bool begin(std::uint64_t ticket);
  void add(TxnOp::Verb verb, std::uint32_t key, std::uint64_t value);
  void add(std::uint32_t key, const std::vector<std::uint64_t>& values);
  void end(std::uint64_t ticket, Txn::End how);

  // A transaction without an end counts as ended by `crash`, with unknown outcome.
  std::vector<Txn> read(std::uint32_t thread, std::uint64_t crash) const;

 private:
  static constexpr std::size_t kReserve = 16384;  // for the longest entry
  std::span<std::uint64_t> words_;
  std::size_t header_ = 0;
};

struct IsolationSize {
  std::uint32_t lists = 6, registers = 6, own = 4;  // own: of each thread
  std::uint32_t fillers = 60;                       // between each two keys
  std::uint32_t appends_max = 40;                   // of a list, then another list takes its place
  // Lists are in a collection with descending keys, own keys in another one, and registers in the
  // default one. Otherwise all are in the default one.
  bool collections = false;
};

class IsolationWork {
 public:
  // `clock` counts calls and returns, from 1. `counter` makes values, from 1.
  IsolationWork(Store& store, IsolationSize size, std::uint32_t thread, TxnLog& log,
                std::atomic<std::uint64_t>& clock, std::atomic<std::uint64_t>& counter,
                std::uint64_t seed)
      : store_(store),
        size_(size),
        thread_(thread),
        log_(log),
        clock_(clock),
        counter_(counter),
        rng_(seed) {
    for (Collection& c : in_) c = store;
    if (!size.collections) return;
    in_[0] = made("lists", KeyOrder::reverse);
    in_[2] = made("own", KeyOrder::bytes);
  }

  // One random operation of those above. Returns ok, or a status that none of them should have.
  Status step();
  // Reads everything in one transaction.
  Status read_all();
  bool full() const { return full_; }

  // The order in which threads wrote their own registers.
  static void set_orders(std::span<const std::vector<Txn>> by_thread, IsolationSize size,
                         IsolationHistory& history);

 private:
  enum class Kind : std::uint8_t { list, reg, own };
  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  std::uint64_t tick() { return clock_.fetch_add(1, std::memory_order_seq_cst); }
  std::uint64_t fresh() { return counter_.fetch_add(1, std::memory_order_seq_cst); }
  std::uint32_t any_list();
  std::uint32_t any_register();
  std::uint32_t any_own(std::uint32_t thread);

  bool begin();
  Status finish(Status s, bool wrote);
  Status transaction();
  Status transaction_step(StoreTransaction& tx);
  Status walk(Iterator it);
  template <class Reader>
  Status read_one(Reader& reader, std::uint32_t key);
  Status note(Status s, std::uint32_t key, const std::string& value);
  Collection made(const char* name, KeyOrder order);
  // The collection of a key.
  Collection& in(std::uint32_t key);
  Status snapshot();
  Status single();
  Status batch();
  Status filler();

  Store& store_;
  const IsolationSize size_;
  const std::uint32_t thread_;
  TxnLog& log_;
  std::atomic<std::uint64_t>& clock_;
  std::atomic<std::uint64_t>& counter_;
  std::mt19937_64 rng_;
  Collection in_[3];  // of lists, registers, own keys
  bool full_ = false;
};

// Key numbers: see isolation_work.cc.
bool is_list(std::uint32_t key);

}  // namespace tenuto::test

// Whether a recorded history of transactions is serialisable, and if not, which anomaly it shows
// (Adya's classes; the method is Elle's, VLDB'20). Dependencies between transactions follow from
// what they read. A cycle of dependencies is an anomaly. The checker knows nothing of stores.
//
// A key is a list or a register. Transactions only append to a list, and a read of it sees the
// order of all appends. A register is written blindly or after a read, and every write has a
// different value. Its order is known where a transaction read before it wrote. It is known
// everywhere if the test sets it (set_order), for example because only one thread writes the key.
//
//   ww  T wrote what U wrote over      wr  U read what T wrote
//   rw  U wrote over what T read       rt  T had ended before U began (real time)
//
// Cost: linear in the history, plus the search for a path once there is a cycle.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tenuto::test {

enum class Anomaly : std::uint8_t {
  none,
  garbage,   // a read of a value that no transaction wrote
  order,     // two reads of a list, neither a prefix of the other
  internal,  // a transaction that does not see its own writes
  g0,        // a cycle of ww alone: dirty write
  g1a,       // a read of what an aborted transaction wrote
  g1b,       // a read of what a transaction wrote and then wrote over
  g1c,       // a cycle of ww and wr: circular information flow
  g_single,  // a cycle with one rw: read skew, lost update
  g2,        // a cycle with several rw: write skew, phantoms
};
const char* anomaly_name(Anomaly a);

struct TxnOp {
  enum class Verb : std::uint8_t { append, read_list, write, read };
  Verb verb;
  std::uint32_t key;
  std::uint64_t value = 0;                 // append, write: written; read: seen, 0 for nothing
  std::vector<std::uint64_t> values = {};  // read_list
};

struct Txn {
  enum class End : std::uint8_t {
    committed,
    aborted,
    unknown,  // cut off by a crash: took effect before the crash, or never
  };
  std::uint32_t thread = 0;
  std::uint64_t begin = 0, end = 0;  // tickets of the call and the return
  End how = End::committed;
  std::vector<TxnOp> ops = {};
};

struct IsolationFinding {
  Anomaly anomaly = Anomaly::none;
  bool real_time = false;  // the cycle needs an rt edge: serialisable, but not strictly so
  std::string text;        // the transactions, and why one comes before the other
  std::string name() const {
    return anomaly_name(anomaly) + std::string(real_time ? "-realtime" : "");
  }
};

class IsolationHistory {
 public:
  void add(Txn txn) { txns_.push_back(std::move(txn)); }
  // The order in which a register's values were written, oldest first. The checker skips values
  // whose writers do not count.
  void set_order(std::uint32_t key, std::vector<std::uint64_t> values) {
    orders_[key] = std::move(values);
  }
  std::size_t size() const { return txns_.size(); }

  // The worst anomaly: the first one of the enumeration. One that needs no rt edge comes first.
  IsolationFinding check() const;

 private:
  std::vector<Txn> txns_;
  std::map<std::uint32_t, std::vector<std::uint64_t>> orders_;
};

}  // namespace tenuto::test

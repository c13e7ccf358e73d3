// Whether a recorded history of transactions is serialisable, and if not, what kind of anomaly it
// shows (Adya's classes; the method is Elle's, VLDB'20). Dependencies between transactions follow
// from what they read; a cycle of dependencies is an anomaly. Knows nothing of stores.
//
// Keys are lists or registers. A list is only appended to, and who reads it sees the order of all
// appends. A register is written blindly or after it was read; every write has a value of its own.
// Its order is known where a transaction read before it wrote, and everywhere when the test says
// it (set_order), e.g. because one thread alone writes the key.
//
//   ww  T wrote what U wrote over      wr  U read what T wrote
//   rw  U wrote over what T read       rt  T had ended before U began (real time)
//
// Cost: linear in the history, but for the paths that are looked for once a cycle is known to be.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tenuto::test {

enum class Anomaly : std::uint8_t {
  none,
  garbage,   // a read of what nobody wrote
  order,     // two reads of a list that are not one history
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
  std::uint64_t value = 0;                 // append, write; read: what it saw, 0 for nothing
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
  bool real_time = false;  // the cycle needs an rt edge: serialisable, but not strictly
  std::string text;        // the transactions and why one comes before the other
  std::string name() const {
    return anomaly_name(anomaly) + std::string(real_time ? "-realtime" : "");
  }
};

class IsolationHistory {
 public:
  void add(Txn txn) { txns_.push_back(std::move(txn)); }
  // The order in which a register's values were written, the first first. Values that nobody saw
  // and whose writers did not commit are left out.
  void set_order(std::uint32_t key, std::vector<std::uint64_t> values) {
    orders_[key] = std::move(values);
  }
  std::size_t size() const { return txns_.size(); }

  // The worst anomaly: the first in the order of the enumeration, without real time before with it.
  IsolationFinding check() const;

 private:
  std::vector<Txn> txns_;
  std::map<std::uint32_t, std::vector<std::uint64_t>> orders_;
};

}  // namespace tenuto::test

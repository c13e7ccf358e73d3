// A checker for durable linearizability of operations on keys. It decides whether one order of the
// operations explains everything that was seen, across any number of crashes. In that order each
// operation takes effect at one point between its call and its return. An operation that a crash
// interrupted took effect before that crash or never. For crash tests of ordered stores and of the
// user's own structures; it needs no pool.
//
// There are two ways to use it. CrashHistory records operations on several keys as they happen.
// check_key_history judges the operations on one key that were recorded elsewhere, for example in
// shared memory that outlives a killed process.
//
// The search is Wing and Gong's with Lowe's two improvements: it remembers configurations, and it
// places an operation only when another one needs it. It runs key by key, since linearizability is
// local. Cost: linear in the length of the history, exponential in the number of writes that are
// open at the same time.
//
// Thread safety: none. One thread at a time may change a CrashHistory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/abi.h"

namespace TENUTO_NS {

// Values are numbers that stand for what was written. A different number for each put gives the
// most exact findings. kAbsent: there is no value.
inline constexpr std::uint64_t kAbsent = 0;

enum class KeyVerb : std::uint8_t { put, erase, get };
enum class EraseSaw : std::uint8_t { unknown, existed, absent };

// Times are tickets: any counter that rises by one for every call and every return. REQUIRES: the
// operations of one thread do not overlap; those before a crash have smaller tickets than those
// after it.
struct KeyOp {
  std::uint64_t invoked = 0;
  std::uint64_t ended = 0;  // the return; if pending, the crash
  std::uint64_t value = 0;  // put: what it writes. get: what it saw (kAbsent: nothing)
  KeyVerb verb = KeyVerb::get;
  EraseSaw saw = EraseSaw::unknown;
  bool pending = false;  // the crash came before the return
  std::uint32_t thread = 0;
};

enum class Verdict : std::uint8_t {
  linearizable,
  contradiction,
  undecided,  // more operations are open at the same time than the search can hold
};

struct KeyJudgement {
  Verdict verdict = Verdict::linearizable;
  std::vector<std::uint64_t> finals;  // what the key may hold afterwards (kAbsent: nothing)
  std::string what;                   // a contradiction: its operations, one in each line
};

// Judges the operations on one key, given in any order. `before`: what the key may hold when the
// history begins; empty: nothing.
TENUTO_API KeyJudgement check_key_history(std::span<const KeyOp> ops,
                                          std::span<const std::uint64_t> before = {});

class TENUTO_API CrashHistory {
 public:
  using Id = std::size_t;

  // Call one of these before the operation.
  Id put(std::uint32_t thread, std::string_view key, std::uint64_t value);
  Id erase(std::uint32_t thread, std::string_view key);
  Id get(std::uint32_t thread, std::string_view key);
  // Call one of these after the operation.
  void returned(Id op);                  // a put, or an erase that does not tell what it found
  void erased(Id op, bool existed);      // an erase that tells whether the key existed
  void got(Id op, std::uint64_t value);  // a get, with what it saw
  void failed(Id op);                    // an operation that failed without effect

  // A crash: operations that are open now never return. Record the reads after recovery as gets.
  void crash();

  // Empty: the history of every key is linearizable. Else the key and its contradiction, or that
  // too many operations were open at the same time.
  std::string check() const;
  std::size_t operations() const { return places_.size(); }

 private:
  struct Place {
    std::size_t key;
    std::size_t op;
    bool open;
  };
  struct Key {
    std::string name;
    std::vector<KeyOp> ops;
  };
  Id begin(std::string_view key, KeyOp op);
  KeyOp& end(Id op);

  std::uint64_t ticket_ = 0;
  std::size_t open_from_ = 0;  // places before this one are not open
  std::map<std::string, std::size_t, std::less<>> index_;
  std::vector<Key> keys_;
  std::vector<Place> places_;
};

}  // namespace TENUTO_NS

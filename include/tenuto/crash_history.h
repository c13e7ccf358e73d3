// Durable linearizability of what threads did to keys: whether some order of the operations, each
// at one moment between its call and its return, explains everything that was seen, across any
// number of crashes. An operation that a crash cut off took effect before that crash or never.
// For crash tests of ordered stores and of structures of one's own; knows nothing of pools.
//
// Two ways in: CrashHistory records operations of several keys as they happen; check_key_history
// judges the operations of one key that were recorded elsewhere, e.g. in shared memory that
// outlives a killed process.
//
// The search is Wing and Gong's with Lowe's two improvements (configurations are remembered, and
// an operation is given its place no earlier than somebody needs it), and runs key by key, since
// linearizability is local. Cost: linear in the length of the history, exponential in the number
// of writes that are open at the same time.
//
// Thread safety: none; a CrashHistory is changed by one thread at a time.
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

// Values are numbers that name what was written; give each put its own and a finding is sharp.
inline constexpr std::uint64_t kAbsent = 0;

enum class KeyVerb : std::uint8_t { put, erase, get };
enum class EraseSaw : std::uint8_t { unknown, existed, absent };

// Times are tickets: any counter that goes up by one for every call and every return. Operations of
// one thread do not overlap; those before a crash have smaller tickets than those after it.
struct KeyOp {
  std::uint64_t invoked = 0;
  std::uint64_t ended = 0;  // the return; for a pending one, the crash
  std::uint64_t value = 0;  // put: what it writes. get: what it saw, kAbsent for nothing
  KeyVerb verb = KeyVerb::get;
  EraseSaw saw = EraseSaw::unknown;
  bool pending = false;  // the crash came before the return
  std::uint32_t thread = 0;
};

enum class Verdict : std::uint8_t {
  linearizable,
  contradiction,
  undecided,  // more operations at the same time than the search can hold
};

struct KeyJudgement {
  Verdict verdict = Verdict::linearizable;
  std::vector<std::uint64_t> finals;  // what the key may hold afterwards; kAbsent for nothing
  std::string what;                   // of a contradiction: the operations it takes, one a line
};

// `before` is what the key may hold when the history begins. Operations in any order.
KeyJudgement check_key_history(std::span<const KeyOp> ops,
                               std::span<const std::uint64_t> before = {});

class CrashHistory {
 public:
  using Id = std::size_t;

  // Called before the operation itself ...
  Id put(std::uint32_t thread, std::string_view key, std::uint64_t value);
  Id erase(std::uint32_t thread, std::string_view key);
  Id get(std::uint32_t thread, std::string_view key);
  // ... and one of these after it: a put or an erase that says nothing returned, an erase that says
  // whether the key was there, a get with what it saw, an operation that failed without effect.
  void returned(Id op);
  void erased(Id op, bool existed);
  void got(Id op, std::uint64_t value);
  void failed(Id op);

  // What is open now stays open for ever. Reads after recovery follow as further gets.
  void crash();

  // Empty: every key's history is linearizable. Else the key and its contradiction.
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

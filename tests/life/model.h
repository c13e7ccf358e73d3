// The model of a store: collections with their encodings and records, and the states that snapshots
// and transactions see. It is exact, and knows nothing of the library.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "texts.h"

namespace tenuto::life {

inline constexpr std::uint64_t kNone = ~0ull;

// The place of a record in its collection.
struct Place {
  std::uint64_t rank = 0, pair = 0;
  auto operator<=>(const Place&) const = default;
};
inline constexpr Place kFront = {0, 0};
inline constexpr Place kBack = {kNone, kNone};

struct Held {
  std::uint64_t key = 0, tag = 0;
  std::uint64_t gone_at = 0;  // when it expires; 0: never
  bool visible(std::uint64_t time) const { return gone_at == 0 || gone_at > time; }
};

// One write of a batch or a transaction.
struct Write {
  std::uint64_t id = 0, key = 0;
  enum class What : std::uint8_t { put, erase, erase_pair } what = What::put;
  std::uint64_t tag = 0, gone_at = 0;
};

struct Records {
  std::uint64_t id = 0;
  std::uint64_t name = kNone;  // kNone: the default collection
  Encoding encoding;
  std::map<Place, Held> held;
  std::uint64_t hash = 0;  // of all records
  // Every change of a place, in order. All copies share it. Cursors use it to know what they may
  // have seen.
  std::shared_ptr<std::vector<std::pair<Place, Held>>> changes =
      std::make_shared<std::vector<std::pair<Place, Held>>>();

  Place place(std::uint64_t key, std::uint64_t tag) const;
  Place first_of(std::uint64_t key) const { return {rank_of(encoding.order, key), 0}; }
  Place last_of(std::uint64_t key) const { return {rank_of(encoding.order, key), kNone}; }
  void put(std::uint64_t key, std::uint64_t tag, std::uint64_t gone_at);
  void erase_at(Place place);
  void write(const Write& w);
  // The places of the key's values, in order.
  std::vector<Place> all_of(std::uint64_t key, std::uint64_t time) const;
  const Held* get(std::uint64_t key, std::uint64_t time) const;  // the first value
};

// A block that a word of the root names (objects.h).
struct Object {
  bool there = false;
  std::uint64_t bytes = 0, type = 0;
  std::uint64_t tag = 0, told = 0;  // writer; bytes that are known to be its own
  std::uint64_t stamp = 0;          // of the slot, also if it has no block
  auto operator<=>(const Object&) const = default;
};
// The possible contents of a slot. There are several if a call that was cut off may have done part
// of its work.
using ObjectSlot = std::vector<Object>;
using Objects = std::map<std::uint64_t, ObjectSlot>;

struct State;

struct TransactionModel {
  bool read_only = false, ended = false;
  std::uint64_t changes_before = 0;  // State::changes at its begin
  std::vector<Write> writes;
  std::vector<std::size_t> points;
  struct Created {
    std::uint64_t id, name;
    Encoding encoding;
  };
  std::vector<Created> created;
  std::vector<std::uint64_t> dropped;
  // What it has read in its snapshot: these places of these collections.
  struct Range {
    std::uint64_t id;
    Place from, to;
    std::size_t writes;  // number of its own writes by then
  };
  std::vector<Range> ranges;
  std::vector<std::uint64_t> used;      // ids of collections
  std::shared_ptr<const State> moment;  // null: it has not read yet
};

struct CursorModel {
  std::uint64_t kind = 0, of = 0, id = 0;  // the arguments of Verb::cursor
  Place lower = kFront, upper = kBack;     // upper is exclusive
  bool valid = false;
  Place at = {};
  std::uint64_t key = 0, tag = 0;
  std::size_t seen_from = 0;  // index in Records::changes, or in the transaction's writes
  std::uint64_t seen_time = 0;
};

struct State {
  std::map<std::uint64_t, std::shared_ptr<const Records>> collections;  // by id
  std::uint64_t time = 0;                                               // never goes back
  std::uint64_t floor = 0;                 // the least time that later lives know
  std::uint64_t changes = 0;               // number of changes
  std::uint64_t largest = 0;               // size of the largest value in this life
  std::uint64_t most = 0;                  // the largest number of collections in this life
  bool dropped = false;                    // something was dropped in this life
  std::shared_ptr<const Objects> objects;  // null: there were never any
  std::map<std::uint64_t, std::shared_ptr<const State>> snapshots;
  std::map<std::uint64_t, std::shared_ptr<TransactionModel>> transactions;
  std::map<std::uint64_t, CursorModel> cursors;

  static State empty(bool numbers);
  const Records* find(std::uint64_t id) const;
  const Records* named(std::uint64_t name) const;
  // The same collection, with the id that a look or call has shown. If the call that made a
  // collection failed, no caller knows its id, and until then the model uses its own id.
  const Records* told_id(const Records& c, std::uint64_t id);
  Records& change(std::uint64_t id);  // REQUIRES: it exists
  TransactionModel& change_transaction(std::uint64_t uid);
  // Later lives know the time, if records can expire.
  void keep_time();
  void drop(std::uint64_t id);
  void create(std::uint64_t id, std::uint64_t name, Encoding encoding);
  void write(const Write& w);
  Objects& change_objects();
  std::shared_ptr<const State> moment() const;  // a copy without handles
  std::uint64_t hash() const;
  // Ends the handles of a store that was closed.
  void close_handles();
  // Ends all handles, because a process's memory does not outlive it.
  void forget_handles();
};

}  // namespace tenuto::life

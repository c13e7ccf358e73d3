// A store as it must be: collections with their forms and records, and the moments that snapshots
// and transactions see. Exact; knows nothing of the library.
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

// Where a record stands in its collection.
struct Place {
  std::uint64_t rank = 0, pair = 0;
  auto operator<=>(const Place&) const = default;
};
inline constexpr Place kFront = {0, 0};
inline constexpr Place kBack = {kNone, kNone};

struct Held {
  std::uint64_t key = 0, tag = 0;
  std::uint64_t gone_at = 0;  // 0: it stays
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
  std::uint64_t name = kNone;  // kNone: the default one
  Encoding encoding;
  std::map<Place, Held> held;
  std::uint64_t hash = 0;  // of all that is held
  // Every place that was ever changed, in order; shared by all copies. For cursors that saw it
  // before.
  std::shared_ptr<std::vector<std::pair<Place, Held>>> changes =
      std::make_shared<std::vector<std::pair<Place, Held>>>();

  Place place(std::uint64_t key, std::uint64_t tag) const;
  Place first_of(std::uint64_t key) const { return {rank_of(encoding.order, key), 0}; }
  Place last_of(std::uint64_t key) const { return {rank_of(encoding.order, key), kNone}; }
  void put(std::uint64_t key, std::uint64_t tag, std::uint64_t gone_at);
  void erase_at(Place place);
  void write(const Write& w);
  // What the key has, in order.
  std::vector<Place> all_of(std::uint64_t key, std::uint64_t time) const;
  const Held* get(std::uint64_t key, std::uint64_t time) const;  // the first
};

// A block on one of the root's words (objects.h).
struct Object {
  bool there = false;
  std::uint64_t bytes = 0, type = 0;
  std::uint64_t tag = 0, told = 0;  // who wrote it; so many bytes are known to be as that says
  std::uint64_t stamp = 0;          // of the slot, also when nothing is there
  auto operator<=>(const Object&) const = default;
};
// What a slot may hold: one thing, or, where a call that was cut off may have done a part of what
// it should, more.
using ObjectSlot = std::vector<Object>;
using Objects = std::map<std::uint64_t, ObjectSlot>;

struct State;

struct TransactionModel {
  bool read_only = false, ended = false;
  std::uint64_t changes_before = 0;  // State::changes when it began
  std::vector<Write> writes;
  std::vector<std::size_t> points;
  struct Created {
    std::uint64_t id, name;
    Encoding encoding;
  };
  std::vector<Created> created;
  std::vector<std::uint64_t> dropped;
  // What it has read of the moment: these places of these collections.
  struct Range {
    std::uint64_t id;
    Place from, to;
    std::size_t writes;  // of its own, by then
  };
  std::vector<Range> ranges;
  std::vector<std::uint64_t> used;      // collections
  std::shared_ptr<const State> moment;  // null: it has not read yet
};

struct CursorModel {
  std::uint64_t kind = 0, of = 0, id = 0;  // as Verb::cursor says
  Place lower = kFront, upper = kBack;     // upper: exclusive
  bool valid = false;
  Place at = {};
  std::uint64_t key = 0, tag = 0;
  std::size_t seen_from = 0;  // in Records::changes, or of the transaction's writes
  std::uint64_t seen_time = 0;
};

struct State {
  std::map<std::uint64_t, std::shared_ptr<const Records>> collections;  // by id
  std::uint64_t time = 0;                                               // never goes back
  std::uint64_t floor = 0;                 // what later lives know of it for certain
  std::uint64_t changes = 0;               // how often something was
  std::uint64_t largest = 0;               // of all values there ever were, in this life
  std::uint64_t most = 0;                  // collections, likewise
  bool dropped = false;                    // something was, in this life
  std::shared_ptr<const Objects> objects;  // null: there never were any
  std::map<std::uint64_t, std::shared_ptr<const State>> snapshots;
  std::map<std::uint64_t, std::shared_ptr<TransactionModel>> transactions;
  std::map<std::uint64_t, CursorModel> cursors;

  static State empty(bool numbers);
  const Records* find(std::uint64_t id) const;
  const Records* named(std::uint64_t name) const;
  // The same collection, after somebody saw its id: nobody is told that of one whose making failed
  // in the end, and until then it has one of the model's own.
  const Records* told_id(const Records& c, std::uint64_t id);
  Records& change(std::uint64_t id);  // REQUIRES: it is there
  TransactionModel& change_transaction(std::uint64_t uid);
  // Lives to come know the time, where anything expires.
  void keep_time();
  void drop(std::uint64_t id);
  void create(std::uint64_t id, std::uint64_t name, Encoding encoding);
  void write(const Write& w);
  Objects& change_objects();
  std::shared_ptr<const State> moment() const;  // without handles
  std::uint64_t hash() const;
  // Of a store that was closed.
  void close_handles();
  // Nothing of a process's memory outlives it.
  void forget_handles();
};

}  // namespace tenuto::life

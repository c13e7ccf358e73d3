#include "support/maps_world.h"

#include <set>

#include "support/explored_medium.h"
#include "support/tx_scripts.h"
#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"

namespace tenuto::test {

namespace {

struct World {
  OrderedMap<std::uint64_t, std::uint64_t> tree;
  HashMap<std::uint64_t, std::uint64_t> table;
};

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  return on_explored_medium(o);
}

template <class F>
void for_each_key(const MapEdit& e, F&& f) {
  for (std::uint64_t key = e.key; key <= std::max(e.key, e.last); key += e.by) f(key);
}

// What an edit gives a key: the old value counts, so that no two states are equal.
std::uint64_t value_of(std::uint64_t key, std::uint64_t before) { return before * 3 + key + 1; }

void apply(MapState& state, const MapEdit& e) {
  if (e.kind == MapEdit::clear) state.clear();
  for_each_key(e, [&](std::uint64_t key) {
    if (e.kind == MapEdit::erase) state.erase(key);
    if (e.kind == MapEdit::insert || e.kind == MapEdit::assign) {
      state[key] = value_of(key, state.contains(key) ? state[key] : 0);
    }
  });
}

template <class Map>
Status edit(Transaction& tx, Map& map, const MapEdit& e) {
  if (e.kind == MapEdit::clear) return map.clear(tx);
  Status s = Status::ok;
  for_each_key(e, [&](std::uint64_t key) {
    if (s != Status::ok) return;
    const auto* const old = map.get(key);
    const std::uint64_t value = value_of(key, old == nullptr ? 0 : *old);
    if (e.kind == MapEdit::erase) {
      s = map.erase(tx, key);
    } else if (e.kind == MapEdit::insert) {
      s = map.insert(tx, key, value);
    } else {
      s = map.insert_or_assign(tx, key, value);
    }
  });
  return s;
}

Status perform(TxParts& p, const MapScript& script, const MapStep& step) {
  World& w = p.get_root<World>(0);
  const Status s = p.run([&](Transaction& tx) {
    for (const MapEdit& e : step.edits) {
      TENUTO_TRY(script.kind == MapScript::ordered ? edit(tx, w.tree, e) : edit(tx, w.table, e));
    }
    return step.aborted ? Status::aborted : Status::ok;
  });
  return step.aborted && s == Status::aborted ? Status::ok : s;
}

void setup(const MapScript& script, const std::string& path) {
  TxParts p;
  ASSERT_EQ(p.create(path, tiny()), Status::ok) << p.report.text();
  p.make_root<World>(0);
  ASSERT_EQ(perform(p, script, {script.before}), Status::ok);
  ASSERT_EQ(p.close(), Status::ok);
}

template <class Map>
std::string check_map(TxParts& p, const Map& map, const MapState& state) {
  if (map.validate(&p.report) != Status::ok) return p.report.text();
  if (map.size() != state.size()) return "another size";
  for (const auto& [key, value] : state) {
    const auto* const found = map.get(key);
    if (found == nullptr || *found != value) return "a key has another value";
  }
  std::set<std::uint64_t> named = {p.file->offset_of(&p.get_root<World>(0)).value};
  bool free = false;
  map.for_each_block([&](const void* block) {
    const PoolOffset o = p.file->offset_of(block);
    named.insert(o.value);
    free = free || !p.heap->find_allocated(o);
  });
  if (free) return "a reachable block is free";
  if (p.allocated_blocks().size() != named.size()) return "a block leaked";
  if (p.heap->validate(&p.report) != Status::ok) return "heap: " + p.report.text();
  return {};
}

std::string check_world(TxParts& p, const MapScript& script, const MapState& state) {
  const World& w = p.get_root<World>(0);
  return script.kind == MapScript::ordered ? check_map(p, w.tree, state)
                                           : check_map(p, w.table, state);
}

template <class Map>
bool shows(const Map& map, const MapState& state) {
  if (map.size() != state.size()) return false;
  for (const auto& [key, value] : state) {
    const auto* const found = map.get(key);
    if (found == nullptr || *found != value) return false;
  }
  return true;
}

std::string check(const MapScript& script, const std::vector<MapState>& states,
                  const CrashImage& image) {
  TxParts p;
  if (p.open(image.path(), tiny()) != Status::ok) return "open: " + p.report.text();
  const World& w = p.get_root<World>(0);
  const MapState* found = nullptr;
  for (std::size_t n = image.acknowledged(); n <= image.invoked(); ++n) {
    const bool shown = script.kind == MapScript::ordered ? shows(w.tree, states.at(n))
                                                         : shows(w.table, states.at(n));
    if (shown) found = &states[n];
  }
  if (found == nullptr) return "the map after no number of steps";
  if (std::string e = check_world(p, script, *found); !e.empty()) return e;
  image.recovered();
  // It can be changed, and the next open does not undo that.
  MapState after = *found;
  const MapStep more = {{{MapEdit::assign, 5}, {MapEdit::assign, 1000, 1020}}};
  for (const MapEdit& e : more.edits) apply(after, e);
  if (perform(p, script, more) != Status::ok) return "a transaction after recovery failed";
  p.crash();
  if (p.open(image.path(), tiny()) != Status::ok) return "open again: " + p.report.text();
  if (std::string e = check_world(p, script, after); !e.empty()) return "later open: " + e;
  return p.close() == Status::ok ? "" : "close failed";
}

}  // namespace

CrashResult MapsCrash::run(const CrashOptions& options) const {
  const auto workload = [this](CrashContext& c) {
    c.update([&] {
      states_.assign(1, MapState{});
      for (const MapEdit& e : script_.before) apply(states_[0], e);
    });
    TxParts p;
    ASSERT_EQ(p.open(c.path(), tiny()), Status::ok) << p.report.text();
    for (const MapStep& step : script_.steps) {
      c.update([&] {
        MapState after = states_.back();
        if (!step.aborted) {
          for (const MapEdit& e : step.edits) apply(after, e);
        }
        states_.push_back(after);
      });
      c.invoke();
      // A mistake that is planted may be refused: then no state is right.
      if (perform(p, script_, step) != Status::ok) {
        c.update([&] { states_.back() = {{~std::uint64_t{0}, 0}}; });
      }
      c.ack();
    }
    ASSERT_EQ(p.close(), Status::ok);
  };
  return CrashRunner(options).run(
      [this](const std::string& path) { setup(script_, path); }, workload,
      [this](const CrashImage& i) { return check(script_, states_, i); });
}

CrashOptions maps_crash_options() {
  CrashOptions o;
  o.product_max = crash_scaled(20);
  o.samples_max = crash_scaled(10);
  o.recovery_states_max = crash_scaled(1);  // tx_crash is for recovery
  o.recovery_depth = 1;
  o.points_percent = 50;
  o.recover_twice = false;
  return o;
}

namespace {
constexpr auto kInsert = MapEdit::insert;
constexpr auto kAssign = MapEdit::assign;
constexpr auto kErase = MapEdit::erase;
constexpr auto kClear = MapEdit::clear;
}  // namespace

const MapScript kMapGrows = {MapScript::ordered,
                             {{kInsert, 20, 46, 2}},  // a full leaf
                             {{{{kInsert, 25}}, true},
                              {{{kInsert, 25}}},      // splits it, and goes left
                              {{{kInsert, 60, 66}}},  // fills the right one
                              {{{kInsert, 67}}},      // splits it at its end
                              {{{kAssign, 25}, {kAssign, 26}, {kAssign, 27}}}}};

const MapScript kMapThirdLevel = {
    MapScript::ordered,
    {{kInsert, 10, 1960, 10}},  // the root is full, and so are its leaves
    {{{{kInsert, 15}}, true}, {{{kInsert, 995}}}, {{{kInsert, 1970}}}}};

const MapScript kMapShrinks = {
    MapScript::ordered,
    // Inner nodes with 13 and 2 leaves. The last two leaves have 4 keys each.
    {{kInsert, 1, 210}, {kErase, 187, 196}, {kErase, 201, 210}},
    {{{{kErase, 200}}, true},
     {{{kErase, 200}}},  // leaves, inner nodes and the root are merged
     {{{kErase, 2, 14}}},
     {{{kErase, 1}}, true},
     {{{kErase, 1}}},
     {{{kClear}, {kInsert, 3}}, true},
     {{{kClear}, {kInsert, 3}}},
     {{{kErase, 3}}},
     {{{kInsert, 3}}}}};

const MapScript kMapReuses = {
    MapScript::ordered,
    {{kInsert, 10, 140, 10}},
    {{{{kErase, 20}, {kInsert, 21}}},
     {{{kErase, 30, 60, 10}, {kInsert, 31, 35}}, true},
     {{{kErase, 30, 60, 10}, {kInsert, 31, 35}}},
     {{{kInsert, 101, 104}, {kErase, 101, 104}, {kInsert, 111, 114}}, true},
     {{{kAssign, 31, 33}, {kErase, 31, 33}, {kInsert, 31, 33}}}}};

namespace {
// Edits of keys of one bucket, as long as there are at most 16.
std::vector<MapEdit> colliding(MapEdit::Kind kind, unsigned count, unsigned skip = 0) {
  std::vector<MapEdit> edits;
  for (std::uint64_t key = 2000; edits.size() < skip + count; ++key) {
    if (slots::hash_number(key) % 16 == 3) edits.push_back({kind, key});
  }
  edits.erase(edits.begin(), edits.begin() + skip);
  return edits;
}
}  // namespace

const MapScript kTableGrows = {MapScript::hashed,
                               {},
                               {{{{kInsert, 1}}},
                                {{{kInsert, 2, 4}}},
                                {{{kInsert, 5}}, true},
                                {{{kInsert, 5}}},  // splits
                                {{{kInsert, 6, 14}}},
                                {{{kAssign, 7}, {kAssign, 15, 17}}},  // splits, and takes a segment
                                {colliding(kInsert, 8)},
                                {{{kInsert, 40, 43}}},
                                {{{kInsert, 44, 48}}, true},
                                {{{kInsert, 44, 48}}}}};

const MapScript kTableShrinks = {MapScript::hashed,
                                 colliding(kInsert, 16),
                                 {{{{kInsert, 1, 2}}},
                                  {colliding(kErase, 2)},
                                  {colliding(kErase, 13, 2), true},
                                  {colliding(kInsert, 2)},
                                  {{{kClear}, {kInsert, 3}}, true},
                                  {{{kClear}, {kInsert, 3}}}}};

const MapScript kTableReuses = {
    MapScript::hashed,
    {{kInsert, 1, 12}},
    {{{{kErase, 10}, {kInsert, 60}}},
     {{{kErase, 1, 5}, {kInsert, 61, 66}}, true},
     {{{kErase, 1, 5}, {kInsert, 61, 66}}},
     {{{kInsert, 101, 104}, {kErase, 101, 104}, {kInsert, 111, 114}}, true},
     {{{kAssign, 61, 63}, {kErase, 61, 63}, {kInsert, 61, 63}}}}};

// Four buckets: five keys in the last one, 1 and 10 in the one that it came from.
const MapScript kTableMerges = {
    MapScript::hashed,
    {{kInsert, 9, 19, 10},
     {kInsert, 101, 102},
     {kInsert, 105},
     {kInsert, 1},
     {kInsert, 3, 8},
     {kInsert, 10}},
    {// The last one is merged, and split off again with four keys more.
     {{{kErase, 3, 8}, {kInsert, 111, 114, 3}, {kInsert, 121, 122}, {kInsert, 11}, {kInsert, 13}},
      true},
     {{{kErase, 3, 8}}},
     {{{kInsert, 111, 114, 3}, {kInsert, 121, 122}, {kInsert, 11}, {kInsert, 13}}},
     {{{kErase, 101, 102}, {kErase, 9, 13, 2}, {kErase, 111, 114, 3}, {kErase, 1}}, true},
     // The last two, and so a segment.
     {{{kErase, 101, 102}, {kErase, 9, 13, 2}, {kErase, 111, 114, 3}, {kErase, 1}}}}};

namespace {
std::vector<MapEdit> eight_buckets() {
  std::vector<MapEdit> edits = colliding(kInsert, 8);  // in bucket 3, and so one is behind it
  for (const std::uint64_t key : {9, 19, 101, 105, 111, 121, 122}) {
    edits.push_back({kInsert, key});  // in bucket 7, which is full
  }
  edits.push_back({kInsert, 200, 213});
  edits.push_back({kErase, 200, 212});
  return edits;
}
}  // namespace

const MapScript kTableMergesChains = {MapScript::hashed,
                                      eight_buckets(),
                                      {{{{kErase, 213}}, true},
                                       {{{kErase, 213}}},
                                       {{{kErase, 121, 122}, {kInsert, 300, 320}}, true}}};

}  // namespace tenuto::test

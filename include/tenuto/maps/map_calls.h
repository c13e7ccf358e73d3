// The calls that all maps have, above a table or a tree. OrderedMap and HashMap add what differs:
// their iterators.
#pragma once

#include <cstdint>
#include <utility>

#include "tenuto/element.h"
#include "tenuto/maps/slots.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS::slots {

// Nodes: find_value, insert_new, erase_key, clear_all, validate_all, visit_nodes,
// visit_references and size_.
template <class Nodes, class K, class V>
class MapCalls : protected Nodes {
 public:
  MapCalls() = default;
  MapCalls(Relocation r, MapCalls& from) noexcept : Nodes(r, from) {}
  MapCalls(const MapCalls&) = delete;
  MapCalls& operator=(const MapCalls&) = delete;

  std::uint64_t size() const { return this->size_; }
  bool empty() const { return size() == 0; }

  template <class Key>
  bool contains(const Key& key) const {
    return get(key) != nullptr;
  }
  // The value of a key; null: it is not there. The second one is to assign fields (tenuto/p.h) of
  // the value, which add themselves, and to call mutators of a container in it. For other stores
  // use edit.
  template <class Key>
  const V* get(const Key& key) const {
    return this->find_value(key);
  }
  template <class Key>
  V* get(const Key& key) {
    return const_cast<V*>(std::as_const(*this).get(key));
  }

  // exists: the key is there. Key and value are made of the arguments, as construct() says.
  template <class Key, class Value>
  Status insert(Transaction& tx, const Key& key, const Value& value) {
    return made(tx, key, value).error();
  }
  // Inserts, or gives the key this value. 3 fences, as one range that is added (3 lines); a value
  // that is one field waits like any other.
  template <class Key, class Value>
  Status insert_or_assign(Transaction& tx, const Key& key, const Value& value) {
    const Status s = made(tx, key, value).error();
    if (s != Status::exists) return s;
    return abort_if_thrown(tx, [&] { return assign_value(tx, *get(key), value); });
  }
  // The value of the key, which is V() if the key was not there. Use it as that of get.
  template <class Key>
  Result<V*> get_or_insert(Transaction& tx, const Key& key) {
    Result<V*> fresh = made(tx, key);
    if (fresh.error() != Status::exists) return fresh;
    return get(key);
  }
  // Adds the value of the key (a fence), for any stores. not_found | statuses of Transaction::add.
  template <class Key>
  Result<V*> edit(Transaction& tx, const Key& key) {
    V* const value = get(key);
    if (value == nullptr) return Status::not_found;
    TENUTO_TRY(tx.add(value, sizeof(V)));
    return value;
  }
  // May move other entries: references to their values are invalid, too.
  template <class Key>
  Status erase(Transaction& tx, const Key& key) {
    return abort_if_thrown(tx, [&] { return this->erase_key(tx, key); });
  }

  // Releases all keys and values, and frees all nodes. Reads every node.
  Status clear(Transaction& tx) {
    return abort_if_thrown(tx, [&] { return all_or_abort(tx, this->clear_all(tx)); });
  }
  // The same, for the owner of the map (tenuto/element.h).
  Status release(Transaction& tx) { return clear(tx); }

  // Looks at every node: the places of the keys, counts, links. corrupt, with a report.
  Status validate(Report* report = nullptr) const {
    return this->validate_all(BelievedBlocks(), report);
  }
  // The same of bytes that may be anything, as on a damaged medium (BlocksOf in tenuto/element.h).
  // If it is ok, no call reads outside the pool; what a value says may still be wrong. REQUIRES: no
  // transaction is open on the pool. Cost: besides, a look into the heap for each node.
  template <PoolOfBlocks AnyPool>
  Status validate(const AnyPool& pool, Report* report = nullptr) const {
    return this->validate_all(BlocksOf(pool), report);
  }
  // Calls f(address) for each block of the map itself, without those of its elements; for checks.
  template <class F>
  void for_each_block(F&& f) const {
    this->visit_nodes(f);
  }
  // For collections (tenuto/references.h).
  void references(const References& visit) const { this->visit_references(visit); }

 private:
  template <class Key, class... Value>
  Result<V*> made(Transaction& tx, const Key& key, const Value&... value) {
    return abort_if_thrown(tx, [&] { return this->insert_new(tx, key, value...); });
  }
};

}  // namespace TENUTO_NS::slots

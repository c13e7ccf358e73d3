// What a Store has besides its default collection: the pool, and the parts of the store in it.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/kv/store_parts.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace TENUTO_NS {

// A batch with stored keys and values, as trees take it.
struct StoredOps {
  std::vector<store::BatchOp> ops;
  std::deque<std::string> rooms;  // copies of what is not in the batch itself

  void push(store::BatchOp op) {
    op.key = rooms.emplace_back(op.key);
    op.value = rooms.emplace_back(op.value);
    ops.push_back(op);
  }
  // Turns puts in a range of stored keys into erases. All calls together look at each op once: a
  // batch may erase as many keys as it puts.
  void erase_puts(const store::Tree* tree, std::string_view from, std::string_view to) {
    for (; seen_ < ops.size(); ++seen_) {
      const store::BatchOp& op = ops[seen_];
      if (!op.erase) puts_.emplace(Place{op.tree, op.key}, seen_);
    }
    const auto begin = puts_.lower_bound({tree, from});
    const auto end = puts_.lower_bound({tree, to});
    for (auto put = begin; put != end; ++put) ops[put->second].erase = true;
    puts_.erase(begin, end);
  }

 private:
  using Place = std::pair<const store::Tree*, std::string_view>;
  std::multimap<Place, std::size_t> puts_;  // among the first seen_ ops; not made erases yet
  std::size_t seen_ = 0;
};

// ok | closed (null, or a close has begun) | forked.
inline Status usable(const store::Collections* all) {
  return all == nullptr ? Status::closed : all->main()->alive();
}

struct StoreImpl {
  explicit StoreImpl(Pool p) : pool(std::move(p)) {}

  // Null once the pool was closed.
  StoreParts* parts() const { return StoreParts::of(pool.impl_.get()); }
  store::Collections* collections() const {
    StoreParts* const all = parts();
    return all == nullptr ? nullptr : &all->collections;
  }
  static StoreImpl& of(Store& store) { return *store.impl_; }
  static Collection handle_of(std::shared_ptr<CollectionState> state) {
    return Collection(std::move(state));
  }
  // A store in a pool that has no name until finish_copy (PoolImpl::create_copy). The copy itself
  // never asks for the time: `times` is what its source knows of it (clock.h).
  static Result<Store> create_copy(const std::string& path, const StoreOptions& options,
                                   Report* report);
  static Status finish_copy(Store& copy, store::Times times, Report* report);
  // invalid_argument: a default collection cannot have the order.
  static Status check_order(KeyOrder order, const std::string& path, Report* report);
  // Also: a codec's name is no name, or there is one of that name before it.
  static Status check_options(const StoreOptions& options, const std::string& path, Report* report);
  // Opens or makes the store in the pool. REQUIRES: check_options(options).
  Status attach(const StoreOptions& options, bool fresh, Report* report);

  // Encodes the batch into `out`. `there` gets what must still be true when the batch is written.
  // closed | not_found | invalid_argument, too: a collection of the batch cannot be written to.
  static Status append(const store::Collections& all, const WriteBatch& batch, StoredOps& out,
                       store::ReadSet& there);
  static Status append_stored(const std::shared_ptr<CollectionState>& state,
                              const WriteBatch::Op& op, std::string_view key,
                              std::string_view value, StoredOps& out, store::ReadSet& there);

  Pool pool;
};

}  // namespace TENUTO_NS

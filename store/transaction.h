// What a transaction has read and wants to write. Made by transaction.cc; its cursors (iterator.cc)
// lay the writes over what they find and note what they walked over.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "store/pool_impl.h"
#include "store/tree.h"
#include "tenuto/transaction.h"

namespace tenuto::inline TENUTO_ABI::store {

struct Work {
  struct Write {
    std::string key;
    std::optional<std::string> value;  // none: erase
    std::size_t before;                // of this key: index + 1 of the write it overrides, or 0
  };
  struct Text {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  Work(PoolImpl* p, const TransactionOptions& o) : pool(p), options(o) {}
  ~Work() { end(); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Ready to read: with a snapshot, taken now if there is none.
  Status look();
  Status usable() const;
  const Write* own(std::string_view key) const;
  Status write(std::string_view key, std::optional<std::string_view> value);
  void rollback_to(std::size_t count);
  // Puts the writes of a leaf with these bounds in the place of its entries.
  void overlay(std::string_view low, const Fence& end, std::vector<Entry>& entries) const;
  Status commit();
  void end();

  // Constant.
  PoolImpl* const pool;
  const std::shared_ptr<CollectionState> main =
      pool == nullptr ? nullptr : pool->collections->main();
  Tree* const tree = pool == nullptr ? nullptr : main->tree.get();
  const std::uint64_t tree_id = main == nullptr ? 0 : main->id.value;  // also when the tree is gone
  const TransactionOptions options;
  const std::shared_ptr<History> history = pool == nullptr ? nullptr : pool->history;

  // ranges: of cursors; keys are added at the commit.
  ReadSet reads;
  std::unordered_set<std::string, Text, std::equal_to<>> keys_read;
  // In the order of the calls; those taken back stay, for cursors may show them.
  std::deque<Write> writes;
  // Index of the write that counts; keys point into writes.
  std::map<std::string_view, std::size_t> latest;
  std::vector<std::string> locked;
  bool doomed = false;  // a key for update had changed: the commit would find it, too
  bool ended = false;
};

}  // namespace tenuto::inline TENUTO_ABI::store

namespace tenuto::inline TENUTO_ABI {

struct StoreTransaction::Impl : store::Work {
  using Work::Work;
};

}  // namespace tenuto::inline TENUTO_ABI

// Bulk load: ascending keys into an empty tree, by several threads, with a handful of fences.
//
// The tree has one leaf, its first, which is empty and stays so. Other empty leaves, which a failed
// commit or a busy neighbour left, are unlinked before (split.cc). The new leaves are linked behind
// it as one chain. Until then nothing durable names the new leaves, records and long separators.
// They are derived blocks, so a recovery that does not find them gives them back.
//
//   records, leaves (each with its `next`) |"bulk leaves"|  every thread, for what it flushed
//   first.next = the chain |"bulk chain"|                   one store, which commits all, under the
//                                                           first leaf's lock
//   shadow leaves and inner nodes show the leaves           under the same lock
//
// The first fence is needed so that no chain leads to leaves that are not durable. The second is
// needed so that readers see nothing that a crash could take back. So a crash leaves an empty tree
// or all of it.
//
// Inner nodes are made before the lock. From there on nothing needs memory, so what is durable is
// also shown. A load that ends earlier, for example by a failed allocation, gives everything back.
//
// The empty key cannot be loaded, because it belongs into the first leaf. While a snapshot is
// active nothing is loaded: see publish_chain().
#include "store/tree/bulk.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "pm/assert.h"
#include "pm/parallel.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

class Tree::Bulk {
 public:
  Bulk(Tree& tree, std::span<const BulkRecord> sorted, unsigned threads)
      : tree_(tree), sorted_(sorted), threads_(threads) {
    leaves_.resize((sorted.size() + kFill - 1) / kFill);
  }

  ~Bulk() {
    if (!shown_) give_back();
  }
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;

  Status run() {
    if (!tree_is_empty()) {
      TENUTO_TRY(unlink_empty_leaves());
      if (!tree_is_empty()) return Status::exists;  // another thread is busy here
    }
    const auto reserve = [this](std::size_t from, std::size_t to) {
      return reserve_leaves(from, to);
    };
    const auto fill = [this](std::size_t from, std::size_t to) { return fill_leaves(from, to); };
    TENUTO_TRY(in_parallel(reserve));
    if (TENUTO_PLANT("store_bulk_named_before_filled")) name_chain();
    TENUTO_TRY(in_parallel(fill));
    return publish_chain();
  }

 private:
  // A little room, so that the first inserts between the keys do not split every leaf.
  static constexpr std::size_t kFill = kSlots - 4;
  static constexpr std::size_t kGrain = 64;  // leaves

  struct Built {
    PoolOffset at;
    PoolOffset low_block;
    std::string low;
    std::vector<PoolOffset> records;
  };

  // Calls f for parts of all leaves. The first status that is not ok ends it.
  template <class F>
  Status in_parallel(F&& f) {
    std::atomic<Status> first{Status::ok};
    const auto part = [&](const tbb::blocked_range<std::size_t>& r) {
      if (first.load(std::memory_order_relaxed) != Status::ok) return;
      Status expected = Status::ok;
      const Status s = f(r.begin(), r.end());
      if (s != Status::ok) first.compare_exchange_strong(expected, s, std::memory_order_relaxed);
    };
    const tbb::blocked_range<std::size_t> all(0, leaves_.size(), kGrain);
    TENUTO_TRY(pm::in_arena(threads_, [&](bool parallel) {
      if (parallel) {
        tbb::parallel_for(all, part);
      } else {
        part(all);
      }
      return Status::ok;
    }));
    return first.load(std::memory_order_relaxed);
  }

  std::span<const BulkRecord> records_of(std::size_t leaf) const {
    const std::size_t from = leaf * kFill;
    return sorted_.subspan(from, std::min(kFill, sorted_.size() - from));
  }

  // Before any leaf is filled, because each leaf names the next.
  Status reserve_leaves(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const Result<heap::Block> block = tree_.reserve(sizeof(Leaf), heap::Kind::derived);
      if (!block) return block.error();
      leaves_[i].at = block->offset;
    }
    return Status::ok;
  }

  Status fill_leaves(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) TENUTO_TRY(fill_one(i));
    // Each thread fences, because a fence waits only for the flushes of its own processor.
    fence("bulk leaves", "bulk chain");
    return Status::ok;
  }

  Status fill_one(std::size_t i) {
    Built& leaf = leaves_[i];
    const std::span<const BulkRecord> records = records_of(i);
    const std::string_view before = i == 0 ? std::string_view() : sorted_[i * kFill - 1].key;
    NewEntry entries[kSlots];
    ShadowLeaf& shadow = tree_.shadows_.fresh(leaf.at);
    leaf.records.reserve(records.size());
    std::string_view last = before;
    for (std::size_t n = 0; n < records.size(); ++n) {
      const BulkRecord& r = records[n];
      if (!(last < r.key)) return Status::invalid_argument;
      TENUTO_TRY(tree_.check_key(r.key));
      last = r.key;
      const Result<heap::Block> block = tree_.reserve_record(r.key, r.value);
      if (!block) return block.error();
      leaf.records.push_back(block->offset);
      write_record(tree_.file_, block->offset, r.key, r.value);
      const KeyHash hash = hash_key(r.key);
      entries[n] = {SlotWord::make(block->offset, hash.slot), hash.fingerprint};
      shadow.set_entry(static_cast<unsigned>(n), entries[n].word, hash.fingerprint, {});
    }
    leaf.low = shortest_separator(before, records.front().key);
    if (low_needs_block(leaf.low.size())) {
      const Result<heap::Block> block = tree_.reserve(leaf.low.size(), heap::Kind::derived);
      if (!block) return block.error();
      leaf.low_block = block->offset;
      char* const to = tree_.file_.at<char>(leaf.low_block);
      if (!TENUTO_PLANT("store_bulk_separator_unflushed")) {
        copy_flush(to, leaf.low.data(), leaf.low.size());
      } else {
        std::copy(leaf.low.begin(), leaf.low.end(), to);
      }
    }
    const PoolOffset next = i + 1 < leaves_.size() ? leaves_[i + 1].at : PoolOffset{};
    Leaf& made = *tree_.file_.at<Leaf>(leaf.at);
    fill_leaf(made, leaf.at, tree_.id_, next, entries, static_cast<unsigned>(records.size()),
              leaf.low, leaf.low_block);
    shadow.set_leaf(made);
    WholeOrder order(tree_.shadows_.heads_of(shadow), common_prefix(leaf.low, records.back().key),
                     true);
    for (const BulkRecord& r : records) order.add(order.count, slot_head(r.key, order.prefix));
    shadow.order.set(order);
    return Status::ok;
  }

  static bool is_empty(const ShadowLeaf& first) {
    return first.used_slots() == 0 && !store::next_of(*first.leaf);
  }
  bool tree_is_empty() const {
    const EpochGuard guard;
    return is_empty(*tree_.index_.locate({}).leaf);
  }
  // exists: a leaf has records. busy: a snapshot needs an empty leaf's versions. Cost: a fence for
  // each leaf that is unlinked.
  Status unlink_empty_leaves() {
    for (std::string from;;) {
      const EpochGuard guard;
      UpperBound upper;
      const Place place = tree_.index_.locate(from, Aim::at, &upper);
      if (ShadowLeaf::damaged(place.version)) return Status::corrupt;
      if (place.leaf->used_slots() != 0) return Status::exists;
      if (!from.empty() && !TENUTO_PLANT("store_bulk_load_refuses_empty_leaves")) {
        static_cast<void>(tree_.garbage_.mine());  // before a lock: it may have to be made
        TENUTO_TRY(forget_versions(*place.leaf));
        tree_.try_unlink_empty(from);
      }
      if (!upper.bounded) return Status::ok;
      from = std::move(upper.key);
    }
  }
  // The versions in the list are condemned if no snapshot is active. A sweep that comes finds
  // nothing to unlink there.
  Status forget_versions(ShadowLeaf& leaf) {
    if (ShadowLeaf::version_list(leaf.version.load(std::memory_order_relaxed)) == 0) {
      return Status::ok;
    }
    if (!leaf.lock()) return Status::exists;
    LeafLock lock(leaf);
    const bool condemned = tree_.versions_.now().snapshots() == 0;
    if (condemned) tree_.versions_.clear(leaf);
    lock.unlock();
    return condemned ? Status::ok : Status::busy;
  }
  Leaf& first_leaf() const { return *tree_.file_.at<Leaf>(tree_.first_leaf_); }
  void name_chain() {
    HeaderWord& next = first_leaf().head.next;
    publish(next, header_word(next, leaves_[0].at.value));
  }

  // Looks again whether the tree is empty, under the lock.
  Status publish_chain() {
    const EpochGuard guard;
    ShadowLeaf& first = *tree_.index_.locate({}).leaf;
    NodesAbove above;
    if (!TENUTO_PLANT("store_bulk_nodes_made_under_lock")) above = nodes_above(first);
    ThreadGarbage& garbage = tree_.garbage_.mine();  // before the lock: it may have to be made
    if (!first.lock()) return Status::exists;
    LeafLock lock(first);
    if (!is_empty(first) && !TENUTO_PLANT("store_bulk_named_before_filled")) {
      lock.unlock_unchanged();
      return Status::exists;
    }
    if (!tree_.still_there()) {
      const Status s = tree_.gone(lock);
      return s == Status::conflict ? Status::busy : s;  // a transaction was to drop it
    }
    // No version says that the loaded keys were absent, so a snapshot would see them.
    if (tree_.versions_.now().snapshots() != 0) {
      lock.unlock_unchanged();
      return Status::busy;
    }
    name_chain();
    fence("bulk chain", "bulk load returns");
    shown_ = true;
    // The versions in this list are condemned, because no snapshot is active. Their keys move to
    // other leaves. A sweep that comes, or is on its way, finds nothing to unlink there.
    if (!TENUTO_PLANT("store_bulk_load_keeps_a_list")) tree_.versions_.clear(first);
    if (above == nullptr) above = nodes_above(first);
    tree_.index_.adopt(std::move(above));
    lock.unlock();
    std::int64_t bytes = 0;
    for (const BulkRecord& r : sorted_) {
      bytes += static_cast<std::int64_t>(r.key.size() + r.value.size());
    }
    garbage.count(static_cast<std::int64_t>(sorted_.size()), bytes);
    return Status::ok;
  }

  NodesAbove nodes_above(ShadowLeaf& first) {
    std::vector<void*> shadows{&first};
    std::vector<std::string> lows{std::string()};
    shadows.reserve(leaves_.size() + 1);
    lows.reserve(leaves_.size() + 1);
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      shadows.push_back(&tree_.shadows_.of(leaves_[i].at));
      lows.push_back(std::move(leaves_[i].low));
    }
    return Index::nodes_above(shadows, std::move(lows));
  }

  // Nothing durable names these blocks.
  void give_back() {
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      for (const PoolOffset record : leaves_[i].records) tree_.heap_.release(record);
      if (leaves_[i].low_block) tree_.heap_.release(leaves_[i].low_block);
      if (leaves_[i].at) tree_.heap_.release(leaves_[i].at);
    }
  }

  Tree& tree_;
  const std::span<const BulkRecord> sorted_;
  const unsigned threads_;
  std::vector<Built> leaves_;
  bool shown_ = false;
};

Status bulk_load(Tree& tree, std::span<const BulkRecord> sorted, unsigned threads) {
  TENUTO_TRY(tree.writable());
  if (sorted.empty()) return Status::ok;
  const Status s = Tree::Bulk(tree, sorted, threads).run();
  return s == Status::ok ? tree.bad_pages() : s;
}

}  // namespace TENUTO_NS::store

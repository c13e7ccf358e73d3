// From blocks in a pool to a tree: making an empty one, and rebuilding twins and inner nodes at
// open. The chain of leaves is walked once, by one thread, reading a line or two of each leaf;
// everything about a single leaf is done in parallel (oneTBB).
//
// After a crash every leaf may be the left half of a split that got no further than `next`; each
// is compared with its right neighbour, which needs no order among leaves: only a leaf's own
// bitmap is changed, and only bits of entries that stand in the neighbour, too.
//
// The counts that a clean close writes stand in the first leaf (of the default collection: in the
// head page), in a line that nothing else is read from. They count only while the pool says that it
// was closed, so a torn one is never believed.
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <atomic>
#include <bit>
#include <chrono>

#include "pm/plant.h"
#include "store/tree.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::store {

Result<std::unique_ptr<Tree>> Tree::make(Ground& ground, TreeId id, KeyKind kind) {
  const Result<heap::Block> block = ground.heap.reserve(sizeof(Leaf), heap::Kind::derived);
  if (!block) return block.error();
  Leaf* leaf = ground.file.at<Leaf>(block->offset);
  fill_leaf(*leaf, block->offset, id, {}, nullptr, 0, {}, {});
  std::unique_ptr<Tree> tree(new Tree(ground, id, block->offset, kind));
  VLeaf* twin = tree->twins_.take();
  twin->leaf = leaf;
  tree->index_.build({twin}, {std::string()});
  return tree;
}

// One rebuilding; its damage is reported by whoever finds it first.
class Tree::Rebuild {
 public:
  Rebuild(Tree& tree, bool clean, Report* report) : tree_(tree), clean_(clean), report_(report) {}

  Status run(bool parallel) {
    TENUTO_TRY(walk_chain());
    twins_ = tree_.twins_.take_row(leaves_.size());
    const auto each = [this](const tbb::blocked_range<std::size_t>& r) {
      for (std::size_t i = r.begin(); i != r.end(); ++i) {
        if (failed_.load(std::memory_order_relaxed)) return;
        if (const Status s = rebuild_leaf(i); s != Status::ok) note(s);
      }
    };
    const tbb::blocked_range<std::size_t> all(0, leaves_.size(), kGrain);
    if (parallel) {
      tbb::parallel_for(all, each);
    } else {
      each(all);
    }
    if (failed_.load(std::memory_order_acquire)) {
      if (report_ != nullptr) *report_ = first_report_;
      return first_status_;
    }
    std::vector<VLeaf*> twins;
    twins.reserve(leaves_.size());
    for (std::size_t i = 0; i < leaves_.size(); ++i) twins.push_back(&twins_[i]);
    tree_.index_.build(twins, std::move(lows_));
    tree_.records_at_open_ = records_.load(std::memory_order_relaxed);
    return Status::ok;
  }

 private:
  static constexpr std::size_t kGrain = 64;

  Status damaged(Report* report, PoolOffset at, const char* what) const {
    return fail(Status::corrupt, report, "the store is damaged", tree_.file_.where(at, what));
  }

  void note(Status s) {
    const std::lock_guard lock(mu_);
    if (failed_.load(std::memory_order_relaxed)) return;
    first_status_ = s;
    first_report_ = last_report_;
    failed_.store(true, std::memory_order_release);
  }

  // The leaves in order, with separators that ascend, which also excludes loops.
  Status walk_chain() {
    const auto is_leaf = [this](PoolOffset at) {
      return at.value % kLineBytes == 0 && tree_.file_.in_range(at, sizeof(Leaf));
    };
    PoolOffset at = tree_.first_leaf_;
    while (at) {
      if (!is_leaf(at)) return damaged(report_, at, "chain of leaves");
      Leaf& leaf = *tree_.file_.at<Leaf>(at);
      const PoolOffset next = next_of(leaf);
      if (is_leaf(next)) {
        __builtin_prefetch(tree_.file_.at<Leaf>(next));
        __builtin_prefetch(&tree_.file_.at<Leaf>(next)->low);
      }
      const Result<std::string_view> low = store::low_of(tree_.file_, leaf);
      const bool sound = low && (low_sound(tree_.file_, leaf, tree_.id_, *low) ||
                                 TENUTO_PLANT("store_separator_checksum_not_compared"));
      if (!sound) return damaged(report_, at, "low separator");
      const bool ordered = lows_.empty() ? low->empty() : lows_.back() < *low;
      if (!ordered) return damaged(report_, at, "order of leaves");
      if (!is_sound(leaf.head.bitmap)) return damaged(report_, at, "leaf bitmap");
      if (!is_sound(leaf.head.next)) return damaged(report_, at, "link to the next leaf");
      leaves_.push_back(at);
      lows_.emplace_back(*low);
      at = next;
    }
    return Status::ok;
  }

  Status rebuild_leaf(std::size_t i) {
    Report report;
    const Status s = rebuild_leaf(i, &report);
    if (s != Status::ok) {
      const std::lock_guard lock(mu_);
      last_report_ = std::move(report);
    }
    return s;
  }

  Status rebuild_leaf(std::size_t i, Report* report) {
    const PoolOffset at = leaves_[i];
    Leaf& leaf = *tree_.file_.at<Leaf>(at);
    if (!clean_) {
      if (i + 1 < leaves_.size() && resolve_split(leaf, *tree_.file_.at<Leaf>(leaves_[i + 1]))) {
        fence("split finished", "store is used");
      }
      TENUTO_TRY(tree_.heap_.mark(at, report));
      const PoolOffset block = low_block(leaf);
      if (block && !TENUTO_PLANT("store_separator_block_not_marked")) {
        TENUTO_TRY(tree_.heap_.mark(block, report));
      }
    }
    VLeaf& twin = twins_[i];
    twin.leaf = &leaf;
    std::int64_t records = 0;
    for (std::uint64_t used = bitmap_of(leaf); used != 0; used &= used - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(used));
      const PoolOffset record = leaf.slot[slot].record();
      if (leaf.head.print[slot] == 0 || !tree_.file_.in_range(record, sizeof(RecordHead))) {
        return damaged(report, at + kLineBytes + slot * sizeof(SlotWord), "slot of a leaf");
      }
      if (!clean_) TENUTO_TRY(tree_.heap_.mark(record, report));
      twin.set_entry(slot, leaf.slot[slot], leaf.head.print[slot]);
      records += 1;
    }
    records_.fetch_add(records, std::memory_order_relaxed);
    return Status::ok;
  }

  Tree& tree_;
  const bool clean_;
  Report* const report_;
  std::vector<PoolOffset> leaves_;
  std::vector<std::string> lows_;
  VLeaf* twins_ = nullptr;
  std::atomic<std::int64_t> records_{0};
  std::atomic<bool> failed_{false};
  std::mutex mu_;
  // Guarded by mu_.
  Status first_status_ = Status::ok;
  Report first_report_, last_report_;
};

Result<std::unique_ptr<Tree>> Tree::rebuild(Ground& ground, TreeId id, PoolOffset first_leaf,
                                            KeyKind kind, bool clean, bool parallel,
                                            Report* report) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Tree> tree(new Tree(ground, id, first_leaf, kind));
  TENUTO_TRY(Rebuild(*tree, clean, report).run(parallel));
  if (clean) {
    // What the close wrote is a fact about this very state, or the state was not closed cleanly.
    const TreeCounts counts = tree->written_counts();
    if (!counts.sound(first_leaf) ||
        counts.records != static_cast<std::uint64_t>(tree->records_at_open_)) {
      return fail(Status::corrupt, report, "the number of records is not what it was at the close",
                  ground.file.where(first_leaf, "first leaf"), std::to_string(counts.records),
                  std::to_string(tree->records_at_open_));
    }
    tree->record_bytes_at_open_ = static_cast<std::int64_t>(counts.record_bytes);
  } else {
    tree->record_bytes_known_.store(false, std::memory_order_relaxed);
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  tree->rebuild_ms_ = took.count();
  return tree;
}

TreeCounts Tree::written_counts() const {
  if (id_ != kDefaultTree) return counts_of(*file_.at<Leaf>(first_leaf_));
  const std::uint64_t* head = file_.head().store;
  return TreeCounts::make(first_leaf_, head[kHeadRecords], head[kHeadRecordBytes]);
}

void Tree::write_counts(const TreeCounts& counts) {
  if (id_ == kDefaultTree) {
    std::uint64_t* head = file_.head().store;
    head[kHeadRecords] = counts.records;
    head[kHeadRecordBytes] = counts.record_bytes;
    flush_bytes(head, sizeof file_.head().store);
  } else {
    Leaf& first = *file_.at<Leaf>(first_leaf_);
    set_counts(first, counts);
    flush(first.low);
  }
}

void Tree::close() {
  StoreStats counts;
  stats(counts);
  limbos_.drain();
  write_counts(TreeCounts::make(first_leaf_, counts.records, counts.record_bytes));
}

void Tree::give_back() {
  limbos_.drain();
  history_.for_each([this](const OldVersion& v) {
    if (v.tree == this && v.record) heap_.release(v.record);
  });
  history_.forget(*this);
  std::vector<VLeaf*> twins;
  index_.for_each([&](VLeaf* twin, std::string_view) { twins.push_back(twin); });
  for (VLeaf* twin : twins) {
    for (std::uint64_t used = twin->used_slots(); used != 0; used &= used - 1) {
      heap_.release(twin->word(static_cast<unsigned>(std::countr_zero(used))).record());
    }
    if (const PoolOffset block = low_block(*twin->leaf)) heap_.release(block);
    heap_.release(file_.offset_of(twin->leaf));
    twins_.put(twin);
  }
}

// After a crash the bytes are counted when somebody first asks; recovery reads no record.
void Tree::count_record_bytes() const {
  const EpochGuard guard;
  std::int64_t bytes = 0;
  std::vector<Entry> found;
  index_.for_each([&](VLeaf* twin, std::string_view) {
    for (;;) {
      const std::uint64_t version = twin->read_version();
      const Status s = entries({twin, version}, found);
      if (s == Status::conflict) continue;
      if (s == Status::ok && !twin->still(version)) continue;
      break;
    }
    for (const Entry& e : found) {
      bytes += static_cast<std::int64_t>(e.record.key.size() + e.record.value.size());
    }
  });
  record_bytes_at_open_ = bytes - limbos_.record_bytes();
  record_bytes_known_.store(true, std::memory_order_release);
}

void Tree::stats(StoreStats& out) const {
  {
    const std::lock_guard lock(count_mu_);
    if (!record_bytes_known_.load(std::memory_order_acquire)) count_record_bytes();
  }
  const EpochGuard guard;
  const Index::Shape shape = index_.shape();
  out.records = static_cast<std::uint64_t>(records_at_open_ + limbos_.records());
  out.record_bytes = static_cast<std::uint64_t>(record_bytes_at_open_ + limbos_.record_bytes());
  out.leaves = 0;
  index_.for_each([&](VLeaf*, std::string_view) { out.leaves += 1; });
  out.inner_nodes = shape.nodes;
  out.height = shape.levels;
  out.index_dram_bytes = shape.bytes + out.leaves * sizeof(VLeaf);
  out.rebuild_ms = rebuild_ms_;
}

}  // namespace tenuto::inline TENUTO_ABI::store

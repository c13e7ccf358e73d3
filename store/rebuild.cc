// From a pool to a tree: creation of an empty store, and the rebuilding of twins and inner nodes
// at open. The chain of leaves is walked once, by one thread, reading a line or two of each leaf;
// everything about a single leaf is done in parallel (oneTBB).
//
// Creation: first leaf, store word |first leaf| HeadPage.store[0] |store is named| HeadPage.roots
// |store is named again|. The first fence keeps a name from a leaf that is not whole, the second
// the second name from being alone, which would look like damage; an open after a crash between the
// two gives the second name itself. The third makes the store durable before anybody uses it. The
// offset in HeadPage.store[0] is authoritative: while it is 0 there is no store, and the leaf, a
// derived block nobody marks, is given back by the heap's recovery. The same offset stands among
// the roots, in another line, so that damage of the first is not taken for a pool without a store.
//
// After a crash every leaf may be the left half of a split that got no further than `next`; each
// is compared with its right neighbour, which needs no order among leaves: only a leaf's own
// bitmap is changed, and only bits of entries that stand in the neighbour, too.
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <bit>
#include <chrono>

#include "pm/plant.h"
#include "store/tree.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::store {

bool Tree::exists(const pm::PoolFile& file) {
  return file.head().store[kHeadFirstLeaf] != 0 || file.head().roots[pm::kRootStore] != 0;
}

Result<std::unique_ptr<Tree>> Tree::create(pm::PoolFile& file, heap::Heap& heap, tx::Engine& engine,
                                           History& history, KeyKind kind, Report* report) {
  const Result<heap::Block> block = heap.reserve(sizeof(Leaf), heap::Kind::derived);
  if (!block) {
    return fail(block.error(), report, "no room in the pool for a store", file.path());
  }
  fill_leaf(*file.at<Leaf>(block->offset), block->offset, {}, nullptr, 0, {}, {});
  std::uint64_t* head = file.head().store;
  if (TENUTO_PLANT("store_named_before_first_leaf")) {
    publish(head[kHeadFirstLeaf], block->offset.value);
  }
  head[kHeadWord] = StoreWord::make(kind, block->offset).raw;
  head[kHeadRecords] = 0;
  head[kHeadRecordBytes] = 0;
  flush_bytes(head, sizeof file.head().store);
  fence("first leaf", "store is named");
  if (TENUTO_PLANT("store_second_name_first")) {
    publish(file.head().roots[pm::kRootStore], block->offset.value);
  }
  publish(head[kHeadFirstLeaf], block->offset.value);
  fence("store is named", "store is named again");
  publish(file.head().roots[pm::kRootStore], block->offset.value);
  fence("store is named again", "store is used");

  std::unique_ptr<Tree> tree(new Tree(file, heap, engine, history, kind));
  VLeaf* twin = tree->twins_.take();
  twin->leaf = file.at<Leaf>(block->offset);
  tree->index_.build({twin}, {std::string()});
  return tree;
}

// One rebuilding; its damage is reported by whoever finds it first.
class Tree::Rebuild {
 public:
  Rebuild(Tree& tree, bool clean, Report* report) : tree_(tree), clean_(clean), report_(report) {}

  Status run(unsigned threads) {
    TENUTO_TRY(walk_chain());
    twins_ = tree_.twins_.take_row(leaves_.size());
    const auto each = [this](const tbb::blocked_range<std::size_t>& r) {
      for (std::size_t i = r.begin(); i != r.end(); ++i) {
        if (failed_.load(std::memory_order_relaxed)) return;
        if (const Status s = rebuild_leaf(i); s != Status::ok) note(s);
      }
    };
    const tbb::blocked_range<std::size_t> all(0, leaves_.size(), kGrain);
    if (threads == 1) {
      each(all);
    } else {
      tbb::task_arena arena(threads == 0 ? tbb::task_arena::automatic : static_cast<int>(threads));
      arena.execute([&] { tbb::parallel_for(all, each); });
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
    PoolOffset at{tree_.file_.head().store[kHeadFirstLeaf]};
    while (at) {
      if (!is_leaf(at)) return damaged(report_, at, "chain of leaves");
      Leaf& leaf = *tree_.file_.at<Leaf>(at);
      const PoolOffset next = next_of(leaf);
      if (is_leaf(next)) {
        __builtin_prefetch(tree_.file_.at<Leaf>(next));
        __builtin_prefetch(&tree_.file_.at<Leaf>(next)->low);
      }
      const bool check = !TENUTO_PLANT("store_separator_checksum_not_compared");
      const Result<std::string_view> low = store::low_of(tree_.file_, leaf, check);
      if (!low) return damaged(report_, at, "low separator");
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

Result<std::unique_ptr<Tree>> Tree::rebuild(pm::PoolFile& file, heap::Heap& heap,
                                            tx::Engine& engine, History& history, bool clean,
                                            unsigned threads, Report* report) {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t* head = file.head().store;
  const StoreWord word{head[kHeadWord]};
  const bool kind_known = word.kind() == KeyKind::bytes || word.kind() == KeyKind::u64;
  if (!kind_known || word.version() != StoreWord::kVersion ||
      word.raw != StoreWord::make(word.kind(), {head[kHeadFirstLeaf]}).raw) {
    return fail(Status::corrupt, report, "the store's word in the head page is damaged",
                file.where({pm::kHeadPageOffset + offsetof(pm::HeadPage, store)}, "store word"));
  }
  std::uint64_t& again = file.head().roots[pm::kRootStore];
  if (again != head[kHeadFirstLeaf]) {
    if (again != 0 || clean) {
      return fail(Status::corrupt, report, "the two names of the store in the head page differ",
                  file.where({pm::kHeadPageOffset}, "roots"), std::to_string(head[kHeadFirstLeaf]),
                  std::to_string(again));
    }
    publish(again, head[kHeadFirstLeaf]);  // the crash met the creation
    fence("store is named again", "store is used");
  }
  std::unique_ptr<Tree> tree(new Tree(file, heap, engine, history, word.kind()));
  TENUTO_TRY(Rebuild(*tree, clean, report).run(threads));
  if (clean) {
    // What the close wrote is a fact about this very state, or the state was not closed cleanly.
    if (head[kHeadRecords] != static_cast<std::uint64_t>(tree->records_at_open_)) {
      return fail(Status::corrupt, report, "the number of records is not what it was at the close",
                  file.where({pm::kHeadPageOffset + offsetof(pm::HeadPage, store)}, "store line"),
                  std::to_string(head[kHeadRecords]), std::to_string(tree->records_at_open_));
    }
    tree->record_bytes_at_open_ = static_cast<std::int64_t>(head[kHeadRecordBytes]);
  } else {
    tree->record_bytes_known_.store(false, std::memory_order_relaxed);
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  tree->rebuild_ms_ = took.count();
  return tree;
}

Status Tree::close() {
  StoreStats counts;
  stats(counts);
  limbos_.drain();
  std::uint64_t* head = file_.head().store;
  head[kHeadRecords] = counts.records;
  head[kHeadRecordBytes] = counts.record_bytes;
  flush_bytes(head, sizeof file_.head().store);
  fence("store's counts", "the heap is closed");
  return Status::ok;
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
  out.index_dram_bytes = shape.bytes + twins_.bytes();
  out.rebuild_ms = rebuild_ms_;
}

}  // namespace tenuto::inline TENUTO_ABI::store

// How a tree is made empty, and how its inner nodes are rebuilt at open. One thread walks the chain
// of leaves once and reads one line of each leaf. Tasks behind it do in parallel all that concerns
// a single leaf (oneTBB). So only the walk is serial. Shadow leaves are made when a thread first
// comes to a leaf (unmade.h).
//
// After a crash every leaf may be the left half of a split that got no further than `next`. So each
// leaf is compared with its right neighbour. This needs no order among leaves: it changes only the
// leaf's own bitmap, and only bits of entries that are also in the neighbour.
//
// A clean close writes the tree's counts to the first leaf (of the default collection: to the head
// page), in bytes that hold nothing else. They are used only if the pool is marked as closed, so a
// torn count is never used. It also leaves an image of the leaves (image.h). An open that finds one
// walks no chain, and a leaf is then judged when a thread first comes there.
#include "store/tree/rebuild.h"

#include <tbb/task_group.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <deque>
#include <iterator>

#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/tree/image.h"
#include "store/tree/leaf_marks.h"
#include "store/tree/statistics.h"
#include "store/tree/unmade.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

// One rebuild. The first damage found is reported.
class Tree::Rebuild {
 public:
  static Result<std::unique_ptr<Tree>> make(Ground& ground, TreeId id, KeyOrder order);
  static Result<std::unique_ptr<Tree>> open(Ground& ground, TreeId id, PoolOffset first_leaf,
                                            KeyOrder order, bool clean, bool parallel,
                                            Report* report);
  static void close(Tree& tree, bool as_found);
  static std::size_t image_parts(const Tree& tree) { return tree.image_parts_; }

 private:
  static void leave_image(Tree& tree);
  Rebuild(Tree& tree, bool clean, Report* report) : tree_(tree), clean_(clean), report_(report) {}

  Status run(bool parallel) {
    if (parallel) {
      tbb::task_group behind;
      const Status walked =
          walk_chain([&](Chunk& c) { behind.run([this, &c] { rebuild_chunk(c); }); });
      behind.wait();
      TENUTO_TRY(walked);
    } else {
      TENUTO_TRY(walk_chain([this](Chunk& c) { rebuild_chunk(c); }));
    }
    if (failed_.load(std::memory_order_acquire)) {
      if (report_ != nullptr) *report_ = first_report_;
      return first_status_;
    }
    std::vector<void*> leaves;
    std::vector<std::string> lows;
    leaves.reserve(leaves_);
    lows.reserve(leaves_);
    for (Chunk& c : chunks_) {
      TENUTO_ASSERT(c.turn.load(std::memory_order_acquire) == Chunk::Turn::done);
      leaves.insert(leaves.end(), c.unmade, c.unmade + c.count);
      std::move(c.lows.begin(), c.lows.end(), std::back_inserter(lows));
    }
    tree_.index_.build(leaves, std::move(lows));
    if (!clean_) mark_later();
    tree_.records_at_open_ = records_.load(std::memory_order_relaxed);
    return Status::ok;
  }

  // After a clean close: builds the index from the image. False: there is none.
  Status take_image() {
    if (!can_be_leaf(tree_.first_leaf_)) return Status::not_found;
    const Result<PoolOffset> at = image_of(leaf_at(tree_.first_leaf_));
    if (!at) {
      if (at.error() == Status::corrupt) lose_image("name of the image of leaves");
      return Status::not_found;
    }
    const Status s =
        read_image(tree_.file_, tree_.id_, tree_.first_leaf_, *at, tree_.index_, image_);
    if (s == Status::corrupt) {
      image_.clear();
      lose_image("image of leaves");
    }
    if (s == Status::conflict)
      return image_is_of_another_close(tree_.file_, tree_.first_leaf_, report_);
    return s == Status::ok ? s : Status::not_found;
  }
  // Its blocks, if they are some, wait for the next recovery.
  void lose_image(const char* what) const {
    if (tree_.file_.read_only()) return;
    tree_.file_.log(tree_.file_.where(tree_.first_leaf_, what) +
                    ": damaged; the leaves are read instead");
    tree_.file_.leave_to_recovery(pm::Unknown::damage);
  }
  // The image has been read, or counts no more.
  void end_image() const {
    Leaf& first = leaf_at(tree_.first_leaf_);
    const Result<PoolOffset> named = image_of(first);
    const bool none = !named && named.error() == Status::not_found;
    if (none || tree_.file_.read_only()) return;
    const bool keep = TENUTO_PLANT("store_image_not_given_back");
    tree_.heap_.release_when_read(keep ? std::span<const PoolOffset>() : image_, [&first] {
      set_image(first, {});
      flush(first.low);
      fence("image's name", "its blocks are given back");
    });
    tree_.image_at_open_ = image_.empty() ? PoolOffset{} : image_[0];
    tree_.image_parts_ = image_.size();
  }

  static constexpr std::size_t kChunk = 128;

  // Leaves in a row, and their neighbours.
  struct Chunk {
    PoolOffset before;  // 0: it begins with the first leaf
    PoolOffset at[kChunk];
    PoolOffset behind;  // 0: it ends with the last one
    std::size_t count = 0;
    void* unmade[kChunk];  // UnmadeLeaf::child of each
    std::uint64_t used[kChunk];
    std::vector<std::string> lows;
    // A chunk is handed to a task and back. Atomic for the thread sanitizer: it does not see TBB's
    // own order, because its build does not instrument that library.
    enum class Turn : std::uint8_t { walk, task, done };
    std::atomic<Turn> turn{Turn::walk};
  };

  Status damaged(Report* report, PoolOffset at, const char* what) const {
    return fail(Status::corrupt, report, "the store is damaged", tree_.file_.where(at, what));
  }
  bool can_be_leaf(PoolOffset at) const {
    return at.value % kLineBytes == 0 && tree_.file_.in_range(at, sizeof(Leaf));
  }
  Leaf& leaf_at(PoolOffset at) const { return *tree_.file_.at<Leaf>(at); }

  // Hands the leaves out in order, a chunk at a time. It reads one line of each, and the order of
  // leaves is checked by the tasks. So a loop is found by the length of the walk.
  template <class Take>
  Status walk_chain(Take&& take) {
    const std::size_t leaves_max = tree_.file_.bytes() / sizeof(Leaf);
    PoolOffset before{};
    PoolOffset at = tree_.first_leaf_;
    while (at) {
      Chunk& c = chunks_.emplace_back();
      c.before = before;
      for (; at && c.count < kChunk; ++c.count) {
        if (!can_be_leaf(at) || leaves_ == leaves_max)
          return damaged(report_, at, "chain of leaves");
        const Leaf& leaf = leaf_at(at);
        if (!is_sound(leaf.head.next)) return damaged(report_, at, "link to the next leaf");
        c.at[c.count] = before = at;
        at = store::next_of(leaf);
        leaves_ += 1;
      }
      c.behind = at;
      if (at && !can_be_leaf(at)) continue;  // the next round reports it
      c.turn.store(Chunk::Turn::task, std::memory_order_release);
      take(c);
      if (failed_.load(std::memory_order_relaxed)) break;
    }
    return Status::ok;
  }

  void rebuild_chunk(Chunk& c) {
    TENUTO_ASSERT(c.turn.load(std::memory_order_acquire) == Chunk::Turn::task);
    rebuild_leaves(c);
    c.turn.store(Chunk::Turn::done, std::memory_order_release);
  }

  void rebuild_leaves(Chunk& c) {
    c.lows.reserve(c.count);
    for (std::size_t i = 0; i < c.count; ++i) {
      if (failed_.load(std::memory_order_relaxed)) return;
      if (i + 1 < c.count) prefetch(c.at[i + 1]);
      Report report;
      const Status s = rebuild_leaf(c, i, &report);
      if (s != Status::ok) return note_failure(s, std::move(report));
    }
  }

  void mark_later() const {
    std::vector<LeafAtOpen> leaves;
    leaves.reserve(leaves_);
    for (const Chunk& c : chunks_) {
      for (std::size_t i = 0; i < c.count; ++i) leaves.push_back({c.at[i], c.used[i]});
    }
    tree_.heap_.mark_later(std::make_unique<LeafMarks>(tree_.file_, std::move(leaves)));
  }

  void note_failure(Status s, Report&& report) {
    const std::lock_guard lock(mu_);
    if (failed_.load(std::memory_order_relaxed)) return;
    first_status_ = s;
    first_report_ = std::move(report);
    failed_.store(true, std::memory_order_release);
  }

  void prefetch(PoolOffset at) const {
    const Leaf& leaf = leaf_at(at);
    __builtin_prefetch(&leaf.head);
    __builtin_prefetch(&leaf.low);
  }

  // Its slots are judged when a thread first comes there, or when the heap asks for its blocks.
  Status rebuild_leaf(Chunk& c, std::size_t i, Report* report) {
    const PoolOffset at = c.at[i];
    Leaf& leaf = leaf_at(at);
    TENUTO_TRY(take_low(c, i, leaf, report));
    if (!bitmap_sound(leaf)) return damaged(report, at, "leaf bitmap or fingerprints");
    if (!clean_) TENUTO_TRY(recover_leaf(leaf, i + 1 < c.count ? c.at[i + 1] : c.behind, report));
    c.used[i] = bitmap_of(leaf);
    c.unmade[i] = UnmadeLeaf::of(at, leaf.low.check).child();
    records_.fetch_add(std::popcount(c.used[i]), std::memory_order_relaxed);
    return Status::ok;
  }

  // Separators ascend from leaf to leaf, also from the last leaf of the chunk before.
  Status take_low(Chunk& c, std::size_t i, const Leaf& leaf, Report* report) const {
    const PoolOffset at = c.at[i];
    const Result<std::string_view> low = store::low_of(tree_.file_, leaf);
    const bool sound = low && (low_sound(tree_.file_, leaf, tree_.id_, *low) ||
                               TENUTO_PLANT("store_separator_checksum_not_compared"));
    if (!sound) return damaged(report, at, "low separator");
    bool ordered = low->empty();
    if (i > 0) {
      ordered = c.lows.back() < *low;
    } else if (c.before) {
      const Result<std::string_view> left = store::low_of(tree_.file_, leaf_at(c.before));
      ordered = left && *left < *low;
    }
    if (!ordered) return damaged(report, at, "order of leaves");
    c.lows.emplace_back(*low);
    return Status::ok;
  }

  // Finishes a split that got no further than `next`.
  Status recover_leaf(Leaf& leaf, PoolOffset next, Report* report) const {
    if (!next) return Status::ok;
    const Leaf& right = leaf_at(next);
    // Another task may be changing it. What is used of it must be sound.
    if (!bitmap_sound(right)) return damaged(report, next, "leaf bitmap or fingerprints");
    if (resolve_split(leaf, right)) fence("split finished", "store is used");
    return Status::ok;
  }

  TreeCounts written_counts() const {
    if (tree_.id_ != kDefaultTree) return counts_of(*tree_.file_.at<Leaf>(tree_.first_leaf_));
    const pm::MetadataOpen rights;
    const std::uint64_t* head = tree_.file_.head().store;
    return TreeCounts::make(tree_.first_leaf_, head[kHeadRecords], head[kHeadRecordBytes]);
  }

  Tree& tree_;
  const bool clean_;
  Report* const report_;
  // Written by the walk. A chunk that is handed out belongs to its task.
  std::deque<Chunk> chunks_;
  std::size_t leaves_ = 0;
  std::vector<PoolOffset> image_;  // the parts that the index was built from
  std::atomic<std::int64_t> records_{0};
  std::atomic<bool> failed_{false};
  std::mutex mu_;
  // Guarded by mu_ until failed_ says so.
  Status first_status_ = Status::ok;
  Report first_report_;
};

Result<std::unique_ptr<Tree>> Tree::Rebuild::make(Ground& ground, TreeId id, KeyOrder order) {
  const Result<heap::Block> block = ground.heap.reserve(sizeof(Leaf), heap::Kind::derived);
  if (!block) return block.error();
  UnlinkedBlock unlinked(ground.heap, block->offset);
  Leaf* leaf = ground.file.at<Leaf>(block->offset);
  fill_leaf(*leaf, block->offset, id, {}, nullptr, 0, {}, {});
  std::unique_ptr<Tree> tree(new Tree(ground, id, block->offset, order));
  ShadowLeaf& shadow = tree->shadows_.fresh(block->offset);
  shadow.set_leaf(*leaf);
  tree->index_.build({static_cast<void*>(&shadow)}, {std::string()});
  unlinked.linked();
  return tree;
}

Result<std::unique_ptr<Tree>> Tree::Rebuild::open(Ground& ground, TreeId id, PoolOffset first_leaf,
                                                  KeyOrder order, bool clean, bool parallel,
                                                  Report* report) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Tree> tree(new Tree(ground, id, first_leaf, order));
  Rebuild rebuild(*tree, clean, report);
  const bool counts_still = clean || TENUTO_PLANT("store_image_after_a_crash");
  const Status image = counts_still ? rebuild.take_image() : Status::not_found;
  if (image != Status::ok && image != Status::not_found) return image;
  const bool from_image = image == Status::ok;
  if (!from_image) TENUTO_TRY(rebuild.run(parallel));
  if (clean) {
    // The counts of the close must fit the pool, or the pool was not closed cleanly.
    const TreeCounts counts = rebuild.written_counts();
    if (from_image) tree->records_at_open_ = static_cast<std::int64_t>(counts.records);
    if (!counts.sound(first_leaf) ||
        counts.records != static_cast<std::uint64_t>(tree->records_at_open_)) {
      return fail(Status::corrupt, report, "the number of records is not what it was at the close",
                  ground.file.where(first_leaf, "first leaf"), std::to_string(counts.records),
                  std::to_string(tree->records_at_open_));
    }
    if (counts.record_bytes == TreeCounts::kNotCounted) {
      tree->bytes_counted_ = Counted::no;
    } else {
      tree->record_bytes_at_open_ = static_cast<std::int64_t>(counts.record_bytes);
    }
  } else {
    tree->bytes_counted_ = Counted::no;
  }
  rebuild.end_image();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  tree->rebuild_ms_ = took.count();
  return tree;
}

void Tree::Rebuild::close(Tree& tree, bool as_found) {
  const auto records = static_cast<std::uint64_t>(tree.records_at_open_ + tree.garbage_.records());
  const auto bytes =
      static_cast<std::uint64_t>(tree.record_bytes_at_open_ + tree.garbage_.record_bytes());
  tree.garbage_.drain();
  if (tree.garbage_.lost()) tree.file_.leave_to_recovery(pm::Unknown::no_memory);
  const bool counted = tree.bytes_counted_ == Counted::exactly;
  const TreeCounts counts =
      TreeCounts::make(tree.first_leaf_, records, counted ? bytes : TreeCounts::kNotCounted);
  if (tree.id_ == kDefaultTree) {
    const pm::MetadataOpen rights;
    std::uint64_t* head = tree.file_.head().store;
    head[kHeadRecords] = counts.records;
    head[kHeadRecordBytes] = counts.record_bytes;
    if (!as_found) name_life_of_image(tree.file_);
    flush_bytes(head, sizeof tree.file_.head().store);
  } else {
    Leaf& first = *tree.file_.at<Leaf>(tree.first_leaf_);
    set_counts(first, counts);
    flush(first.low);
  }
  if (as_found) {
    Leaf& first = *tree.file_.at<Leaf>(tree.first_leaf_);
    set_image(first, tree.image_at_open_);
    flush(first.low);
  } else {
    static_cast<void>(pm::had_memory([&] { leave_image(tree); }));
  }
}

// Without room there is none, and without memory (bad_alloc).
void Tree::Rebuild::leave_image(Tree& tree) {
  if (tree.file_.left_to_recovery() != pm::Unknown::nothing || tree.file_.writable() != Status::ok)
    return;
  Leaf& first = *tree.file_.at<Leaf>(tree.first_leaf_);
  // A close that failed half-way has left one, and the tree may have changed since.
  if (const Result<PoolOffset> before = image_of(first); before) {
    const std::vector<PoolOffset> parts = blocks_of_image(tree.file_, tree.id_, *before);
    set_image(first, {});
    flush(first.low);
    for (const PoolOffset part : parts) tree.heap_.release(part);
  }
  const Result<PoolOffset> at = write_image(tree.file_, tree.heap_, tree.id_, tree.index_);
  if (!at) return;
  set_image(first, *at);
  flush(first.low);
}

Result<std::unique_ptr<Tree>> make_tree(Ground& ground, TreeId id, KeyOrder order) {
  return Tree::Rebuild::make(ground, id, order);
}

Result<std::unique_ptr<Tree>> rebuild_tree(Ground& ground, TreeId id, PoolOffset first_leaf,
                                           KeyOrder order, bool clean, bool parallel,
                                           Report* report) {
  return Tree::Rebuild::open(ground, id, first_leaf, order, clean, parallel, report);
}

void close_tree(Tree& tree, bool as_found) { Tree::Rebuild::close(tree, as_found); }
std::size_t image_parts(const Tree& tree) { return Tree::Rebuild::image_parts(tree); }

}  // namespace TENUTO_NS::store

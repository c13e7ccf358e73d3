// Store::validate. In each tree it compares the chain of leaves with the index, each leaf with its
// shadow leaf and its separators, and each record with its slot and its checksum. Then it compares
// all trees with the heap: every block of the store's kind is reachable exactly once. REQUIRES: no
// thread writes or allocates meanwhile.
#include "store/tree/check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>
#include <tuple>

#include "pm/plant.h"
#include "store/tree/image.h"

namespace TENUTO_NS::store {

class Tree::Check {
 public:
  Check(const Tree& tree, Reached& reached, Report* report)
      : tree_(tree), reached_(reached), report_(report) {}

  Status run() {
    const EpochGuard guard;
    std::vector<std::pair<ShadowLeaf*, std::string>> leaves;
    tree_.index_.for_each(
        [&](ShadowLeaf* shadow, std::string_view sep) { leaves.emplace_back(shadow, sep); });
    PoolOffset expected = tree_.first_leaf_;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      ShadowLeaf& shadow = *leaves[i].first;
      const PoolOffset at = tree_.file_.offset_of(shadow.leaf);
      if (at != expected) return damaged(at, "the index and the chain of leaves disagree");
      const std::string* end = i + 1 < leaves.size() ? &leaves[i + 1].second : nullptr;
      TENUTO_TRY(check_leaf(shadow, at, leaves[i].second, end));
      expected = store::next_of(*shadow.leaf);
    }
    if (expected) return damaged(expected, "the chain of leaves is longer than the index");
    // An open to read leaves the image where it is.
    if (const Result<PoolOffset> image = image_of(*tree_.file_.at<Leaf>(tree_.first_leaf_));
        image) {
      const std::vector<PoolOffset> parts = blocks_of_image(tree_.file_, tree_.id_, *image);
      for (const PoolOffset part : parts) TENUTO_TRY(reach(part));
      if (parts.empty()) TENUTO_TRY(reach(*image));  // damaged
    }
    // Blocks that wait for readers are in use and rightly unreachable.
    tree_.garbage_.for_each([this](const Retired& item) {
      if (item.what == Retired::What::block) reached_.note({item.word});
    });
    tree_.versions_.for_each([this](const OldVersion& v) {
      if (v.tree == &tree_ && v.record) reached_.note(v.record);
    });
    return Status::ok;
  }

  void note_all() const;

 private:
  Status damaged(PoolOffset at, std::string what) const {
    return fail(Status::corrupt, report_, std::move(what), tree_.file_.where(at, "store"));
  }

  struct KeyAt {
    std::string_view key;
    unsigned slot;
    bool operator<(const KeyAt& other) const {
      return std::tie(key, slot) < std::tie(other.key, other.slot);
    }
  };
  static PoolOffset place_of_slot(PoolOffset leaf, unsigned slot) {
    return leaf + kLineBytes + slot * sizeof(SlotWord);
  }

  // Each block is reached once, and the heap has given it out.
  Status reach(PoolOffset block) {
    if (!tree_.heap_.find_taken(block, heap::Kind::derived)) {
      return damaged(block, "a reference leads to no block in use");
    }
    if (!reached_.note(block)) {
      return damaged(block, "a block is referred to twice");
    }
    return Status::ok;
  }

  Status check_leaf(ShadowLeaf& shadow, PoolOffset at, const std::string& sep,
                    const std::string* end) {
    const Leaf& leaf = *shadow.leaf;
    TENUTO_TRY(reach(at));
    const Result<std::string_view> low = store::low_of(tree_.file_, leaf);
    if (!low || !low_sound(tree_.file_, leaf, tree_.id_, *low)) {
      return damaged(at, "a low separator is damaged");
    }
    if (*low != sep) return damaged(at, "a leaf's separator is not the index's");
    if (const PoolOffset block = low_block(leaf)) TENUTO_TRY(reach(block));
    if (!bitmap_sound(leaf)) return damaged(at, "a leaf's bitmap or a fingerprint is damaged");
    if (!is_sound(leaf.head.next)) return damaged(at, "a leaf's link is damaged");
    if (ShadowLeaf::damaged(shadow.version.load(std::memory_order_relaxed)))
      return damaged(at, "the leaf was found damaged when a thread came to it");
    if (bitmap_of(leaf) != shadow.used_slots())
      return damaged(at, "a leaf and its shadow disagree");
    std::array<KeyAt, kSlots> keys;
    std::size_t count = 0;
    for (std::uint64_t used = bitmap_of(leaf); used != 0; used &= used - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(used));
      TENUTO_TRY(check_slot(shadow, slot, at, sep, end, keys[count]));
      count += 1;
    }
    std::sort(keys.begin(), keys.begin() + count);
    for (std::size_t i = 1; i < count; ++i) {
      if (keys[i].key == keys[i - 1].key) {
        return damaged(place_of_slot(at, keys[i].slot), "a key stands twice");
      }
    }
    return check_order(shadow, at);
  }

  // REQUIRES: the slots were checked. A walk of another thread may store the order meanwhile.
  Status check_order(ShadowLeaf& shadow, PoolOffset at) {
    if (!shadow.lock()) return Status::ok;
    LeafLock lock(shadow);
    const bool right = order_is_right(shadow);
    lock.unlock_unchanged();
    return right ? Status::ok : damaged(at, "the order of a leaf's slots is wrong");
  }
  bool order_is_right(const ShadowLeaf& shadow) const {
    const SlotOrder& order = shadow.order;
    if (!order.known()) return true;
    const bool headed = order.has_heads();
    const SlotHeads& heads = tree_.shadows_.heads_of(shadow);
    const Result<KeyRange> range = tree_.leaves_.range_of(shadow);
    if (!range || (headed && !order.open() && order.prefix() > range->prefix())) return false;
    std::uint64_t used = shadow.used_slots();
    std::optional<std::string_view> last;
    for (unsigned i = 0; i < shadow.count(); ++i) {
      const unsigned slot = order.slot(i);
      Record record;
      if ((used >> slot & 1) == 0) return false;
      if (!read_record(tree_.file_, shadow.word(slot).record(), record)) return false;
      if (headed && common_prefix(range->low, record.key) < order.prefix()) return false;
      if (headed && heads.of[slot] != slot_head(record.key, order.prefix())) return false;
      if (last && record.key <= *last) return false;
      last = record.key;
      used &= ~(1ull << slot);
    }
    return used == 0;
  }

  Status check_slot(const ShadowLeaf& shadow, unsigned slot, PoolOffset at, const std::string& low,
                    const std::string* end, KeyAt& key) {
    const Leaf& leaf = *shadow.leaf;
    const SlotWord word = leaf.slot[slot];
    const PoolOffset where = place_of_slot(at, slot);
    if (!word.sound()) return damaged(where, "a slot's word is damaged");
    if (word.raw != shadow.word(slot).raw) return damaged(where, "a slot and its shadow disagree");
    Record record;
    if (!read_record(tree_.file_, word.record(), record)) {
      return damaged(where, "a slot leads to no record");
    }
    TENUTO_TRY(reach(word.record()));
    const auto block = tree_.heap_.find_taken(word.record(), heap::Kind::derived);
    if (block->bytes < record_bytes(record.key.size(), record.value.size())) {
      return damaged(word.record(), "a record is larger than its block");
    }
    const bool sound = record_sound(tree_.file_, word.record(), record);
    if (!sound && !TENUTO_PLANT("store_record_checksum_not_compared")) {
      return damaged(word.record(), "a record's checksum does not match");
    }
    const KeyHash hash = hash_key(record.key);
    if (word.hash() != hash.slot || leaf.head.fingerprint[slot] != hash.fingerprint ||
        shadow.fingerprint[slot].load(std::memory_order_relaxed) != hash.fingerprint) {
      return damaged(where, "a slot's hash does not fit its record");
    }
    if (record.key < low || (end != nullptr && !(record.key < *end))) {
      return damaged(where, "a key stands in the wrong leaf");
    }
    if (tree_.order_ == KeyOrder::u64 && record.key.size() != sizeof(U64Key)) {
      return damaged(where, "a key of a u64 store has not 8 bytes");
    }
    if (!tree_.index_.leads_to(record.key, &shadow)) {
      return damaged(where, "the index leads a key to another leaf");
    }
    key = {record.key, slot};
    return Status::ok;
  }

  const Tree& tree_;
  Reached& reached_;
  Report* const report_;
};

void Tree::Check::note_all() const {
  const auto note = [&](PoolOffset block) {
    if (block) reached_.note(block);
  };
  tree_.index_.for_each([&](ShadowLeaf* shadow, std::string_view) {
    for (std::uint64_t used = shadow->used_slots(); used != 0; used &= used - 1) {
      note(shadow->word(static_cast<unsigned>(std::countr_zero(used))).record());
    }
    note(low_block(*shadow->leaf));
    note(tree_.file_.offset_of(shadow->leaf));
  });
  tree_.garbage_.for_each([&](const Retired& item) {
    if (item.what == Retired::What::block) note({item.word});
  });
  tree_.versions_.for_each([&](const OldVersion& v) {
    if (v.tree == &tree_) note(v.record);
  });
}

Status validate(const Tree& tree, Reached& reached, Report* report) {
  const Status s = Tree::Check(tree, reached, report).run();
  return tree.bad_pages() == Status::ok ? s : tree.bad_pages(report);
}

void note_dropped(const Tree& tree, Reached& reached) {
  Tree::Check(tree, reached, nullptr).note_all();
}

Status check_heap(const Ground& ground, const Reached& reached, Report* report) {
  Status status = Status::ok;
  std::uint64_t taken = 0;
  ground.heap.for_each(heap::Kind::derived, [&](PoolOffset o, std::uint64_t) {
    taken += 1;
    if (status == Status::ok && !reached.has(o)) {
      status = fail(Status::corrupt, report,
                    "a block of the store is in use and nothing refers to it (leak)",
                    ground.file.where(o, "store"));
    }
  });
  TENUTO_TRY(status);
  if (taken != reached.blocks()) {
    return fail(Status::corrupt, report, "the heap and the store count differently",
                ground.file.path(), std::to_string(reached.blocks()), std::to_string(taken));
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::store

#include "store/tree/salvage.h"

#include <algorithm>

namespace TENUTO_NS::store {

void Salvage::run() {
  find_leaves();
  walk_chain();
  judge_the_rest();
  for (FoundLeaf& f : leaves_) {
    if (f.live) {
      live_.push_back(std::move(f));
    } else if (f.unproven) {
      unproven_.push_back(std::move(f));
    }
  }
  std::sort(live_.begin(), live_.end(), [](const FoundLeaf& a, const FoundLeaf& b) {
    return a.low != b.low ? a.low < b.low : a.order < b.order;
  });
  // The strings have moved out of the vector. From here on only offsets are looked up.
  leaves_.clear();
}

void Salvage::note(PoolOffset at, std::string what, std::string_view place) {
  notes_.push_back({std::move(what), file_.where(at, place), {}, {}});
}

// --- slabs ---------------------------------------------------------------------------------------

const FoundSlabs::FoundSlab* FoundSlabs::slab_at(PoolOffset o) const {
  const auto it = slabs_.find(o.value / heap::kSlabBytes);
  return it == slabs_.end() ? nullptr : it->second.get();
}

FoundSlabs::FoundSlabs(pm::PoolFile& file) : file_(file) {
  const std::uint64_t end = file_.bytes();
  for (PoolOffset o{round_up(pm::kHeadBytes, heap::kSlabBytes)}; o.value < end;
       o = o + heap::kSlabBytes) {
    const bool fits = end - o.value >= heap::kSlabBytes;
    const auto header = fits ? heap::find_slab_of_any_pool(file_, o) : std::nullopt;
    if (!header) {
      units_without_slab_.push_back(o);
      continue;
    }
    auto found = std::make_unique<FoundSlab>();
    heap::attach_slab(found->slab, file_, o, *header, header->shape.shape());
    heap::read_stripes(found->slab, found->used);
    slabs_.emplace(o.value / heap::kSlabBytes, std::move(found));
  }
}

std::optional<bool> FoundSlabs::in_use(PoolOffset block) const {
  const FoundSlab* s = slab_at(block);
  if (s == nullptr || !file_.was_clean() || !heap::stripes_sealed(s->slab)) return std::nullopt;
  const unsigned i = s->slab.index_of(block);
  if (i == heap::kNoBlock || s->slab.kind != heap::Kind::derived) return false;
  return (s->used[i / 64] >> (i % 64) & 1) != 0;
}

void FoundSlabs::for_each_block(
    const std::function<void(PoolOffset, std::uint64_t, std::optional<bool>)>& f) const {
  for (const auto& [unit, s] : slabs_) {
    if (s->slab.kind != heap::Kind::derived) continue;
    for (unsigned i = 0; i < s->slab.blocks; ++i) {
      const PoolOffset block = s->slab.block_offset(i);
      f(block, s->slab.block_bytes, in_use(block));
    }
  }
}

void FoundSlabs::for_each_leaf_block(const std::function<void(PoolOffset)>& f) const {
  for (const auto& [unit, s] : slabs_) {
    if (s->slab.kind != heap::Kind::derived || s->slab.block_bytes != sizeof(Leaf)) continue;
    for (unsigned i = 0; i < s->slab.blocks; ++i) f(s->slab.block_offset(i));
  }
}

// --- leaves --------------------------------------------------------------------------------------

// A separator's checksum covers the leaf's place. So if it fits, there is a leaf here or was one.
void Salvage::consider(PoolOffset at) {
  const Leaf& leaf = *file_.at<Leaf>(at);
  if (!leaf.low.may_be_of(tree_) || leaf.low.bytes() > kKeyBytesMax) return;
  const Result<std::string_view> low = low_of(file_, leaf);
  if (!low || !low_sound(file_, leaf, tree_, *low)) return;
  by_offset_.emplace(at.value, leaves_.size());
  leaves_.push_back({at, std::string(*low), true, false, false, 0, 0});
}

void Salvage::find_leaves() {
  slabs_.for_each_leaf_block([this](PoolOffset at) { consider(at); });
  for (const PoolOffset unit : slabs_.units_without_slab()) find_leaves_without_slab(unit);
  for (const FoundLeaf& f : leaves_) {
    if (!is_sound(leaf(f).head.next)) continue;
    if (FoundLeaf* next = find(next_of(leaf(f)))) next->links += 1;
  }
}

// Without a readable slab every line is tried. To exclude chance, a header word must be sound, too.
void Salvage::find_leaves_without_slab(PoolOffset unit) {
  for (PoolOffset o = unit; o.value < unit.value + heap::kSlabBytes; o = o + kLineBytes) {
    if (!file_.in_range(o, sizeof(Leaf))) return;
    const Leaf& leaf = *file_.at<Leaf>(o);
    if (leaf.head.bitmap.raw == 0 && leaf.head.next.raw == 0) continue;  // no leaf, as a rule
    if (bitmap_sound(leaf) || is_sound(leaf.head.next)) consider(o);
  }
}

FoundLeaf* Salvage::find(PoolOffset at) {
  const auto it = by_offset_.find(at.value);
  return it == by_offset_.end() ? nullptr : &leaves_[it->second];
}

void Salvage::walk_chain() {
  PoolOffset at = first_;
  if (find(at) == nullptr && find(again_) != nullptr) {
    note({pm::kHeadPageOffset + offsetof(pm::HeadPage, store)}, "the store's first name is damaged",
         "store line");
    at = again_;
  }
  std::string last;
  PoolOffset before{};
  for (std::size_t order = 1; at; ++order) {
    FoundLeaf* f = find(at);
    const bool follows = f != nullptr && !f->live && (!before || last < f->low);
    if (!follows) {
      // The leaf's separator is damaged. The link to it and its own checksums still show that it is
      // a leaf.
      const bool whole = f == nullptr && at.value % kLineBytes == 0 &&
                         file_.in_range(at, sizeof(Leaf)) && bitmap_sound(*file_.at<Leaf>(at)) &&
                         is_sound(file_.at<Leaf>(at)->head.next);
      if (!whole)
        return note(at, "the chain of leaves leads to no readable leaf", "chain of leaves");
      note(at, "a leaf's separator is damaged; its records are known by the leaf's header", "leaf");
      by_offset_.emplace(at.value, leaves_.size());
      leaves_.push_back({at, last, false, false, false, 0, 0});
      f = &leaves_.back();
      if (FoundLeaf* next = find(next_of(leaf(*f)))) next->links += 1;
    }
    f->live = true;
    f->order = order;
    Leaf& here = *file_.at<Leaf>(at);
    if (before && !file_.was_clean() && bitmap_sound(here)) {
      Leaf& left = *file_.at<Leaf>(before);
      if (bitmap_sound(left)) static_cast<void>(resolve_split(left, here));
    }
    if (!is_sound(here.head.next)) return note(at, "a leaf's link is damaged", "leaf");
    last = f->low;
    before = at;
    at = next_of(here);
  }
}

// --- what no chain reaches -----------------------------------------------------------------------

bool Salvage::end_of(const FoundLeaf& f, std::optional<std::string_view>& end) const {
  const Leaf& l = leaf(f);
  if (!is_sound(l.head.next)) return false;
  const PoolOffset next = next_of(l);
  end.reset();
  if (!next) return true;
  const FoundLeaf* n = find(next);
  if (n == nullptr || !n->low_ok) return false;
  end = n->low;
  return true;
}

// Whether a live leaf covers its begin, or its range would cover a live leaf.
bool Salvage::contradicts_live(const FoundLeaf& f,
                               const std::vector<const FoundLeaf*>& sorted) const {
  const auto after =
      std::upper_bound(sorted.begin(), sorted.end(), f.low,
                       [](const std::string& low, const FoundLeaf* l) { return low < l->low; });
  std::optional<std::string_view> end;
  if (after != sorted.begin()) {
    const FoundLeaf& left = **std::prev(after);
    if (left.low == f.low) return true;
    if (end_of(left, end) && (!end || f.low < *end)) return true;
  }
  if (after == sorted.end()) return false;
  return end_of(f, end) && (!end || (*after)->low < *end);
}

void Salvage::judge_the_rest() {
  std::vector<const FoundLeaf*> sorted;
  for (const FoundLeaf& f : leaves_) {
    if (f.live && f.low_ok) sorted.push_back(&f);
  }
  const auto by_low = [](const FoundLeaf* a, const FoundLeaf* b) { return a->low < b->low; };
  std::sort(sorted.begin(), sorted.end(), by_low);
  std::vector<FoundLeaf*> rest;
  for (FoundLeaf& f : leaves_) {
    if (f.live) continue;
    const Leaf& l = leaf(f);
    if (const std::optional<bool> used = slabs_.in_use(f.at)) {
      f.live = *used;
      continue;
    }
    const bool empty = bitmap_sound(l) && bitmap_of(l) == 0;
    if (empty || contradicts_live(f, sorted)) continue;
    rest.push_back(&f);
  }
  std::sort(rest.begin(), rest.end(), by_low);
  accept_proven(rest);
}

void Salvage::accept_proven(std::vector<FoundLeaf*>& rest) {
  // If the ranges of two leaves overlap, at most one of the leaves is current.
  std::vector<bool> contested(rest.size(), false);
  bool to_the_end = false;
  std::optional<std::string_view> reach;  // the greatest end of those before
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (to_the_end || (reach && rest[i]->low < *reach)) contested[i] = true;
    if (i + 1 < rest.size() && rest[i]->low == rest[i + 1]->low) {
      contested[i] = contested[i + 1] = true;
    }
    std::optional<std::string_view> end;
    if (!end_of(*rest[i], end)) continue;
    if (i + 1 < rest.size() && (!end || rest[i + 1]->low < *end)) contested[i] = true;
    if (!end) {
      to_the_end = true;
    } else if (!reach || *reach < *end) {
      reach = end;
    }
  }
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool proven = rest[i]->links > 0 && !contested[i];
    (proven ? rest[i]->live : rest[i]->unproven) = true;
  }
}

bool Salvage::continued(std::size_t i) const {
  const Leaf* l = &leaf(live_[i]);
  const PoolOffset wanted = i + 1 < live_.size() ? live_[i + 1].at : PoolOffset{};
  // Empty leaves in between, which were not taken over, are no gap.
  for (std::size_t steps = by_offset_.size() + 1; steps > 0; --steps) {
    if (!is_sound(l->head.next)) return false;
    const PoolOffset next = next_of(*l);
    if (next == wanted) return true;
    if (!by_offset_.contains(next.value)) return false;
    l = file_.at<Leaf>(next);
    if (!bitmap_sound(*l) || bitmap_of(*l) != 0) return false;
  }
  return false;
}

}  // namespace TENUTO_NS::store

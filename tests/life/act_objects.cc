// Objects of the pool beside the store: blocks on plain and versioned words, and transactions.
#include <algorithm>

#include "actor.h"
#include "tenuto/pool.h"

namespace tenuto::life {
namespace {

constexpr std::uint64_t kHalf = kObjects / 2;

std::uint64_t size_of(std::uint64_t stamp) { return 8 + bytes_of_tag(stamp); }

bool there(const RootObject& root, std::uint64_t slot) {
  return slot < kHalf ? root.plain[slot].get() != nullptr
                      : root.versioned[slot - kHalf].get() != nullptr;
}

}  // namespace

bool Actor::objects(const Step& s) {
  if (s.verb < Verb::object_new || s.verb > Verb::object_tx) return false;
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  if (store == nullptr) return true;
  RootObject* const root = root_of(*store);
  if (root == nullptr) return true;
  switch (s.verb) {
    case Verb::object_new:
      object_new(*store, *root, s);
      break;
    case Verb::object_free:
      object_free(*store, *root, s);
      break;
    case Verb::object_resize: {
      const std::uint64_t slot = static_cast<std::uint64_t>(s.a[1]) % kHalf;
      if (world_.story.at_once && slot % kThreadsMax != thread_) return true;
      if (!there(*root, slot)) return true;
      begin({slot});
      end(call([&] {
        return store->pool().realloc_to(8 + static_cast<std::uint64_t>(s.a[2]),
                                        root->plain[slot].word());
      }));
      break;
    }
    default:
      object_tx(*store, *root, s);
  }
  return true;
}

RootObject* Actor::root_of(Store& store) {
  const auto root = store.pool().root<RootObject>("life");
  return root ? *root : nullptr;
}

// One block each for slots that are empty; slots of a thread are four apart, so that threads at
// once do not meet.
void Actor::object_new(Store& store, RootObject& root, const Step& s) {
  std::vector<std::uint64_t> slots;
  const std::int64_t count = std::clamp<std::int64_t>(s.a[3], 1, kHalf);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t slot = static_cast<std::uint64_t>(s.a[1] + i) % kObjects;
    if (world_.story.at_once) slot = (slot / kThreadsMax * kThreadsMax) + thread_;
    if ((slot < kHalf) != (static_cast<std::uint64_t>(s.a[1]) % kObjects < kHalf)) break;
    if (!there(root, slot) && std::ranges::find(slots, slot) == slots.end()) slots.push_back(slot);
  }
  if (slots.empty()) return;
  const std::uint64_t bytes = size_of(static_cast<std::uint64_t>(s.a[2]));
  begin(slots);
  end(call([&] {
    if (slots[0] < kHalf) {
      std::vector<PtrWord*> words;
      for (const std::uint64_t slot : slots) words.push_back(&root.plain[slot].word());
      return store.pool().malloc_to(bytes, std::span<PtrWord* const>(words));
    }
    std::vector<VPtrWord*> words;
    for (const std::uint64_t slot : slots) words.push_back(&root.versioned[slot - kHalf].word());
    return store.pool().malloc_to(bytes, std::span<VPtrWord* const>(words));
  }));
}

void Actor::object_free(Store& store, RootObject& root, const Step& s) {
  std::vector<std::uint64_t> slots;
  const std::uint64_t first = static_cast<std::uint64_t>(s.a[1]) % kObjects;
  const std::uint64_t last = first < kHalf ? kHalf : std::uint64_t{kObjects};
  const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(s.a[2], 1, kHalf));
  for (std::uint64_t slot = first; slot < last && slots.size() < count; ++slot) {
    if (world_.story.at_once && slot % kThreadsMax != thread_) continue;
    if (there(root, slot)) slots.push_back(slot);
  }
  if (slots.empty()) return;
  begin(slots);
  end(call([&] {
    if (first < kHalf) {
      std::vector<PtrWord*> words;
      for (const std::uint64_t slot : slots) words.push_back(&root.plain[slot].word());
      return store.pool().free_from(std::span<PtrWord* const>(words));
    }
    std::vector<VPtrWord*> words;
    for (const std::uint64_t slot : slots) words.push_back(&root.versioned[slot - kHalf].word());
    return store.pool().free_from(std::span<VPtrWord* const>(words));
  }));
}

// A transaction that allocates into empty slots, frees full ones, and stamps each.
void Actor::object_tx(Store& store, RootObject& root, const Step& s) {
  const auto count = static_cast<std::uint64_t>(std::clamp<std::int64_t>(s.a[2], 1, kHalf));
  const bool frees = s.a[3] != 0;
  std::vector<std::uint64_t> slots;
  for (std::uint64_t slot = static_cast<std::uint64_t>(s.a[1]) % kHalf;
       slot < kHalf && slots.size() < count; ++slot) {
    if (world_.story.at_once && slot % kThreadsMax != thread_) continue;
    if (there(root, slot) == frees) slots.push_back(slot);
  }
  if (slots.empty()) return;
  begin(slots);
  end(call([&] {
    return store.pool().run([&](Transaction& tx) -> Status {
      for (const std::uint64_t slot : slots) {
        TENUTO_TRY(tx.add(root.plain[slot]));
        if (frees) {
          TENUTO_TRY(tx.free(root.plain[slot].get()));
          root.plain[slot] = nullptr;
        } else {
          const auto block = tx.alloc(64 + slot % 7 * 100);
          if (!block) return block.error();
          root.plain[slot] = static_cast<std::uint64_t*>(*block);
        }
      }
      return s.a[4] != 0 ? Status::aborted : Status::ok;
    });
  }));
}

}  // namespace tenuto::life

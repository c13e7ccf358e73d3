// Objects of the pool beside the store: blocks on plain and versioned words, alone and in batches,
// in two steps and in transactions, swapped, resized, and walked over by type.
#include <algorithm>
#include <mutex>

#include "actor.h"
#include "tenuto/actions.h"
#include "tenuto/pool.h"

namespace tenuto::life {
namespace {

constexpr std::uint64_t kFillMax = 4096;  // bytes of a block that one step fills

std::uint64_t slot_of(std::int64_t slot) { return static_cast<std::uint64_t>(slot) % kObjects; }
std::uint64_t size_of(std::int64_t bytes) {
  return 8 + static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)) / 8 * 8;
}
std::uint64_t type_of(std::int64_t type) { return static_cast<std::uint64_t>(type) % (kTypes + 1); }

}  // namespace

bool Actor::objects(const Step& s) {
  if (s.verb < Verb::object_new || s.verb > Verb::object_walk) return false;
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  if (store == nullptr) return true;
  Pool& pool = store->pool();
  const auto root = pool.root<RootObject>(kRootLayout);
  if (!root) return true;
  switch (s.verb) {
    case Verb::object_new:
      object_new(pool, **root, s);
      break;
    case Verb::object_publish:
      object_publish(pool, **root, s);
      break;
    case Verb::object_fill:
      object_fill(pool, **root, s);
      break;
    case Verb::object_free:
      object_free(pool, **root, s);
      break;
    case Verb::object_resize:
      object_resize(pool, **root, s);
      break;
    case Verb::object_swap:
      object_swap(pool, **root, s);
      break;
    case Verb::object_tx:
      object_tx(pool, **root, s);
      break;
    default:
      object_walk(pool, **root, s);
  }
  return true;
}

// Slots of one kind of word, from a first one on, that are full or empty. If threads run at once,
// each thread has its own slots.
Actor::Words Actor::slots_from(const RootObject& root, std::int64_t first, std::int64_t count,
                               bool full) const {
  Words slots;
  const std::uint64_t from = slot_of(first);
  const std::uint64_t to = from < kPlain ? kPlain : std::uint64_t{kObjects};
  const bool batches = world_.story.consistency == 1;
  const auto most =
      batches ? static_cast<std::size_t>(std::clamp<std::int64_t>(count, 1, kPlain)) : 1;
  for (std::uint64_t slot = from; slot < to && slots.size() < most; ++slot) {
    if (mine(slot) && (root.block(slot) != nullptr) == full) slots.push_back(slot);
  }
  return slots;
}

// One block for each slot. how: 1 zero-filled, 2 aligned.
void Actor::object_new(Pool& pool, RootObject& root, const Step& s) {
  const Words slots = slots_from(root, s.a[1], s.a[3], false);
  if (slots.empty()) return;
  const std::uint64_t bytes = size_of(s.a[2]);
  AllocOptions options;
  options.type = type_of(s.a[4]);
  options.zero = (s.a[5] & 1) != 0;
  if ((s.a[5] & 2) != 0) options.align = 64;
  const bool plainly = options.type == 0 && !options.zero && options.align == 16;
  Words words = {bytes, options.zero, options.type};
  words.insert(words.end(), slots.begin(), slots.end());
  begin(words);
  const auto attach = [&](auto* first_word, const auto& word_of) {
    using Word = std::remove_pointer_t<decltype(first_word)>;
    if (slots.size() == 1) {
      Word& word = *word_of(slots[0]);
      return plainly ? pool.malloc_to(bytes, word) : pool.malloc_to(bytes, word, options);
    }
    std::vector<Word*> all;
    for (const std::uint64_t slot : slots) all.push_back(word_of(slot));
    const std::span<Word* const> to(all);
    if (s.a[3] % 2 == 0) return pool.malloc_to(bytes, to, options);
    const Words sizes(all.size(), bytes);
    return pool.malloc_to(std::span<const std::uint64_t>(sizes), to, options);
  };
  end(call([&] {
    if (slots[0] < kPlain) {
      return attach(&root.plain[0].word(), [&](std::uint64_t n) { return &root.plain[n].word(); });
    }
    return attach(&root.versioned[0].word(),
                  [&](std::uint64_t n) { return &root.versioned[n - kPlain].word(); });
  }));
}

// In two steps: no word names the block before its contents are complete. Half of them are a list
// of actions.
void Actor::object_publish(Pool& pool, RootObject& root, const Step& s) {
  const Words slots = slots_from(root, s.a[1], 1, false);
  if (slots.empty()) return;
  const std::uint64_t slot = slots[0], bytes = size_of(s.a[2]);
  const std::uint64_t tag = make_tag(world_.fresh(), bytes);
  AllocOptions options;
  options.type = type_of(s.a[3]);
  begin({bytes, tag, options.type, s.a[4] != 0, slot});
  const auto by_actions = [&] {
    Actions actions(pool);
    const auto reserved = actions.reserve(bytes, options);
    if (!reserved) return reserved.error();
    fill_block(*reserved, bytes, tag);
    if (s.a[4] != 0) return Status::ok;
    actions.set(root.plain[slot], static_cast<std::uint64_t*>(*reserved));
    return actions.publish();
  };
  end(call([&] {
    if (slot < kPlain && bytes % 16 == 0) return by_actions();
    const auto reserved = pool.reserve(bytes, options);
    if (!reserved) return reserved.error();
    fill_block(reserved->data, bytes, tag);
    flush_bytes(reserved->data, bytes);
    if (s.a[4] != 0) return pool.cancel(*reserved);
    const Status status = slot < kPlain
                              ? pool.publish(*reserved, root.plain[slot].word())
                              : pool.publish(*reserved, root.versioned[slot - kPlain].word());
    if (status != Status::ok) static_cast<void>(pool.cancel(*reserved));
    return status;
  }));
}

// Changes the contents of a block in a transaction.
void Actor::object_fill(Pool& pool, RootObject& root, const Step& s) {
  const Words slots = slots_from(root, s.a[1], 1, true);
  if (slots.empty()) return;
  std::uint64_t* const block = root.block(slots[0]);
  const std::uint64_t bytes =
      std::min({pool.usable_size(block) / 8 * 8, size_of(s.a[2]), kFillMax});
  const std::uint64_t tag = make_tag(world_.fresh(), 16);
  begin({bytes, tag, s.a[3] != 0, slots[0]});
  end(call([&] {
    Transaction tx(pool);
    TENUTO_TRY(tx.status());
    TENUTO_TRY(tx.add(block, bytes));
    fill_block(block, bytes, tag);
    if (s.a[3] == 0) return tx.commit();
    tx.abort();
    return tx.status();
  }));
}

void Actor::object_free(Pool& pool, RootObject& root, const Step& s) {
  const Words slots = slots_from(root, s.a[1], s.a[2], true);
  if (slots.empty()) return;
  begin(slots);
  const auto detach = [&](auto* first_word, const auto& word_of) {
    using Word = std::remove_pointer_t<decltype(first_word)>;
    if (slots.size() == 1) return pool.free_from(*word_of(slots[0]));
    std::vector<Word*> all;
    for (const std::uint64_t slot : slots) all.push_back(word_of(slot));
    return pool.free_from(std::span<Word* const>(all));
  };
  end(call([&] {
    if (slots[0] < kPlain) {
      return detach(&root.plain[0].word(), [&](std::uint64_t n) { return &root.plain[n].word(); });
    }
    return detach(&root.versioned[0].word(),
                  [&](std::uint64_t n) { return &root.versioned[n - kPlain].word(); });
  }));
}

// With an empty slot it is malloc_to, with 0 bytes it is free_from.
void Actor::object_resize(Pool& pool, RootObject& root, const Step& s) {
  const std::uint64_t slot = slot_of(s.a[1]) % kPlain;
  if (!mine(slot)) return;
  const std::uint64_t bytes = s.a[2] <= 0 ? 0 : size_of(s.a[2]);
  if (bytes == 0 && root.block(slot) == nullptr) return;
  begin({bytes, slot});
  end(call([&] { return pool.realloc_to(bytes, root.plain[slot].word()); }));
}

void Actor::object_swap(Pool& pool, RootObject& root, const Step& s) {
  const std::uint64_t a = kPlain + slot_of(s.a[1]) % kPlain, b = kPlain + slot_of(s.a[2]) % kPlain;
  if (!mine(a) || !mine(b)) return;
  begin({a, b});
  end(call([&] {
    return pool.swap(root.versioned[a - kPlain].word(), root.versioned[b - kPlain].word());
  }));
}

// A transaction that allocates blocks for empty slots or frees those of full ones, and stamps each,
// in containers, too (shelf.h).
// Half of them do it, go back to a savepoint, and do it again.
void Actor::object_tx(Pool& pool, RootObject& root, const Step& s) {
  const Words slots =
      slots_from(root, s.a[1] % static_cast<std::int64_t>(kPlain), s.a[2], s.a[3] != 0);
  if (slots.empty() || (world_.story.side != 0 && !world_.store[store_].side)) return;
  Words words = {s.a[3] != 0, s.a[5] != 0, type_of(s.a[4])};
  for (const std::uint64_t slot : slots) {
    const std::uint64_t bytes = size_of(static_cast<std::int64_t>(64 + slot % 7 * 100));
    words.insert(words.end(), {slot, make_tag(world_.fresh(), bytes)});
  }
  std::uint64_t committed = 0, aborted = 0;
  static std::mutex held;
  begin(words);
  const std::uint64_t status = call([&] {
    return run_over(pool, words, [&](Transaction& tx) -> Status {
      TENUTO_TRY(tx.lock(held));
      if (s.a[2] % 2 == 0) {
        TENUTO_TRY(tx.on_commit([&] { ++committed; }));
        TENUTO_TRY(tx.on_abort([&] { ++aborted; }));
      } else {
        TENUTO_TRY(tx.on_end([&](bool done) { ++(done ? committed : aborted); }));
        const Status undone = tx.attempt([&]() -> Status {
          TENUTO_TRY(change_objects(tx, root, s, words));
          return Status::conflict;
        });
        if (undone != Status::conflict) return undone;
      }
      TENUTO_TRY(change_objects(tx, root, s, words));
      return s.a[5] != 0 ? Status::aborted : Status::ok;
    });
  });
  end(status, {committed, aborted});
}

Status Actor::run_over(Pool& pool, const Words& words,
                       const std::function<Status(Transaction&)>& body) {
  std::optional<Pool>& side = world_.store[store_].side;
  if (world_.story.side == 0) return pool.run(body);
  const auto root = side->root<SideRoot>(kSideLayout);
  if (!root) return root.error();
  const bool side_leads = words.size() % 4 != 1;  // an odd number of slots
  return (side_leads ? *side : pool).run([&](Transaction& first) -> Status {
    Transaction part(side_leads ? pool : *side, first);
    TENUTO_TRY(part.status());
    TENUTO_TRY(body(side_leads ? part : first));
    TENUTO_TRY(stamp_side(side_leads ? first : part, **root, words));
    return part.commit();
  });
}

// REQUIRES: the caller holds a lock, since all threads replace the one block.
Status Actor::stamp_side(Transaction& tx, SideRoot& side, const Words& words) {
  for (std::size_t i = 3; i < words.size(); i += 2) side.stamp[words[i]] = words[i + 1];
  if (world_.story.consistency == 3) return tx.status();
  const auto made = tx.alloc(kSideBlock);
  if (!made) return made.error();
  fill_block(*made, kSideBlock, words.back());
  TENUTO_TRY(tx.add(side.last));
  if (side.last) TENUTO_TRY(tx.free(side.last.get()));
  side.last = static_cast<std::uint64_t*>(*made);
  return tx.status();
}

Status Actor::change_objects(Transaction& tx, RootObject& root, const Step& s, const Words& words) {
  struct Small {
    std::uint64_t word[8];
  };
  for (std::size_t i = 3; i < words.size(); i += 2) {
    TENUTO_TRY(tx.add_later(root.plain[words[i]]));
  }
  TENUTO_TRY(tx.ready());
  for (std::size_t i = 3; i < words.size(); i += 2) {
    const std::uint64_t slot = words[i], tag = words[i + 1], type = words[2];
    TENUTO_TRY(root.shelf.put(tx, slot, root.stamp[slot], tag));
    if (slot % 2 == 0) {
      root.stamp[slot] = tag;
    } else {
      auto& stamp = reinterpret_cast<std::uint64_t&>(root.stamp[slot]);
      TENUTO_TRY(tx.set(stamp, tag));
      if (tx.get(stamp) != tag) return Status::corrupt;
    }
    if (s.a[3] != 0) {
      std::uint64_t* const block = root.block(slot);
      TENUTO_TRY(slot % 2 == 0 ? tx.free(block) : tx.destroy(block));
      root.plain[slot] = nullptr;
      continue;
    }
    if (type == 0 && bytes_of_tag(tag) <= sizeof(Small)) {
      const auto made = tx.make<Small>();
      if (!made) return made.error();
      root.plain[slot] = (*made)->word;
    } else {
      const auto made = tx.alloc(bytes_of_tag(tag), {.type = type});
      if (!made) return made.error();
      root.plain[slot] = static_cast<std::uint64_t*>(*made);
    }
    TENUTO_TRY(tx.overwrite(root.block(slot), bytes_of_tag(tag)));
    fill_block(root.block(slot), bytes_of_tag(tag), tag);
  }
  return tx.status();
}

// Walks over all blocks of a type: in the order of addresses, each once. A block that no word names
// belongs to another thread, which is about to attach or free it.
void Actor::object_walk(Pool& pool, RootObject& root, const Step& s) {
  const std::uint64_t type = 1 + static_cast<std::uint64_t>(s.a[1]) % kTypes;
  std::vector<const void*> seen;
  begin({type});
  const std::uint64_t status = call([&] {
    if (s.a[2] != 0) {
      for (const std::uint64_t& block : pool.objects<std::uint64_t>(type)) seen.push_back(&block);
      return Status::ok;
    }
    auto at = pool.first(type);
    for (; at && *at != nullptr; at = pool.next(*at, type)) seen.push_back(*at);
    return at.error();
  });
  if (!std::ranges::is_sorted(seen) || std::ranges::adjacent_find(seen) != seen.end()) {
    world_.broken("a walk over objects goes back");
  }
  std::uint64_t named = 0;
  for (std::uint64_t slot = 0; slot < kObjects; ++slot) {
    named += std::ranges::binary_search(seen, static_cast<const void*>(root.block(slot)));
  }
  end(status, {seen.size(), named});
}

// As an application does after a crash of a pool with Consistency::internal: words that name no
// block become null, and blocks that no word names are freed. So the operation under way is whole
// or undone.
void Actor::reconcile_objects(Pool& pool) {
  if (pool.info().layout != kRootLayout || pool.info().read_only) return;
  const auto root = pool.root<RootObject>(kRootLayout);
  if (!root) return;
  const auto is_lost = [&](std::uint64_t slot) {
    const std::uint64_t* const block = (*root)->block(slot);
    return block != nullptr && pool.usable_size(block) == 0;
  };
  for (std::uint64_t slot = 0; slot < kObjects; ++slot) {
    if (!is_lost(slot)) continue;
    if (slot < kPlain) {
      (*root)->plain[slot] = nullptr;
    } else {
      (*root)->versioned[slot - kPlain].word().raw = 0;
    }
  }
  flush_bytes(*root, sizeof(RootObject));
  fence("words that name no block", "the next allocation");
  std::vector<void*> unnamed;
  for (std::uint64_t type = 1; type <= kTypes; ++type) {
    for (std::uint64_t& block : pool.objects<std::uint64_t>(type)) {
      bool named = false;
      for (std::uint64_t slot = 0; slot < kObjects; ++slot) {
        named = named || (*root)->block(slot) == &block;
      }
      if (!named) unnamed.push_back(&block);
    }
  }
  for (void* const block : unnamed) {
    if (pool.run([&](Transaction& tx) { return tx.free(block); }) != Status::ok) {
      world_.broken("a block that no word names cannot be freed");
    }
  }
  Report report;
  GarbageOptions exact;
  exact.root_filter = reference_filter<RootObject>();
  exact.free = true;
  if (!pool.find_garbage(exact, &report)) {
    world_.broken("blocks that no word names cannot be freed: " + report.text());
  }
}

// The objects in a look: {number of blocks, if that is known; number of slots}; for each slot with
// contents {slot, usable bytes, type, tag, bytes that agree with the tag, stamp}; then the number
// of blocks that each walk shows.
void Actor::look_at_objects(Pool& pool, bool fresh, Words& words) {
  const std::size_t head = words.size();
  words.insert(words.end(), {kNone, 0});
  const bool any = pool.info().layout == kRootLayout;
  const auto root = any ? pool.root<RootObject>(kRootLayout) : Result<RootObject*>(nullptr);
  if (!root) world_.broken("the store was opened, and its root cannot be had");
  if (fresh) {
    const PoolStats s = pool.stats();
    // Nobody calls, but threads of the store may free between the two.
    const bool threads = world_.story.reclaim_ms != 0 || world_.story.sync_ms != 0;
    if (pool.used_bytes() != s.used_bytes && !threads) world_.broken("used_bytes differ");
    if (!world_.may_keep_others(pool)) {
      words[head] = s.objects - (any ? 1 + (*root)->shelf.blocks() : 0);
    }
  }
  if (any && pool.health() == Status::ok) {
    const auto stamp_of = [&](std::uint64_t slot) { return (*root)->stamp[slot].get(); };
    const std::string wrong = (*root)->shelf.compare(pool, kObjects, stamp_of);
    if (!wrong.empty()) world_.broken("containers: " + wrong);
  }
  for (std::uint64_t slot = 0; any && slot < kObjects; ++slot) {
    const std::uint64_t* const block = (*root)->block(slot);
    const std::uint64_t stamp = (*root)->stamp[slot];
    if (block == nullptr && stamp == 0) continue;
    ++words[head + 1];
    words.insert(words.end(), {slot, 0, 0, 0, 0, stamp});
    if (block == nullptr) continue;
    if (!pool.contains(block) || pool.at(pool.offset_of(block)) != block) {
      world_.broken("a word leads out of the pool");
    }
    if (pool.describe(block).find("allocated") == std::string::npos) {
      world_.broken("a word leads to no allocated block");
    }
    const std::uint64_t usable = pool.usable_size(block);
    std::uint64_t* const at = words.data() + words.size() - 6;
    at[1] = usable;
    at[2] = pool.type_of(block);
    if (usable >= 8) at[3] = *block;
    at[4] = told_by_block(block, usable);
  }
  for (std::uint64_t type = 1; type <= kTypes; ++type) {
    std::uint64_t n = 0;
    for (const std::uint64_t& block : pool.objects<std::uint64_t>(type)) {
      static_cast<void>(block);
      ++n;
    }
    words.push_back(n);
  }
}

}  // namespace tenuto::life

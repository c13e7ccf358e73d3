#include "support/damaged_pool.h"

#include <algorithm>

#include "heap/format.h"
#include "store/tree/leaf.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

constexpr int kRecords = 150;
constexpr int kNamed = 70;  // in each named collection

struct Words {
  Ptr<char> word[8];
  std::uint64_t number[8];
};

std::string key_of(int i) {
  std::string key = "key" + std::to_string(i * 7919 % 1009);
  // Some keys are so alike that leaves need long separators.
  if (i % 3 == 0) key = std::string(70, 'p') + key;
  return key;
}
std::string value_of(int i, char c) {
  return "value " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 60), c);
}

Status fill_named(Store& store) {
  for (const Shown& form : named_forms<Shown>()) {
    auto c = store.collection(form.name, form.options);
    if (!c) return c.error();
    for (int i = 0; i < kNamed; ++i) {
      WriteOptions w;
      if (form.options.expires && i % 3 > 0) w.ttl_ms = i % 3 == 1 ? 1000 : 86'400'000;
      const int n = form.options.duplicates ? i / 4 : i;
      const U64Key number = u64_key(static_cast<std::uint64_t>(n) * 0x9e3779b97f4a7c15);
      std::string key = key_of(n);
      if (form.options.order == KeyOrder::u64) key = std::string_view(number);
      TENUTO_TRY(c->put(key, value_of(i, 'n'), w));
      if (i % 13 == 7) TENUTO_TRY(c->erase(key));
    }
  }
  return Status::ok;
}

Status fill_default(Store& store) {
  for (int i = 0; i < kRecords; ++i) TENUTO_TRY(store.put(key_of(i), value_of(i, 'a')));
  for (int i = 0; i < kRecords; i += 4) TENUTO_TRY(store.put(key_of(i), value_of(i, 'b')));
  for (int i = 1; i < kRecords; i += 9) TENUTO_TRY(store.erase(key_of(i)));
  TENUTO_TRY(store.put("an extent", std::string(17000, 'e')));
  TENUTO_TRY(store.put("", "the empty key"));
  auto root = store.pool().root<Words>("words");
  if (!root) return root.error();
  TENUTO_TRY(store.pool().malloc_to(100, (*root)->word[0]));
  TENUTO_TRY(store.pool().malloc_to(30000, (*root)->word[1]));
  return store.pool().malloc_to(100, (*root)->word[2]);
}

// Ends in the middle of a transaction on objects, with frees in limbo.
bool die_at_work(const std::string& path) {
  auto store = Store::open(path, damaged_pool_options(kWrittenMs));
  if (!store) return false;
  auto root = store->pool().root<Words>("words");
  if (!root || store->pool().free_from((*root)->word[2]) != Status::ok) return false;
  for (int i = 0; i < kRecords; i += 7) {
    if (store->put(key_of(i), value_of(i, 'c')) != Status::ok) return false;
  }
  WriteBatch batch;
  for (int i = 2; i < kRecords; i += 11) batch.put(key_of(i), value_of(i, 'd'));
  if (store->write(batch) != Status::ok) return false;
  Transaction tx(store->pool());
  if (tx.add((*root)->number) != Status::ok) return false;
  for (auto& n : (*root)->number) n = 7;
  if (!tx.alloc(64)) return false;
  std::_Exit(0);
}

bool is_leaf(const Bytes& b, std::size_t at) {
  if (at + sizeof(store::Leaf) > b.size()) return false;
  const auto sound = [&](std::size_t word) {
    return store::HeaderWord{word_at(b, word)}.sound(word % pm::kMapAlignBytes);
  };
  return sound(at) && sound(at + offsetof(store::LeafHeader, next));
}

}  // namespace

Result<Collection> collection_of(Store& store, const Shown& c, Report* report) {
  if (c.name.empty()) return store;
  CollectionOptions o;
  o.create_if_missing = false;
  return store.collection(c.name, o, report);
}

std::vector<Shown> world_of(Store& store) {
  std::vector<Shown> world(1);
  for (Shown& form : named_forms<Shown>()) world.push_back(std::move(form));
  for (Shown& c : world) {
    auto collection = collection_of(store, c, nullptr);
    EXPECT_TRUE(collection);
    Iterator it = collection->iterator();
    for (it.seek_first(); it.valid(); it.next()) c.pairs.emplace_back(it.key(), it.value());
    EXPECT_EQ(it.status(), Status::ok);
    EXPECT_GE(c.pairs.size(), 20u);
  }
  return world;
}

std::vector<DamageBase> damage_bases() {
  TempPath path("damage-base");
  std::vector<DamageBase> bases(2);
  bases[0].name = "closed";
  bases[1].name = "killed";
  {
    auto store = Store::open(path.str(), damaged_pool_options(kWrittenMs));
    EXPECT_TRUE(store);
    EXPECT_EQ(fill_default(*store), Status::ok);
    EXPECT_EQ(fill_named(*store), Status::ok);
    EXPECT_EQ(store->close(), Status::ok);
  }
  bases[0].image = read_image(path.str());
  run_and_kill([&] { return die_at_work(path.str()); });
  bases[1].image = read_image(path.str());
  for (DamageBase& b : bases) {
    write_image(path.str(), b.image);
    auto store = Store::open(path.str(), damaged_pool_options());
    EXPECT_TRUE(store);
    b.world = world_of(*store);
    EXPECT_EQ(store->close(), Status::ok);
    const auto used = [&](std::size_t at) {
      return at < b.image.size() &&
             std::any_of(b.image.begin() + static_cast<std::ptrdiff_t>(at),
                         b.image.begin() + static_cast<std::ptrdiff_t>(at + kLineBytes),
                         [](unsigned char c) { return c != 0; });
    };
    for (std::size_t at = 0; at < b.image.size(); at += kLineBytes) {
      const bool head = at < pm::kZoneTableOffset + kLineBytes;
      if (head || used(at) || (at > 0 && used(at - kLineBytes)) || used(at + kLineBytes)) {
        b.lines.push_back(at);
        const std::size_t page = at / kFrameBytes * kFrameBytes;
        if (b.pages.empty() || b.pages.back() != page) b.pages.push_back(page);
      }
    }
  }
  return bases;
}

std::string place_name(const DamageBase& base, std::size_t byte) {
  if (byte < pm::kHeadPageOffset) return "superblock";
  if (byte < pm::kZoneTableOffset) return "head page";
  if (byte < pm::kLanesOffset) return "zone table";
  if (byte < pm::kHeadBytes) return "lane";
  if (byte < heap::kSlabBytes * (pm::kHeadBytes / heap::kSlabBytes + 1)) return "zone";
  for (std::size_t line = byte / kLineBytes * kLineBytes, i = 0; i < 8; ++i) {
    const std::size_t at = line - i * kLineBytes;
    if (!is_leaf(base.image, at)) continue;
    if (i == 7) return "separator";
    if (i > 0) return "slot";
    return byte - at < 8 ? "bitmap" : byte - at < 16 ? "next" : "fingerprint";
  }
  const std::size_t slab = byte / heap::kSlabBytes * heap::kSlabBytes;
  if (word_at(base.image, slab) == heap::kSlabMagic) {
    return byte - slab < kLineBytes ? "slab header" : "block or bits of a slab";
  }
  return word_at(base.image, slab) == heap::kBookSegmentMagic ? "book" : "elsewhere";
}

}  // namespace tenuto::test

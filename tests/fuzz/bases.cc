#include "fuzz/bases.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <optional>

#include "fuzz/input.h"
#include "heap/format.h"
#include "pm/format.h"
#include "store/kv/catalog.h"
#include "store/tree/format.h"
#include "store/tree/record.h"

namespace tenuto::fuzz {

namespace {

constexpr int kRecords = 300;
constexpr std::uint64_t kPoolId = 0x7465737466757a7a;

void must(Status s, const char* what) {
  FUZZ_REQUIRE(s == Status::ok, std::string(what) + ": " + status_name(s));
}

Store open_in(const WorkFile& file) {
  Report report;
  auto store = Store::open(file.path(), pool_options(), &report);
  FUZZ_REQUIRE(store, report.text());
  return std::move(*store);
}

Root& root_of(Store& store) {
  auto root = store.pool().root<Root>("fuzz");
  FUZZ_REQUIRE(root, "root");
  return **root;
}

bool is_slab(const WorkFile& file, std::uint64_t offset) {
  const auto& h = file.at<heap::SlabHeader>(offset);
  return offset % heap::kSlabBytes == 0 && offset >= pm::kHeadBytes &&
         h.magic == heap::kSlabMagic && h.self == offset;
}

// Sets what differs between new pools: the pool id and the time of creation.
void make_constant(const WorkFile& file) {
  for (std::uint64_t at = 0; at < 2 * kFrameBytes; at += kFrameBytes) {
    auto& super = file.at<pm::Superblock>(at);
    if (super.magic != pm::kPoolMagic) continue;
    super.pool_id = kPoolId;
    super.created_unix_s = 1;
    super.life = 1;
    reseal(file, {}, at);
  }
  for (std::uint64_t at = 0; at < file.bytes(); at += heap::kSlabBytes) {
    if (!is_slab(file, at)) continue;
    file.at<heap::SlabHeader>(at).pool_id = kPoolId;
    reseal(file, {}, at);
  }
}

Image make_empty(KeyOrder order) {
  const std::string path = "/dev/shm/tenuto-fuzz-" + std::to_string(::getpid());
  ::unlink(path.c_str());
  StoreOptions options = pool_options();
  options.order = order;
  auto store = Store::open(path, options);
  FUZZ_REQUIRE(store, "creation of the empty pool");
  must(store->close(), "close");
  const Image raw = read_image(path);
  ::unlink(path.c_str());
  WorkFile file(kPoolBytesMax);
  file.load(raw);
  make_constant(file);
  return file.image();
}

Image make_clean() {
  WorkFile file(kPoolBytesMax);
  file.load(base(BaseName::empty).image);
  {
    Store store = open_in(file);
    for (int i = 0; i < kRecords; ++i) must(store.put(base_key(i), base_value(i)), "put");
    Root& root = root_of(store);
    const std::uint64_t sizes[] = {16, 100, 100, 1000, 30000, 200000};
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      must(store.pool().malloc_to(sizes[i], root.word[i]), "malloc_to");
    }
    must(store.close(), "close");
  }
  return file.image();
}

Image make_unclean() {
  WorkFile file(kPoolBytesMax);
  file.load(base(BaseName::clean).image);
  Store store = open_in(file);
  Root& root = root_of(store);
  must(store.pool().free_from(root.word[1]), "free_from");
  must(store.pool().free_from(root.word[4]), "free_from");
  for (int i = 0; i < kRecords; i += 5) must(store.put(base_key(i), "short"), "put");
  for (int i = 1; i < kRecords; i += 9) must(store.erase(base_key(i)), "erase");
  return file.image();
}

std::vector<std::uint64_t> chain_from(const WorkFile& file, std::uint64_t first) {
  std::vector<std::uint64_t> leaves;
  for (std::uint64_t at = first; at != 0; at = file.at<store::Leaf>(at).head.next.value()) {
    leaves.push_back(at);
  }
  return leaves;
}

std::vector<std::uint64_t> chain(const WorkFile& file) {
  const auto& head = file.at<pm::HeadPage>(pm::kHeadPageOffset);
  return chain_from(file, head.store[store::kHeadFirstLeaf]);
}

// Puts keys until a leaf in the middle splits, then undoes the split's last store.
Image make_split() {
  WorkFile file(kPoolBytesMax);
  file.load(base(BaseName::clean).image);
  Store store = open_in(file);
  for (int i = 0; i < kRecords; ++i) {
    const std::vector<std::uint64_t> before = chain(file);
    const Image image = file.image();
    must(store.put(base_key(150) + std::to_string(i), "x"), "put");
    const std::vector<std::uint64_t> after = chain(file);
    if (before == after) continue;
    WorkFile old(kPoolBytesMax);
    old.load(image);
    const auto split = std::mismatch(before.begin(), before.end(), after.begin()).second - 1;
    auto& leaf = file.at<store::Leaf>(*split);
    const store::HeaderWord next = leaf.head.next;
    leaf = old.at<store::Leaf>(*split);
    leaf.head.next = next;
    return file.image();
  }
  broken(__FILE__, __LINE__, "no leaf of the base was split");
}

Image make_pending() {
  WorkFile file(kPoolBytesMax);
  file.load(base(BaseName::clean).image);
  Store store = open_in(file);
  Root& root = root_of(store);
  must(store.pool().run([&](Transaction& tx) { return tx.free(root.word[2].get()); }), "free");
  Transaction tx(store.pool());
  must(tx.add(root.number), "add");
  for (auto& n : root.number) n = 7;
  must(tx.add(root.word[8]), "add");
  auto block = tx.alloc(300);
  FUZZ_REQUIRE(block, "alloc");
  root.word[8] = static_cast<char*>(*block);
  must(tx.free(root.word[3].get()), "free");
  const Image image = file.image();
  tx.abort();
  return image;
}

Image make_named() {
  WorkFile file(kPoolBytesMax);
  file.load(base(BaseName::empty).image);
  {
    Store store = open_in(file);
    for (int i = 0; i < kNamedRecords; ++i) must(store.put(base_key(i), base_value(i)), "put");
    auto all = test::named_records();
    must(test::write_named(&store, all, 0, kNamedRecords), "write_named");
    must(store.close(), "close");
  }
  return file.image();
}

Image make_named_open() {
  WorkFile file(kPoolBytesMax);
  file.load(base(BaseName::named).image);
  Store store = open_in(file);
  auto all = test::named_records();
  test::disturb_named(&store, all, kNamedRecords);
  return file.image();
}

Image make(BaseName name) {
  switch (name) {
    case BaseName::empty:
      return make_empty(KeyOrder::bytes);
    case BaseName::empty_u64:
      return make_empty(KeyOrder::u64);
    case BaseName::clean:
      return make_clean();
    case BaseName::unclean:
      return make_unclean();
    case BaseName::split:
      return make_split();
    case BaseName::pending:
      return make_pending();
    case BaseName::named:
      return make_named();
    case BaseName::named_open:
      return make_named_open();
    case BaseName::count:
      break;
  }
  broken(__FILE__, __LINE__, "no such base");
}

void add_leaves(const WorkFile& file, std::uint64_t first, std::uint64_t tree, Base& b) {
  for (const std::uint64_t at : chain_from(file, first)) {
    b.leaves.push_back(at);
    b.tree[at] = tree;
    const auto& leaf = file.at<store::Leaf>(at);
    for (std::uint64_t used = leaf.head.bitmap.value(); used != 0; used &= used - 1) {
      const auto slot = static_cast<std::size_t>(std::countr_zero(used));
      b.slot[leaf.slot[slot].record().value] = at + kLineBytes + slot * sizeof(store::SlotWord);
    }
  }
}

// Adds the leaves of the catalog and of all collections in it.
void add_named_leaves(const WorkFile& file, Base& b) {
  const auto& head = file.at<pm::HeadPage>(pm::kHeadPageOffset);
  const std::uint64_t catalog = store::HeaderWord{head.store[store::kHeadCatalog]}.value();
  if (catalog == 0) return;
  Base entries;
  add_leaves(file, catalog, store::kCatalogTree.value, entries);
  add_leaves(file, catalog, store::kCatalogTree.value, b);
  for (const auto& [record, slot] : entries.slot) {
    const auto& entry = file.at<store::RecordHead>(record);
    const char* name = &file.at<char>(record + sizeof entry);
    store::CatalogEntry found;
    FUZZ_REQUIRE(store::decode_entry({name, entry.key_bytes()},
                                     {name + entry.key_bytes(), entry.value_field()}, found),
                 "an entry of the base's catalog");
    add_leaves(file, found.first_leaf.value, found.id.value, b);
  }
}

Base with_places(Image image) {
  Base b;
  WorkFile file(kPoolBytesMax);
  file.load(image);
  for (const auto& [at, page] : image.pages) {
    for (std::size_t line = 0; line < kFrameBytes; line += kLineBytes) {
      const auto begin = page.begin() + static_cast<std::ptrdiff_t>(line);
      const bool zero = std::all_of(begin, begin + static_cast<std::ptrdiff_t>(kLineBytes),
                                    [](std::byte c) { return c == std::byte{0}; });
      if (!zero) b.lines.push_back(at + line);
    }
  }
  add_leaves(file, file.at<pm::HeadPage>(pm::kHeadPageOffset).store[store::kHeadFirstLeaf],
             store::kDefaultTree.value, b);
  add_named_leaves(file, b);
  b.image = std::move(image);
  return b;
}

}  // namespace

StoreOptions pool_options() {
  StoreOptions o;
  o.pool.size = kPoolBytes;
  o.pool.size_max = kPoolBytesMax;
  o.pool.medium = Medium::cache;
  o.pool.recovery_threads = 1;
  o.reclaim_every_ms = 0;
  o.clock_ms = [] { return test::kReadMs; };
  return o;
}

std::string base_key(int i) {
  char text[32];
  std::snprintf(text, sizeof text, "key/%05d", i * 7919 % 100003);
  std::string key = text;
  if (i % 30 == 0) key += std::string(60 + static_cast<std::size_t>(i) % 90, 'k');
  return key;
}

std::string base_value(int i) {
  std::string value = "value " + std::to_string(i) + " ";
  value.append(static_cast<std::size_t>(i) * 37 % 250, static_cast<char>('a' + i % 26));
  if (i % 100 == 50) value.append(20000, 'v');  // an extent
  return value;
}

std::vector<test::NamedRecords> named_of_bases() {
  auto all = test::named_records();
  must(test::write_named(nullptr, all, 0, kNamedRecords), "write_named");
  test::disturb_named(nullptr, all, kNamedRecords);
  return all;
}

const Base& base(BaseName name) {
  static std::array<std::optional<Base>, static_cast<std::size_t>(BaseName::count)> made;
  auto& b = made[static_cast<std::size_t>(name)];
  if (!b) b = with_places(make(name));
  return *b;
}

}  // namespace tenuto::fuzz

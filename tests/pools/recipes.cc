#include "pools/recipes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "pools/containers.h"
#include "pools/contents.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

using namespace std::string_literals;

enum class End : bool { closed, killed };

// Writes the contents, and ends the life of the pool.
Status end_life(OpenPool& open, const Place& place, End end) {
  const std::string text = contents(open);
  std::ofstream out(place.text, std::ios::binary | std::ios::trunc);
  out << text;
  if (!out.flush() || text.starts_with("error: ")) return Status::io;
  if (end == End::killed) std::_Exit(0);
  return open.close();
}

Result<OpenPool> new_store(const Place& place, const StoreOptions& options = old_pool_options()) {
  auto store = Store::open(place.pool, options);
  if (!store) return store.error();
  OpenPool open;
  open.store.emplace(std::move(*store));
  return open;
}

std::string key_of(int i) { return "key/" + std::to_string(i * 7919 % 100'003); }

std::string value_of(int i) {
  std::string value = "value " + std::to_string(i) + " ";
  value.append(static_cast<std::size_t>(i) * 37 % 150, static_cast<char>('a' + i % 26));
  if (i % 60 == 50) value.append(5000, 'v');
  return value;
}

// Keys with every byte, with none, and with the longest prefix that two keys share.
Status put_odd_keys(Collection c) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  TENUTO_TRY(c.put("", "of the empty key"));
  TENUTO_TRY(c.put(all, all));
  TENUTO_TRY(c.put(std::string(1000, 'l'), "of a long key"));
  TENUTO_TRY(c.put(std::string(1000, 'l').append("m"), "of a longer one"));
  TENUTO_TRY(c.put("\0\0"s, ""));
  return c.put("\xc3\xa4\xff", "not UTF-8");
}

// Inserts, replaces and erases, so that leaves split and blocks are reused.
Status work_on(Collection c, int records) {
  for (int i = 0; i < records; ++i) TENUTO_TRY(c.put(key_of(i), value_of(i)));
  for (int i = 0; i < records; i += 3) TENUTO_TRY(c.put(key_of(i), value_of(i + 1000)));
  for (int i = 0; i < records; i += 7) TENUTO_TRY(c.erase(key_of(i)));
  return Status::ok;
}

Status fill_store(OpenPool& open) {
  TENUTO_TRY(put_odd_keys(*open.store));
  TENUTO_TRY(work_on(*open.store, 300));
  WriteBatch batch;
  for (int i = 0; i < 20; ++i) batch.put("batch/" + std::to_string(i), value_of(i));
  for (int i = 1; i < 300; i += 30) batch.erase(key_of(i));
  return open.store->write(batch);
}

// --- objects -------------------------------------------------------------------------------------

void set_account(Account& a, std::uint64_t number) {
  a.number = number;
  a.balance = 1000 + number;
  std::memset(a.owner, 0, sizeof a.owner);
  const std::string owner = "owner " + std::to_string(number);
  std::memcpy(a.owner, owner.data(), owner.size());
}

void set_item(Item& i, std::uint64_t number) {
  i.number = number;
  std::memset(i.text, 0, sizeof i.text);
  const std::string text = "item text " + std::to_string(number);
  std::memcpy(i.text, text.data(), text.size());
}

// Makes accounts by transactions, items by versioned words, and a text by a reservation. Frees
// some.
Status fill_objects(Pool& pool) {
  auto found = pool.root<Root>(kRootLayout);
  if (!found) return found.error();
  Root& root = **found;
  for (std::uint64_t i = 0; i < 16; ++i) {
    const auto make_account = [&](Transaction& tx) {
      TENUTO_TRY(tx.add(root.accounts[i]));
      TENUTO_TRY(tx.add(root.numbers[i]));
      auto block = tx.alloc(sizeof(Account), {.type = kAccountType});
      if (!block) return block.error();
      set_account(*static_cast<Account*>(*block), i);
      root.accounts[i] = static_cast<Account*>(*block);
      root.numbers[i] = i * i;
      return Status::ok;
    };
    TENUTO_TRY(pool.run(make_account));
  }
  for (std::uint64_t i = 0; i < 12; ++i) {
    TENUTO_TRY(pool.malloc_to(sizeof(Item), root.items[i].word(), {.type = kItemType}));
    set_item(*root.items[i], i);
    flush(*root.items[i]);
    fence("item", "next item");
  }
  TENUTO_TRY(pool.free_from(root.items[3]));
  TENUTO_TRY(pool.swap(root.items[2], root.items[14]));
  TENUTO_TRY(pool.swap(root.items[5], root.items[6]));
  const auto free_account = [&](Transaction& tx) {
    TENUTO_TRY(tx.add(root.accounts[9]));
    TENUTO_TRY(tx.free(root.accounts[9].get()));
    root.accounts[9] = nullptr;
    return Status::ok;
  };
  TENUTO_TRY(pool.run(free_account));
  auto text = pool.reserve(40'000);  // an extent
  if (!text) return text.error();
  std::memset(text->data, 't', 40'000);
  flush_bytes(text->data, 40'000);
  TENUTO_TRY(pool.publish(*text, root.text.word()));
  return pool.run([&](Transaction& tx) {
    TENUTO_TRY(tx.add(root.text_bytes));
    root.text_bytes = 40'000;
    return Status::ok;
  });
}

// Begins a transaction that never ends: it has stored, allocated and freed, and needs a log frame.
Status begin_what_never_ends(Pool& pool) {
  Root& root = **pool.root<Root>(kRootLayout);
  auto& tx = *new Transaction(pool);
  TENUTO_TRY(tx.add(root));
  auto block = tx.alloc(sizeof(Account), {.type = kAccountType});
  if (!block) return block.error();
  set_account(*static_cast<Account*>(*block), 99);
  TENUTO_TRY(tx.free(root.accounts[1].get()));
  root.accounts[0] = static_cast<Account*>(*block);
  root.accounts[1] = nullptr;
  TENUTO_TRY(tx.add(root.text.get(), 8000));
  std::memset(root.text.get(), 'X', 8000);
  flush(root);
  flush_bytes(root.text.get(), 8000);
  return pool.reserve(500) ? Status::ok : Status::full;
}

// --- forms of collections ------------------------------------------------------------------------

struct Form {
  const char* name;
  CollectionOptions options;
};

std::vector<Form> forms() {
  return {
      {"plain", {}},
      {"integers", {.order = KeyOrder::u64}},
      {"reverse", {.order = KeyOrder::reverse}},
      {"reverse integers", {.order = KeyOrder::reverse_u64}},
      {"decimal", {.order = KeyOrder::registered, .codec = "decimal"}},
      {"duplicates", {.duplicates = true}},
      {"reverse duplicates", {.order = KeyOrder::reverse, .duplicates = true}},
      {"integer duplicates", {.order = KeyOrder::u64, .duplicates = true}},
      {"lifetimes", {.expires = true}},
      {"integers with lifetimes", {.order = KeyOrder::u64, .expires = true}},
      {"duplicates with lifetimes", {.duplicates = true, .expires = true}},
      {"codec, duplicates, lifetimes",
       {.order = KeyOrder::registered, .codec = "decimal", .duplicates = true, .expires = true}},
      {"name \t\xff that is not text", {}},
      {"empty", {.order = KeyOrder::reverse, .duplicates = true}},
  };
}

std::string key_in(const Collection& c, int i) {
  const bool integers = c.order() == KeyOrder::u64 || c.order() == KeyOrder::reverse_u64;
  if (integers) return std::string(std::string_view(u64_key(static_cast<std::uint64_t>(i) << 40)));
  if (c.order() == KeyOrder::registered) return std::to_string(i * 13 % 101 - 50);
  return key_of(i);
}

Status fill_form(Collection c) {
  for (int i = 0; i < 80; ++i) {
    WriteOptions w;
    if (c.expires() && i % 3 != 0) w.ttl_ms = kFarMs + static_cast<std::uint64_t>(i) * 1000;
    const int key = c.duplicates() ? i / 4 : i;
    TENUTO_TRY(c.put(key_in(c, key), value_of(i).substr(0, 200), w));
  }
  if (!c.duplicates()) return c.erase(key_in(c, 5));
  TENUTO_TRY(c.erase_pair(key_in(c, 2), value_of(9).substr(0, 200)));
  return c.erase(key_in(c, 3));
}

Status fill_forms(OpenPool& open) {
  TENUTO_TRY(put_odd_keys(*open.store));
  for (const Form& form : forms()) {
    auto c = open.store->collection(form.name, form.options);
    if (!c) return c.error();
    if (form.name != "empty"s) TENUTO_TRY(fill_form(*c));
  }
  return Status::ok;
}

// --- what a store has been through ---------------------------------------------------------------

Status change_collections(Store& store) {
  for (const char* name : {"dropped", "renamed", "replaced", "replaces"}) {
    auto c = store.collection(name);
    if (!c) return c.error();
    TENUTO_TRY(work_on(*c, 60));
    TENUTO_TRY(c->put("name", name));
  }
  TENUTO_TRY(store.drop("dropped"));
  TENUTO_TRY(store.rename("renamed", "has another name"));
  TENUTO_TRY(store.rename("replaces", "replaced", {.replace = true}));
  return Status::ok;
}

Status load_one(Store& store) {
  auto bulk = store.collection("bulk");
  if (!bulk) return bulk.error();
  std::vector<std::string> keys;
  for (int i = 0; i < 200; ++i) keys.push_back(key_of(i));
  std::sort(keys.begin(), keys.end());
  std::vector<BulkRecord> records;
  for (const std::string& key : keys) records.push_back({key, key});
  return bulk->bulk_load(records);
}

Status commit_one(Store& store) {
  return store.run([&](StoreTransaction& tx) {
    auto c = tx.create("made in a transaction", {});
    if (!c) return c.error();
    TENUTO_TRY(tx.put({*c, "a"}, "1"));
    TENUTO_TRY(tx.put("tx", "in the default collection"));
    return tx.erase(key_of(11));
  });
}

// Snapshots that were read and released, batches, large values, and a file that grew.
Status fill_history(OpenPool& open) {
  Store& store = *open.store;
  Collection main = store;
  TENUTO_TRY(work_on(main, 200));
  {
    auto snapshot = store.snapshot();
    if (!snapshot) return snapshot.error();
    TENUTO_TRY(work_on(main, 200));
    TENUTO_TRY(change_collections(store));
    if (!snapshot->get(key_of(1))) return Status::corrupt;
  }
  TENUTO_TRY(load_one(store));
  TENUTO_TRY(commit_one(store));
  for (const std::size_t kib : {1, 17, 64, 300, 5000, 9000}) {
    TENUTO_TRY(main.put("large/" + std::to_string(kib), std::string(kib << 10, 'L')));
  }
  TENUTO_TRY(main.erase("large/5000"));
  TENUTO_TRY(main.put("large/300", std::string(200u << 10, 'l')));
  auto erased = main.erase_range("key/5", "key/6");
  if (!erased) return erased.error();
  auto compacted = store.compact();
  return compacted ? work_on(main, 30) : compacted.error();
}

// Leaves old versions that readers hold, and a transaction that never ends.
Status leave_readers(OpenPool& open) {
  Store& store = *open.store;
  auto& snapshot = *new Snapshot(std::move(*store.snapshot()));
  auto& iterator = *new Iterator(snapshot.iterator());
  iterator.seek_first();
  TENUTO_TRY(work_on(store, 100));
  TENUTO_TRY(store.drop("bulk"));
  auto& tx = *new StoreTransaction(store.begin());
  TENUTO_TRY(tx.put("never", "committed"));
  return tx.put(key_of(12), "never committed");
}

// --- the pools -----------------------------------------------------------------------------------

template <Status (*fill)(OpenPool&), End end>
Status store_of(const Place& place) {
  auto open = new_store(place);
  if (!open) return open.error();
  TENUTO_TRY(fill(*open));
  return end_life(*open, place, end);
}

template <End end>
Status journalled(const Place& place) {
  StoreOptions options = old_pool_options();
  options.pool.medium = Medium::journal;
  options.pool.journal.recovery_ms_max = 0;  // so that the journal still has everything at the end
  auto open = new_store(place, options);
  if (!open) return open.error();
  TENUTO_TRY(fill_store(*open));
  TENUTO_TRY(fill_objects(open->objects()));
  TENUTO_TRY(open->store->sync());
  return end_life(*open, place, end);
}

Status integers(const Place& place) {
  StoreOptions options = old_pool_options();
  options.order = KeyOrder::u64;
  auto open = new_store(place, options);
  if (!open) return open.error();
  for (std::uint64_t i = 0; i < 200; ++i) {
    TENUTO_TRY(open->store->put(u64_key(i * 0x9e3779b97f4a7c15ull), value_of(static_cast<int>(i))));
  }
  TENUTO_TRY(open->store->put(u64_key(~0ull), "the last one"));
  return end_life(*open, place, End::closed);
}

// A pool without a store. Killed: inside a transaction.
template <Status (*fill)(Pool&), Status (*begin)(Pool&), End end>
Status pool_of(const Place& place) {
  auto pool = Pool::create(place.pool, old_pool_options().pool);
  if (!pool) return pool.error();
  OpenPool open;
  open.pool.emplace(std::move(*pool));
  TENUTO_TRY(fill(open.objects()));
  if (end == End::closed) return end_life(open, place, end);
  // Closes once, so that what the text shows is durable before the transaction begins.
  TENUTO_TRY(end_life(open, place, End::closed));
  auto again = Pool::open(place.pool, old_pool_options().pool);
  if (!again) return again.error();
  TENUTO_TRY(begin(*again));
  std::_Exit(0);
}
template <End end>
constexpr auto objects = pool_of<fill_objects, begin_what_never_ends, end>;
template <End end>
constexpr auto containers = pool_of<fill_containers, begin_containers_that_never_end, end>;

Status fill_both(OpenPool& open) {
  TENUTO_TRY(fill_store(open));
  return fill_objects(open.objects());
}

Status fill_and_leave_readers(OpenPool& open) {
  TENUTO_TRY(fill_history(open));
  return leave_readers(open);
}

constexpr Recipe kRecipes[] = {
    {"clean", "a store, closed", store_of<fill_store, End::closed>},
    {"killed", "a store and objects, killed", store_of<fill_both, End::killed>},
    {"integers", "a store of integer keys, closed", integers},
    {"journal", "medium journal, killed after a sync", journalled<End::killed>},
    {"journal_closed", "medium journal, closed, its journal kept", journalled<End::closed>},
    {"forms", "a collection of every form, closed", store_of<fill_forms, End::closed>},
    {"forms_killed", "the same, killed", store_of<fill_forms, End::killed>},
    {"history", "snapshots, batches, large values, changed collections; closed",
     store_of<fill_history, End::closed>},
    {"history_killed", "the same, killed while readers held old versions back",
     store_of<fill_and_leave_readers, End::killed>},
    {"objects", "typed objects, versioned words, a root, no store; closed", objects<End::closed>},
    {"objects_killed", "the same, killed inside a transaction", objects<End::killed>},
    {"containers", "every container in a root, no store; closed", containers<End::closed>},
    {"containers_killed", "the same, killed inside a transaction", containers<End::killed>},
};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

}  // namespace tenuto::test

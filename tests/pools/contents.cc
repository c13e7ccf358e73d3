#include "pools/contents.h"

#include <cstdio>
#include <set>
#include <string_view>

#include "pm/crc32c.h"
#include "pools/containers.h"
#include "record_format.h"
#include "support/decimal_codec.h"
#include "text_format.h"

namespace tenuto::test {
namespace {

constexpr std::size_t kShownBytes = 300;  // longer values are shown by length and checksum

std::string order_of(const Collection& c) {
  switch (c.order()) {
    case KeyOrder::bytes:
      return "bytes";
    case KeyOrder::u64:
      return "u64";
    case KeyOrder::reverse:
      return "reverse";
    case KeyOrder::reverse_u64:
      return "reverse_u64";
    case KeyOrder::registered:
      return "registered " + c.codec();
  }
  return "unknown";
}

std::string shown(std::string_view value) {
  if (value.size() <= kShownBytes) return std::string(value);
  char text[64];
  std::snprintf(text, sizeof text, "<%zu bytes, crc32c %08x>", value.size(),
                pm::crc32c(value.data(), value.size()));
  return text;
}

// Returns an error, or an empty string if all could be read.
std::string append_collection(const Collection& c, std::string& text) {
  text += "# collection ";
  tool::append_escaped(text, c.name());
  text += c.name().empty() ? "(default), " : ", ";
  text += order_of(c);
  if (c.duplicates()) text += ", duplicates";
  if (c.expires()) text += ", expires";
  text += '\n';
  std::uint64_t count = 0;
  Iterator it = c.iterator();
  for (it.seek_first(); it.valid(); it.next(), ++count) {
    tool::append_record(tool::RecordFormat::tsv, c.order(), it.key(), shown(it.value()), text);
    const std::uint64_t left = it.ttl_ms();
    if (left != 0) text += "\texpires " + std::to_string(kPoolsNowMs + left);
    text += '\n';
  }
  if (it.status() != Status::ok) return c.name() + ": " + status_name(it.status());
  text += "# " + std::to_string(count) + " records\n";
  return {};
}

std::string append_store(Store& store, std::string& text) {
  std::string error = append_collection(store, text);
  if (!error.empty()) return error;
  Report report;
  const auto infos = store.collections(&report);
  if (!infos) return report.text();
  for (const CollectionInfo& info : *infos) {
    CollectionOptions options;
    options.create_if_missing = false;
    const auto c = store.collection(info.name, options, &report);
    if (!c) return report.text();
    error = append_collection(*c, text);
    if (!error.empty()) return error;
  }
  return {};
}

std::string line_of(const Account& a) {
  return "account " + std::to_string(a.number) + " of " + a.owner + ": " +
         std::to_string(a.balance) + "\n";
}
std::string line_of(const Item& i) {
  return "item " + std::to_string(i.number) + ": " + i.text + "\n";
}

// Sorted by contents, because the allocator decides the order of objects.
template <class T>
std::string objects_of(const Pool& pool, std::uint64_t type) {
  std::multiset<std::string> lines;
  for (const T& object : pool.objects<T>(type)) lines.insert(line_of(object));
  std::string text = "# objects of type " + std::to_string(type) + "\n";
  for (const std::string& line : lines) text += line;
  return text;
}

std::string append_objects(Pool& pool, std::string& text) {
  const std::string layout = pool.info().layout;
  if (layout.empty()) return {};
  text += "# root " + layout + "\n";
  if (layout == kContainersLayout) return append_containers(pool, text);
  Report report;
  const auto found = pool.root<Root>(kRootLayout, &report);
  if (!found) return report.text();
  const Root& root = **found;
  for (const auto& a : root.accounts) text += a ? line_of(*a) : "no account\n";
  for (const auto& i : root.items) text += i ? line_of(*i) : "no item\n";
  for (const std::uint64_t n : root.numbers) text += std::to_string(n) + "\n";
  if (root.text) {
    text += "text: ";
    tool::append_escaped(text, shown({root.text.get(), root.text_bytes}));
    text += '\n';
  }
  text += objects_of<Account>(pool, kAccountType);
  text += objects_of<Item>(pool, kItemType);
  return {};
}

}  // namespace

StoreOptions old_pool_options() {
  StoreOptions o;
  o.pool.size = kPoolBytesMin;
  o.pool.size_max = 64u << 20;
  o.pool.medium = Medium::cache;
  o.pool.recovery_threads = 1;
  o.pool.journal.bytes = 1u << 20;
  o.pool.journal.sync_every_ms = 0;
  o.reclaim_every_ms = 0;
  o.codecs = {decimal()};
  o.clock_ms = [] { return kPoolsNowMs; };
  return o;
}

Result<OpenPool> open_old(const std::string& path, const StoreOptions& options, Report* report) {
  StoreOptions o = options;
  o.create_if_missing = false;
  OpenPool open;
  Result<Store> store = Store::open(path, o, report);
  if (store) {
    open.store.emplace(std::move(*store));
    return open;
  }
  if (store.error() != Status::not_found) return store.error();
  Result<Pool> pool = Pool::open(path, o.pool, report);
  if (!pool) return pool.error();
  open.pool.emplace(std::move(*pool));
  return open;
}

std::string contents(OpenPool& pool) {
  std::string text;
  std::string error;
  if (pool.store) error = append_store(*pool.store, text);
  if (error.empty()) error = append_objects(pool.objects(), text);
  return error.empty() ? text : "error: " + error;
}

}  // namespace tenuto::test

#include "support/named_records.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "support/kill_records.h"

namespace tenuto::test {
namespace {

using Pair = NamedRecords::Pair;

constexpr std::size_t kWalkMax = 5000;
constexpr std::uint64_t kTtlMs[] = {0, 1000, 24 * 3'600'000};  // for ever, expired, not yet expired
constexpr int kValuesOfKey = 4;                                // number of duplicates
constexpr int kThread = 7;  // of kill_key, so that no two collections share a key

struct Numbered {
  Pair pair;
  std::uint64_t ttl_ms = 0;
};

// The record of a number. `changed`: the record that replaces it.
Numbered numbered(const NamedRecords& c, int number, bool changed) {
  Numbered n;
  const std::uint32_t version = static_cast<std::uint32_t>(number) + (changed ? 100'000 : 1);
  if (c.options.order == KeyOrder::u64) {
    const U64Key key = u64_key(static_cast<std::uint64_t>(number) * 0x9e3779b97f4a7c15ull);
    n.pair.first = std::string_view(key);
  } else {
    const int key = c.options.duplicates ? number / kValuesOfKey : number;
    n.pair.first = kill_key(kThread + (c.options.duplicates ? 1 : 0), key);
  }
  n.pair.second =
      changed ? "changed" + std::to_string(number) : kill_value(kThread, number, version);
  if (c.options.duplicates) n.pair.second.resize(std::min<std::size_t>(n.pair.second.size(), 300));
  if (c.options.expires) n.ttl_ms = kTtlMs[static_cast<std::size_t>(number) % std::size(kTtlMs)];
  return n;
}

bool is_gone(std::uint64_t ttl_ms) { return ttl_ms != 0 && kWrittenMs + ttl_ms <= kReadMs; }

bool is_erased(int number) { return number % 7 == 3; }

Status put(Collection& collection, const Numbered& n) {
  WriteOptions w;
  w.ttl_ms = n.ttl_ms;
  return collection.put(n.pair.first, n.pair.second, w);
}

Status erase(Collection& collection, const Pair& pair) {
  return collection.duplicates() ? collection.erase_pair(pair.first, pair.second)
                                 : collection.erase(pair.first);
}

std::string shown(const NamedRecords& c, const std::string& what, std::string_view key) {
  std::string text = "collection " + c.name + ": " + what + " (key ";
  for (const char ch : key.substr(0, 40)) text += ch >= ' ' && ch <= '~' ? ch : '.';
  return text + ")";
}

// The records in the collection's order.
std::vector<Pair> in_order(const NamedRecords& c) {
  std::vector<Pair> pairs(c.now.begin(), c.now.end());
  if (c.reversed()) std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

std::string walk(const NamedRecords& c, const Collection& collection, bool forward,
                 const ReadNamed& how) {
  std::vector<Pair> expected = in_order(c);
  if (!forward) std::reverse(expected.begin(), expected.end());
  std::size_t seen = 0;
  Iterator it = collection.iterator();
  forward ? it.seek_first() : it.seek_last();
  for (; it.valid() && seen < kWalkMax; ++seen) {
    const Pair pair(it.key(), it.value());
    if (how.values && (c.ever.count(pair) == 0 || it.ttl_ms() > kTtlMs[2])) {
      return kWrongValue + shown(c, "in a walk", pair.first);
    }
    if (how.exact && (seen >= expected.size() || pair != expected[seen])) {
      return shown(c, "validate() says ok, but a walk shows something else", pair.first);
    }
    forward ? it.next() : it.prev();
  }
  if (how.exact && (it.status() != Status::ok || seen != expected.size())) {
    return shown(c, "validate() says ok, but a walk ends early", {});
  }
  return {};
}

std::string lookups(const NamedRecords& c, const Collection& collection, const ReadNamed& how) {
  std::string value;
  std::optional<std::string_view> last;
  for (const Pair& pair : c.ever) {
    if (last == pair.first) continue;
    last = pair.first;
    const Status s = collection.get(pair.first, value);
    if (how.values && s == Status::ok && c.ever.count({pair.first, value}) == 0) {
      return kWrongValue + shown(c, "of a get", pair.first);
    }
    const auto first = c.now.lower_bound({pair.first, {}});
    const bool there = first != c.now.end() && first->first == pair.first;
    if (how.exact && (s == Status::ok) != there) {
      return shown(c, std::string("validate() says ok, but get says ") + status_name(s),
                   pair.first);
    }
    (void)collection.contains(pair.first);
    if (c.options.duplicates) {
      (void)collection.count(pair.first);
      (void)collection.contains_pair(pair.first, pair.second);
    } else {
      (void)collection.ttl_ms(pair.first);
    }
  }
  return {};
}

std::string read(Store& store, const NamedRecords& c, const ReadNamed& how) {
  CollectionOptions options;
  options.create_if_missing = false;
  Report report;
  const auto collection = store.collection(c.name, options, &report);
  if (!collection) {
    if (report.what.empty()) return "collection " + c.name + ": an error without a report";
    return how.exact ? "collection " + c.name + " is lost: " + report.text() : std::string();
  }
  const bool same = collection->order() == c.options.order &&
                    collection->duplicates() == c.options.duplicates &&
                    collection->expires() == c.options.expires;
  if (!same) return "collection " + c.name + " has another form";
  for (const bool forward : {true, false}) {
    if (std::string wrong = walk(c, *collection, forward, how); !wrong.empty()) return wrong;
  }
  return lookups(c, *collection, how);
}

}  // namespace

bool NamedRecords::reversed() const { return options.order == KeyOrder::reverse; }

std::vector<NamedRecords> named_records() { return named_forms<NamedRecords>(); }

Status write_named(Store* store, std::vector<NamedRecords>& all, int from, int to) {
  for (NamedRecords& c : all) {
    Collection collection;
    if (store != nullptr) {
      auto made = store->collection(c.name, c.options);
      if (!made) return made.error();
      collection = std::move(*made);
    }
    for (int i = from; i < to; ++i) {
      const Numbered n = numbered(c, i, false);
      if (store != nullptr) TENUTO_TRY(put(collection, n));
      if (is_gone(n.ttl_ms)) continue;
      c.ever.insert(n.pair);
      if (!is_erased(i)) {
        c.now.insert(n.pair);
        continue;
      }
      if (store != nullptr) TENUTO_TRY(erase(collection, n.pair));
    }
  }
  return Status::ok;
}

void disturb_named(Store* store, std::vector<NamedRecords>& all, int count) {
  WriteBatch batch;
  for (NamedRecords& c : all) {
    CollectionOptions options;
    options.create_if_missing = false;
    Collection collection;
    if (store != nullptr) {
      auto opened = store->collection(c.name, options);
      if (opened) collection = *opened;
    }
    for (int i = 0; i < count; ++i) {
      const Numbered n = numbered(c, i, true);
      if (i % 5 == 0 && !is_gone(n.ttl_ms)) c.ever.insert(n.pair);
      if (store == nullptr) continue;
      if (i % 10 == 0) (void)put(collection, n);
      if (i % 10 == 5) batch.put({collection, n.pair.first}, n.pair.second, n.ttl_ms);
      if (i % 9 == 1) (void)erase(collection, numbered(c, i, false).pair);
      if (i % 9 == 2) batch.erase({collection, n.pair.first});
    }
  }
  if (store != nullptr) (void)store->write(batch);
}

std::string read_named(Store& store, const std::vector<NamedRecords>& all, const ReadNamed& how) {
  for (const NamedRecords& c : all) {
    if (std::string wrong = read(store, c, how); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace tenuto::test

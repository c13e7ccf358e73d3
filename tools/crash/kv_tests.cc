// Stores: single operations and batches. The model is a map, plus the changes of the operation that
// the crash interrupted.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "tenuto/kv.h"
#include "tests.h"

namespace tenuto::crash_tool {

namespace {

constexpr std::uint64_t kPoolBytes = 8u << 20;

using Records = std::map<std::string, std::string>;
using Change = std::pair<std::string, std::optional<std::string>>;  // no value: erased

struct KvModel {
  Records now;
  std::vector<Change> pending;

  Records after() const {
    Records r = now;
    for (const auto& [key, value] : pending) {
      if (value) {
        r[key] = *value;
      } else {
        r.erase(key);
      }
    }
    return r;
  }
};

Result<Store> open_store(const std::string& path, Report* report = nullptr) {
  StoreOptions options;
  options.pool.size = kPoolBytes;
  options.pool.recovery_threads = 1;
  return Store::open(path, options, report);
}

Change random_change(std::mt19937_64& rng, std::uint64_t keys) {
  // Some keys are too long to be stored inside a leaf's separator.
  const std::uint64_t n = rng() % keys;
  std::string key = "key/" + std::to_string(n * 7919 % 1000);
  if (n % 16 == 0) key += std::string(100, 'k');
  if (rng() % 4 == 0) return {std::move(key), std::nullopt};
  const std::uint64_t bytes = rng() % 12 == 0 ? 3000 : rng() % 150;
  return {std::move(key), std::string(bytes, static_cast<char>('a' + rng() % 26))};
}

std::string compare(const Records& stored, const KvModel& model) {
  if (stored == model.now || stored == model.after()) return {};
  for (const auto& [key, value] : model.now) {
    const auto at = stored.find(key);
    const bool changing = std::any_of(model.pending.begin(), model.pending.end(),
                                      [&, &k = key](const Change& c) { return c.first == k; });
    if (at == stored.end() && !changing) return "lost: " + key;
    if (at != stored.end() && at->second != value && !changing) return "wrong value: " + key;
  }
  return "neither the records before the operation nor those after it; " +
         std::to_string(stored.size()) + " records, " + std::to_string(model.now.size()) +
         " before";
}

CrashTest kv_test(const char* name, const char* what, const WorkloadOptions& o,
                  std::uint64_t changes_at_once) {
  const auto model = std::make_shared<KvModel>();
  const auto workload = [=](CrashContext& context) {
    *model = {};
    std::mt19937_64 rng(o.seed);
    Store store = open_store(context.path()).value();
    for (std::uint64_t i = 0; i < o.operations; ++i) {
      std::vector<Change> changes;
      for (std::uint64_t k = 0; k < changes_at_once; ++k) {
        changes.push_back(random_change(rng, o.keys));
      }
      context.update([&] { model->pending = changes; });
      context.invoke();
      if (changes_at_once == 1) {
        const auto& [key, value] = changes[0];
        (void)(value ? store.put(key, *value) : store.erase(key));
      } else {
        WriteBatch batch;
        for (const auto& [key, value] : changes) value ? batch.put(key, *value) : batch.erase(key);
        (void)store.write(batch);
      }
      context.update([&] {
        model->now = model->after();
        model->pending.clear();
      });
      context.ack();
    }
  };
  const auto check = [=](const CrashImage& image) -> std::string {
    Report report;
    const Result<Store> opened = open_store(image.path(), &report);
    if (!opened) return "open: " + report.text();
    const Store& store = *opened;
    if (store.validate(&report) != Status::ok) return "validate: " + report.text();
    Records stored;
    Iterator it = store.iterator();
    for (it.seek_first(); it.valid(); it.next()) stored.emplace(it.key(), it.value());
    return compare(stored, *model);
  };
  return {name,     what,  [](const std::string& path) { (void)open_store(path).value(); },
          workload, check, {}};
}

}  // namespace

void add_kv_tests(const WorkloadOptions& options, std::vector<CrashTest>& tests) {
  tests.push_back(kv_test("kv", "puts and erases in a store", options, 1));
  tests.push_back(kv_test("batch", "batches of eight puts and erases", options, 8));
}

}  // namespace tenuto::crash_tool

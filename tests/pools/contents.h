// What a pool holds, as canonical text. make_pools writes it beside a pool, and the tests of old
// pools compare with it, whatever library they are built with. README.md describes the lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto::test {

// The time at which these pools are written and read. Lifetimes end about 222 years later.
inline constexpr std::uint64_t kPoolsNowMs = 1'760'000'000'000;
inline constexpr std::uint64_t kFarMs = 7'000'000'000'000;

inline constexpr const char* kRootLayout = "old pools";
inline constexpr std::uint64_t kAccountType = 7;
inline constexpr std::uint64_t kItemType = 9;

// These structures are part of the old pools: never change them.
struct Account {
  std::uint64_t number;
  std::uint64_t balance;
  char owner[48];
};
struct Item {
  std::uint64_t number;
  char text[120];
};
struct Root {
  Ptr<Account> accounts[16];
  VPtr<Item> items[16];
  Ptr<char> text;
  std::uint64_t text_bytes;
  std::uint64_t numbers[32];
};

// Options with the codec that a collection of these pools names, and with the time above.
StoreOptions old_pool_options();

struct OpenPool {
  std::optional<Store> store;  // at most one of the two is set
  std::optional<Pool> pool;
  Pool& objects() { return store ? store->pool() : *pool; }
  Status validate(Report* report) {
    return store ? store->validate(report) : pool->validate(report);
  }
  Status close() { return store ? store->close() : pool->close(); }
};

// Opens the store in it, or the pool if it has no store.
Result<OpenPool> open_old(const std::string& path, const StoreOptions& options, Report* report);

// Returns the text. It starts with "error: " if something could not be read.
std::string contents(OpenPool& pool);

}  // namespace tenuto::test

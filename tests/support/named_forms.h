// The named collections of pools that tests damage, one for each encoding, and how such pools are
// opened. damage_fuzz, mutants_fuzz and fuzz_pool_open use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenuto/collection.h"
#include "tenuto/kv.h"

namespace tenuto::test {

// The time in milliseconds at which records are written, and a later one at which they are read.
// Some expire in between.
inline constexpr std::uint64_t kWrittenMs = 1'700'000'000'000;
inline constexpr std::uint64_t kReadMs = kWrittenMs + 3'600'000;

inline constexpr std::uint64_t kDamagedPoolBytes = 8u << 20;

inline StoreOptions damaged_pool_options(std::uint64_t now_ms = kReadMs) {
  StoreOptions o;
  o.pool.size = kDamagedPoolBytes;
  o.pool.size_max = 4 * kDamagedPoolBytes;
  o.pool.medium = Medium::cache;
  o.pool.recovery_threads = 1;
  o.reclaim_every_ms = 0;
  o.clock_ms = [now_ms] { return now_ms; };
  return o;
}

// Reverse order with duplicates; with lifetimes; integer keys. T has a name and options.
template <class T>
std::vector<T> named_forms() {
  std::vector<T> all(3);
  all[0].name = "tags";
  all[0].options.order = KeyOrder::reverse;
  all[0].options.duplicates = true;
  all[1].name = "sessions";
  all[1].options.expires = true;
  all[2].name = "numbers";
  all[2].options.order = KeyOrder::u64;
  return all;
}

}  // namespace tenuto::test

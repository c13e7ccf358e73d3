// A store on medium journal with its files in memory, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto::test {

// A pool and its journal, both removed at the end.
struct JournalPaths {
  explicit JournalPaths(const std::string& name) : pool(name), journal(name + ".journal") {}
  TempPath pool;
  TempPath journal;
};

// With sync_every_ms = 0 only syncs and a full journal cause commits.
inline StoreOptions journalled(const JournalPaths& paths, unsigned sync_every_ms = 0) {
  StoreOptions o;
  o.pool = PoolParts::small_options();
  o.pool.medium = Medium::journal;
  o.pool.journal.path = paths.journal.str();
  o.pool.journal.bytes = 4u << 20;
  o.pool.journal.sync_every_ms = sync_every_ms;
  return o;
}

}  // namespace tenuto::test

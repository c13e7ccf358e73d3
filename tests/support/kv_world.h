// A small store under the crash explorer: scripts of steps, each judged against the exact model.
// Used by kv_crash.cc and, with mistakes planted, by planted_crash.cc.
//
// TENUTO_CRASH_SCALE multiplies the sampled crash states (default 1).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenuto/crash.h"
#include "tenuto/kv.h"

namespace tenuto::test {

// One step: all its entries become durable together. No value: erase. No entries: a compaction.
using KvStep = std::vector<std::pair<std::string, std::optional<std::string>>>;
using KvScript = std::vector<KvStep>;

class KvCrash {
 public:
  using Records = std::map<std::string, std::string>;

  KvCrash(Records before, KvScript script)
      : before_(std::move(before)), script_(std::move(script)) {}

  CrashResult run(const CrashOptions& options);

  // The workload begins with a pool that holds no store.
  void create_in_workload() { create_ = true; }

  // The first step, of puts, is loaded into the empty store by bulk_load.
  void begin_with_bulk_load() { bulk_ = true; }

  // These were there, too, and were erased before the workload.
  void erase_in_setup(Records records) { erased_ = std::move(records); }

  // The parts, for other workloads on such a store. check() compares with the model.
  void setup(const std::string& path) const;
  void workload(CrashContext& c);
  std::string check(const CrashImage& image) const;
  void start_model();

 private:
  std::string difference(const Records& found, const Records& after) const;

  Records before_;
  KvScript script_;
  Records erased_;
  bool create_ = false;
  bool bulk_ = false;
  Records model_;
  const KvStep* step_ = nullptr;
};

StoreOptions kv_world_options();
CrashOptions kv_crash_options();
// Fewer samples, where each fence has very many lines before it.
CrashOptions kv_bulk_options();
// Of some of the moments: one compaction has many fences.
CrashOptions kv_compaction_options();
// All moments; recovery itself is kv_batches' business.
CrashOptions kv_moved_options();

// Inserts, updates, erases, with records in slabs and in extents.
KvCrash kv_single_operations();
// A record in an extent is replaced and erased.
KvCrash kv_large_records();
// A full leaf meets a key in its middle.
KvCrash kv_half_split();
// A full leaf meets keys behind its last.
KvCrash kv_append_split();
// Separators that need blocks of their own.
KvCrash kv_long_separators();
// The second of three leaves becomes empty and goes.
KvCrash kv_unlink();
// Batches over several leaves, with splits, updates, erases and a leaf that they empty.
KvCrash kv_batches();
// Three leaves; no step.
KvCrash kv_many_leaves();
// Two leaves, with a separator that needs a block of its own, loaded at once; then a single step.
KvCrash kv_bulk();
// Sparse leaves, and slabs of three classes in which records and leaves are left; then writes.
KvCrash kv_compaction();
// One leaf, whose records are all that is left in their slabs; then a write.
KvCrash kv_moved_records();
// A store where there was none.
KvCrash kv_creation();

}  // namespace tenuto::test

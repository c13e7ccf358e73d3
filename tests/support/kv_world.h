// A small store under the crash explorer: scripts of steps, each judged against the exact model.
// kv_crash.cc uses it and, with planted mistakes, planted_crash.cc.
//
// TENUTO_CRASH_SCALE multiplies the sampled crash states (crash_scale.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenuto/crash.h"
#include "tenuto/kv.h"

namespace tenuto::test {

// One step: all its entries become durable together. No value: an erase. No entries: a compaction.
using KvStep = std::vector<std::pair<std::string, std::optional<std::string>>>;
using KvScript = std::vector<KvStep>;

class KvCrash {
 public:
  using Records = std::map<std::string, std::string>;

  KvCrash(Records before, KvScript script)
      : before_(std::move(before)), script_(std::move(script)) {}

  CrashResult run(const CrashOptions& options);

  // The workload begins with a pool that has no store.
  void create_in_workload() { create_ = true; }

  // The first step has only puts. bulk_load loads it into the empty store.
  void begin_with_bulk_load() { bulk_ = true; }

  // The store is closed and opened again after each step.
  void close_after_each_step() { closes_ = true; }

  // The workload begins with a store that nobody closed.
  void begin_after_a_kill() { killed_ = true; }

  // Compactions write all records anew.
  void compact_in_key_order() { in_key_order_ = true; }

  // These records were put and erased before the workload.
  void erase_in_setup(Records records) { erased_ = std::move(records); }

  // A commit of these records failed before the workload, after it had split leaves for them.
  void fail_in_setup(Records records) { failed_ = std::move(records); }

  // The parts, for other workloads on such a store. check() compares it with the model.
  void setup(const std::string& path) const;
  void workload(CrashContext& c);
  std::string check(const CrashImage& image) const;
  void start_model();

 private:
  std::string difference(const Records& found, const Records& after) const;

  Records before_;
  KvScript script_;
  Records erased_;
  Records failed_;
  bool create_ = false;
  bool bulk_ = false;
  bool closes_ = false;
  bool killed_ = false;
  bool in_key_order_ = false;
  Records model_;
  const KvStep* step_ = nullptr;
};

StoreOptions kv_world_options();
CrashOptions kv_crash_options();
// Fewer samples, because each fence has very many lines before it.
CrashOptions kv_bulk_options();
// Tries some of the crash points, because a compaction has many fences.
CrashOptions kv_compaction_options();
// Tries all crash points, but does not crash recovery, which kv_batches does.
CrashOptions kv_moved_options();

// Inserts, updates, erases, with records in slabs and in extents.
KvCrash kv_single_operations();
// A record in an extent is replaced and erased.
KvCrash kv_large_records();
// A key in the middle of a full leaf.
KvCrash kv_half_split();
// Keys behind the last one of a full leaf.
KvCrash kv_append_split();
// Separators that need their own blocks.
KvCrash kv_long_separators();
// The second of three leaves becomes empty and is unlinked.
KvCrash kv_unlink();
// The same after a kill: erases and the unlink come before anything needs the heap.
KvCrash kv_unlink_after_a_kill();
// Batches over several leaves, with splits, updates, erases and a leaf that they empty.
KvCrash kv_batches();
// An image of the leaves is left by closes and used by opens, with writes in between.
KvCrash kv_images();
// Three leaves, and no step.
KvCrash kv_many_leaves();
// Two leaves, with a separator in its own block, loaded at once. Then one step.
KvCrash kv_bulk();
KvCrash kv_bulk_over_empty_leaves();
// Sparse leaves, and slabs of three classes with few records and leaves. Then writes.
KvCrash kv_compaction();
// One leaf whose records are the last ones in their slabs. Then a write.
KvCrash kv_moved_records();
// Three leaves whose records are written anew in the order of their keys. Then writes.
KvCrash kv_key_order();
// A store in a pool that had none.
KvCrash kv_creation();

}  // namespace tenuto::test

// Collections under the crash explorer: scripts of steps that make, drop, rename and fill them,
// each judged against the exact model. collection_crash.cc and planted_crash.cc use them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tenuto/crash.h"
#include "tenuto/kv.h"

namespace tenuto::test {

// All effects of a step become durable together.
struct CollectionStep {
  enum class What { put, batch, create, drop, rename, replace, transaction };
  What what;
  std::string name;  // "" is the default one; transaction: made, "": none
  std::string to;    // rename, replace: new name; transaction: the one it drops, "" for none
  // put, batch: keys and values for each collection. The value "-" erases.
  std::map<std::string, std::map<std::string, std::string>> records;
};
using CollectionScript = std::vector<CollectionStep>;

class CollectionCrash {
 public:
  using Records = std::map<std::string, std::string>;
  using World = std::map<std::string, Records>;  // the default collection is always in it

  // `before` is in the store, cleanly closed, when the workload begins.
  CollectionCrash(World before, CollectionScript script)
      : before_(std::move(before)), script_(std::move(script)) {}

  CrashResult run(const CrashOptions& options);

 private:
  void setup(const std::string& path) const;
  void workload(CrashContext& c);
  std::string check(const CrashImage& image) const;

  World before_;
  CollectionScript script_;
  // What is acknowledged, and the step that runs.
  World model_;
  std::set<std::uint64_t> ids_;  // all that were ever given
  const CollectionStep* step_ = nullptr;
};

// Makes the first collection of a pool, and two more.
CollectionCrash collections_made();
// Drops collections, and reuses their memory.
CollectionCrash collections_dropped();
// Renames, also over a collection that is replaced and whose memory the rename may reuse.
CollectionCrash collections_renamed();
// Batches over several collections, with splits.
CollectionCrash collections_in_batches();
// Transactions that make, fill and drop collections, also one under the name of another.
CollectionCrash collections_in_transactions();
// More collections than a leaf of the catalog holds.
CollectionCrash collections_in_two_leaves();

}  // namespace tenuto::test

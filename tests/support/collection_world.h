// Collections under the crash explorer: scripts of steps that make, drop, rename and fill them,
// each judged against the exact model. Used by collection_crash.cc and planted_crash.cc.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tenuto/crash.h"
#include "tenuto/kv.h"

namespace tenuto::test {

// Whatever a step does becomes durable as a whole.
struct CollectionStep {
  enum class What { put, batch, create, drop, rename, replace, transaction };
  What what;
  std::string name;  // of the collection; "" is the default one; transaction: made, "": none is
  std::string to;    // rename, replace; transaction: dropped, "": none is
  // put and batch: of each collection, keys and values; "-" as a value erases.
  std::map<std::string, std::map<std::string, std::string>> records;
};
using CollectionScript = std::vector<CollectionStep>;

class CollectionCrash {
 public:
  using Records = std::map<std::string, std::string>;
  using World = std::map<std::string, Records>;  // the default one is always there

  // `before` is there, cleanly closed, when the workload begins.
  CollectionCrash(World before, CollectionScript script)
      : before_(std::move(before)), script_(std::move(script)) {}

  CrashResult run(const CrashOptions& options);

 private:
  void setup(const std::string& path) const;
  void workload(CrashContext& c);
  std::string check(const CrashImage& image) const;

  World before_;
  CollectionScript script_;
  // What is acknowledged, and the step under way.
  World model_;
  std::set<std::uint64_t> ids_;  // ever given
  const CollectionStep* step_ = nullptr;
};

// The first collection of a pool, and two more.
CollectionCrash collections_made();
// Drops; what the dropped one had is used again.
CollectionCrash collections_dropped();
// Renames, also over one that is replaced, whose memory the rename itself may use.
CollectionCrash collections_renamed();
// Batches over several collections, with splits.
CollectionCrash collections_in_batches();
// Transactions that make, fill and drop collections, also one in the place of another.
CollectionCrash collections_in_transactions();
// More than a leaf of the catalog holds.
CollectionCrash collections_in_two_leaves();

}  // namespace tenuto::test

// The catalog: the tree that names the collections. A record's key is a collection's name, its
// value is a CatalogRecord. REQUIRES: one call at a time.
//
// Nothing is logged for a creation or a drop. Recovery marks the blocks of the trees that the
// catalog names, just as it marks the records that leaves name.
//
//   create  first leaf, next id, record and slot |"record and slot"| leaf header |"leaf header"|
//   drop    bitmap |"leaf bitmap"|, then the tree's blocks are freed
//   in a transaction  the same; leaf and id are written before, the record in the commit's batch
//   rename  a batch of an erase and a put; with a collection replaced, the put is an update
//
// The catalog's leaf is authoritative, as for any record (leaf.h). The new tree's first leaf and
// the word with the next id are flushed before the put, so the put's first fence covers them. A
// name therefore promises a whole tree and an id that is never given again. A crash before the
// second fence leaves a leaf without a name: a derived block, which recovery frees. A dropped
// tree's blocks are freed after the erase's fence, when no crash brings the name back, and after
// the last reader has left (epochs). Ids may be skipped: by a crash, or by a creation that fails.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/kv/head.h"
#include "store/tree/tree.h"
#include "tenuto/collection.h"

namespace TENUTO_NS::store {

// The properties that a collection keeps for life.
struct CollectionSpec {
  KeyOrder order = KeyOrder::bytes;
  bool duplicates = false;
  bool expires = false;
  std::string codec = {};  // its name, with KeyOrder::registered

  // The order of the stored keys.
  KeyOrder tree_order() const {
    return is_of_integers(order) && !duplicates ? KeyOrder::u64 : KeyOrder::bytes;
  }
  bool operator==(const CollectionSpec&) const = default;
};

struct CatalogEntry {
  std::string name;
  TreeId id;
  PoolOffset first_leaf;
  CollectionSpec spec;
};

// On media: the value of a record in the catalog. The codec's name follows.
struct CatalogRecord {
  std::uint64_t first_leaf;
  std::uint64_t id;
  std::uint8_t version;
  std::uint8_t order;
  std::uint8_t flags;
  std::uint8_t codec_bytes;
  // crc32c of the collection's name, of the words above, of the codec's name.
  std::uint32_t check;

  static constexpr std::uint8_t kVersion = 1;
  // With a reverse or registered order, duplicates or lifetimes, which older libraries cannot read.
  static constexpr std::uint8_t kVersionWithEncoding = 2;
  static constexpr std::uint8_t kDuplicates = 1;
  static constexpr std::uint8_t kExpires = 2;
  // Version 0.1.0: a collection whose puts cost one fence. It is refused (refused.h).
  static constexpr std::uint8_t kVersionWithOneFence = 3;
  static constexpr std::uint8_t kOneFence = 4;
};
static_assert(pm::OnMedia<CatalogRecord> && sizeof(CatalogRecord) == 24);

inline constexpr std::size_t kCodecNameMax = 63;

std::string encode_entry(const CatalogEntry& entry);
// False: the value is not the entry of a collection with this name.
bool decode_entry(std::string_view name, std::string_view value, CatalogEntry& out);
// Whether the entry is of a collection that this version cannot read (refused.h).
bool is_of_one_fence(std::string_view name, std::string_view value);

class Catalog {
 public:
  // Makes an empty catalog and names it in the head page. Crash-safe.
  static Result<std::unique_ptr<Catalog>> create(Ground& ground);
  // See rebuild_tree.
  static Result<std::unique_ptr<Catalog>> open(Ground& ground, const HeadNames& names, bool clean,
                                               bool parallel, Report* report);

  // All entries, ordered by name. corrupt: an entry is damaged, its id was never given, or two
  // entries have one id.
  Status list(std::vector<CatalogEntry>& out, Report* report) const;
  // ok | not_found | corrupt.
  Status find(std::string_view name, CatalogEntry& out, Report* report) const;

  // Names an empty tree. REQUIRES: no collection has the name. full: nothing changed.
  Status add(std::string_view name, const CollectionSpec& spec, const Tree& tree);
  // Whether no collection has this name. Also false when the catalog cannot be read.
  bool lacks(std::string_view name) const;
  // An empty tree that nothing names.
  Result<std::unique_ptr<Tree>> make_unnamed(const CollectionSpec& spec);
  Status remove(std::string_view name);
  // A collection that had the new name loses it.
  Status rename(const CatalogEntry& entry, std::string_view name);

  Tree& tree() const { return *tree_; }

 private:
  Catalog(Ground& ground, std::unique_ptr<Tree> tree) : ground_(ground), tree_(std::move(tree)) {}
  Status damaged(std::string_view name, Report* report, const char* what) const;
  // Reports a failed read of the catalog's tree, which fills no report itself.
  Status unreadable(Status s, std::string_view name, Report* report) const;

  Ground& ground_;
  const std::unique_ptr<Tree> tree_;
};

}  // namespace TENUTO_NS::store

// The catalog: the tree that says which collections there are. A record's key is a collection's
// name, its value a CatalogRecord. One call at a time.
//
// The collections follow from the catalog as the records follow from the leaves: nothing is logged
// for making or dropping one, and recovery marks the blocks of the trees that the catalog names.
//
//   create  first leaf, next id, record and slot |"record and slot"| leaf header |"leaf header"|
//   drop    bitmap |"leaf bitmap"|, then the tree's blocks are given back
//   in a transaction  the same: the leaf and the id before, the record in the commit's batch
//   rename  a batch of an erase and a put; with a collection replaced, the put is an update
//
// Authoritative is the catalog's leaf, as for any record (leaf.h). The first fence of the put also
// covers the new tree's first leaf and the word with the next id, which were flushed before: a name
// promises a whole tree and an id that is never given again. A crash before the second leaves a
// leaf without a name, a derived block that recovery gives back. A dropped tree's blocks go only
// after the erase's fence, when no crash brings the name back, and after everybody who may still
// look has left (epochs). Between two crashes an id may be skipped.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/kv/head.h"
#include "store/tree/tree.h"
#include "tenuto/collection.h"

namespace TENUTO_NS::store {

// What does not change while a collection lives.
struct CollectionSpec {
  KeyOrder order = KeyOrder::bytes;
  bool duplicates = false;
  bool expires = false;
  std::string codec = {};  // KeyOrder::registered: its name

  // Of the tree's keys.
  KeyKind kind() const {
    const bool integers = order == KeyOrder::u64 || order == KeyOrder::reverse_u64;
    return integers && !duplicates ? KeyKind::u64 : KeyKind::bytes;
  }
  bool operator==(const CollectionSpec&) const = default;
};

inline CollectionSpec default_spec(KeyKind kind) {
  return {kind == KeyKind::u64 ? KeyOrder::u64 : KeyOrder::bytes};
}

struct CatalogEntry {
  std::string name;
  TreeId id;
  PoolOffset first_leaf;
  CollectionSpec spec;
};

// On media: the value of a record in the catalog; the name of the codec follows.
struct CatalogRecord {
  std::uint64_t first_leaf;
  std::uint64_t id;
  std::uint8_t version;
  std::uint8_t order;
  std::uint8_t flags;
  std::uint8_t codec_bytes;
  std::uint32_t
      check;  // crc32c of the collection's name, of all but this word, of the codec's name

  static constexpr std::uint8_t kVersion = 1;
  // What a library without these would not understand.
  static constexpr std::uint8_t kVersionWithForm = 2;
  static constexpr std::uint8_t kDuplicates = 1;
  static constexpr std::uint8_t kExpires = 2;
  // Of version 0.1.0: collections whose puts cost one fence, which are refused (refused.h).
  static constexpr std::uint8_t kVersionWithOneFence = 3;
  static constexpr std::uint8_t kOneFence = 4;
};
static_assert(pm::OnMedia<CatalogRecord> && sizeof(CatalogRecord) == 24);

inline constexpr std::size_t kCodecNameMax = 63;

std::string encode_entry(const CatalogEntry& entry);
// False: this cannot be a collection of that name.
bool decode_entry(std::string_view name, std::string_view value, CatalogEntry& out);
// Whether it is one that this version cannot read (refused.h).
bool is_of_one_fence(std::string_view name, std::string_view value);

class Catalog {
 public:
  // Makes an empty one and names it in the head page. Crash-safe.
  static Result<std::unique_ptr<Catalog>> create(Ground& ground);
  // See Tree::rebuild.
  static Result<std::unique_ptr<Catalog>> open(Ground& ground, const HeadNames& names, bool clean,
                                               bool parallel, Report* report);

  // By name. corrupt when two of them cannot both be.
  Status list(std::vector<CatalogEntry>& out, Report* report) const;
  // ok | not_found | corrupt.
  Status find(std::string_view name, CatalogEntry& out, Report* report) const;

  // Names an empty tree. REQUIRES: no collection has the name. full: nothing changed.
  Status add(std::string_view name, const CollectionSpec& spec, const Tree& tree);
  // Whether nothing has this name; false, too, where the catalog cannot be read.
  bool lacks(std::string_view name) const;
  // An empty tree that nothing names.
  Result<std::unique_ptr<Tree>> make_unnamed(const CollectionSpec& spec);
  Status remove(std::string_view name);
  // What had the new name has none any more.
  Status rename(const CatalogEntry& entry, std::string_view name);

  Tree& tree() const { return *tree_; }

 private:
  Catalog(Ground& ground, std::unique_ptr<Tree> tree) : ground_(ground), tree_(std::move(tree)) {}
  Status damaged(std::string_view name, Report* report, const char* what) const;
  // Of a read of the catalog's tree, which says nothing itself.
  Status unreadable(Status s, std::string_view name, Report* report) const;

  Ground& ground_;
  const std::unique_ptr<Tree> tree_;
};

}  // namespace TENUTO_NS::store

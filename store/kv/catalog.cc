#include "store/kv/catalog.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "pm/plant.h"
#include "store/kv/head.h"
#include "store/tree/rebuild.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

namespace {

std::uint32_t check_of(const CatalogRecord& record, std::string_view name, std::string_view codec) {
  std::uint32_t crc = pm::crc32c(name.data(), name.size(), ~0u);
  crc = pm::crc32c(reinterpret_cast<const char*>(&record), offsetof(CatalogRecord, check), crc);
  return codec.empty() ? crc : pm::crc32c(codec.data(), codec.size(), crc);
}

std::uint8_t version_of(const CollectionSpec& spec) {
  const bool known_to_all = (spec.order == KeyOrder::bytes || spec.order == KeyOrder::u64) &&
                            !spec.duplicates && !spec.expires;
  return known_to_all ? CatalogRecord::kVersion : CatalogRecord::kVersionWithEncoding;
}

}  // namespace

std::string encode_entry(const CatalogEntry& entry) {
  const CollectionSpec& spec = entry.spec;
  CatalogRecord record{};
  record.first_leaf = entry.first_leaf.value;
  record.id = entry.id.value;
  record.version = version_of(spec);
  record.order = static_cast<std::uint8_t>(spec.order);
  record.flags = static_cast<std::uint8_t>((spec.duplicates ? CatalogRecord::kDuplicates : 0) |
                                           (spec.expires ? CatalogRecord::kExpires : 0));
  record.codec_bytes = static_cast<std::uint8_t>(spec.codec.size());
  record.check = check_of(record, entry.name, spec.codec);
  return std::string(reinterpret_cast<const char*>(&record), sizeof record) + spec.codec;
}

bool is_of_one_fence(std::string_view name, std::string_view value) {
  CatalogRecord record;
  if (value.size() < sizeof record || name.empty()) return false;
  std::memcpy(&record, value.data(), sizeof record);
  return record.version == CatalogRecord::kVersionWithOneFence &&
         (record.flags & CatalogRecord::kOneFence) != 0 &&
         record.check == check_of(record, name, value.substr(sizeof record));
}

bool decode_entry(std::string_view name, std::string_view value, CatalogEntry& out) {
  CatalogRecord record;
  if (value.size() < sizeof record || name.empty()) return false;
  std::memcpy(&record, value.data(), sizeof record);
  const std::string_view codec = value.substr(sizeof record);
  if (codec.size() != record.codec_bytes || record.check != check_of(record, name, codec)) {
    return false;
  }
  out.name = name;
  out.id = {record.id};
  out.first_leaf = {record.first_leaf};
  out.spec.order = static_cast<KeyOrder>(record.order);
  out.spec.duplicates = (record.flags & CatalogRecord::kDuplicates) != 0;
  out.spec.expires = (record.flags & CatalogRecord::kExpires) != 0;
  out.spec.codec = codec;
  const bool order_known =
      out.spec.order >= KeyOrder::bytes && out.spec.order <= KeyOrder::registered;
  return order_known && record.version == version_of(out.spec) && out.id >= kFirstCollection;
}

Result<std::unique_ptr<Catalog>> Catalog::create(Ground& ground) {
  Result<std::unique_ptr<Tree>> tree = make_tree(ground, kCatalogTree, KeyOrder::bytes);
  if (!tree) return tree.error();
  UnlinkedBlock leaf(ground.heap, (*tree)->first_leaf());
  std::unique_ptr<Catalog> catalog(new Catalog(ground, std::move(*tree)));
  leaf.linked();
  name_catalog(ground.file, catalog->tree().first_leaf());
  return catalog;
}

Result<std::unique_ptr<Catalog>> Catalog::open(Ground& ground, const HeadNames& names, bool clean,
                                               bool parallel, Report* report) {
  Result<std::unique_ptr<Tree>> tree =
      rebuild_tree(ground, kCatalogTree, names.catalog, KeyOrder::bytes, clean, parallel, report);
  if (!tree) return tree.error();
  return std::unique_ptr<Catalog>(new Catalog(ground, std::move(*tree)));
}

Status Catalog::damaged(std::string_view name, Report* report, const char* what) const {
  return fail(Status::corrupt, report, what,
              ground_.file.path() + ", collection " + std::string(name));
}

Status Catalog::unreadable(Status s, std::string_view name, Report* report) const {
  if (s == Status::corrupt) return damaged(name, report, "the catalog is damaged");
  TENUTO_TRY(ground_.file.bad_pages(report));
  return fail(s, report, "the catalog cannot be read", ground_.file.path());
}

Status Catalog::list(std::vector<CatalogEntry>& out, Report* report) const {
  out.clear();
  const EpochGuard guard;
  const std::uint64_t next_id = next_id_of(ground_.file);
  // The caller holds the collections' lock, so no entry changes. But a compaction may merge and
  // move leaves. So the walk goes from leaf to leaf by key, like a cursor.
  std::string from;
  std::vector<Entry> found;
  UpperBound upper;
  do {
    from = upper.key;
    const Place place = tree_->index().locate(from, Aim::at, &upper);
    const bool gives_up = TENUTO_PLANT("store_catalog_list_gives_up");
    if (gives_up) ::usleep(1000);
    const Status s = tree_->leaves().entries(place, found, tree_->leaves().verifies());
    if (s == Status::conflict && !gives_up) {
      upper = {true, from, nullptr};
      continue;
    }
    if (s != Status::ok) return unreadable(s, "?", report);
    LeafReader::sort(found);
    for (const Entry& e : found) {
      if (e.record.key < from) continue;  // listed before its leaf was merged
      CatalogEntry entry;
      if (!decode_entry(e.record.key, e.record.value, entry)) {
        return damaged(e.record.key, report, "an entry of the catalog is damaged");
      }
      if (entry.id.value >= next_id) {
        return damaged(entry.name, report, "a collection's id was not given yet");
      }
      out.push_back(std::move(entry));
    }
  } while (upper.bounded);
  std::vector<std::uint64_t> ids;
  for (const CatalogEntry& e : out) ids.push_back(e.id.value);
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
    return damaged("?", report, "two collections have one id");
  }
  return ground_.file.bad_pages(report);
}

Status Catalog::find(std::string_view name, CatalogEntry& out, Report* report) const {
  std::string value;
  const Status s = tree_->get(name, value);
  if (s != Status::ok && s != Status::not_found) return unreadable(s, name, report);
  TENUTO_TRY(s);
  if (decode_entry(name, value, out)) return Status::ok;
  return damaged(name, report, "an entry of the catalog is damaged");
}

Result<std::unique_ptr<Tree>> Catalog::make_unnamed(const CollectionSpec& spec) {
  return make_tree(ground_, take_id(ground_.file), spec.tree_order());
}

Status Catalog::add(std::string_view name, const CollectionSpec& spec, const Tree& tree) {
  const CatalogEntry entry{std::string(name), tree.id(), tree.first_leaf(), spec};
  const bool too_early = TENUTO_PLANT("store_collection_named_before_first_leaf");
  if (too_early) std::memset(ground_.file.at<void>(entry.first_leaf), 0, sizeof(Leaf));
  const Status s = tree_->put(name, encode_entry(entry));
  if (too_early) {
    fill_leaf(*ground_.file.at<Leaf>(entry.first_leaf), entry.first_leaf, entry.id, {}, nullptr, 0,
              {}, {});
  }
  return s;
}

bool Catalog::lacks(std::string_view name) const {
  const EpochGuard guard;
  Record named;
  return tree_->lookup(name, named) == Status::not_found;
}

Status Catalog::remove(std::string_view name) { return tree_->erase(name); }

Status Catalog::rename(const CatalogEntry& entry, std::string_view name) {
  CatalogEntry renamed = entry;
  renamed.name = name;
  const std::string value = encode_entry(renamed);
  if (TENUTO_PLANT("store_rename_in_two_steps")) {
    TENUTO_TRY(tree_->put(name, value));
    return tree_->erase(entry.name);
  }
  const std::array<BatchOp, 2> ops{
      {{tree_.get(), entry.name, {}, true}, {tree_.get(), name, value, false}}};
  return Tree::write(ops);
}

}  // namespace TENUTO_NS::store

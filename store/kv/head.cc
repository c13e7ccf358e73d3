#include "store/kv/head.h"

#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "store/tree/leaf.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

namespace {

HeaderWord& header_word_at(pm::PoolFile& file, std::size_t i) {
  return reinterpret_cast<HeaderWord&>(file.head().store[i]);
}

Status damaged(pm::PoolFile& file, Report* report, const char* what) {
  return fail(Status::corrupt, report, what,
              file.where({pm::kHeadPageOffset + offsetof(pm::HeadPage, store)}, "store line"));
}

// Compares the second name of a first leaf with the first one.
Status read_again(pm::PoolFile& file, std::size_t root, PoolOffset name, bool clean,
                  const char* what, Report* report) {
  std::uint64_t& again = file.head().roots[root];
  if (again == name.value) return Status::ok;
  if (again != 0 || clean) {
    return fail(Status::corrupt, report,
                std::string("the two names of the ") + what + " in the head page differ",
                file.where({pm::kHeadPageOffset}, "roots"), std::to_string(name.value),
                std::to_string(again));
  }
  publish(again, name.value);  // the crash was during the creation
  return Status::ok;
}

}  // namespace

bool store_is_named(const pm::PoolFile& file) {
  const pm::MetadataOpen rights;
  return file.head().store[kHeadFirstLeaf] != 0 || file.head().roots[pm::kRootStore] != 0;
}

Status read_head(pm::PoolFile& file, bool clean, HeadNames& out, Report* report) {
  const pm::MetadataOpen rights;
  const std::uint64_t* head = file.head().store;
  out.first_leaf = {head[kHeadFirstLeaf]};
  const StoreWord word{head[kHeadWord]};
  if (!word.sound(out.first_leaf)) {
    return damaged(file, report, "the store's word in the head page is damaged");
  }
  out.order = word.order();
  const bool named_twice = file.head().roots[pm::kRootStore] == out.first_leaf.value;
  TENUTO_TRY(read_again(file, pm::kRootStore, out.first_leaf, clean, "store", report));
  if (!named_twice) fence("store is named again", "store is used");

  if (word.has_catalog()) {
    const HeaderWord& catalog = header_word_at(file, kHeadCatalog);
    const HeaderWord& next_id = header_word_at(file, kHeadNextId);
    if (!is_sound(catalog) || catalog.value() == 0) {
      return damaged(file, report, "the catalog's name in the head page is damaged");
    }
    if (!is_sound(next_id) || next_id.value() < kFirstCollection.value) {
      return damaged(file, report, "the next collection's id in the head page is damaged");
    }
    out.catalog = {catalog.value()};
    out.next_id = next_id.value();
  }
  const bool catalog_named_twice = file.head().roots[pm::kRootCatalog] == out.catalog.value;
  TENUTO_TRY(read_again(file, pm::kRootCatalog, out.catalog, clean, "catalog", report));
  if (!catalog_named_twice) fence("catalog is named again", "catalog is used");
  return Status::ok;
}

void name_store(pm::PoolFile& file, KeyOrder order, PoolOffset first_leaf) {
  const pm::MetadataOpen rights;
  std::uint64_t* head = file.head().store;
  if (TENUTO_PLANT("store_named_before_first_leaf")) {
    publish(head[kHeadFirstLeaf], first_leaf.value);
  }
  head[kHeadWord] = StoreWord::make(order, false, first_leaf).raw;
  head[kHeadRecords] = 0;
  head[kHeadRecordBytes] = 0;
  flush_bytes(head, sizeof file.head().store);
  fence("first leaf", "store is named");
  if (TENUTO_PLANT("store_second_name_first")) {
    publish(file.head().roots[pm::kRootStore], first_leaf.value);
  }
  publish(head[kHeadFirstLeaf], first_leaf.value);
  fence("store is named", "store is named again");
  publish(file.head().roots[pm::kRootStore], first_leaf.value);
  fence("store is named again", "store is used");
}

void name_catalog(pm::PoolFile& file, PoolOffset first_leaf) {
  const pm::MetadataOpen rights;
  std::uint64_t* head = file.head().store;
  HeaderWord& catalog = header_word_at(file, kHeadCatalog);
  HeaderWord& next_id = header_word_at(file, kHeadNextId);
  const StoreWord word =
      StoreWord::make(StoreWord{head[kHeadWord]}.order(), true, {head[kHeadFirstLeaf]});
  if (!TENUTO_PLANT("store_catalog_named_before_first_leaf")) {
    fence("catalog's first leaf", "catalog is named");
  }
  if (TENUTO_PLANT("store_catalog_bit_before_name")) publish(head[kHeadWord], word.raw);
  store_ordered(catalog, header_word(catalog, first_leaf.value));
  store_ordered(next_id, header_word(next_id, kFirstCollection.value));
  publish(head[kHeadWord], word.raw);
  fence("catalog is named", "catalog is named again");
  publish(file.head().roots[pm::kRootCatalog], first_leaf.value);
  fence("catalog is named again", "catalog is used");
}

std::uint64_t next_id_of(pm::PoolFile& file) {
  const pm::MetadataOpen rights;
  return header_word_at(file, kHeadNextId).value();
}

TreeId take_id(pm::PoolFile& file) {
  const pm::MetadataOpen rights;
  HeaderWord& next = header_word_at(file, kHeadNextId);
  const TreeId id{next.value()};
  if (!TENUTO_PLANT("store_collection_id_not_raised")) {
    publish(next, header_word(next, id.value + 1));
  }
  return id;
}

}  // namespace TENUTO_NS::store

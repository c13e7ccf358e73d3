// The store's names in the head page: where the default collection and the catalog begin. Each is
// named twice, in two lines, so that damage of one name does not look like a pool without it.
//
// Creation of the store:
//   first leaf, store word |"first leaf"| HeadPage.store[0] |"store is named"|
//   HeadPage.roots |"store is named again"|
// The first fence: a name never leads to a leaf that is not whole. The second: the second name is
// never alone, which would look like damage. After a crash between the two names the next open
// writes the second one. The third: the store is durable before its first use. HeadPage.store[0] is
// authoritative. While it is 0 there is no store; nothing marks the leaf, a derived block, so the
// heap's recovery frees it.
//
// Creation of the catalog:
//   first leaf |"catalog's first leaf"| its name, next id, store word |"catalog is named"|
//   HeadPage.roots |"catalog is named again"|
// The three words share one line and are stored in this order. The bit in the store word is
// authoritative. The rest is as above.
#pragma once

#include "file/pool_file.h"
#include "store/tree/format.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

struct HeadNames {
  PoolOffset first_leaf;  // of the default collection
  KeyOrder order = KeyOrder::bytes;
  PoolOffset catalog;  // the first leaf; 0: there is none
  std::uint64_t next_id = 0;
};

bool store_is_named(const pm::PoolFile& file);
// Reads and checks the names. corrupt: they are damaged, or the two names of one differ. After a
// crash (clean == false) it writes a missing second name.
Status read_head(pm::PoolFile& file, bool clean, HeadNames& out, Report* report);

// REQUIRES: the first leaf is flushed; no other thread uses the head's line.
void name_store(pm::PoolFile& file, KeyOrder order, PoolOffset first_leaf);
void name_catalog(pm::PoolFile& file, PoolOffset first_leaf);

// What the next collection gets. REQUIRES: there is a catalog.
std::uint64_t next_id_of(pm::PoolFile& file);
// An id that no collection of this pool ever had. It is durable with the caller's next fence.
// REQUIRES: there is a catalog; one thread at a time.
TreeId take_id(pm::PoolFile& file);

}  // namespace TENUTO_NS::store

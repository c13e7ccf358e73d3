// What the head page says of the store: where the default collection and the catalog begin, each
// named twice in two lines, so that damage of one is not taken for a pool without them.
//
// Creation of the store: first leaf, store word |first leaf| HeadPage.store[0] |store is named|
// HeadPage.roots |store is named again|. The first fence keeps a name from a leaf that is not
// whole, the second the second name from being alone, which would look like damage; an open after a
// crash between the two gives the second name itself. The third makes the store durable before
// anybody uses it. The offset in HeadPage.store[0] is authoritative: while it is 0 there is no
// store, and the leaf, a derived block nobody marks, is given back by the heap's recovery.
//
// Creation of the catalog: first leaf |catalog's first leaf| its name, the next id, the store word
// |catalog is named| HeadPage.roots |catalog is named again|. The three words stand in one line and
// are stored in this order, and the bit in the store word is authoritative. As above for the rest.
#pragma once

#include "file/pool_file.h"
#include "store/tree/format.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

struct HeadNames {
  PoolOffset first_leaf;  // of the default collection
  KeyKind kind = KeyKind::bytes;
  PoolOffset catalog;  // the first leaf; 0: there is none
  std::uint64_t next_id = 0;
};

bool store_is_named(const pm::PoolFile& file);
// Checked. After a crash (clean == false) a second name that is missing is given.
Status read_head(pm::PoolFile& file, bool clean, HeadNames& out, Report* report);

// REQUIRES: the first leaf is flushed; nobody else looks at the head's line.
void name_store(pm::PoolFile& file, KeyKind kind, PoolOffset first_leaf);
void name_catalog(pm::PoolFile& file, PoolOffset first_leaf);

// An id that no collection of this pool ever had; durable with the caller's next fence.
// REQUIRES: there is a catalog; one thread.
TreeId take_id(pm::PoolFile& file);

}  // namespace TENUTO_NS::store

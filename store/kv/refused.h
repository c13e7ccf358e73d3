// What an earlier version made and this one does not read. Called before anything of the store is
// changed, so that the version named in the words still reads the pool.
//
// Version 0.1.0 could make stores and collections whose puts cost one fence: other words in their
// leaves, other heads of their records. A bit of the store's word, or a version of a catalog
// record, says so.
#pragma once

#include "file/pool_file.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

// wrong_version: the default collection or another one is of one fence. Damage is passed by, for
// others to find. Cost: reads the catalog's leaves and records, where there is a catalog.
Status check_protocols(const pm::PoolFile& file, Report* report);

}  // namespace TENUTO_NS::store

// Stores and collections of an earlier version that this one cannot read. The check runs before
// anything is changed, so that the version that the report names can still read the pool.
//
// Version 0.1.0 could make stores and collections whose puts cost one fence. Their leaves and
// record heads have other words. A bit of the store's word, or the version of a catalog record,
// tells.
#pragma once

#include "file/pool_file.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

// wrong_version: the default collection or a named one has puts of one fence. Damage is ignored
// here and found later. Cost: reads the leaves and records of the catalog, if there is one.
Status check_protocols(const pm::PoolFile& file, Report* report);

}  // namespace TENUTO_NS::store

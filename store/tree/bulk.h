// Bulk load of an empty tree.
#pragma once

#include <span>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// Loads ascending keys into an empty tree, all or none, with a fence or two for thousands.
// invalid_argument: they do not ascend, or begin with the empty key. exists: the tree is not empty,
// or another thread wrote to it meanwhile. busy: a snapshot or transaction is active. Leaves that
// are empty are unlinked first, also if it then fails.
Status bulk_load(Tree& tree, std::span<const BulkRecord> sorted, unsigned threads);

}  // namespace TENUTO_NS::store

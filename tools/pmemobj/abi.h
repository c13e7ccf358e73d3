// libpmemobj's own header: the types and calls that the drop-in has to match.
#pragma once

// Otherwise a macro hides the exported function.
#define PMEMOBJ_DIRECT_NON_INLINE
#include <libpmemobj.h>

#include <cstddef>
#include <cstdint>

static_assert(sizeof(PMEMoid) == 16 && sizeof(pobj_action) == 128);

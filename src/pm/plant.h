// Planted bugs: `if (!TENUTO_PLANT("store_slot_unflushed")) flush(slot);` is the sound code in a
// release. In the traced build and in builds with debug checks it loses a flush when a test, or the
// environment variable TENUTO_PLANT, names that bug. A test that does not find its planted bugs
// proves nothing. Names are layer_what_goes_wrong; tests/support/planted*.cc or a test of its own
// says who finds each. Switches: tenuto/crash.h.
//
// Dropping a whole fence or one flush before it needs no code here: tenuto/crash.h does it by name.
#pragma once

#include "tenuto/abi.h"

#if defined(TENUTO_TRACED) || defined(TENUTO_DEBUG_CHECKS)

namespace TENUTO_NS::pm {

// Whether the bug called `name` is switched on now; counts the visit when it is.
bool planted(const char* name);

}  // namespace TENUTO_NS::pm

#define TENUTO_PLANT(name) (::tenuto::pm::planted(name))

#else

#define TENUTO_PLANT(name) (false)

#endif

// Plants: planted mistakes. `if (!TENUTO_PLANT("store_slot_unflushed")) flush(slot);` is the
// correct code in a release. In the traced build and in builds with debug checks it omits the flush
// when a test, or the environment variable TENUTO_PLANT, names that plant. A test that does not
// find its plants proves nothing. A name is the layer and what goes wrong.
// tests/support/planted*.cc, or a test of its own, says which test finds it. tenuto/crash.h has the
// switches.
//
// To drop a whole fence, or one flush before it, no code is needed: tenuto/crash.h does it by name.
#pragma once

#include <cstdint>
#include <string>

#include "tenuto/abi.h"

// The switches, which tenuto/crash.h also declares.
namespace TENUTO_NS {
void plant(const std::string& name);
void unplant_all();
std::uint64_t plant_visits(const std::string& name);
}  // namespace TENUTO_NS

#if defined(TENUTO_TRACED) || defined(TENUTO_DEBUG_CHECKS)

namespace TENUTO_NS::pm {

// Whether the plant `name` is on now. Counts the visit if it is.
bool planted(const char* name);

}  // namespace TENUTO_NS::pm

#define TENUTO_PLANT(name) (::tenuto::pm::planted(name))

#else

#define TENUTO_PLANT(name) (false)

#endif

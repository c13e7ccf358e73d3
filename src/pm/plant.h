// Planted bugs: `if (!TENUTO_PLANT("store_slot_unflushed")) flush(slot);` is the sound code in the
// plain build, and loses a flush in the traced twin when a test, or the environment variable
// TENUTO_PLANT, names that bug. A crash test that does not find its planted bugs proves nothing.
// Names are layer_what_goes_wrong; tests/support/planted.cc and planted_store.cc list all of them
// and who finds each.
//
// Dropping a whole fence or one flush before it needs no code here: tenuto/crash.h does it by name.
#pragma once

#include "tenuto/abi.h"

//
// TENUTO_PLANT_DISK is the same for what the twin has not, writes to files: in builds with debug
// checks, one at a time, switched on by tests/journal_planted_test.cc.
#ifdef TENUTO_DEBUG_CHECKS

#include <atomic>
#include <cstring>

namespace tenuto::inline TENUTO_ABI::pm {

inline constinit std::atomic<const char*> disk_plant = nullptr;
inline bool planted_on_disk(const char* name) {
  const char* p = disk_plant.load(std::memory_order_relaxed);
  return p != nullptr && std::strcmp(p, name) == 0;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

#define TENUTO_PLANT_DISK(name) (::tenuto::pm::planted_on_disk(name))

#else

#define TENUTO_PLANT_DISK(name) (false)

#endif

#ifdef TENUTO_TRACED

namespace tenuto::inline TENUTO_ABI::pm {

// Whether the bug called `name` is switched on now; counts the visit when it is.
bool planted(const char* name);

}  // namespace tenuto::inline TENUTO_ABI::pm

#define TENUTO_PLANT(name) (::tenuto::pm::planted(name))

#else

#define TENUTO_PLANT(name) (false)

#endif

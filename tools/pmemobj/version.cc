// What a program asks of the library itself.
#include <cerrno>

#include "tools/pmemobj/abi.h"
#include "tools/pmemobj/error.h"

using tenuto::pmemobj::last_message;
using tenuto::pmemobj::refuse;

const char* pmemobj_errormsg(void) { return last_message(); }

const char* pmemobj_check_version(unsigned major_required, unsigned minor_required) {
  if (major_required != PMEMOBJ_MAJOR_VERSION) {
    refuse(EINVAL, "libpmemobj major version mismatch (need %u, found %u)", major_required,
           PMEMOBJ_MAJOR_VERSION);
    return last_message();
  }
  if (minor_required > PMEMOBJ_MINOR_VERSION) {
    refuse(EINVAL, "libpmemobj minor version mismatch (need %u, found %u)", minor_required,
           PMEMOBJ_MINOR_VERSION);
    return last_message();
  }
  return nullptr;
}

// The library's memory comes from the C++ library, which a program can replace as usual.
void pmemobj_set_funcs(void* (*)(size_t), void (*)(void*), void* (*)(void*, size_t),
                       char* (*)(const char*)) {}

// How calls fail: errno, and a message for pmemobj_errormsg. What libpmemobj answers by ending the
// process (a call outside of a transaction) ends it here, too, with a message.
//
// Thread safety: the message belongs to the thread.
#pragma once

#include <cstddef>

#include "tenuto/status.h"

namespace TENUTO_NS::pmemobj {

// errno for a status of the library.
int errno_of(Status s);

// Sets errno and the message; returns `error`.
[[gnu::format(printf, 2, 3)]] int refuse(int error, const char* format, ...);
// The same with the text of the report.
int refuse(Status s, const char* what, const Report& report);
int refuse(Status s, const char* what);

const char* last_message();

[[noreturn, gnu::format(printf, 1, 2)]] void stop(const char* format, ...);

}  // namespace TENUTO_NS::pmemobj

// What a command hands to main(): a status, which becomes the exit code, and the words for a
// person.
#pragma once

#include <string>
#include <string_view>

#include "tenuto/status.h"

namespace tenuto::tool {

struct [[nodiscard]] Error {
  Status status = Status::ok;
  Report report;     // what, where, expected, found
  std::string hint;  // what to do; empty: what main() knows for the status

  explicit operator bool() const { return status != Status::ok; }
  // "what [where], expected ..., found ...; hint"
  std::string text() const;
};

inline Error no_error() { return {}; }
Error failed(Status status, std::string what, std::string where = {}, std::string hint = {});
// A failed system call. The errno decides the status: not_found, permission, full, exists, else io.
Error os_failed(int error_number, std::string_view what, std::string where);
// A library call that failed; `report` as the call left it, `what` for calls that fill none.
Error store_failed(Status status, std::string what, std::string where, Report report = {});

// Passes a failed Error up to the caller.
#define TENUTO_TOOL_TRY(expr)                      \
  do {                                             \
    ::tenuto::tool::Error tool_try_error = (expr); \
    if (tool_try_error) return tool_try_error;     \
  } while (false)

}  // namespace tenuto::tool

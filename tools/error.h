// The result of a command: a status, which is the exit code, and the text for the user.
#pragma once

#include <string>
#include <string_view>

#include "tenuto/status.h"

namespace tenuto::tool {

struct [[nodiscard]] Error {
  Status status = Status::ok;
  Report report;     // what, where, expected, found
  std::string hint;  // advice for the user; empty: the default for the status

  explicit operator bool() const { return status != Status::ok; }
  // "what [where], expected ..., found ...; hint"
  std::string text() const;
  // The same as one JSON object; parts that are empty are left out.
  std::string json() const;
};

inline Error no_error() { return {}; }
Error failed(Status status, std::string what, std::string where = {}, std::string hint = {});
// A signal ended the command.
Error stopped(std::string where = {}, std::string hint = {});
// A failed system call. The status follows from errno: not_found, permission, full, exists, or io.
Error os_failed(int error_number, std::string_view what, std::string where);
// A failed library call, with the `report` it filled. `what` is for calls that fill none.
Error store_failed(Status status, std::string what, std::string where, Report report = {});

// Passes a failed Error up to the caller.
#define TENUTO_TOOL_TRY(expr)                      \
  do {                                             \
    ::tenuto::tool::Error tool_try_error = (expr); \
    if (tool_try_error) return tool_try_error;     \
  } while (false)

}  // namespace tenuto::tool

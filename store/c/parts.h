// What the two halves of the C API share: statuses, messages, options, and the handle of a pool.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "tenuto/pool.h"
#include "tenuto/tenuto_pool.h"

// A pool opened by itself (`own`), or that of a store.
struct tenuto_pool {
  std::optional<tenuto::Pool> own;
  tenuto::Pool* pool = nullptr;
  tenuto::PoolInfo info = {};  // keeps the texts that tenuto_pool_get_info returns
};

namespace TENUTO_NS::c {

inline tenuto_status give(Status s) { return static_cast<tenuto_status>(s); }

// A copy that the caller releases by tenuto_free. A zero byte follows the text. Ends the program
// when memory is refused.
inline void* give_bytes(std::string_view bytes) {
  void* copy = std::malloc(bytes.size() + 1);
  if (copy == nullptr) std::abort();
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  static_cast<char*>(copy)[bytes.size()] = '\0';
  return copy;
}

// Sets *message to the report's text, or to the status's name if the report is empty; NULL on ok.
inline tenuto_status give(Status s, const Report& report, char** message) {
  if (message == nullptr) return give(s);
  *message = nullptr;
  if (s == Status::ok) return TENUTO_OK;
  const std::string text = report.what.empty() ? status_name(s) : report.text();
  *message = static_cast<char*>(give_bytes(text));
  return give(s);
}

inline tenuto_status null_root(char** message) {
  return give(Status::invalid_argument,
              Report{"pool, layout and root must not be NULL", {}, {}, {}}, message);
}

// A program that was built with an older version has a shorter struct: the options that it does not
// know keep their defaults. False: the size is impossible.
template <class Options>
bool take_options(Options& to, const Options* from) {
  if (from == nullptr) return true;
  if (from->struct_bytes < sizeof(std::size_t) || from->struct_bytes > sizeof(Options))
    return false;
  std::memcpy(&to, from, from->struct_bytes);
  to.struct_bytes = sizeof(Options);
  return true;
}

Status take_pool_options(const tenuto_pool_options& from, PoolOptions& to, Report& report);
bool is_durability(int d);

// A key or value as the C++ calls take it.
inline std::string_view bytes_of(const void* data, std::size_t bytes) {
  return {bytes == 0 ? "" : static_cast<const char*>(data), bytes};
}

}  // namespace TENUTO_NS::c

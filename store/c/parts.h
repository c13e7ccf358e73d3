// What the two halves of the C API share: how statuses, messages and options cross the border.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "tenuto/pool.h"
#include "tenuto/tenuto_pool.h"

// A pool of its own, or the one of a store.
struct tenuto_pool {
  std::optional<tenuto::Pool> own;
  tenuto::Pool* pool = nullptr;
  tenuto::PoolInfo info = {};  // whose texts tenuto_pool_get_info hands out
};

namespace TENUTO_NS::c {

inline tenuto_status give(Status s) { return static_cast<tenuto_status>(s); }

// Memory for the caller, who releases it by tenuto_free; a zero byte follows the text.
inline void* give_bytes(std::string_view bytes) {
  void* copy = std::malloc(bytes.size() + 1);
  if (copy == nullptr) std::abort();
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  static_cast<char*>(copy)[bytes.size()] = '\0';
  return copy;
}

// A failure's words: the report's, or the status's name where it has none.
inline tenuto_status give(Status s, const Report& report, char** message) {
  if (message == nullptr) return give(s);
  *message = nullptr;
  if (s == Status::ok) return TENUTO_OK;
  const std::string text = report.what.empty() ? status_name(s) : report.text();
  *message = static_cast<char*>(give_bytes(text));
  return give(s);
}

// Options of a program that was built with an older version end earlier: what it does not know
// keeps its default. False: no struct of this kind.
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

// As View and Store::get take them.
inline std::string_view bytes_of(const void* data, std::size_t bytes) {
  return {bytes == 0 ? "" : static_cast<const char*>(data), bytes};
}

}  // namespace TENUTO_NS::c

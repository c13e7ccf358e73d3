// What the two halves of the C API share: statuses, messages, options, and the handle of a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "pm/assert.h"
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

inline bool is_status(tenuto_status s) { return s >= TENUTO_OK && s <= TENUTO_IN_DOUBT; }

// What a function of the program returned. A number that is no status does not fit into Status (256
// would be ok), but the program gets it back.
class Answer {
 public:
  Status take(tenuto_status s) {
    given_ = s;
    return is_status(s) ? static_cast<Status>(s) : Status::aborted;
  }
  // For the program, when the call around the function ended with s.
  tenuto_status give_back(Status s) const { return is_status(given_) ? give(s) : given_; }

 private:
  tenuto_status given_ = TENUTO_OK;
};

// Whether there can be such bytes. NULL is sound only for none. No object has more than
// PTRDIFF_MAX: a length of -1 is that of a call that failed.
inline bool sound(const void* data, std::size_t bytes) {
  return (data != nullptr || bytes == 0) && bytes <= PTRDIFF_MAX;
}
template <class T>
bool sound_array(const T* items, std::size_t count) {
  return count <= PTRDIFF_MAX / sizeof(T) && sound(items, count * sizeof(T));
}

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

// Structs that begin with their own size, in the program's version. Fills what the program knows.
void init_struct(void* to, std::size_t bytes, const void* defaults, std::size_t known);
// Copies what both know over the defaults in `to`. `name`: of the struct. invalid_argument: the
// size is impossible, or an option is set that this library does not know.
Status take_struct(void* to, std::size_t known, const void* from, const char* name, Report* report);
template <class Options>
Status take_options(Options& to, const Options* from, const char* name, Report* report = nullptr) {
  if (from == nullptr) return Status::ok;
  return take_struct(&to, sizeof to, from, name, report);
}
// Gives figures to a program that knows `bytes` of them. False: the size is impossible.
bool give_struct(void* to, std::size_t bytes, const void* all, std::size_t known);
template <class Figures>
bool give_figures(Figures* to, std::size_t bytes, const Figures& all) {
  return give_struct(to, bytes, &all, sizeof all);
}

Status take_pool_options(const tenuto_pool_options& from, PoolOptions& to, Report& report);
bool is_durability(int d);

// A key or value as the C++ calls take it. REQUIRES: sound.
inline std::string_view bytes_of(const void* data, std::size_t bytes) {
  TENUTO_DCHECK(sound(data, bytes));
  return {bytes == 0 ? "" : static_cast<const char*>(data), bytes};
}

}  // namespace TENUTO_NS::c

// What an operation came to. Status is the whole error model: outcomes (not_found, exists),
// failures of the environment (io, full, busy), damage found on media (corrupt). The library never
// throws. Detail for people (what, where, expected, found) goes into a Report the caller may pass.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tenuto/abi.h"

namespace TENUTO_NS {

// The numbers are the exit codes of tools/tenuto and part of the C API: never renumber.
enum class [[nodiscard]] Status : std::uint8_t{
    ok = 0,
    not_found = 1,         // the key, object or file is not there
    invalid_argument = 2,  // a bad option, pointer or combination; nothing was done
    exists = 3,            // create of something that is there
    full = 4,              // no room in the pool, or no room on its file system; nothing was done
    too_large = 5,         // key, value or size above the documented limit
    busy = 6,              // in use: the pool by another open, a collection by a backup, all slots
                           // of iterators; or a transaction is open at close. Nothing was done
    permission = 7,        // the operating system refused access
    io = 8,                // a system call failed
    corrupt = 9,           // damage on media; the pool turns read-only
    not_a_pool = 10,       // the file is something else
    wrong_version = 11,    // a pool of another layout version, byte order or line size
    read_only = 12,        // a write to a pool opened (or turned) read-only
    conflict = 13,         // a concurrent transaction won; try again
    aborted = 14,          // the transaction's body asked for the abort
    closed = 15,           // the handle was closed or moved from
    expired = 16,          // the snapshot was given up, being too old or too large (StoreOptions)
    forked = 17,  // the pool is another process's, of which this one is a child; nothing was done
};

// The status's name, e.g. "not_found". Never null.
constexpr const char* status_name(Status s) {
  constexpr const char* kNames[] = {"ok",        "not_found",  "invalid_argument",
                                    "exists",    "full",       "too_large",
                                    "busy",      "permission", "io",
                                    "corrupt",   "not_a_pool", "wrong_version",
                                    "read_only", "conflict",   "aborted",
                                    "closed",    "expired",    "forked"};
  const auto i = static_cast<std::size_t>(s);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

// What went wrong in words, filled by the call that fails. `where` names the file and offset, key
// or field; empty parts are left out of the text. Reuse overwrites.
struct Report {
  std::string what;      // one clause: what is wrong and what to do
  std::string where;     // "pool.tnt, offset 4096 (superblock copy 1)"
  std::string expected;  // for damage: what a sound pool has there
  std::string found;

  std::string text() const {
    std::string t = what;
    if (!where.empty()) t += " [" + where + "]";
    if (!expected.empty()) t += ", expected " + expected;
    if (!found.empty()) t += ", found " + found;
    return t;
  }
};

// Fills `r` when there is one and hands `s` back, so that a failure is one statement.
inline Status fail(Status s, Report* r, std::string what, std::string where = {},
                   std::string expected = {}, std::string found = {}) {
  if (r != nullptr) {
    *r = Report{std::move(what), std::move(where), std::move(expected), std::move(found)};
  }
  return s;
}

// A value or the status that prevented it; spelled like std::expected. Reading the value of a
// failed Result is a bug of the caller and stops the process.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : status_(Status::ok), has_(true) { new (&value_) T(std::move(value)); }
  Result(Status error) : status_(error), has_(false) {
    if (error == Status::ok) stop("Result built from Status::ok");
  }
  Result(Result&& o) noexcept(std::is_nothrow_move_constructible_v<T>)
      : status_(o.status_), has_(o.has_) {
    if (has_) new (&value_) T(std::move(o.value_));
  }
  Result& operator=(Result&& o) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (this != &o) {
      destroy();
      status_ = o.status_;
      has_ = o.has_;
      if (has_) new (&value_) T(std::move(o.value_));
    }
    return *this;
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() { destroy(); }

  bool has_value() const { return has_; }
  explicit operator bool() const { return has_; }
  Status error() const { return status_; }
  T& value() & { return checked(); }
  T&& value() && { return std::move(checked()); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T& operator*() & { return checked(); }
  T&& operator*() && { return std::move(checked()); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &value(); }
  T value_or(T other) const& { return has_ ? value_ : other; }

 private:
  [[noreturn]] static void stop(const char* why) {
    std::fprintf(stderr, "tenuto: %s\n", why);
    std::abort();
  }
  T& checked() {
    if (!has_) stop(status_name(status_));
    return value_;
  }
  void destroy() {
    if (has_) value_.~T();
    has_ = false;
  }

  union {
    T value_;
  };
  Status status_;
  bool has_;
};

}  // namespace TENUTO_NS

// Passes a failed Status up to the caller.
#define TENUTO_TRY(expr)                                                     \
  do {                                                                       \
    const ::tenuto::Status tenuto_try_status = (expr);                       \
    if (tenuto_try_status != ::tenuto::Status::ok) return tenuto_try_status; \
  } while (false)

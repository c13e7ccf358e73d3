// The result of an operation. Status is the whole error model: outcomes (not_found, exists),
// failures of the environment (io, full, busy), and damage on media (corrupt). A Report, which the
// caller may pass, gets the details for people: what, where, expected, found.
//
// The library throws no exceptions of its own. std::bad_alloc passes through when the process has
// no memory: then the call was done or not done as a whole, and no lock is held (store/README.md).
// On medium journal memory that is refused to the journal itself is no exception: the pool turns
// read-only, with io. In C a call without memory ends the process (tenuto/tenuto_pool.h).
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

// The numbers are the exit codes of the tool `tenuto` and part of the C API. Never renumber them.
enum class [[nodiscard]] Status : std::uint8_t{
    ok = 0,
    not_found = 1,         // the key, collection, object or file does not exist
    invalid_argument = 2,  // a bad option, pointer or combination; nothing was done
    exists = 3,            // the thing to be created exists already
    full = 4,              // no room in the pool or on its file system, or the system does not let
                           // the pool grow (its log says why). Nothing was done
    too_large = 5,         // key, value or size above the documented limit
    busy = 6,              // in use: the pool by another open, a collection by a backup, all slots
                           // for iterators; or a transaction is open at close. Nothing was done
    permission = 7,        // the operating system refused access
    io = 8,                // a system call failed
    corrupt = 9,           // damage on media; the pool turns read-only
    not_a_pool = 10,       // the file is not a pool
    wrong_version = 11,    // a pool of another layout version, byte order or line size
    read_only = 12,        // a write to a pool opened (or turned) read-only
    conflict = 13,         // a concurrent change won; try again
    aborted = 14,          // the transaction was rolled back
    closed = 15,           // the handle is empty, or was closed or moved from
    expired = 16,          // the snapshot is too old or holds too much (tenuto/snapshot.h)
    forked = 17,    // this process is a child of the process that opened the pool; nothing was done
    in_doubt = 18,  // another pool decides how a transaction ended, and it is not open, or failed
};

// The status's name, e.g. "not_found". Never null.
constexpr const char* status_name(Status s) {
  constexpr const char* kNames[] = {
      "ok",         "not_found",     "invalid_argument", "exists",   "full",
      "too_large",  "busy",          "permission",       "io",       "corrupt",
      "not_a_pool", "wrong_version", "read_only",        "conflict", "aborted",
      "closed",     "expired",       "forked",           "in_doubt"};
  const auto i = static_cast<std::size_t>(s);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

// A failure in words. The call that fails fills it, and overwrites what was in it. `where` names
// the file and offset, the key or the field. text() leaves out empty parts.
struct Report {
  std::string what;      // one clause: what is wrong, and what to do
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

// Fills `r`, if there is one, and returns `s`.
inline Status fail(Status s, Report* r, std::string what, std::string where = {},
                   std::string expected = {}, std::string found = {}) {
  if (r != nullptr) {
    *r = Report{std::move(what), std::move(where), std::move(expected), std::move(found)};
  }
  return s;
}

// A value, or the status why there is none. The interface is that of std::expected. error() is ok
// when there is a value. To read the value of a failed Result is a bug of the caller: it writes the
// status to stderr and aborts the process.
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
  // Of a temporary: the value itself, so that a loop over *call() keeps what it walks.
  T value() && { return std::move(checked()); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T& operator*() & { return checked(); }
  T operator*() && { return std::move(checked()); }
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

// Returns a failed Status to the caller.
#define TENUTO_TRY(expr)                                                     \
  do {                                                                       \
    const ::tenuto::Status tenuto_try_status = (expr);                       \
    if (tenuto_try_status != ::tenuto::Status::ok) return tenuto_try_status; \
  } while (false)

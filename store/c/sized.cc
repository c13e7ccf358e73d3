// The C API: structs whose size the program and the library may know differently.
#include <algorithm>
#include <string>

#include "store/c/parts.h"

namespace TENUTO_NS::c {

namespace {

constexpr std::size_t kStructBytesMax = 4096;  // of any version

// Every version of such a struct has whole words.
bool possible(std::size_t bytes) {
  return bytes >= 2 * sizeof(std::size_t) && bytes <= kStructBytesMax && bytes % 8 == 0;
}

}  // namespace

// The library may know more than the program has room for.
void init_struct(void* to, std::size_t bytes, const void* defaults, std::size_t known) {
  if (to == nullptr || !possible(bytes)) return;
  std::memset(to, 0, bytes);
  std::memcpy(to, defaults, std::min(bytes, known));
  std::memcpy(to, &bytes, sizeof bytes);
}

Status take_struct(void* to, std::size_t known, const void* from, const char* name,
                   Report* report) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, from, sizeof bytes);
  const auto refused = [&](const std::string& what, const std::string& expected) {
    return fail(Status::invalid_argument, report, what, std::string(name) + ".struct_bytes",
                expected, std::to_string(bytes));
  };
  if (!possible(bytes)) {
    return refused(std::string("the options were not initialised; call ") + name + "_init first",
                   "the size of the struct");
  }
  const auto* const behind = static_cast<const char*>(from);
  const bool set =
      bytes > known && std::any_of(behind + known, behind + bytes, [](char c) { return c != 0; });
  if (set) {
    return refused(
        "the program sets an option that this version of the library does not know; "
        "use the library of the header, or a later one",
        "at most " + std::to_string(known) + " bytes that are not zero");
  }
  std::memcpy(to, from, std::min(bytes, known));
  std::memcpy(to, &known, sizeof known);
  return Status::ok;
}

bool give_struct(void* to, std::size_t bytes, const void* all, std::size_t known) {
  if (to == nullptr || bytes < sizeof(std::uint64_t) || bytes > kStructBytesMax || bytes % 8 != 0) {
    return false;
  }
  std::memset(to, 0, bytes);
  std::memcpy(to, all, std::min(bytes, known));
  return true;
}

}  // namespace TENUTO_NS::c

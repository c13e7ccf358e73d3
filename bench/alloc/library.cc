// dlopen and static TLS; see library.h.
#include "bench/alloc/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace bench {

bool Library::load(const char* name) {
  handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) error_ = ::dlerror();
  return handle_ != nullptr;
}

void* Library::find_symbol(const char* symbol) {
  void* found = ::dlsym(handle_, symbol);
  if (found == nullptr) error_ = std::string("no symbol ") + symbol;
  return found;
}

void Library::reserve_static_tls(char** argv) {
  constexpr const char* kTunables = "GLIBC_TUNABLES";
  constexpr const char* kEnough = "glibc.rtld.optional_static_tls=16384";
  const char* given = std::getenv(kTunables);
  if (given != nullptr && std::strstr(given, "optional_static_tls") != nullptr) return;
  const std::string all = given == nullptr ? kEnough : std::string(given) + ":" + kEnough;
  ::setenv(kTunables, all.c_str(), 1);
  ::execv("/proc/self/exe", argv);  // returns only on failure; then jemalloc reports it
}

}  // namespace bench

// A shared library loaded at run time. What replaces malloc for a whole program when it is linked,
// or reads its environment when it is loaded, is loaded in the child that measures it instead.
#pragma once

#include <string>

namespace bench {

class Library {
 public:
  // False: error() says why.
  bool load(const char* name);
  template <class Function>
  bool find(const char* symbol, Function*& to) {
    to = reinterpret_cast<Function*>(find_symbol(symbol));
    return to != nullptr;
  }
  const std::string& error() const { return error_; }

  // jemalloc keeps its threads' data in static TLS, of which a process reserves little for
  // libraries that come late, unless it is told at its start. This starts the program anew with
  // enough, once; it returns when that is done or cannot be.
  static void reserve_static_tls(char** argv);

 private:
  void* find_symbol(const char* symbol);

  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace bench

// A shared library loaded at run time. Some libraries replace malloc for the whole program when
// they are linked. Others read their environment when they are loaded. Such a library is loaded
// only in the child process that measures it.
#pragma once

#include <string>

namespace bench {

class Library {
 public:
  // Returns false on failure; error() has the reason.
  bool load(const char* name);
  template <class Function>
  bool find(const char* symbol, Function*& to) {
    to = reinterpret_cast<Function*>(find_symbol(symbol));
    return to != nullptr;
  }
  const std::string& error() const { return error_; }

  // jemalloc keeps its thread data in static TLS. A process reserves little static TLS for
  // libraries loaded later, unless an environment variable asks for more. This restarts the program
  // once with enough. It returns when enough is reserved or when the restart fails.
  static void reserve_static_tls(char** argv);

 private:
  void* find_symbol(const char* symbol);

  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace bench

// A user's program without exceptions and RTTI (preset noexcept). It opens a store, writes, opens
// it again and reads. It uses no test framework, because those need exceptions.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tenuto/actions.h"
#include "tenuto/concurrent_hash_map.h"
#include "tenuto/kv.h"
#include "tenuto/mistakes.h"
#include "tenuto/ordered_map.h"
#include "tenuto/queue.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace {

using tenuto::Report;
using tenuto::Status;

[[noreturn]] void stop(const char* step, const Report& report) {
  std::fprintf(stderr, "%s: %s\n", step, report.text().c_str());
  std::exit(1);
}

void check(Status s, const char* step) {
  if (s == Status::ok) return;
  std::fprintf(stderr, "%s: %s\n", step, tenuto::status_name(s));
  std::exit(1);
}

void write_and_close(const std::string& path) {
  Report report;
  auto store = tenuto::Store::open(path, {}, &report);
  if (!store) stop("create", report);
  check(store->put("key", "value"), "put");
  check(store->close(), "close");
}

void read_back(const std::string& path) {
  Report report;
  auto store = tenuto::Store::open(path, {}, &report);
  if (!store) stop("open", report);
  std::string value;
  check(store->get("key", value), "get");
  if (value != "value") check(Status::corrupt, "compare");
  check(store->erase("key"), "erase");
  if (store->contains("key") != Status::not_found) check(Status::exists, "contains after erase");
}

}  // namespace

int main() {
  const char* dir = std::getenv("TMPDIR");
  const std::string path = std::string(dir != nullptr ? dir : "/tmp") + "/noexcept_smoke." +
                           std::to_string(getpid()) + ".tnt";
  write_and_close(path);
  read_back(path);
  std::remove(path.c_str());
  std::puts("noexcept_smoke: ok");
}

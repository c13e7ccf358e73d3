// A user's first program: notes in the order in which they were taken, in a file that survives.
//
//   notes FILE add TEXT     keeps a note
//   notes FILE              prints all of them
#include <tenuto/kv.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

int stop(tenuto::Status status, const tenuto::Report& report) {
  std::fprintf(stderr, "notes: %s %s\n", tenuto::status_name(status), report.text().c_str());
  return 1;
}

tenuto::Status add(tenuto::Store& store, std::string_view text) {
  tenuto::Iterator last = store.iterator();
  last.seek_last();
  std::uint64_t number = 1;
  if (last.valid()) number = std::stoull(std::string(last.key())) + 1;
  char key[24];
  std::snprintf(key, sizeof key, "%08llu", static_cast<unsigned long long>(number));
  return store.put(key, text);
}

void print(const tenuto::Store& store) {
  tenuto::Iterator at = store.iterator();
  for (at.seek_first(); at.valid(); at.next()) {
    std::printf("%s %s\n", std::string(at.key()).c_str(), std::string(at.value()).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: notes FILE [add TEXT]\n");
    return 2;
  }
  tenuto::Report report;
  tenuto::Result<tenuto::Store> store = tenuto::Store::open(argv[1], {}, &report);
  if (!store) return stop(store.error(), report);
  if (argc == 4) {
    if (const tenuto::Status s = add(*store, argv[3]); s != tenuto::Status::ok) {
      return stop(s, report);
    }
  }
  print(*store);
  const tenuto::Status closed = store->close();
  return closed == tenuto::Status::ok ? 0 : stop(closed, report);
}

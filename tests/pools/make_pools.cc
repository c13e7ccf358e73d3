// make_pools FOLDER [NAME...]: makes the pools of today's layout for the tests of later versions.
// NAME.txt describes what NAME.pool.lz4 (and NAME.journal.lz4) holds. README.md says when to do it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "pools/contents.h"
#include "pools/packed.h"
#include "pools/recipes.h"

namespace tenuto::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool run_in_child(const Recipe& recipe, const Place& place) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Status s = recipe.make(place);
    if (s != Status::ok) std::fprintf(stderr, "%s: %s\n", recipe.name, status_name(s));
    std::_Exit(s == Status::ok ? 0 : 1);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

// Packs the pool and its journal as the child left them. Then it opens the pool, and checks that it
// holds what the text says.
std::string make(const Recipe& recipe, const std::string& work, const std::string& folder) {
  const Place place{work + "/" + recipe.name + ".pool", work + "/" + recipe.name + ".txt"};
  if (!run_in_child(recipe, place)) return "it was not made";
  const std::string to = folder + "/" + recipe.name;
  std::string error = pack_file(place.pool, to + ".pool.lz4");
  if (!error.empty()) return error;
  const std::string journal = place.pool + ".journal";
  if (fs::exists(journal)) error = pack_file(journal, to + ".journal.lz4");
  if (!error.empty()) return error;
  Report report;
  auto open = open_old(place.pool, old_pool_options(), &report);
  if (!open) return report.text();
  const std::string text = text_of(place.text);
  if (contents(*open) != text) return "it does not hold what was written to it";
  if (open->validate(&report) != Status::ok) return report.text();
  std::ofstream out(to + ".txt", std::ios::binary | std::ios::trunc);
  out << text;
  return out.flush() ? std::string() : to + ".txt: cannot be written";
}

int run(const std::string& folder, const std::vector<std::string>& names) {
  std::string work = (fs::temp_directory_path() / "tenuto-pools-XXXXXX").string();
  if (::mkdtemp(work.data()) == nullptr) return 1;
  fs::create_directories(folder);
  int failed = 0;
  for (const Recipe& recipe : recipes()) {
    bool wanted = names.empty();
    for (const std::string& name : names) wanted = wanted || name == recipe.name;
    if (!wanted) continue;
    const std::string error = make(recipe, work, folder);
    std::printf("%-22s %s%s%s\n", recipe.name, recipe.what, error.empty() ? "" : ": FAILED, ",
                error.c_str());
    failed += error.empty() ? 0 : 1;
  }
  fs::remove_all(work);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenuto::test

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "make_pools FOLDER [NAME...]\n");
    return 2;
  }
  return tenuto::test::run(argv[1], {argv + 2, argv + argc});
}

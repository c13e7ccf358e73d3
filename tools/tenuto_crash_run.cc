// `tenuto crash run`, `replay` and `life` start other programs. run starts tenuto-crash, and replay
// starts the program that a saved case names; these use the traced build of the library. life
// starts tenuto-life. `tenuto import-pmemobj` starts tenuto-import-pmemobj, which needs libpmemobj.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tenuto_crash.h"

namespace tenuto::tool {
namespace {

// Returns only on failure.
Error become(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  return os_failed(errno, "cannot start the program", words[0]);
}

// Starts the program of this name in the same folder as this one.
Error become_neighbour(const char* name, const char* what, const char* advice, int argc,
                       char** argv) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = here.parent_path() / name;
  if (!std::filesystem::exists(program, error)) {
    return failed(Status::not_found, what, program, advice);
  }
  std::vector<std::string> words = {program};
  words.insert(words.end(), argv, argv + argc);
  return become(std::move(words));
}

}  // namespace

Error run_crash_explorer(int argc, char** argv) {
  return become_neighbour(
      "tenuto-crash", "the crash explorer is not there",
      "build the target tenuto_crash (gcc, no sanitizer), and keep both in one folder", argc, argv);
}

Error run_crash_life(int argc, char** argv) {
  return become_neighbour("tenuto-life", "the tester of whole lives is not there",
                          "build the target tenuto_life, and keep both in one folder", argc, argv);
}

Error run_import_pmemobj(int argc, char** argv) {
  return become_neighbour(
      "tenuto-import-pmemobj", "the program that reads libpmemobj's pools is not there",
      "build it where libpmemobj is installed, and keep both in one folder", argc, argv);
}

Error run_crash_replay(int argc, char** argv) {
  constexpr const char* kUsage = "tenuto crash replay FILE.case";
  if (argc != 1) return failed(Status::invalid_argument, "a case file is wanted", "", kUsage);
  const std::string file = argv[0];
  if (file == "--help" || file == "-h") {
    std::printf(
        "Runs a finding again that the crash explorer saved: its program, with only that "
        "crash.\n\nUsage: %s\n",
        kUsage);
    return no_error();
  }
  std::ifstream in(file);
  if (!in) return os_failed(errno, "cannot open the case", file);
  std::string line;
  std::vector<std::string> words;
  const std::string begin = "argument ";
  if (std::getline(in, line) && line == "tenuto crash case 1") {
    while (std::getline(in, line) && line.starts_with(begin)) {
      words.push_back(line.substr(begin.size()));
    }
  }
  if (words.empty()) {
    return failed(Status::invalid_argument, "not a saved case of the crash explorer", file, kUsage);
  }
  ::setenv("TENUTO_CRASH_REPLAY", std::filesystem::absolute(file).c_str(), 1);
  return become(std::move(words));
}

}  // namespace tenuto::tool

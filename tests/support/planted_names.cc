// Which plants the sources have, and which the tests name.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "support/planted.h"

namespace tenuto::test {

namespace {

std::string text_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

std::set<PlantPlace> plants_in_sources(const std::string& root) {
  namespace fs = std::filesystem;
  std::set<PlantPlace> all;
  const std::regex use("TENUTO_PLANT\\(\\s*\"([^\"]*)\"\\)");
  for (const char* folder : {"src", "tx", "store", "tools/pmemobj"}) {
    for (const auto& file : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      if (!file.is_regular_file()) continue;
      if (file.path().filename() == "plant.h") continue;  // it explains the macro
      const std::string t = text_of(file.path());
      for (std::sregex_iterator i(t.begin(), t.end(), use), end; i != end; ++i) {
        all.insert({(*i)[1], fs::relative(file.path(), root).string()});
      }
    }
  }
  return all;
}

std::set<std::string> names_in_tests(const std::string& root) {
  namespace fs = std::filesystem;
  std::set<std::string> all;
  const std::regex name("\"((pm|journal|frame|heap|tx|store|pmemobj)(_[a-z0-9]+)+)\"");
  for (const auto& file : fs::recursive_directory_iterator(fs::path(root) / "tests")) {
    const std::string own = file.path().filename().string();
    if (file.path().extension() != ".cc" || own.starts_with("planted") || own == "plants.cc")
      continue;  // these files only list names
    const std::string t = text_of(file.path());
    for (std::sregex_iterator i(t.begin(), t.end(), name), end; i != end; ++i) all.insert((*i)[1]);
  }
  return all;
}

}  // namespace tenuto::test

// Checks that some crash test has crashed at every named fence of the product. ctest runs all of
// them before this one. Each leaves the names of its fences in the folder TENUTO_CRASH_COVERAGE.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Fences that no crash test can reach, each with its reason.
const std::map<std::string, const char*>& unreachable() {
  static const std::map<std::string, const char*> names = {};
  return names;
}

std::string content(const fs::path& path) {
  std::stringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

// The string literals in the parentheses that open at `at`.
std::vector<std::string> literals(const std::string& text, std::size_t at) {
  std::vector<std::string> found;
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '"') {
      const std::size_t end = text.find('"', at + 1);
      found.push_back(text.substr(at + 1, end - at - 1));
      at = end;
    }
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    if (depth == 0) break;
  }
  return found;
}

// "first|then" of all calls of fence(), fence_lane() and persist() in the product, each with its
// file. A call may choose its first name from several.
std::map<std::string, std::string> fences_of_the_product() {
  std::map<std::string, std::string> names;
  const fs::path root = TENUTO_SOURCE_DIR;
  for (const char* folder : {"src", "tx", "store"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path& path = entry.path();
      const bool explorer = path.filename().string().starts_with("explore") ||
                            path.filename().string().starts_with("trace");
      if (explorer || (path.extension() != ".cc" && path.extension() != ".h")) continue;
      const std::string text = content(path);
      for (const std::string call : {"fence(", "fence_lane(", "persist("}) {
        for (std::size_t at = text.find(call); at != std::string::npos;
             at = text.find(call, at + 1)) {
          const std::size_t line = text.rfind('\n', at);
          const std::string_view before(text.data() + line + 1, at - line - 1);
          if (before.find("//") != std::string_view::npos) continue;
          if (at > 0 && (std::isalnum(text[at - 1]) != 0 || text[at - 1] == '_')) continue;
          const std::vector<std::string> words = literals(text, at + call.size() - 1);
          for (std::size_t i = 0; i + 1 < words.size(); ++i) {  // a declaration has no literals
            names[words[i] + "|" + words.back()] = fs::relative(path, root);
          }
        }
      }
    }
  }
  return names;
}

TEST(FenceCoverage, every_named_fence_of_the_product_was_crashed_at) {
  const char* folder = std::getenv("TENUTO_CRASH_COVERAGE");
  if (folder == nullptr) GTEST_SKIP() << "run it by ctest";
  std::set<std::string> crashed;
  for (const auto& file : fs::directory_iterator(folder)) {
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) crashed.insert(line);
  }
  const auto names = fences_of_the_product();
  EXPECT_GT(names.size(), 50u);
  std::size_t covered = 0;
  for (const auto& [name, place] : names) {
    covered += crashed.count(name);
    EXPECT_TRUE(crashed.count(name) != 0 || unreachable().count(name) != 0)
        << place << ": no crash test crashes at fence " << name;
    EXPECT_FALSE(crashed.count(name) != 0 && unreachable().count(name) != 0)
        << name << " is reached after all";
  }
  std::printf("%zu of %zu named fences crashed at\n", covered, names.size());
}

}  // namespace

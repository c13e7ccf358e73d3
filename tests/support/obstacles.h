// Files that may be in the place of a file that is to be made, and whether they are still there.
// For tests of the library and of the tool.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <string>

#include "support/pool_image.h"

namespace tenuto::test {

inline constexpr const char* kText = "somebody's text\n";

inline void write_text(const std::string& path, const std::string& text) {
  write_image(path, Bytes(text.begin(), text.end()));
}
inline std::string text_of(const std::string& path) {
  const Bytes b = read_image(path);
  return {b.begin(), b.end()};
}

// A way to put something in the place of a file.
struct Obstacle {
  const char* name;
  std::function<void(const std::string& path, const std::string& victim)> put;
};
inline const Obstacle kObstacles[] = {
    {"text", [](const auto& p, const auto&) { write_text(p, kText); }},
    {"empty", [](const auto& p, const auto&) { write_text(p, ""); }},
    {"zeros", [](const auto& p, const auto&) { write_text(p, std::string(100'000, '\0')); }},
    {"link", [](const auto& p, const auto& victim) { std::filesystem::create_symlink(victim, p); }},
    {"dangling",
     [](const auto& p, const auto&) { std::filesystem::create_symlink(p + ".nowhere", p); }},
    {"fifo", [](const auto& p, const auto&) { ASSERT_EQ(::mkfifo(p.c_str(), 0600), 0); }},
    {"folder", [](const auto& p, const auto&) { std::filesystem::create_directory(p); }},
};

// What is at a path, without following links, and whether it is still there.
class Standing {
 public:
  explicit Standing(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(::lstat(path_.c_str(), &before_), 0);
  }
  void expect_still() const {
    struct stat after {};
    ASSERT_EQ(::lstat(path_.c_str(), &after), 0) << "it was removed";
    EXPECT_EQ(after.st_ino, before_.st_ino) << "it was replaced";
    EXPECT_EQ(after.st_mode, before_.st_mode);
    EXPECT_EQ(after.st_size, before_.st_size);
    EXPECT_EQ(after.st_mtim.tv_nsec, before_.st_mtim.tv_nsec);
  }

 private:
  const std::string path_;
  struct stat before_ {};
};

}  // namespace tenuto::test

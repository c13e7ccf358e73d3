// Checks that the source tree keeps the order of the layers (tests/support/layering.h). First it
// tests the checker itself on invented files, because a checker that cannot fail proves nothing.
#include <gtest/gtest.h>

#include <string>

#include "support/layering.h"

namespace {

using layering::Breaches;
using layering::check_file;
using layering::SourceFile;

std::string lines(const Breaches& breaches) {
  std::string text;
  for (const std::string& b : breaches) text += b + "\n";
  return text;
}

Breaches one(const std::string& path, const std::string& include) {
  return check_file({path, "// A file.\n#include " + include + "\n"});
}

TEST(layering, tree_looks_only_downwards) {
  const auto files = layering::read_tree(TENUTO_SOURCE_DIR);
  ASSERT_GT(files.size(), 10u) << "sources not found under " << TENUTO_SOURCE_DIR;
  Breaches all;
  for (const SourceFile& file : files) {
    for (std::string& b : check_file(file)) all.push_back(std::move(b));
  }
  EXPECT_TRUE(all.empty()) << lines(all);
}

TEST(layering, tree_has_no_circles) {
  const Breaches b = layering::check_cycles(layering::read_tree(TENUTO_SOURCE_DIR));
  EXPECT_TRUE(b.empty()) << lines(b);
}

TEST(layering, tree_has_no_folder_for_leftovers) {
  const auto folders = layering::list_folders(TENUTO_SOURCE_DIR);
  ASSERT_GT(folders.size(), 5u);
  const Breaches b = layering::check_folders(folders);
  EXPECT_TRUE(b.empty()) << lines(b);
}

TEST(layering_checker, refuses_an_upward_edge_and_says_where) {
  const Breaches b = one("src/file/lane.cc", "\"heap/heap.h\"");
  ASSERT_EQ(b.size(), 1u);
  EXPECT_EQ(b[0], "src/file/lane.cc:2: includes heap/heap.h (layer 5) from layer 3");
  EXPECT_EQ(one("tx/undo.cc", "\"store/tree/tree.h\"").size(), 1u);
  EXPECT_EQ(one("src/frame/lower.cc", "<tx/undo.h>").size(), 1u) << "brackets hide nothing";
}

TEST(layering_checker, refuses_an_edge_in_disguise) {
  EXPECT_EQ(one("src/file/lane.cc", "\"src/heap/heap.h\"").size(), 1u);
  EXPECT_EQ(one("src/file/lane.cc", "\"../heap/heap.h\"").size(), 1u);
  EXPECT_EQ(one("src/file/lane.cc", "HEAP_HEADER").size(), 1u);
  EXPECT_EQ(one("src/file/lane.cc", "\"heap.h\"").size(), 1u);
  EXPECT_EQ(check_file({"src/file/lane.cc", "  #  include\t\"heap/heap.h\"\n"}).size(), 1u);
}

TEST(layering_checker, refuses_private_headers_outside_the_library) {
  EXPECT_EQ(one("include/tenuto/kv.h", "\"store/tree/tree.h\"").size(), 1u);
  EXPECT_EQ(one("include/tenuto/persist.h", "\"pm/media.h\"").size(), 1u);
  EXPECT_EQ(one("tools/tenuto.cc", "\"file/pool_file.h\"").size(), 1u);
  EXPECT_EQ(one("bench/kv_bench.cc", "\"store/tree/tree.h\"").size(), 1u);
  EXPECT_EQ(one("bench/kv_bench.cc", "\"tools/session.h\"").size(), 1u);
  EXPECT_EQ(one("store/tree/tree.cc", "\"tools/session.h\"").size(), 1u);
}

TEST(layering_checker, public_headers_have_layers_too) {
  EXPECT_EQ(one("src/pm/media.h", "\"tenuto/kv.h\"").size(), 1u);
  EXPECT_EQ(one("include/tenuto/status.h", "\"tenuto/pool.h\"").size(), 1u);
  EXPECT_EQ(one("include/tenuto/nowhere.h", "<string>").size(), 1u) << "not in the table";
  EXPECT_EQ(one("store/tree/tree.cc", "\"tenuto/nowhere.h\"").size(), 1u);
  EXPECT_TRUE(one("src/pm/media.h", "\"tenuto/persist.h\"").empty());
}

TEST(layering_checker, accepts_what_is_allowed) {
  EXPECT_TRUE(one("src/heap/slab.cc", "\"heap/slab.h\"").empty());
  EXPECT_TRUE(one("src/heap/slab.cc", "\"frame/frames.h\"").empty());
  EXPECT_TRUE(one("store/pool/open.cc", "\"tx/undo.h\"").empty());
  EXPECT_TRUE(one("store/pool/open.cc", "<tbb/parallel_for.h>").empty());
  EXPECT_TRUE(one("tools/tenuto.cc", "\"session.h\"").empty());
  EXPECT_TRUE(one("bench/kv_bench.cc", "\"bench/support/engine.h\"").empty());
  EXPECT_TRUE(one("bench/kv_bench.cc", "\"tenuto/kv.h\"").empty());
  EXPECT_TRUE(one("tests/heap_test.cc", "\"heap/heap.h\"").empty()) << "tests see all";
  EXPECT_TRUE(check_file({"src/file/lane.cc", "// #include \"heap/heap.h\"\n"}).empty());
}

TEST(layering_checker, finds_headers_that_include_each_other) {
  const std::vector<SourceFile> circle = {{"src/pm/a.h", "#include \"pm/b.h\"\n"},
                                          {"src/pm/b.h", "#include \"pm/c.h\"\n"},
                                          {"src/pm/c.h", "#include \"pm/a.h\"\n"}};
  EXPECT_EQ(layering::check_cycles(circle).size(), 1u);
  const std::vector<SourceFile> diamond = {{"src/pm/a.h", "#include \"pm/b.h\"\n"},
                                           {"src/pm/b.h", "#include \"pm/c.h\"\n"},
                                           {"src/pm/d.h", "#include \"pm/c.h\"\n"},
                                           {"src/pm/c.h", "\n"}};
  EXPECT_TRUE(layering::check_cycles(diamond).empty());
}

TEST(layering_checker, refuses_a_folder_named_util) {
  EXPECT_EQ(layering::check_folders({"src/util", "src/pm", "tests/support"}).size(), 1u);
}

}  // namespace

// The rules of which file may include which, for layering_test. A file is judged by its path and
// its text only, so that the rules can be tested on invented files.
//
//   1 src/pm  2 src/crash src/journal  3 src/file  4 src/frame  5 src/heap  6 tx
//   7 store/tree store/pool  8 store/kv  9 store/rescue store/c
//                        own folder and lower numbers
//   include/tenuto       nothing private; has a layer by header
//   tools, bench         include/tenuto and their own folder
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace layering {

struct SourceFile {
  std::string path;  // from the root of the project, "src/heap/slab.cc"
  std::string text;
};

// For example "src/file/lane.h:12: includes heap/heap.h (layer 5) from layer 3". One string a
// breach.
using Breaches = std::vector<std::string>;

// The layer that implements each public header. src/pm may include only headers of level 1, and so
// on. A public header that is not listed is a breach.
const std::map<std::string, int, std::less<>>& public_header_layers();

// All breaches in one file.
Breaches check_file(const SourceFile& file);

// Breaches that only the whole tree shows: headers that include each other in a cycle.
Breaches check_cycles(const std::vector<SourceFile>& files);

// All sources under `root` that the rules concern.
std::vector<SourceFile> read_tree(const std::string& root);

// Folders without a purpose of their own, for example "src/util".
Breaches check_folders(const std::vector<std::string>& folders);
std::vector<std::string> list_folders(const std::string& root);

}  // namespace layering

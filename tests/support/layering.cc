// How the rules of layering.h are applied. A line is an include if its first word is #include. This
// is stricter than the preprocessor, because lines inside #if count, too: a forbidden edge is
// forbidden in every configuration.
#include "support/layering.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace layering {
namespace {

namespace fs = std::filesystem;

constexpr int kPublic = 0;    // include/tenuto
constexpr int kProgram = 98;  // tools, bench: they include no private header

struct Folder {
  std::string_view path;     // the folder of its files
  std::string_view spelled;  // the prefix that includes use
  int layer;
};

constexpr std::array<Folder, 16> kFolders = {{
    {"include/tenuto/", "tenuto/", kPublic},
    {"src/pm/", "pm/", 1},
    {"src/crash/", "crash/", 2},
    {"src/journal/", "journal/", 2},
    {"src/file/", "file/", 3},
    {"src/frame/", "frame/", 4},
    {"src/heap/", "heap/", 5},
    {"tx/", "tx/", 6},
    {"store/tree/", "store/tree/", 7},
    {"store/pool/", "store/pool/", 7},
    {"store/kv/", "store/kv/", 8},
    {"store/rescue/", "store/rescue/", 9},
    {"store/c/", "store/c/", 9},
    {"tools/pmemobj/", "tools/pmemobj/", 10},  // stands on the whole library
    {"tools/", "tools/", kProgram},
    {"bench/", "bench/", kProgram},
}};

const Folder* folder_of_path(std::string_view path) {
  for (const Folder& f : kFolders) {
    if (path.starts_with(f.path)) return &f;
  }
  return nullptr;
}

const Folder* folder_of_include(std::string_view name) {
  for (const Folder& f : kFolders) {
    // With or without the root: "src/pm/os.h" and "pm/os.h" are the same file.
    if (name.starts_with(f.spelled) || name.starts_with(f.path)) return &f;
  }
  return nullptr;
}

struct Include {
  int line;
  std::string name;  // empty if the line names a macro
  bool quoted;
};

std::vector<Include> includes_of(const std::string& text) {
  std::vector<Include> found;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] != '#') continue;
    at = line.find_first_not_of(" \t", at + 1);
    if (at == std::string::npos || line.compare(at, 7, "include") != 0) continue;
    at = line.find_first_not_of(" \t", at + 7);
    const char open = at == std::string::npos ? ' ' : line[at];
    const char close = open == '<' ? '>' : '"';
    std::string name;
    if (open == '<' || open == '"') {
      const std::size_t end = line.find(close, at + 1);
      if (end != std::string::npos) name = line.substr(at + 1, end - at - 1);
    }
    found.push_back({number, std::move(name), open == '"'});
  }
  return found;
}

// The layer of a file, as far as its includes are concerned.
int layer_of(const Folder& folder, std::string_view path) {
  if (folder.layer != kPublic) return folder.layer;
  const auto& table = public_header_layers();
  const auto it = table.find(path.substr(path.rfind('/') + 1));
  return it == table.end() ? 0 : it->second;
}

// What is wrong with this include, or an empty string.
std::string judge(const Folder& from, int own, const Include& inc) {
  if (inc.name.empty()) return "includes by macro, which hides what is included";
  if (inc.name.find("..") != std::string::npos) return "includes " + inc.name + " by way of ..";
  const Folder* to = folder_of_include(inc.name);
  if (to == nullptr) {
    // A quoted name without a folder means a file beside this one. Only programs may do that. In
    // the library every name must show its layer.
    if (inc.quoted && from.layer != kProgram) {
      return "includes \"" + inc.name + "\", which does not say its layer";
    }
    return {};
  }
  if (to->layer == kPublic) {
    const auto& table = public_header_layers();
    const std::size_t skip = inc.name.rfind('/') + 1;
    const auto it = table.find(inc.name.substr(skip));
    if (it == table.end()) {
      return "includes " + inc.name + ", which has no layer in tests/support/layering.cc";
    }
    if (it->second > own) {
      return "includes " + inc.name + " (layer " + std::to_string(it->second) + ") from layer " +
             std::to_string(own);
    }
    return {};
  }
  if (to == &from) return {};
  if (from.layer == kPublic) return "includes " + inc.name + ", which is private";
  if (from.layer == kProgram || to->layer == kProgram) {
    return "includes " + inc.name + ", which is private to " + std::string(to->path);
  }
  if (to->layer < own) return {};
  return "includes " + inc.name + " (layer " + std::to_string(to->layer) + ") from layer " +
         std::to_string(own);
}

// The project path that an include means, as far as its spelling shows it.
std::string path_of_include(const SourceFile& file, const Include& inc) {
  const Folder* to = folder_of_include(inc.name);
  if (to == nullptr) return fs::path(file.path).parent_path() / inc.name;
  if (inc.name.starts_with(to->path)) return inc.name;
  return std::string(to->path) + inc.name.substr(to->spelled.size());
}

class CycleFinder {
 public:
  explicit CycleFinder(const std::vector<SourceFile>& files) {
    for (const SourceFile& f : files) {
      auto& edges = edges_[f.path];
      for (const Include& inc : includes_of(f.text)) edges.push_back(path_of_include(f, inc));
    }
  }

  Breaches run() {
    for (const auto& [path, edges] : edges_) visit(path);
    return std::move(breaches_);
  }

 private:
  void visit(const std::string& path) {
    const auto it = edges_.find(path);
    if (it == edges_.end() || done_.contains(path)) return;
    if (!open_.insert(path).second) {
      breaches_.push_back(path + ": includes itself through " + stack_.back());
      return;
    }
    stack_.push_back(path);
    for (const std::string& next : it->second) visit(next);
    stack_.pop_back();
    open_.erase(path);
    done_.insert(path);
  }

  std::map<std::string, std::vector<std::string>> edges_;
  std::set<std::string> open_, done_;
  std::vector<std::string> stack_;
  Breaches breaches_;
};

bool is_source(const fs::path& path) {
  const std::string ext = path.extension().string();
  return ext == ".h" || ext == ".cc" || ext == ".c" || ext == ".inc";
}

}  // namespace

const std::map<std::string, int, std::less<>>& public_header_layers() {
  static const std::map<std::string, int, std::less<>> kLayers = {
      {"abi.h", 1},
      {"units.h", 1},
      {"status.h", 1},
      {"persist.h", 1},
      {"pool_options.h", 1},
      {"pool_stats.h", 1},
      {"alloc_options.h", 1},
      {"garbage.h", 1},
      {"references.h", 1},
      {"numa.h", 1},
      {"crash.h", 1},
      {"crash_history.h", 1},
      {"ptr.h", 1},
      {"vptr.h", 1},
      {"words.h", 1},
      {"mistakes.h", 1},
      {"actions.h", 7},
      {"compact.h", 6},
      {"element.h", 6},
      {"vector.h", 6},
      {"string.h", 6},
      {"inline_string.h", 1},
      {"queue.h", 6},
      {"p.h", 6},
      {"slots.h", 6},
      {"ordered_map.h", 6},
      {"ordered_nodes.h", 6},
      {"ordered_change.h", 6},
      {"ordered_walk.h", 6},
      {"hash_map.h", 6},
      {"hash_buckets.h", 6},
      {"hash_change.h", 6},
      {"map_calls.h", 6},
      {"concurrent_hash_map.h", 7},
      {"tx.h", 6},
      {"pool.h", 7},
      {"kv.h", 7},
      {"store_options.h", 7},
      {"collection.h", 7},
      {"iterator.h", 7},
      {"rescue.h", 7},
      {"tenuto.h", 7},
      {"tenuto_options.h", 7},
      {"tenuto_pool.h", 7},
      {"tenuto_containers.h", 7},
      {"snapshot.h", 7},
      {"transaction.h", 7},
  };
  return kLayers;
}

Breaches check_file(const SourceFile& file) {
  Breaches breaches;
  const Folder* from = folder_of_path(file.path);
  if (from == nullptr) return breaches;
  const int own = layer_of(*from, file.path);
  if (own == 0) {
    breaches.push_back(file.path + ": has no layer in tests/support/layering.cc");
    return breaches;
  }
  for (const Include& inc : includes_of(file.text)) {
    const std::string wrong = judge(*from, own, inc);
    if (wrong.empty()) continue;
    breaches.push_back(file.path + ":" + std::to_string(inc.line) + ": " + wrong);
  }
  return breaches;
}

Breaches check_cycles(const std::vector<SourceFile>& files) { return CycleFinder(files).run(); }

std::vector<SourceFile> read_tree(const std::string& root) {
  std::vector<SourceFile> files;
  for (const char* top : {"include", "src", "tx", "store", "tools", "bench"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      std::ifstream in(entry.path());
      std::ostringstream text;
      text << in.rdbuf();
      files.push_back({fs::relative(entry.path(), root).string(), text.str()});
    }
  }
  return files;
}

Breaches check_folders(const std::vector<std::string>& folders) {
  static const std::set<std::string, std::less<>> kRefused = {"util",   "utils",  "misc",
                                                              "common", "helper", "helpers"};
  Breaches breaches;
  for (const std::string& folder : folders) {
    if (kRefused.contains(fs::path(folder).filename().string())) {
      breaches.push_back(folder + ": a folder for what has no place; find the place");
    }
  }
  return breaches;
}

std::vector<std::string> list_folders(const std::string& root) {
  std::vector<std::string> folders;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    if (!it->is_directory()) continue;
    const std::string path = fs::relative(it->path(), root).string();
    if (path == "build" || path.starts_with('.')) {
      it.disable_recursion_pending();
      continue;
    }
    folders.push_back(path);
  }
  return folders;
}

}  // namespace layering

// Where in the sources a store or flush was: asks addr2line.
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string_view>

#include "crash/explore_run.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kStepsShown = 3;  // of a call chain
// Files that are in every call chain and do not help to understand a finding.
constexpr const char* kDullFiles[] = {
    "persist.h:",     "std_function.h:", "invoke.h:",      "std_thread.h:",
    "atomic_base.h:", "explore_run.cc:", "interleave.cc:", "gtest.cc:"};

std::uintptr_t load_address() {
  std::uintptr_t base = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program itself
      },
      &base);
  return base;
}

std::string hex(std::uintptr_t n) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%lx", n);
  return text.data();
}

// "function file:line" from one line of addr2line's output; empty when it has no useful place.
std::string place_of(std::string line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  constexpr std::string_view kInlined = " (inlined by) ";
  if (line.starts_with(kInlined)) line.erase(0, kInlined.size());
  if (line.find("??") != std::string::npos) return {};
  if (const auto note = line.rfind(" (discriminator"); note != std::string::npos) line.resize(note);
  const auto at = line.rfind(" at ");
  if (at == std::string::npos) return {};
  const std::string file = line.substr(at + 4);
  for (const char* dull : kDullFiles) {
    if (file.starts_with(dull)) return {};
  }
  std::string function = line.substr(0, std::min({at, line.find('('), line.find('<')}));
  if (const auto scope = function.rfind("::"); scope != std::string::npos) {
    function.erase(0, scope + 2);
  }
  return (function == "operator" ? "lambda" : function) + " " + file;
}

std::string program() {
  std::string exe(512, 0);
  const ssize_t length = ::readlink("/proc/self/exe", exe.data(), exe.size());
  exe.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return exe;
}

// The places of a return address, the innermost inlined function first. One question for all that
// are not known yet: to read the program's debug information is what takes the time.
using Places = std::map<const void*, std::vector<std::string>>;

void learn(const std::vector<TraceSite>& sites, std::uintptr_t base, Places& known) {
  std::vector<const void*> asked;
  for (const TraceSite& site : sites) {
    for (const void* pc : site) {
      if (pc != nullptr && known.try_emplace(pc).second) asked.push_back(pc);
    }
  }
  if (asked.empty()) return;
  std::string command = "addr2line -aCfspie '" + program() + "'";
  for (const void* pc : asked)
    command += " " + hex(reinterpret_cast<std::uintptr_t>(pc) - base - 1);
  std::FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return;
  std::array<char, 1024> text{};
  std::size_t answers = 0;
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) {
    std::string line = text.data();
    if (line.starts_with("0x")) {  // "0x1234: FUNCTION at FILE", of the next address
      ++answers;
      line.erase(0, std::min(line.size(), line.find(": ") + 2));
    }
    if (answers == 0 || answers > asked.size()) continue;
    if (std::string place = place_of(std::move(line)); !place.empty()) {
      known[asked[answers - 1]].push_back(std::move(place));
    }
  }
  ::pclose(pipe);
}

}  // namespace

// The result for one call chain is "place < inlined into < caller", without the files of
// kDullFiles. If nothing is left, it is the code's address.
std::vector<std::string> source_places(const std::vector<TraceSite>& sites) {
  static Places known;  // only the explorer's own thread asks
  const std::uintptr_t base = load_address();
  learn(sites, base, known);
  std::vector<std::string> places;
  for (const TraceSite& site : sites) {
    std::string place;
    std::size_t shown = 0;
    for (const void* pc : site) {
      if (pc == nullptr) continue;
      for (const std::string& step : known[pc]) {
        if (shown++ < kStepsShown) place += place.empty() ? step : " < " + step;
      }
    }
    if (place.empty()) place = "code at " + hex(reinterpret_cast<std::uintptr_t>(site[0]) - base);
    places.push_back(place);
  }
  return places;
}

}  // namespace TENUTO_NS::pm

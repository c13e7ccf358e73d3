#include "crash/explore_case.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace TENUTO_NS::pm {

namespace {
constexpr const char* kFirstLine = "tenuto crash case 1";
}

std::optional<CrashCase> CrashCase::read(const std::string& text) {
  CrashCase c;
  unsigned long long point = 0, number = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%llu:%llu%n", &point, &number, &used) == 2 &&
      static_cast<std::size_t>(used) == text.size()) {
    c.point = point;
    c.state = number;
    return c;
  }
  std::ifstream file(text);
  std::string line;
  if (!std::getline(file, line) || line != kFirstLine) return std::nullopt;
  while (std::getline(file, line) && !line.empty()) {
    std::istringstream in(line);
    std::string word;
    in >> word >> std::ws;
    if (word == "argument") {
      std::getline(in, word);
      c.command.push_back(word);
    } else if (word == "run") {
      in >> c.run;
    } else if (word == "point") {
      in >> c.point;
    } else if (word == "others") {
      in >> word;
      c.base_new = word == "new";
    } else if (word == "line") {
      std::uint64_t offset = 0;
      std::uint32_t variant = 0;
      std::size_t of_file = 0;
      in >> offset >> variant;
      if (in && !in.eof()) in >> of_file;  // left out for file 0
      if (of_file >= kCrashFilesMax) return std::nullopt;
      c.picks.emplace_back(first_line(of_file) + offset / kLineBytes, variant);
    } else if (word == "recovery_crash" && c.chain.depth < CrashChain::kMax) {
      in >> c.chain.hash[c.chain.depth++];
    } else {
      return std::nullopt;
    }
    if (in.fail()) return std::nullopt;
  }
  return c;
}

bool CrashCase::write(const std::string& path, const std::string& finding) const {
  std::ofstream out(path);
  out << kFirstLine << '\n';
  for (const std::string& word : command) out << "argument " << word << '\n';
  out << "run " << run << "\npoint " << point << "\nothers " << (base_new ? "new" : "old") << '\n';
  for (const auto& [line, variant] : picks) {
    out << "line " << offset_of(line) << ' ' << variant;
    if (file_of(line) != 0) out << ' ' << file_of(line);
    out << '\n';
  }
  for (std::uint32_t i = 0; i < chain.depth; ++i) out << "recovery_crash " << chain.hash[i] << '\n';
  out << '\n' << finding;  // read() stops at the empty line; the text is for people
  return static_cast<bool>(out.flush());
}

CrashState CrashCase::state_of(const std::vector<LineChoices>& lines) const {
  CrashState s{base_new, {}};
  for (const auto& [line, variant] : picks) {
    const auto at = std::find_if(lines.begin(), lines.end(), [wanted = line](const LineChoices& l) {
      return l.line == wanted;
    });
    if (at == lines.end() || variant >= at->variants.size()) continue;
    s.picks.emplace_back(static_cast<std::uint32_t>(at - lines.begin()), variant);
  }
  return s;
}

std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  // An absolute path, because a replay may start in another directory.
  std::string exe(4096, 0);
  const ssize_t n = ::readlink("/proc/self/exe", exe.data(), exe.size());
  if (n > 0 && !words.empty()) words[0] = exe.substr(0, static_cast<std::size_t>(n));
  return words;
}

}  // namespace TENUTO_NS::pm

// Reads /proc and keeps the scratch directory; see process.h.
#include "bench/support/process.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace bench {
namespace {

namespace fs = std::filesystem;

volatile sig_atomic_t g_interrupted = 0;

void note_interrupt(int) { g_interrupted = 1; }

// The number after "name:" in a /proc file, times 1024 if "kB" follows; 0 if it is missing.
std::uint64_t proc_number(const char* file, std::string_view name) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, name.size(), name) != 0 || line[name.size()] != ':') continue;
    const std::uint64_t n = std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
    return line.find(" kB") == std::string::npos ? n : n << 10;
  }
  return 0;
}

}  // namespace

std::uint64_t anonymous_bytes() { return proc_number("/proc/self/status", "RssAnon"); }
std::uint64_t write_call_bytes() { return proc_number("/proc/self/io", "wchar"); }

std::uint64_t memory_limit_bytes() {
  std::uint64_t limit = proc_number("/proc/meminfo", "MemTotal");
  const auto lower_to = [&limit](const std::string& path) {
    std::uint64_t n = 0;
    if (std::ifstream(path) >> n) limit = std::min(limit, n);  // "max" is no number
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    constexpr std::string_view kVersion1 = ":memory:";
    const std::string root = "/sys/fs/cgroup";
    if (line.starts_with("0::")) lower_to(root + line.substr(3) + "/memory.max");
    const std::size_t at = line.find(kVersion1);
    if (at == line.npos) continue;
    // In a container the name may be the host's, and the group is what is mounted.
    for (const std::string& group : {line.substr(at + kVersion1.size()), std::string()}) {
      lower_to(root + "/memory" + group + "/memory.limit_in_bytes");
    }
  }
  return limit;
}

std::uint64_t free_memory_bytes() { return proc_number("/proc/meminfo", "MemAvailable"); }

// A mapping's line in smaps ends with its file's name; its properties follow, "Name: n kB" each.
MappedFile mapped_file(const std::string& path) {
  std::error_code ec;
  const std::string name = " " + fs::canonical(path, ec).string();
  MappedFile found;
  if (ec) return found;
  std::ifstream in("/proc/self/smaps");
  std::string line;
  while (std::getline(in, line)) {
    unsigned long start = 0, end = 0;
    const bool begins = std::sscanf(line.c_str(), "%lx-%lx", &start, &end) == 2;
    if (begins && found.start != 0) break;
    if (begins && line.ends_with(name)) found = {start, end, 0};
    for (const char* large : {"ShmemPmdMapped:", "FilePmdMapped:"}) {
      if (found.start == 0 || !line.starts_with(large)) continue;
      found.large_bytes += std::strtoull(line.c_str() + std::strlen(large), nullptr, 10) << 10;
    }
  }
  return found;
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    const std::size_t colon = line.find(": ");
    if (line.compare(0, 10, "model name") == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

DirectorySize directory_size(const std::string& dir) {
  DirectorySize sum;
  std::error_code ec;
  for (const fs::directory_entry& e : fs::recursive_directory_iterator(dir, ec)) {
    struct stat st {};
    if (::lstat(e.path().c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    sum.allocated += static_cast<std::uint64_t>(st.st_blocks) * 512;
    sum.apparent += static_cast<std::uint64_t>(st.st_size);
  }
  return sum;
}

std::string file_system_name(const std::string& path) {
  struct statfs st {};
  if (::statfs(path.c_str(), &st) != 0) return "unknown";
  switch (static_cast<std::uint64_t>(st.f_type)) {
    case 0x01021994:
      return "tmpfs";
    case 0xef53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x794c7630:
      return "overlay";
    case 0x2fc12fc1:
      return "zfs";
    default:
      break;
  }
  char magic[32];
  std::snprintf(magic, sizeof magic, "0x%lx", static_cast<unsigned long>(st.f_type));
  return magic;
}

std::string device_text(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return "unknown";
  // A partition's queue is that of its disk.
  const std::string device =
      "/sys/dev/block/" + std::to_string(major(st.st_dev)) + ":" + std::to_string(minor(st.st_dev));
  std::error_code ec;
  const std::string name = fs::canonical(device, ec).filename();
  if (ec) return "no block device";
  const auto of_queue = [&](const std::string& file) {
    for (const char* place : {"/queue/", "/../queue/"}) {
      std::ifstream in(device + place + file);
      std::string text;
      if (std::getline(in, text)) return text;
    }
    return std::string("?");
  };
  return name + ", cache: " + of_queue("write_cache") +
         (of_queue("fua") == "1" ? ", FUA" : ", no FUA");
}

bool Scratch::create(const std::string& parent, const std::string& name) {
  std::string pattern = parent + "/" + name + "-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return false;
  path_ = pattern;
  owner_ = ::getpid();
  return true;
}

bool Scratch::clear() {
  std::error_code ec;
  for (const fs::directory_entry& e : fs::directory_iterator(path_, ec)) {
    fs::remove_all(e.path(), ec);
    if (ec) return false;
  }
  return !ec;
}

void Scratch::remove() {
  if (path_.empty() || owner_ != ::getpid()) return;
  std::error_code ec;
  fs::remove_all(path_, ec);
  if (ec) std::fprintf(stderr, "could not remove %s: %s\n", path_.c_str(), ec.message().c_str());
  path_.clear();
}

void catch_interrupts() {
  struct sigaction act {};
  act.sa_handler = note_interrupt;  // no SA_RESTART, so waits return
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(s, &act, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

}  // namespace bench

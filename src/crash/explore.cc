#include "tenuto/crash.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "crash/explore_run.h"
#include "pm/assert.h"
#include "pm/trace.h"

namespace TENUTO_NS {

namespace {

constexpr const char* kDirectoryName = "tenuto-crash-";

// Removes the directories of runs that were killed. In /dev/shm they take up memory.
void remove_leftovers(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kDirectoryName)) continue;
    const int pid = std::atoi(name.c_str() + std::strlen(kDirectoryName));
    if (pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    std::filesystem::remove_all(entry.path(), error);
  }
}

// A directory of the run's own. Removed at the end.
class OwnDirectory {
 public:
  explicit OwnDirectory(const std::string& parent)
      : path_(parent + "/" + kDirectoryName + std::to_string(::getpid()) + "-XXXXXX") {
    remove_leftovers(parent);
    TENUTO_ASSERT(::mkdtemp(path_.data()) != nullptr);
  }
  ~OwnDirectory() { ::rmdir(path_.c_str()); }
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Where a line is. With several files that needs the number of its file.
std::string place(const std::string& offset, std::size_t file, std::size_t files) {
  return files == 1 ? offset : offset + " of file " + std::to_string(file);
}

std::string hex_place(std::uint64_t offset, std::size_t file, std::size_t files) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(offset));
  return place(text, file, files);
}

std::string words(const ForgottenStore& f) {
  return "stored and not flushed at " + f.when + ": " + f.place + ", " + std::to_string(f.count) +
         (f.count == 1 ? " line" : " lines") + ", first at " +
         place(std::to_string(f.line), f.file, f.files) + "\n";
}

// What a run found first; empty if it found nothing.
std::string first_words(const CrashResult& r) {
  if (!r.findings.empty()) return r.findings[0].text();
  return r.forgotten.empty() ? std::string() : words(r.forgotten[0]);
}

}  // namespace

TraceCounts trace_counts() { return pm::Recorder::thread_counts(); }

const char* crash_mode_name(CrashMode mode) {
  switch (mode) {
    case CrashMode::adr:
      return "adr";
    case CrashMode::page:
      return "page";
    case CrashMode::eadr:
      return "eadr";
    case CrashMode::kill:
      return "kill";
  }
  return "unknown";
}

const std::string& CrashContext::path() const { return explorer_.pool_path(); }
void CrashContext::invoke() { explorer_.invoke(); }
void CrashContext::ack() { explorer_.ack(); }
void CrashContext::update(const std::function<void()>& body) { explorer_.update(body); }
void CrashContext::crash_point(const char* name) { explorer_.crash_point(name); }
void CrashContext::interleave(const std::vector<std::function<void()>>& bodies) {
  explorer_.interleave(bodies);
}

std::span<std::byte> CrashImage::data(std::size_t file) const { return data_(file); }

void CrashImage::recovered() const {
  const pm::TraceLock lock;
  pm::Recorder::instance().drain_all();
  on_recovered_();
}

CrashMapping::CrashMapping(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat st {};
  TENUTO_ASSERT(fd >= 0 && ::fstat(fd, &st) == 0);
  bytes_ = static_cast<std::uint64_t>(st.st_size);
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TENUTO_ASSERT(p != MAP_FAILED);
  data_ = static_cast<std::byte*>(p);
  pm::trace_map(data_, bytes_, fd);
  ::close(fd);
}

CrashMapping::~CrashMapping() {
  pm::trace_unmap(data_);
  ::munmap(data_, bytes_);
}

CrashResult CrashRunner::run(const Setup& setup, const Workload& workload,
                             const Check& check) const {
  const OwnDirectory directory(options_.directory);
  pm::CrashExplorer explorer(options_, directory.path());
  if (options_.progress) explorer.expect_points_of(setup, workload);
  return explorer.run(setup, workload, check);
}

MutantReport CrashRunner::mutants(const Setup& setup, const Workload& workload,
                                  const Check& check) const {
  MutantReport report{run(setup, workload, check), {}};
  if (!report.sound.ok()) return report;
  CrashOptions options = options_;
  options.findings_max = 1;
  options.minimise = false;
  for (const FenceStats& fence : report.sound.fences) {
    if (fence.passed == 0) continue;
    Mutation m{Mutation::Kind::drop_fence, fence.first, fence.then, 0};
    const auto try_mutation = [&] {
      options.mutation = m;
      const CrashResult r = CrashRunner(options).run(setup, workload, check);
      report.mutants.push_back({m, !r.ok(), first_words(r)});
    };
    try_mutation();
    m.kind = Mutation::Kind::drop_flush;
    for (m.nth = 0; m.nth < fence.flushes_max; ++m.nth) try_mutation();
  }
  return report;
}

std::string Mutation::text() const {
  const std::string fence = "fence(\"" + first + "\", \"" + then + "\")";
  switch (kind) {
    case Kind::none:
      return "nothing";
    case Kind::drop_fence:
      return "without " + fence;
    case Kind::drop_flush:
      return "without flush " + std::to_string(nth) + " before " + fence;
  }
  return "unknown";
}

std::vector<std::string> MutantReport::survivors() const {
  std::vector<std::string> names;
  if (!sound.ok()) names.push_back("the sound code: " + first_words(sound));
  for (const MutantOutcome& m : mutants) {
    if (!m.found) names.push_back(m.mutation.text());
  }
  return names;
}

std::string MutantReport::text() const {
  std::string t = sound.text();
  for (const MutantOutcome& m : mutants) {
    t += m.mutation.text() + ": " + (m.found ? m.finding : "survives\n");
  }
  return t;
}

std::string CrashFinding::text() const {
  std::string t = where + ": " + recovery + ": " + what + "\n";
  for (const LostLine& l : lost) {
    char line[160];
    std::snprintf(line, sizeof line, "    lost %zu of the last %zu stores to the line at %s, %s\n",
                  l.lost, l.stores, hex_place(l.offset, l.file, files).c_str(),
                  l.flushed ? "flushed but not fenced" : "not flushed since");
    t += line;
    if (!l.first_lost.empty()) t += "      first lost: " + l.first_lost + "\n";
    if (!l.last_lost.empty()) t += "      last lost:  " + l.last_lost + "\n";
  }
  t += lost.empty() ? "    with every store so far durable\n" : "    everything else survived\n";
  for (const KeptLine& k : kept) {
    t += "    but needs the line at " + hex_place(k.offset, k.file, files) +
         " to have survived, unfenced too; last stored in " + k.last + "\n";
  }
  t += "    TENUTO_CRASH_REPLAY=" + std::to_string(point) + ":" + std::to_string(state) + "\n";
  if (!saved.empty()) t += "    tenuto crash replay " + saved + "\n";
  return t;
}

std::vector<std::string> CrashResult::unexplored() const {
  std::vector<std::string> names;
  for (const FenceStats& f : fences) {
    if (f.passed != 0 && f.explored == 0) {
      names.push_back(std::string(f.first) + " | " + f.then);
    }
  }
  return names;
}

std::size_t CrashResult::fences_passed() const {
  return static_cast<std::size_t>(std::count_if(fences.begin(), fences.end(),
                                                [](const FenceStats& f) { return f.passed != 0; }));
}

std::size_t CrashResult::fences_explored() const {
  return static_cast<std::size_t>(std::count_if(
      fences.begin(), fences.end(), [](const FenceStats& f) { return f.explored != 0; }));
}

bool CrashResult::explored(const std::string& first, const std::string& then) const {
  for (const FenceStats& f : fences) {
    if (first == f.first && then == f.then) return f.explored != 0;
  }
  return false;
}

std::string CrashResult::text() const {
  char line[256];
  std::snprintf(line, sizeof line,
                "seed %llu: %llu crash points, %llu states, %llu different, %llu inside recovery, "
                "%llu checks in %.2f s, %zu findings\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(points),
                static_cast<unsigned long long>(states), static_cast<unsigned long long>(unique),
                static_cast<unsigned long long>(recovery_states),
                static_cast<unsigned long long>(checks), seconds, findings.size());
  std::string t = line;
  for (const CrashFinding& f : findings) t += "  " + f.text();
  for (const ForgottenStore& f : forgotten) t += "  " + words(f);
  return t;
}

std::string CrashResult::cost_text() const {
  std::string t;
  for (const WastedFlush& w : wasted) {
    t += "  " + std::to_string(w.lines) + " lines flushed, " + std::to_string(w.clean) +
         " of them unchanged, " + std::to_string(w.reflush) +
         " again under the same fence: " + w.place + "\n";
  }
  for (const FenceStats& f : fences) {
    if (f.empty == 0) continue;
    t += "  fence(\"" + std::string(f.first) + "\", \"" + f.then + "\") had nothing to wait for " +
         std::to_string(f.empty) + " of " + std::to_string(f.passed) + " times\n";
  }
  return t;
}

}  // namespace TENUTO_NS

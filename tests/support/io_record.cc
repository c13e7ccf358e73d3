#include "support/io_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace tenuto::test {

namespace {
constexpr std::size_t kSectorBytes = 512;
constexpr std::size_t kPageBytes = 4096;
std::recursive_mutex record_mu;
IoRecord* current = nullptr;  // guarded by record_mu

// Applies a write to a file's bytes: the sectors that survive.
template <class Survives>
void apply(std::vector<char>& file, const IoRecord::Event& e, const Survives& survives) {
  if (file.size() < e.offset + e.bytes.size()) file.resize(e.offset + e.bytes.size());
  for (std::size_t at = 0; at < e.bytes.size();) {
    const std::uint64_t place = e.offset + at;
    const std::size_t n = std::min(kSectorBytes - static_cast<std::size_t>(place % kSectorBytes),
                                   e.bytes.size() - at);
    if (survives()) {
      std::copy_n(e.bytes.begin() + static_cast<std::ptrdiff_t>(at), n,
                  file.begin() + static_cast<std::ptrdiff_t>(place));
    }
    at += n;
  }
}
}  // namespace

// Uses system calls that are not recorded.
std::vector<char> read_whole(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st {};
  if (fd < 0 || ::fstat(fd, &st) != 0) return {};
  std::vector<char> bytes(static_cast<std::size_t>(st.st_size));
  std::size_t at = 0;
  for (ssize_t n = 1; n > 0 && at < bytes.size(); at += static_cast<std::size_t>(n)) {
    n = std::max<ssize_t>(
        0, ::pread(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at)));
  }
  ::close(fd);
  bytes.resize(at);
  return bytes;
}

// Leaves pages of zeros as holes.
void write_whole(const std::string& path, const std::vector<char>& bytes) {
  static const std::vector<char> zeros(kPageBytes);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool written = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes.size())) == 0;
  for (std::size_t at = 0; written && at < bytes.size(); at += kPageBytes) {
    const std::size_t n = std::min(kPageBytes, bytes.size() - at);
    if (std::memcmp(&bytes[at], zeros.data(), n) == 0) continue;
    written = ::syscall(SYS_pwrite64, fd, &bytes[at], n, at) == static_cast<ssize_t>(n);
  }
  if (fd >= 0) ::close(fd);
  if (!written) std::abort();
}

IoRecord::IoRecord(std::vector<std::string> paths, bool mapped)
    : paths_(std::move(paths)), mapped_(mapped) {
  for (const std::string& p : paths_) initial_.push_back(read_whole(p));
  if (mapped_) known_ = initial_[0];
  const std::lock_guard lock(record_mu);
  current = this;
}

IoRecord::~IoRecord() {
  const std::lock_guard lock(record_mu);
  current = nullptr;
}

void IoRecord::stop() {
  const std::lock_guard lock(record_mu);
  recording_ = false;
}

void IoRecord::forked() {
  current = nullptr;
  new (&record_mu) std::recursive_mutex;
}

void IoRecord::mark(std::uint64_t n) {
  const std::lock_guard lock(record_mu);
  if (recording_) events_.push_back({Event::Kind::mark, 0, 0, {}, false, n});
}

bool IoRecord::find(int fd, std::size_t* file) const {
  struct stat st {};
  if (!recording_ || ::fstat(fd, &st) != 0) return false;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    struct stat there {};
    if (::stat(paths_[i].c_str(), &there) != 0 || there.st_ino != st.st_ino) continue;
    *file = i;
    return true;
  }
  return false;
}

// Neighbouring sectors that changed are one event.
void IoRecord::note_stores() {
  if (!mapped_ || !recording_) return;
  const std::vector<char> now = read_whole(paths_[0]);
  known_.resize(now.size());
  const auto differs = [&](std::size_t at) {
    const std::size_t n = std::min(kSectorBytes, now.size() - at);
    return std::memcmp(&now[at], &known_[at], n) != 0;
  };
  for (std::size_t page = 0; page < now.size(); page += kPageBytes) {
    const std::size_t whole = std::min(kPageBytes, now.size() - page);
    if (std::memcmp(&now[page], &known_[page], whole) == 0) continue;
    for (std::size_t at = page; at < page + whole; at += kSectorBytes) {
      if (!differs(at)) continue;
      const std::size_t n = std::min(kSectorBytes, now.size() - at);
      events_.push_back({Event::Kind::write, 0, at, {&now[at], &now[at] + n}, false, 0, true});
    }
  }
  known_ = now;
}

void IoRecord::note_write(int fd, const void* from, std::size_t bytes, std::uint64_t offset) {
  std::size_t file = 0;
  if (!find(fd, &file)) return;
  note_stores();
  const auto* p = static_cast<const char*>(from);
  const bool durable = (::fcntl(fd, F_GETFL) & O_DSYNC) != 0;
  events_.push_back({Event::Kind::write, file, offset, {p, p + bytes}, durable, 0});
  if (mapped_ && file == 0) {
    known_.resize(std::max<std::size_t>(known_.size(), offset + bytes));
    std::copy_n(p, bytes, known_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  if (on_event_) on_event_(events_.size() - 1);
}

void IoRecord::note_hole(int fd, std::uint64_t offset, std::uint64_t bytes) {
  const std::vector<char> zeros(bytes);
  note_write(fd, zeros.data(), bytes, offset);
}

void IoRecord::note_growth(int fd, std::uint64_t end) {
  std::size_t file = 0;
  if (!find(fd, &file)) return;
  note_stores();
  events_.push_back({Event::Kind::grow, file, end, {}, false, 0});
  if (on_event_) on_event_(events_.size() - 1);
}

void IoRecord::note_sync(int fd) {
  std::size_t file = 0;
  if (!find(fd, &file)) return;
  events_.push_back({Event::Kind::sync, file, 0, {}, false, 0});
  if (on_event_) on_event_(events_.size() - 1);
}

std::vector<std::vector<char>> IoRecord::cut(std::size_t at, Loss loss,
                                             std::mt19937_64& rng) const {
  std::vector<std::vector<char>> files = initial_;
  std::vector<std::size_t> synced(files.size(), 0);  // writes before this event are durable
  for (std::size_t i = 0; i < at; ++i) {
    if (events_[i].kind == Event::Kind::sync) synced[events_[i].file] = i;
  }
  const auto maybe = [&] {
    return loss == Loss::none || (loss == Loss::random && (rng() & 1) != 0);
  };
  for (std::size_t i = 0; i <= at && i < events_.size(); ++i) {
    const Event& e = events_[i];
    if (e.kind != Event::Kind::write && e.kind != Event::Kind::grow) continue;
    const bool durable = i < at && (e.durable || i < synced[e.file]);
    if (e.kind == Event::Kind::grow) {
      std::vector<char>& file = files[e.file];
      if (file.size() < e.offset && (durable || maybe())) file.resize(e.offset);
      continue;
    }
    apply(files[e.file], e, [&] { return durable || maybe(); });
  }
  return files;
}

std::uint64_t IoRecord::marked(std::size_t at) const {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < at; ++i) {
    if (events_[i].kind == Event::Kind::mark) n = events_[i].mark;
  }
  return n;
}

}  // namespace tenuto::test

extern "C" {

// Recorded before the call: a cut during the call may lose any of it. A caller that needs it
// durable waits for the call to return.
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  const std::lock_guard lock(tenuto::test::record_mu);
  if (tenuto::test::current != nullptr) {
    tenuto::test::current->note_write(fd, from, bytes, static_cast<std::uint64_t>(at));
  }
  return ::syscall(SYS_pwrite64, fd, from, bytes, at);
}
ssize_t pwrite64(int fd, const void* from, size_t bytes, off_t at) {
  return pwrite(fd, from, bytes, at);
}
int fallocate(int fd, int mode, off_t at, off_t bytes) {
  const std::lock_guard lock(tenuto::test::record_mu);
  const auto from = static_cast<std::uint64_t>(at);
  const auto n = static_cast<std::uint64_t>(bytes);
  if (tenuto::test::current != nullptr && mode == 0) {
    tenuto::test::current->note_growth(fd, from + n);
  }
  if (tenuto::test::current != nullptr && (mode & FALLOC_FL_PUNCH_HOLE) != 0) {
    tenuto::test::current->note_hole(fd, from, n);
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, bytes));
}
int fallocate64(int fd, int mode, off_t at, off_t bytes) { return fallocate(fd, mode, at, bytes); }
int fdatasync(int fd) {
  const std::lock_guard lock(tenuto::test::record_mu);
  if (tenuto::test::current != nullptr) tenuto::test::current->note_stores();
  const auto rc = static_cast<int>(::syscall(SYS_fdatasync, fd));
  if (tenuto::test::current != nullptr) tenuto::test::current->note_sync(fd);
  return rc;
}
int fsync(int fd) {
  const std::lock_guard lock(tenuto::test::record_mu);
  if (tenuto::test::current != nullptr) tenuto::test::current->note_stores();
  const auto rc = static_cast<int>(::syscall(SYS_fsync, fd));
  if (tenuto::test::current != nullptr) tenuto::test::current->note_sync(fd);
  return rc;
}

}  // extern "C"

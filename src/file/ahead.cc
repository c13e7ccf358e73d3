// Growth ahead of need, in pools in memory: reserving space there costs a millisecond for each MB,
// so a thread does it before somebody waits for it (heap/large_pages.h).
//
// What is prepared is no part of the pool. It is space behind the last zone, as a crash in the
// middle of a growth leaves it. `grow` turns it into a zone. Whoever needs the space for something
// else takes it: a growth that wants more, the filling of holes on a full file system, trim, close.
//
// prepare() holds no lock during its system calls. So another thread may change the length of the
// file meanwhile. Then `changes_` differs, and what prepare() has reserved does not count.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "file/pool_file.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

namespace {
// A pool grows by an eighth; a small one by half, but by no more than kGrowBytesSmall.
constexpr std::uint64_t kGrowBytesMin = 4u << 20;
constexpr std::uint64_t kGrowBytesSmall = 16u << 20;
constexpr std::uint64_t kGrowBytesMax = 4ull << 30;
// Space is prepared only while the file system, and the memory it is made of, have so many times as
// much. Nobody else gets it back who has no memory.
constexpr std::uint64_t kTimesLeft = 4;

std::uint64_t bytes_left(int fd) {
  struct statvfs fs {};
  if (::fstatvfs(fd, &fs) != 0) return 0;
  return std::min(std::uint64_t{fs.f_bavail} * fs.f_frsize, memory_left());
}
}  // namespace

std::uint64_t PoolFile::growth_bytes() const {
  const std::uint64_t now = bytes();
  const std::uint64_t room = bytes_max_ - std::min(bytes_max_, now);
  const std::uint64_t want = std::max(now / 8, std::min(now / 2, kGrowBytesSmall));
  return std::min(round_up(std::clamp(want, kGrowBytesMin, kGrowBytesMax), kHugeBytes), room);
}

std::uint64_t PoolFile::prepared_bytes() const {
  // bytes_ first: it only grows, and ready_ was there before.
  const std::uint64_t now = bytes();
  const std::uint64_t ready = ready_.load(std::memory_order_relaxed);
  return ready - std::min(ready, now);
}

namespace {

// The pages of a file may be joined through any mapping.
void join_pages(int fd, std::uint64_t from) {
  constexpr std::uint64_t kBytes = 2 * kHugeBytes;
  void* const at =
      ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  auto* const aligned =
      reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(at), kHugeBytes));
  const void* const mapped = ::mmap(aligned, kHugeBytes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(from));
  if (mapped != MAP_FAILED) static_cast<void>(make_large(aligned, kHugeBytes));
  ::munmap(at, kBytes);
}

}  // namespace

Status PoolFile::prepare() {
  std::uint64_t from = 0;
  std::uint64_t changes = 0;
  {
    const std::unique_lock lock(grow_mu_, std::try_to_lock);
    if (!lock.owns_lock()) return Status::busy;
    TENUTO_TRY(writable());
    if (keeps_tail_) return Status::full;
    if (prepared_bytes() >= growth_bytes()) return Status::not_found;
    from = ready_.load(std::memory_order_relaxed);
    changes = changes_;
  }
  if (bytes_left(fd_) / kTimesLeft < growth_bytes()) return Status::full;
  const std::uint64_t to = from + kHugeBytes;
  Status s = reserve_space(fd_, from, to, path_, nullptr);
  if (s == Status::ok) join_pages(fd_, from);
  const std::lock_guard lock(grow_mu_);
  if (changes != changes_ && !TENUTO_PLANT("pm_prepared_space_counts_when_cut")) s = Status::busy;
  if (s != Status::ok) {
    cut_to(ready_.load(std::memory_order_relaxed));
    return s;
  }
  ready_.store(to, std::memory_order_relaxed);
  return Status::ok;
}

bool PoolFile::file_reaches(std::uint64_t bytes) const {
  struct stat st {};
  return ::fstat(fd_, &st) == 0 && static_cast<std::uint64_t>(st.st_size) >= bytes;
}

void PoolFile::drop_prepared() {
  const std::lock_guard lock(grow_mu_);
  if (may_make_large()) cut_to(bytes());
}

// REQUIRES: grow_mu_. It never makes a file longer that another program has cut short.
void PoolFile::cut_to(std::uint64_t bytes) {
  changes_ += 1;
  ready_.store(bytes, std::memory_order_relaxed);
  if (keeps_tail_) return;
  if (!file_reaches(bytes + 1)) return;
  static_cast<void>(::ftruncate(fd_, static_cast<off_t>(bytes)));
}

}  // namespace TENUTO_NS::pm

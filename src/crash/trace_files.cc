// The recorder's part for the watched files: which of them is mapped where.
#include "crash/trace_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "crash/trace_recorder.h"
#include "pm/assert.h"

namespace TENUTO_NS::pm {

constinit TraceRegions trace_regions;

std::size_t TraceRegions::file_at(const void* p, std::size_t n) const {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  std::size_t file = 0;
  for (; file < files_.size(); ++file) {
    const std::uintptr_t base = files_[file].begin();
    const std::uintptr_t bytes = files_[file].size();
    if (at - base < bytes || (bytes != 0 && base - at < n)) break;
  }
  return file;
}

void TraceRegions::set(std::size_t file, std::uintptr_t base, std::uintptr_t bytes) {
  Mapping& mine = files_[file];
  if (mine.begin() != base) mine.bytes.store(0, std::memory_order_relaxed);
  mine.base.store(base, std::memory_order_relaxed);
  mine.bytes.store(bytes, std::memory_order_relaxed);
  std::uintptr_t low = UINTPTR_MAX;
  std::uintptr_t high = 0;
  for (const Mapping& m : files_) {
    if (m.size() == 0) continue;
    low = std::min(low, m.begin());
    high = std::max(high, m.begin() + m.size());
  }
  low_.store(low, std::memory_order_relaxed);
  high_.store(high, std::memory_order_relaxed);
}

const std::byte* Recorder::mapped(std::size_t file) const {
  return reinterpret_cast<const std::byte*>(trace_regions.of(file).begin());
}
std::uint64_t Recorder::mapped_bytes(std::size_t file) const {
  return trace_regions.of(file).size();
}

void Recorder::map(void* base, std::uint64_t bytes, int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return;
  const TraceLock lock;
  const auto watched = std::find_if(files_.begin(), files_.end(), [&](const TraceFile& f) {
    return f.inode == st.st_ino && f.device == st.st_dev;
  });
  if (watched == files_.end()) return;
  const auto file = static_cast<std::size_t>(watched - files_.begin());
  TENUTO_ASSERT(mapped(file) == nullptr || mapped(file) == base);  // one mapping of it at a time
  trace_regions.set(file, reinterpret_cast<std::uintptr_t>(base), round_down(bytes, kLineBytes));
  watched->bytes = std::max(watched->bytes, static_cast<std::uint64_t>(st.st_size));
  if (observer_ != nullptr) {
    watched->durable = observer_->resized(file, static_cast<std::uint64_t>(st.st_size));
  }
}

void Recorder::unmap(void* base) {
  const TraceLock lock;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (base == nullptr || mapped(file) != base) continue;
    drain_all();
    for (Thread* t : threads_) {
      std::erase_if(t->pending,
                    [&](const Pending& s) { return trace_regions.file_at(s.p, s.n) == file; });
    }
    trace_regions.set(file, 0, 0);
  }
}

std::uintptr_t Recorder::address_of(std::uint64_t line) {
  return trace_regions.of(file_of(line)).begin() + offset_of(line);
}

// A store or flush lies in one file.
std::pair<std::uint64_t, std::uint64_t> Recorder::lines_of(const void* p, std::size_t n) const {
  const std::size_t file = trace_regions.file_at(p, n);
  if (file == kCrashFilesMax) return {0, 0};
  const std::uintptr_t base = trace_regions.of(file).begin();
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t end = std::min(at + n, base + mapped_bytes(file));
  const std::uintptr_t begin = std::max(at, base);
  if (begin >= end) return {0, 0};
  return {first_line(file) + (begin - base) / kLineBytes,
          first_line(file) + (end - base + kLineBytes - 1) / kLineBytes};
}

}  // namespace TENUTO_NS::pm

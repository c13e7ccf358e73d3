// Pages of 2 MiB for a pool in memory. The kernel makes them only where it is asked to
// (MADV_COLLAPSE): on most systems a file in tmpfs gets small pages otherwise, whatever
// MADV_HUGEPAGE says. base_ is aligned to kMapAlignBytes, so a huge frame of the pool is aligned in
// memory and in the file, as a large page must be. heap/large_pages.h decides what is asked for.
#include <sys/mman.h>
#include <unistd.h>

#include "file/pool_file.h"
#include "pm/os.h"

namespace TENUTO_NS::pm {

static_assert(kMapAlignBytes % kHugeBytes == 0);

#ifndef MADV_POPULATE_READ  // headers before Linux 5.14
#define MADV_POPULATE_READ 22
#endif

bool PoolFile::may_make_large() const {
  return large_pages_ && in_memory_ && shared_ && !read_only();
}

int PoolFile::make_large(PoolOffset o) const { return pm::make_large(base_ + o.value, kHugeBytes); }

bool PoolFile::maps_both(PoolOffset one, PoolOffset other) const {
  if (!in_memory_ || !shared_) return false;
  std::uint64_t word = 0;
  copy_mapped(one, &word, sizeof word);
  const std::uint64_t before = page_faults();
  copy_mapped(other, &word, sizeof word);
  return page_faults() == before;
}

// Large pages that another process made are not mapped here before the first access, or before this
// process asks for them (make_large). A pool that is opened to read does not ask. So there one
// frame of each huge frame is mapped now; not of holes, because that would fill them. In a pool
// that is written a hole could come in between.
MappedBytes PoolFile::mapped() const {
  const bool touches = opened_to_read_ && in_memory_ && shared_;
  for (std::uint64_t at = 0; touches && at < bytes(); at += kHugeBytes) {
    const auto o = static_cast<off_t>(at);
    if (::lseek(fd_, o, SEEK_DATA) != o) continue;
    static_cast<void>(::madvise(base_ + at, kFrameBytes, MADV_POPULATE_READ));
  }
  return mapped_bytes(base_, bytes_max_);  // the pool may grow meanwhile
}

}  // namespace TENUTO_NS::pm

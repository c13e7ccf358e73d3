// Many pages of the pool, asked for at once. A load from a page that is not in memory waits for the
// disk, and a thread that reads the records of a leaf would wait for each in turn. A disk reads many
// pages in little more time than one.
//
// Asking costs a system call a page, many times the price of a record that is in memory. So a thread
// asks only while it waits: a major fault since its last call, or within the kCallsAfterWait calls
// after one. (Pages that were asked for cause no major faults.)
#include <fcntl.h>

#include "file/pool_file.h"
#include "pm/os.h"

namespace TENUTO_NS::pm {

namespace {

constexpr unsigned kCallsAfterWait = 8;
constexpr std::uint64_t kPageBytes = 4096;

// What the calling thread has seen of disks, whatever the pool.
struct Waits {
  std::uint64_t faults = 0;
  unsigned calls = 0;  // that still ask
};
thread_local Waits waits;

}  // namespace

void PoolFile::ask_to_read(const PoolOffset* places, std::size_t count) const {
  if (const std::uint64_t faults = major_faults(); faults != waits.faults) {
    waits = {faults, kCallsAfterWait};
  }
  if (waits.calls == 0) return;
  waits.calls -= 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t page = places[i].value & ~(kPageBytes - 1);
    static_cast<void>(
        ::posix_fadvise(fd_, static_cast<off_t>(page), kPageBytes, POSIX_FADV_WILLNEED));
  }
}

}  // namespace TENUTO_NS::pm

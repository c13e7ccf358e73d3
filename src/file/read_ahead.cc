// Many pages of the pool, asked for at once. A load from a page that is not in memory waits for the
// disk, and a thread that reads the records of a leaf would wait for each in turn. A disk reads
// many pages in little more time than one.
//
// Asking costs a system call a page, many times the price of a record that is in memory. So a
// thread asks only while it reads from disks: in kCallsAfterRead calls after the kernel has counted
// such a read for it. What it asks for is counted, too, if it was not in memory. So a thread that
// asks goes on until the pages are there without being asked for.
#include <fcntl.h>

#include "file/pool_file.h"
#include "pm/os.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr unsigned kCallsAfterRead = 3;

// Of the calling thread, whatever the disk.
struct DiskReads {
  std::uint64_t before = 0;  // at its last call
  unsigned calls = 0;        // that still ask
};
thread_local DiskReads disk_reads_seen;

}  // namespace

void PoolFile::ask_to_read(const PoolOffset* places, std::size_t count) const {
  DiskReads& seen = disk_reads_seen;
  const std::uint64_t reads = disk_reads();
  if (reads != seen.before) seen = {reads, kCallsAfterRead};
  if (seen.calls == 0) return;
  seen.calls -= 1;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // of the pages to ask for next; places in order often are on neighbours
  const auto ask = [&] {
    if (begin == end) return;
    static_cast<void>(::posix_fadvise(fd_, static_cast<off_t>(begin),
                                      static_cast<off_t>(end - begin), POSIX_FADV_WILLNEED));
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t page = round_down(places[i].value, kPageBytes);
    if (page != end && page + kPageBytes != end) {
      ask();
      begin = page;
    }
    end = page + kPageBytes;
  }
  ask();
}

}  // namespace TENUTO_NS::pm

// Holes in a pool file: space that is given back to the file system while the pool goes on, and
// space that is asked for again before anything is stored there.
//
// Authoritative: nobody's word. What stands in a hole is zeros or what stood there before, on any
// medium and after any crash: a hole may be lost by a power cut like any unfenced store, and
// nothing may rely on it. So it is punched only where no state that a crash could leave says that
// somebody owns the place.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "file/pool_file.h"
#include "journal/journal.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

bool PoolFile::may_punch() const {
  // Under a journal what freed the place may still be undone by a cut that comes before it.
  return can_punch_.load(std::memory_order_relaxed) && !read_only() && journal_ == nullptr;
}

namespace {

int punch_file(int fd, std::uint64_t from, std::uint64_t bytes) {
  const auto punch = [&] {
    return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                       static_cast<off_t>(bytes));
  };
  return uninterrupted(punch) == 0 ? 0 : errno;
}

}  // namespace

// The traced build records stores, not system calls, so there a hole is stores to its first and its
// last line, which a crash may keep or lose: enough to show that somebody still owned the place.
Status PoolFile::punch(PoolOffset o, std::uint64_t bytes) {
  if (!may_punch()) return Status::invalid_argument;
  if constexpr (kTraced) {
    for (const PoolOffset line : {o, o + (bytes - kLineBytes)}) {
      store_ordered(*at<std::uint64_t>(line), 0);
      flush_bytes(at<std::byte>(line), kLineBytes);
    }
    return Status::ok;
  }
  const int error = punch_file(fd_, o.value, bytes);
  if (error == 0) return Status::ok;
  // Some file systems need space to note a hole; others have none at all.
  if (error == ENOSPC || error == EDQUOT) return Status::full;
  if (can_punch_.exchange(false)) {
    Report why;
    static_cast<void>(fail_errno(error, "free space stays in the pool file (fallocate)", {}, &why));
    log(why.what);
  }
  return Status::invalid_argument;
}

Status PoolFile::fill(PoolOffset o, std::uint64_t bytes) {
  if constexpr (kTraced) return Status::ok;
  Report why;
  Status s = reserve_space(fd_, o.value, o.value + bytes, path_, &why);
  // What the journal says of it must have somewhere to go after a power cut.
  if (s == Status::ok && journal_ != nullptr) s = journal_->sync_pool(&why);
  if (s != Status::ok) log("space that was given back is not to be had again: " + why.what);
  return s;
}

std::uint64_t PoolFile::bytes_on_disk() const {
  struct stat st {};
  return ::fstat(fd_, &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

// Also space that is there and was never written may be called a hole: to fill it costs a system
// call and nothing else.
void PoolFile::for_each_hole(const std::function<void(PoolOffset, std::uint64_t)>& f) const {
  const std::uint64_t end = bytes();
  // Also where none may be punched: those of an earlier open, under another medium.
  if (kTraced || read_only() || TENUTO_PLANT("journal_stores_into_holes")) return;
  if (bytes_on_disk() >= end) return;
  for (std::uint64_t at = 0; at < end;) {
    const off_t hole = ::lseek(fd_, static_cast<off_t>(at), SEEK_HOLE);
    // Who does not know where the holes are must take everything for one.
    const std::uint64_t begin = hole < 0 ? at : static_cast<std::uint64_t>(hole);
    if (begin >= end) return;
    const off_t data = hole < 0 ? -1 : ::lseek(fd_, hole, SEEK_DATA);
    const std::uint64_t stop = data < 0 ? end : static_cast<std::uint64_t>(data);
    f({begin}, (stop < end ? stop : end) - begin);
    at = stop;
  }
}

}  // namespace TENUTO_NS::pm

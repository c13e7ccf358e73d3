// Holes in a pool file: space that is given back to the file system while the pool is open, and is
// asked for again before anything is stored there.
//
// Under a journal that means: the free of the place is durable. And no line image of it is on its
// way to the pool file, where it would fill the hole again, or fail if the disk is full.
//
//   the caller holds the places, which are free | settle_frees: epoch durable, checkpoint | punched
//
// Between the first and the last step nobody stores there, so no later image can come. A gap
// between two images, which a checkpoint may write, too, is left out where it has zeros
// (journal/lines.cc). The private pages of the place are dropped: they are memory that only this
// process has.
//
// The contents of a hole are undefined. On any medium and after any crash they are zeros or what
// was there before. A power cut may undo a hole like any unfenced store, so nothing may rely on
// one. A hole is punched only where no state that a crash could leave has an owner for the place.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "file/pool_file.h"
#include "journal/journal.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

bool PoolFile::may_punch() const {
  return can_punch_.load(std::memory_order_relaxed) && !read_only();
}

Status PoolFile::settle_frees() {
  if (journal_ == nullptr || TENUTO_PLANT("journal_hole_before_its_free_is_durable"))
    return Status::ok;
  return journal_->settle();
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

// The traced build records stores, not system calls. There a hole is a store to its first line and
// one to its last, which a crash may keep or lose. That is enough to show that the place still had
// an owner.
Status PoolFile::punch(PoolOffset o, std::uint64_t bytes) {
  if (!may_punch()) return Status::invalid_argument;
  if constexpr (kTraced) {
    for (const PoolOffset line : {o, o + (bytes - kLineBytes)}) {
      store_ordered(*at<std::uint64_t>(line), 0);
      flush_bytes(at<std::byte>(line), kLineBytes);
    }
    return Status::ok;
  }
  int error = 0;
  const auto punch = [&] { error = punch_file(fd_, o.value, bytes); };
  if (journal_ == nullptr) {
    punch();
  } else {
    journal_->between_checkpoints(punch);
  }
  if (error == 0) {
    const bool kept = journal_ == nullptr || TENUTO_PLANT("journal_hole_keeps_its_memory");
    if (!kept) ::madvise(base_ + o.value, bytes, MADV_DONTNEED);
    return Status::ok;
  }
  // Some file systems need space to record a hole. Others cannot punch at all.
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
  if (s == Status::full && prepared_bytes() > 0 && !TENUTO_PLANT("pm_full_beside_prepared_space")) {
    drop_prepared();
    s = reserve_space(fd_, o.value, o.value + bytes, path_, &why);
  }
  // After a power cut the line images in the journal need this space.
  if (s == Status::ok && journal_ != nullptr) s = journal_->sync_pool(&why);
  const bool told = fill_told_.exchange(s) == s;
  if (s != Status::ok && !told) {
    log("space that was given back is not to be had again: " + why.what);
  }
  return refused_space(s);
}

std::uint64_t PoolFile::bytes_on_disk() const {
  struct stat st {};
  return ::fstat(fd_, &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

// May also report space that is reserved but was never written. Filling that costs only a system
// call.
void PoolFile::for_each_hole(const std::function<void(PoolOffset, std::uint64_t)>& f) const {
  const std::uint64_t end = bytes();
  // Also where no holes may be punched: an earlier open on another medium may have left some.
  if (kTraced || read_only() || TENUTO_PLANT("journal_stores_into_holes")) return;
  // A process that was killed may leave space behind the pool, which counts, too.
  struct stat st {};
  const bool sized = ::fstat(fd_, &st) == 0 && !TENUTO_PLANT("pm_tail_hides_holes");
  const std::uint64_t whole = sized ? std::max(end, static_cast<std::uint64_t>(st.st_size)) : end;
  if (bytes_on_disk() >= whole) return;
  for (std::uint64_t at = 0; at < end;) {
    const off_t hole = ::lseek(fd_, static_cast<off_t>(at), SEEK_HOLE);
    // If lseek cannot tell holes from data, everything from here on counts as one.
    const std::uint64_t begin = hole < 0 ? at : static_cast<std::uint64_t>(hole);
    if (begin >= end) return;
    const off_t data = hole < 0 ? -1 : ::lseek(fd_, hole, SEEK_DATA);
    const std::uint64_t stop = data < 0 ? end : static_cast<std::uint64_t>(data);
    f({begin}, (stop < end ? stop : end) - begin);
    at = stop;
  }
}

}  // namespace TENUTO_NS::pm

// A damaged pool file opened for reading what is left of it. Nothing in it is believed: the whole
// file is mapped, and the layers above look at each thing before they take it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "pm/os.h"
#include "pm/pool_file.h"

namespace tenuto::inline TENUTO_ABI::pm {

Result<std::unique_ptr<PoolFile>> PoolFile::open_damaged(std::string_view path,
                                                         std::vector<Report>& notes,
                                                         Report* report) {
  std::unique_ptr<PoolFile> f(new PoolFile);
  f->path_ = path;
  f->fd_ = ::open(f->path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (f->fd_ < 0) return fail_errno(errno, "cannot open the damaged pool", path, report);
  struct stat st {};
  if (::fstat(f->fd_, &st) != 0) {
    return fail_errno(errno, "cannot look at the pool file (fstat)", path, report);
  }
  const auto file_bytes = static_cast<std::uint64_t>(st.st_size);
  if (!S_ISREG(st.st_mode) || file_bytes < kHeadBytes) {
    return fail(Status::not_a_pool, report, "there is not even the head of a pool", f->path_,
                "a file of at least " + std::to_string(kHeadBytes) + " bytes",
                std::to_string(file_bytes));
  }
  TENUTO_TRY(lock_file(f->fd_, false, path, report));
  Report why;
  const Status super = f->read_superblock(std::max(file_bytes, kPoolBytesMin), &why);
  if (super == Status::wrong_version || super == Status::io) {
    if (report != nullptr) *report = why;
    return super;
  }
  if (super != Status::ok) {
    notes.push_back(why);
    f->was_clean_ = false;
  }
  if (super == Status::ok && f->super_.journal != 0) {
    notes.push_back(
        {"the pool was in use with a journal, which is not read here: what it holds and "
         "the file does not is missing; if the pool opens with its journal, do that first",
         f->where({0}, "superblock"),
         {},
         {}});
  }
  const std::uint64_t mapped = round_up(file_bytes, kFrameBytes);
  TENUTO_TRY(f->reserve_addresses(mapped, report));
  // Private: what recovery writes stays here, and costs memory only for the pages written.
  void* p = ::mmap(f->base_, mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, f->fd_, 0);
  if (p == MAP_FAILED) return fail_errno(errno, "cannot map the pool file", path, report);
  f->bytes_.store(mapped, std::memory_order_release);
  f->medium_ = Medium::cache;
  f->in_memory_ = true;
  f->can_punch_ = false;
  f->register_mapping({});
  return f;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

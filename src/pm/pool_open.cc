// How a pool file comes into being and how it is opened: everything read is validated here before
// the layers above may believe the head page.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "pm/crc32c.h"
#include "pm/journal_file.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/pool_file.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {

constexpr unsigned kStripesMax = 32;
constexpr std::uint64_t kSizeMaxLimit = 1ull << 46;  // what 48-bit offsets in logs leave room for

std::uint64_t random_id() {
  std::uint64_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != sizeof id) id = static_cast<std::uint64_t>(::time(nullptr));
  return id | 1;
}

Status check_options(const PoolOptions& o, std::string_view path, Report* report) {
  if (path.empty()) return fail(Status::invalid_argument, report, "the path is empty");
  if (o.size < kPoolBytesMin) {
    return fail(Status::invalid_argument, report, "the pool size is too small", std::string(path),
                "at least " + std::to_string(kPoolBytesMin), std::to_string(o.size));
  }
  if (o.size_max < o.size || o.size_max > kSizeMaxLimit) {
    return fail(Status::invalid_argument, report, "size_max is out of range", std::string(path),
                "size.." + std::to_string(kSizeMaxLimit), std::to_string(o.size_max));
  }
  if (o.stripes < 1 || o.stripes > kStripesMax) {
    return fail(Status::invalid_argument, report, "stripes is out of range", std::string(path),
                "1..32", std::to_string(o.stripes));
  }
  return Status::ok;
}

// Whether the 64 bytes are a sound superblock of this build; if not, why.
Status check_copy(const Superblock& s, std::string where, Report* report) {
  if (s.magic == __builtin_bswap64(kPoolMagic)) {
    return fail(Status::wrong_version, report, "the pool was made with another byte order",
                std::move(where));
  }
  if (s.magic != kPoolMagic) {
    return fail(Status::not_a_pool, report, "this is not a tenuto pool", std::move(where));
  }
  if (s.byte_order != kByteOrderMark) {
    return fail(Status::wrong_version, report, "the pool was made with another byte order",
                std::move(where));
  }
  if (s.version != kLayoutVersion) {
    return fail(Status::wrong_version, report,
                "the pool has another layout version; use the tenuto that made it",
                std::move(where), std::to_string(kLayoutVersion), std::to_string(s.version));
  }
  const bool sound = s.crc == crc32c(&s, offsetof(Superblock, crc));
  if (!sound && !TENUTO_PLANT("pm_superblock_checksum_not_compared")) {
    return fail(Status::corrupt, report, "the superblock's checksum does not match",
                std::move(where));
  }
  if (s.line_bytes != kLineBytes) {
    return fail(Status::wrong_version, report, "the pool was made for another cache line size",
                std::move(where), std::to_string(kLineBytes), std::to_string(s.line_bytes));
  }
  const bool state_known = s.state == static_cast<std::uint32_t>(PoolState::clean) ||
                           s.state == static_cast<std::uint32_t>(PoolState::running);
  if (!state_known || s.stripes < 1 || s.stripes > kStripesMax || s.pool_id == 0) {
    return fail(Status::corrupt, report, "the superblock has an impossible field",
                std::move(where));
  }
  return Status::ok;
}

}  // namespace

Result<std::unique_ptr<PoolFile>> PoolFile::create(std::string_view path,
                                                   const PoolOptions& options, Report* report) {
  TENUTO_TRY(check_options(options, path, report));
  std::unique_ptr<PoolFile> f(new PoolFile);
  f->path_ = path;
  f->log_ = options.log;
  if (::access(f->path_.c_str(), F_OK) == 0) {
    return fail(Status::exists, report, "there is a file already", f->path_);
  }
  const std::string directory = directory_of(path);
  f->fd_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
  if (f->fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    f->unnamed_ = f->path_ + ".creating-" + std::to_string(::getpid());
    f->fd_ = ::open(f->unnamed_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
  }
  if (f->fd_ < 0) return fail_errno(errno, "cannot create the pool file", f->path_, report);
  TENUTO_TRY(lock_file(f->fd_, true, path, report));
  const std::uint64_t bytes = round_up(options.size, kHugeBytes);
  TENUTO_TRY(reserve_space(f->fd_, 0, bytes, path, report));
  TENUTO_TRY(f->reserve_addresses(options.size_max, report));
  f->choose_medium(options);
  // It gets its journal once it is whole and has a name.
  f->wants_journal_ = f->medium_ == Medium::journal;
  if (f->wants_journal_) f->medium_ = Medium::cache;
  TENUTO_TRY(f->map(options, bytes, report));

  Superblock& s = f->super_;
  s.magic = kPoolMagic;
  s.version = kLayoutVersion;
  s.byte_order = kByteOrderMark;
  s.line_bytes = kLineBytes;
  s.pool_id = random_id();
  s.created_unix_s = static_cast<std::uint64_t>(::time(nullptr));
  s.stripes = options.stripes;
  s.variant = 1;
  auto& entry = *f->at<ZoneEntry>({kZoneTableOffset});
  entry = {0, bytes};
  flush(entry);
  publish(f->head().zone_count, 1);
  publish(f->head().lane_segments[0], kLanesOffset);
  if (f->wants_journal_) TENUTO_TRY(f->make_journal(options, report));
  return f;
}

Status PoolFile::link_into_place(Report* report) {
  // A power cut from here on may leave the name: what it names must be whole.
  if (!in_memory_ && !map_sync_ && !sync_whole(fd_)) {
    return fail_errno(errno, "cannot write the pool to its device (fsync)", path_, report);
  }
  int rc = 0;
  if (unnamed_.empty()) {
    const std::string proc = "/proc/self/fd/" + std::to_string(fd_);
    rc = ::linkat(AT_FDCWD, proc.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW);
  } else {
    rc = ::renameat2(AT_FDCWD, unnamed_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    if (rc == 0) unnamed_.clear();
  }
  if (rc != 0) return fail_errno(errno, "cannot give the pool file its name", path_, report);
  if (new_journal_ != nullptr) new_journal_->keep();
  new_journal_.reset();
  if (!in_memory_) {
    // The name must survive a power cut as surely as what is in the file.
    const int dir = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = dir >= 0 && sync_whole(dir);
    const int error = errno;
    if (dir >= 0) ::close(dir);
    if (!synced) return fail_errno(error, "cannot sync the pool's directory", path_, report);
  }
  return Status::ok;
}

Result<std::unique_ptr<PoolFile>> PoolFile::open(std::string_view path, const PoolOptions& options,
                                                 Report* report) {
  if (path.empty()) return fail(Status::invalid_argument, report, "the path is empty");
  std::unique_ptr<PoolFile> f(new PoolFile);
  f->path_ = path;
  f->log_ = options.log;
  f->opened_to_read_ = options.read_only;
  f->health_.read_only.store(options.read_only, std::memory_order_relaxed);
  // NONBLOCK: nobody waits for the other end of a pipe. It means nothing to a regular file.
  const int access = options.read_only ? O_RDONLY : O_RDWR;
  f->fd_ = ::open(f->path_.c_str(), access | O_NONBLOCK | O_CLOEXEC);
  if (f->fd_ < 0) {
    if (errno == EISDIR) {
      return fail(Status::not_a_pool, report, "this is a directory, not a pool", f->path_);
    }
    return fail_errno(errno, "cannot open the pool file", path, report);
  }
  struct stat st {};
  if (::fstat(f->fd_, &st) != 0)
    return fail_errno(errno, "cannot look at the pool file (fstat)", path, report);
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::not_a_pool, report, "this is not a regular file", f->path_);
  }
  TENUTO_TRY(lock_file(f->fd_, !options.read_only, path, report));
  auto file_bytes = static_cast<std::uint64_t>(st.st_size);
  TENUTO_TRY(f->read_superblock(file_bytes, report));
  f->choose_medium(options);
  if (options.read_only && !f->was_clean_) {
    return fail(Status::read_only, report,
                "the pool was not closed cleanly and needs recovery; open it once for writing",
                f->path_);
  }
  TENUTO_TRY(f->open_journal(options, report));
  // What the journal held may have made it longer.
  if (::fstat(f->fd_, &st) != 0)
    return fail_errno(errno, "cannot look at the pool file (fstat)", path, report);
  file_bytes = static_cast<std::uint64_t>(st.st_size);
  TENUTO_TRY(f->reserve_addresses(std::max(options.size_max, file_bytes), report));
  // Map what the zone table says, which a crash during growth leaves shorter than the file.
  ZoneEntry last{};
  HeadPage head{};
  TENUTO_TRY(f->read_at(kHeadPageOffset, &head, sizeof head, "head page", report));
  if (head.zone_count == 0 || head.zone_count > kZonesMax) {
    return fail(Status::corrupt, report, "the number of zones is impossible",
                f->where({kHeadPageOffset + offsetof(HeadPage, zone_count)}, "zone count"),
                "1.." + std::to_string(kZonesMax), std::to_string(head.zone_count));
  }
  const auto at = kZoneTableOffset + (head.zone_count - 1) * sizeof(ZoneEntry);
  TENUTO_TRY(f->read_at(at, &last, sizeof last, "zone table", report));
  const bool inside = last.offset <= file_bytes && last.bytes <= file_bytes - last.offset;
  const bool whole_file = TENUTO_PLANT("pm_file_length_believed");
  const std::uint64_t pool_bytes = whole_file ? file_bytes : last.offset + last.bytes;
  if (!inside || pool_bytes < kPoolBytesMin) {
    return fail(Status::corrupt, report, "the file is shorter than its zones say: truncated?",
                f->where({at}, "zone table"), std::to_string(pool_bytes) + " bytes",
                std::to_string(file_bytes));
  }
  TENUTO_TRY(f->map(options, pool_bytes, report));
  TENUTO_TRY(f->check_zones(pool_bytes, report));
  return f;
}

Status PoolFile::read_at(std::uint64_t offset, void* to, std::size_t bytes, std::string_view what,
                         Report* report) const {
  if (read_all(fd_, offset, to, bytes) == bytes) return Status::ok;
  const std::string place = where({offset}, what);
  if (errno != 0) return fail_errno(errno, "cannot read the pool file (pread)", place, report);
  return fail(Status::corrupt, report, "the file ends where the pool does not: truncated?", place);
}

Status PoolFile::read_superblock(std::uint64_t file_bytes, Report* report) {
  if (file_bytes < kPoolBytesMin) {
    return fail(Status::not_a_pool, report, "the file is too short to be a pool", path_,
                "at least " + std::to_string(kPoolBytesMin), std::to_string(file_bytes));
  }
  Superblock copy[2];
  Status status[2];
  Report why[2];
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::uint64_t at = i * kFrameBytes;
    TENUTO_TRY(read_at(at, &copy[i], sizeof copy[i], "superblock", report));
    const std::string place = where({at}, "superblock copy " + std::to_string(i));
    status[i] = check_copy(copy[i], place, &why[i]);
    if (status[i] == Status::ok && (copy[i].sequence & 1) != i) {
      status[i] =
          fail(Status::corrupt, &why[i], "a superblock copy stands in the other's place", place);
    }
  }
  if (status[0] == Status::ok && status[1] == Status::ok && copy[0].pool_id != copy[1].pool_id) {
    return fail(Status::corrupt, report, "the superblock copies are of two different pools", path_);
  }
  int best = -1;
  for (int i = 0; i < 2; ++i) {
    if (status[i] != Status::ok) continue;
    const bool newer = best < 0 || copy[i].sequence > copy[best].sequence;
    if (newer && !(best >= 0 && TENUTO_PLANT("pm_superblock_first_copy_believed"))) best = i;
  }
  if (best < 0) {
    // Neither copy is sound. The one that at least looks like a pool says more.
    const int told = status[0] == Status::not_a_pool ? 1 : 0;
    if (report != nullptr) *report = why[told];
    return status[told];
  }
  super_ = copy[best];
  // With one copy damaged the other may be the older one: what it says of a clean close may be
  // out of date, so recovery runs.
  const bool both = status[1 - best] == Status::ok ||
                    (super_.sequence == 1 && status[1 - best] == Status::not_a_pool);
  copy_damaged_ = !both;
  was_clean_ = (both || TENUTO_PLANT("pm_damaged_superblock_copy_ignored")) &&
               super_.state == static_cast<std::uint32_t>(PoolState::clean);
  return Status::ok;
}

Status PoolFile::check_zones(std::uint64_t pool_bytes, Report* report) {
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < zone_count(); ++i) {
    const ZoneEntry& z = zone(i);
    const bool aligned = z.bytes % kHugeBytes == 0 && z.bytes != 0;
    if (z.offset != next || !aligned || z.bytes > pool_bytes - z.offset) {
      return fail(Status::corrupt, report, "a zone does not follow the one before it",
                  where({kZoneTableOffset + i * sizeof(ZoneEntry)}, "zone table"),
                  "offset " + std::to_string(next), "offset " + std::to_string(z.offset));
    }
    next = z.offset + z.bytes;
  }
  return Status::ok;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

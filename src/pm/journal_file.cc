#include "pm/journal_file.h"

#include <fcntl.h>
#include <lz4.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "pm/assert.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {
constexpr std::size_t kCopyBytes = 1u << 20;
}

void DirectBuffer::Free::operator()(std::byte* p) const { std::free(p); }

void DirectBuffer::reserve(std::size_t bytes) {
  bytes = round_up(bytes, kJournalUnitBytes);
  if (bytes <= bytes_) return;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kJournalUnitBytes, bytes)));
  TENUTO_ASSERT(data_ != nullptr);
  bytes_ = bytes;
}

JournalFile::~JournalFile() {
  if (made_) ::unlink(path_.c_str());
  if (direct_fd_ >= 0) ::close(direct_fd_);
  if (fd_ >= 0) ::close(fd_);
}

Status JournalFile::failed(const char* what, Report* report) const {
  return fail_errno(errno, what, path_, report);
}

// --- opening -------------------------------------------------------------------------------------

Result<std::unique_ptr<JournalFile>> JournalFile::open(std::string_view path, std::uint64_t bytes,
                                                       const Expected& expected, Report* report) {
  std::unique_ptr<JournalFile> f(new JournalFile);
  f->path_ = path;
  f->fd_ = ::open(f->path_.c_str(), O_RDWR | O_CLOEXEC);
  if (f->fd_ < 0 && errno != ENOENT) return f->failed("cannot open the pool's journal", report);
  if (f->fd_ < 0 && expected.incarnation != 0) {
    return fail(Status::not_found, report,
                "the pool was not closed cleanly and needs its journal, which is not there; give "
                "its place as PoolOptions::journal.path",
                f->path_);
  }
  if (f->fd_ >= 0) {
    TENUTO_TRY(lock_file(f->fd_, true, path, report));
    // After a kill, blocks that can be read need not be durable; what is replayed has to be.
    if (!sync_data(f->fd_)) return f->failed("cannot sync the pool's journal", report);
    TENUTO_TRY(f->check_file(expected, report));
  }
  if (f->header_.magic == 0) TENUTO_TRY(f->make(bytes, expected.pool_id, report));
  TENUTO_TRY(f->open_direct(O_RDWR, report));
  return f;
}

Result<std::unique_ptr<JournalFile>> JournalFile::open_to_read(std::string_view path,
                                                               const Expected& expected,
                                                               Report* report) {
  std::unique_ptr<JournalFile> f(new JournalFile);
  f->path_ = path;
  f->fd_ = ::open(f->path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (f->fd_ < 0) return f->failed("cannot open the pool's journal", report);
  TENUTO_TRY(lock_file(f->fd_, false, path, report));
  TENUTO_TRY(f->check_file(expected, report));
  if (f->header_.magic == 0) {
    return fail(Status::not_found, report, "the journal was never written to", f->path_);
  }
  TENUTO_TRY(f->open_direct(O_RDONLY, report));
  return f;
}

Status JournalFile::open_direct(int access, Report* report) {
  const int dsync = TENUTO_PLANT("journal_blocks_not_synced") ? 0 : O_DSYNC;
  const int flags = access | O_CLOEXEC | dsync;
  direct_fd_ = ::open(path_.c_str(), flags | O_DIRECT);
  direct_ = direct_fd_ >= 0;
  if (!direct_) direct_fd_ = ::open(path_.c_str(), flags);
  if (direct_fd_ < 0) return failed("cannot open the pool's journal", report);
  return Status::ok;
}

Status JournalFile::make(std::uint64_t bytes, std::uint64_t pool_id, Report* report) {
  if (fd_ < 0) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) return failed("cannot create the pool's journal", report);
    made_ = true;
    TENUTO_TRY(lock_file(fd_, true, path_, report));
  }
  ring_bytes_ = round_up(std::max(bytes, kJournalBytesMin), kJournalUnitBytes);
  TENUTO_TRY(write_zeros(kJournalRingOffset + ring_bytes_, report));
  header_ = {};
  header_.magic = kJournalMagic;
  header_.version = kJournalVersion;
  header_.byte_order = kByteOrderMark;
  header_.pool_id = pool_id;
  header_.ring_bytes = ring_bytes_;
  return Status::ok;
}

// Zeros are written, not only reserved: overwriting written blocks is what makes a commit one
// device write without any of the file system's own.
Status JournalFile::write_zeros(std::uint64_t bytes, Report* report) {
  TENUTO_TRY(reserve_space(fd_, 0, bytes, path_, report));
  const std::vector<std::byte> zeros(kCopyBytes);
  for (std::uint64_t at = 0; at < bytes; at += kCopyBytes) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, bytes - at));
    if (!write_all(fd_, at, zeros.data(), n)) return failed("cannot write the journal", report);
  }
  if (!sync_whole(fd_)) return failed("cannot sync the journal", report);
  const int dir = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = dir >= 0 && sync_whole(dir);
  const int error = errno;
  if (dir >= 0) ::close(dir);
  if (synced) return Status::ok;
  return fail_errno(error, "cannot sync the journal's directory", path_, report);
}

Status JournalFile::check_file(const Expected& expected, Report* report) {
  struct stat st {};
  if (::fstat(fd_, &st) != 0) return failed("cannot look at the journal (fstat)", report);
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::invalid_argument, report, "this is not a regular file", path_);
  }
  return read_header(static_cast<std::uint64_t>(st.st_size), expected, report);
}

// A file whose header was never written (a crash while it was made) leaves header_ zero; it is made
// again, unless something is expected of it or something else stands there.
Status JournalFile::read_header(std::uint64_t file_bytes, const Expected& expected,
                                Report* report) {
  JournalHeader best{};
  bool blank = true;
  for (std::uint64_t i = 0; i < 2; ++i) {
    JournalHeader h{};
    if (read_all(fd_, i * kJournalUnitBytes, &h, sizeof h) != sizeof h) {
      if (errno != 0) return failed("cannot read the journal's header", report);
      continue;
    }
    const JournalHeader zero{};
    blank &= std::memcmp(&h, &zero, sizeof h) == 0;
    const bool sound = h.magic == kJournalMagic && h.crc == crc_of(h) && (h.sequence & 1) == i;
    if (sound && h.version != kJournalVersion) {
      return fail(Status::wrong_version, report, "the journal has another version", path_,
                  std::to_string(kJournalVersion), std::to_string(h.version));
    }
    if (sound && (best.magic == 0 || h.sequence > best.sequence)) best = h;
  }
  const bool expects = expected.to_be_read();
  if (best.magic == 0) {
    if (expected.incarnation != 0 || (expects && !blank)) {
      return fail(Status::corrupt, report, "the journal's header is damaged", path_);
    }
    if (blank || file_bytes == 0) return Status::ok;
    return fail(Status::invalid_argument, report,
                "a file that is no journal stands where the pool's journal goes", path_);
  }
  if (best.byte_order != kByteOrderMark) {
    return fail(Status::wrong_version, report, "the journal has another byte order", path_);
  }
  if (best.pool_id != expected.pool_id && best.incarnation == 0 && !expects) {
    return Status::ok;  // of a pool that never came into being
  }
  if (best.pool_id != expected.pool_id && !expected.any_pool()) {
    return fail(expects ? Status::corrupt : Status::invalid_argument, report,
                "this is another pool's journal", path_, std::to_string(expected.pool_id),
                std::to_string(best.pool_id));
  }
  // The header of a new life is written before the pool names that.
  const auto life = static_cast<std::uint32_t>(best.incarnation);
  if (expected.incarnation != 0 && !expected.unsure && life != expected.incarnation &&
      life != next_incarnation(expected.incarnation)) {
    return fail(Status::corrupt, report,
                "the journal is older or newer than the pool: one of the two was replaced", path_,
                std::to_string(expected.incarnation), std::to_string(life));
  }
  const bool whole = best.ring_bytes % kJournalUnitBytes == 0 && best.ring_bytes != 0 &&
                     best.ring_bytes <= file_bytes &&
                     file_bytes - best.ring_bytes >= kJournalRingOffset;
  if (!whole) {
    return fail(Status::corrupt, report, "the journal is shorter than it says: truncated?", path_,
                std::to_string(best.ring_bytes + kJournalRingOffset), std::to_string(file_bytes));
  }
  header_ = best;
  ring_bytes_ = best.ring_bytes;
  start_ = end_ = {best.start, best.start_block};
  return Status::ok;
}

Status JournalFile::replay(const ReplayOptions& options, const ApplyPictures& apply,
                           ReplayStats* stats, Report* report) {
  const Ring ring{direct_fd_, path_, ring_bytes_, header_.incarnation};
  return replay_ring(ring, end_, options, apply, stats, report);
}

// --- writing -------------------------------------------------------------------------------------

// The other copy stays as it is: a write that fails, or half of one, leaves it the valid one.
Status JournalFile::write_header(Position start, Report* report) {
  JournalHeader h = header_;
  h.sequence += 1;
  h.start = start.at;
  h.start_block = start.block;
  h.crc = crc_of(h);
  DirectBuffer page;
  page.reserve(kJournalUnitBytes);
  std::memset(page.data(), 0, kJournalUnitBytes);
  std::memcpy(page.data(), &h, sizeof h);
  const std::uint64_t at = (h.sequence & 1) * kJournalUnitBytes;
  if (!write_all(direct_fd_, at, page.data(), kJournalUnitBytes, kJournalUnitBytes)) {
    return failed("cannot write the journal's header", report);
  }
  header_ = h;
  start_ = start;
  device_flushes_ += 1;
  return Status::ok;
}

// A life that no superblock names has no blocks: it is begun once more, so that opens that fail one
// after the other never leave the journal further ahead than one.
Status JournalFile::begin(const Expected& expected, Report* report) {
  const auto life = static_cast<std::uint32_t>(header_.incarnation);
  const bool begun = expected.incarnation != 0 && !expected.unsure && life != expected.incarnation;
  const bool again = begun && !TENUTO_PLANT("journal_runs_ahead_of_its_pool");
  if (!again && !TENUTO_PLANT("journal_incarnation_kept")) {
    header_.incarnation += 1;
    if (static_cast<std::uint32_t>(header_.incarnation) == 0) header_.incarnation += 1;
  }
  end_ = {0, 1};
  return write_header(end_, report);
}

Status JournalFile::append(std::span<const LinePicture> pictures, Report* report) {
  pack_lines(pictures, raw_);
  TENUTO_ASSERT(raw_.size() < kJournalBlockBytesMax);
  const auto raw_bytes = static_cast<int>(raw_.size());
  const int bound = ::LZ4_compressBound(raw_bytes);
  block_.reserve(sizeof(JournalBlock) + static_cast<std::size_t>(bound) + kJournalUnitBytes);
  std::byte* payload = block_.data() + sizeof(JournalBlock);
  int packed = ::LZ4_compress_default(reinterpret_cast<const char*>(raw_.data()),
                                      reinterpret_cast<char*>(payload), raw_bytes, bound);
  if (packed <= 0 || packed >= raw_bytes) {
    std::memcpy(payload, raw_.data(), raw_.size());
    packed = raw_bytes;
  }
  JournalBlock b{};
  b.packed_bytes = static_cast<std::uint32_t>(packed);
  const auto content = sizeof b + static_cast<std::size_t>(packed);
  const std::uint64_t whole = ring_bytes_of(b);
  const std::uint64_t rest = ring_bytes_ - end_.at % ring_bytes_;
  const std::uint64_t skipped = whole > rest ? rest : 0;
  if (used_bytes() + skipped + whole > ring_bytes_) return Status::full;

  b.magic = kJournalBlockMagic;
  b.incarnation = header_.incarnation;
  if (skipped != 0) {
    JournalBlock skip{};
    skip.magic = b.magic;
    skip.incarnation = b.incarnation;
    skip.number = end_.block;
    skip.position = end_.at;
    skip.kind = static_cast<std::uint32_t>(JournalBlockKind::skip);
    skip.crc = crc_of(skip);
    DirectBuffer unit;
    unit.reserve(kJournalUnitBytes);
    std::memset(unit.data(), 0, kJournalUnitBytes);
    std::memcpy(unit.data(), &skip, sizeof skip);
    TENUTO_TRY(write_unit_run(end_.at, unit.data(), kJournalUnitBytes, report));
    end_ = {end_.at + skipped, end_.block + 1};
  }
  b.number = end_.block;
  b.position = end_.at;
  b.kind = static_cast<std::uint32_t>(JournalBlockKind::lines);
  b.lines = static_cast<std::uint32_t>(pictures.size());
  b.raw_bytes = static_cast<std::uint32_t>(raw_bytes);
  b.payload_crc = crc32c(payload, static_cast<std::size_t>(packed));
  b.crc = crc_of(b);
  std::memcpy(block_.data(), &b, sizeof b);
  std::memset(block_.data() + content, 0, whole - content);
  TENUTO_TRY(write_unit_run(end_.at, block_.data(), whole, report));
  end_ = {end_.at + whole, end_.block + 1};
  payload_bytes_ += content;
  return Status::ok;
}

// Whatever the reason, also a file system without space: io. The ring was written when it was made,
// so this is a device or a file system that broke its word, and `full` means the ring here.
Status JournalFile::write_unit_run(std::uint64_t position, const std::byte* data, std::size_t bytes,
                                   Report* report) {
  const std::uint64_t at = kJournalRingOffset + position % ring_bytes_;
  if (!write_all(direct_fd_, at, data, bytes, kJournalUnitBytes)) {
    const std::string where = path_ + ", offset " + std::to_string(at);
    static_cast<void>(fail_errno(errno, "cannot write to the journal", where, report));
    return Status::io;
  }
  written_bytes_ += bytes;
  device_flushes_ += 1;
  return Status::ok;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

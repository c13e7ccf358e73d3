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
#include "pm/crc32c.h"
#include "pm/journal_lines.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {

constexpr std::size_t kCopyBytes = 1u << 20;
constexpr std::uint64_t kBlockBytesMax = 1u << 30;

bool write_all(int fd, std::uint64_t offset, const std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, data, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = EIO;
      return false;
    }
    data += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// What was read is short only where the file ends.
std::size_t read_all(int fd, std::uint64_t offset, void* to, std::size_t bytes) {
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t n = ::pread(fd, static_cast<std::byte*>(to) + got, bytes - got,
                              static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  return got;
}

std::uint32_t crc_of(const JournalHeader& h) { return crc32c(&h, offsetof(JournalHeader, crc)); }
std::uint32_t crc_of(const JournalBlock& b) { return crc32c(&b, offsetof(JournalBlock, crc)); }

}  // namespace

void DirectBuffer::Free::operator()(std::byte* p) const { std::free(p); }

void DirectBuffer::reserve(std::size_t bytes) {
  bytes = round_up(bytes, kJournalUnitBytes);
  if (bytes <= bytes_) return;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kJournalUnitBytes, bytes)));
  TENUTO_ASSERT(data_ != nullptr);
  bytes_ = bytes;
}

JournalFile::~JournalFile() {
  if (write_fd_ >= 0) ::close(write_fd_);
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
  f->pool_names_ = expected.incarnation;
  f->fd_ = ::open(f->path_.c_str(), O_RDWR | O_CLOEXEC);
  if (f->fd_ < 0 && errno != ENOENT) return f->failed("cannot open the pool's journal", report);
  if (f->fd_ < 0 && expected.incarnation != 0) {
    return fail(Status::not_found, report,
                "the pool was not closed cleanly and needs its journal, which is not there; give "
                "its place as PoolOptions::journal.path",
                f->path_);
  }
  if (f->fd_ < 0) {
    TENUTO_TRY(f->make(path, bytes, expected.pool_id, report));
  } else {
    TENUTO_TRY(lock_file(f->fd_, true, path, report));
    struct stat st {};
    if (::fstat(f->fd_, &st) != 0) return f->failed("cannot look at the journal (fstat)", report);
    if (!S_ISREG(st.st_mode)) {
      return fail(Status::invalid_argument, report, "this is not a regular file", f->path_);
    }
    TENUTO_TRY(f->read_header(static_cast<std::uint64_t>(st.st_size), expected, report));
    if (f->header_.magic == 0) TENUTO_TRY(f->make(path, bytes, expected.pool_id, report));
  }
  const int dsync = TENUTO_PLANT_DISK("journal_blocks_not_synced") ? 0 : O_DSYNC;
  f->write_fd_ = ::open(f->path_.c_str(), O_RDWR | O_CLOEXEC | dsync | O_DIRECT);
  f->direct_ = f->write_fd_ >= 0;
  if (!f->direct_) f->write_fd_ = ::open(f->path_.c_str(), O_RDWR | O_CLOEXEC | dsync);
  if (f->write_fd_ < 0) return f->failed("cannot open the pool's journal for writing", report);
  return f;
}

// Zeros are written, not only reserved: overwriting written blocks is what makes a commit one
// device write without any of the file system's own.
Status JournalFile::make(std::string_view path, std::uint64_t bytes, std::uint64_t pool_id,
                         Report* report) {
  if (fd_ < 0) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) return failed("cannot create the pool's journal", report);
    TENUTO_TRY(lock_file(fd_, true, path, report));
  }
  ring_bytes_ = round_up(std::max(bytes, kJournalBytesMin), kJournalUnitBytes);
  const std::uint64_t whole = kJournalRingOffset + ring_bytes_;
  TENUTO_TRY(reserve_space(fd_, 0, whole, path, report));
  const std::vector<std::byte> zeros(kCopyBytes);
  for (std::uint64_t at = 0; at < whole; at += kCopyBytes) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, whole - at));
    if (!write_all(fd_, at, zeros.data(), n)) return failed("cannot write the journal", report);
  }
  if (::fsync(fd_) != 0) return failed("cannot sync the journal", report);
  const int dir = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = dir >= 0 && ::fsync(dir) == 0;
  if (dir >= 0) ::close(dir);
  if (!synced) return failed("cannot sync the journal's directory", report);
  header_ = {};
  header_.magic = kJournalMagic;
  header_.version = kJournalVersion;
  header_.byte_order = kByteOrderMark;
  header_.pool_id = pool_id;
  header_.ring_bytes = ring_bytes_;
  return Status::ok;
}

// A file whose header was never written (a crash while it was made) leaves header_ zero; it is made
// again, unless something is expected of it or something else stands there.
Status JournalFile::read_header(std::uint64_t file_bytes, const Expected& expected,
                                Report* report) {
  JournalHeader best{};
  bool blank = true;
  for (std::uint64_t i = 0; i < 2; ++i) {
    JournalHeader h{};
    if (read_all(fd_, i * kJournalUnitBytes, &h, sizeof h) != sizeof h) continue;
    const JournalHeader zero{};
    blank &= std::memcmp(&h, &zero, sizeof h) == 0;
    const bool sound = h.magic == kJournalMagic && h.crc == crc_of(h) && (h.sequence & 1) == i;
    if (sound && h.version != kJournalVersion) {
      return fail(Status::wrong_version, report, "the journal has another version", path_,
                  std::to_string(kJournalVersion), std::to_string(h.version));
    }
    if (sound && (best.magic == 0 || h.sequence > best.sequence)) best = h;
  }
  if (best.magic == 0) {
    if (expected.incarnation != 0) {
      return fail(Status::corrupt, report, "the journal's header is damaged", path_);
    }
    if (blank || file_bytes == 0) return Status::ok;
    return fail(Status::invalid_argument, report,
                "a file that is no journal stands where the pool's journal goes", path_);
  }
  if (best.byte_order != kByteOrderMark) {
    return fail(Status::wrong_version, report, "the journal has another byte order", path_);
  }
  if (best.pool_id != expected.pool_id) {
    return fail(expected.incarnation != 0 ? Status::corrupt : Status::invalid_argument, report,
                "this is another pool's journal", path_, std::to_string(expected.pool_id),
                std::to_string(best.pool_id));
  }
  // The header of a new life is written before the pool names that.
  const auto life = static_cast<std::uint32_t>(best.incarnation);
  if (expected.incarnation != 0 && life != expected.incarnation &&
      best.pool_names != expected.incarnation) {
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

Status JournalFile::write_header(Report* report) {
  header_.sequence += 1;
  header_.start = start_.at;
  header_.start_block = start_.block;
  header_.crc = crc_of(header_);
  DirectBuffer page;
  page.reserve(kJournalUnitBytes);
  std::memset(page.data(), 0, kJournalUnitBytes);
  std::memcpy(page.data(), &header_, sizeof header_);
  const std::uint64_t at = (header_.sequence & 1) * kJournalUnitBytes;
  if (!write_all(write_fd_, at, page.data(), kJournalUnitBytes)) {
    return failed("cannot write the journal's header", report);
  }
  device_flushes_ += 1;
  return Status::ok;
}

Status JournalFile::begin(Report* report) {
  if (!TENUTO_PLANT_DISK("journal_incarnation_kept")) header_.incarnation += 1;
  if (static_cast<std::uint32_t>(header_.incarnation) == 0) header_.incarnation += 1;
  header_.pool_names = pool_names_;
  start_ = end_ = {0, 1};
  return write_header(report);
}

Status JournalFile::set_start(Position start) {
  start_ = start;
  return write_header(nullptr);
}

// --- blocks --------------------------------------------------------------------------------------

Status JournalFile::append(const LineMap& lines) {
  pack_lines(lines, raw_);
  TENUTO_ASSERT(raw_.size() < kBlockBytesMax);
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
  const auto content = sizeof(JournalBlock) + static_cast<std::size_t>(packed);
  const std::uint64_t whole = round_up(content, kJournalUnitBytes);
  const std::uint64_t rest = ring_bytes_ - end_.at % ring_bytes_;
  const std::uint64_t skipped = whole > rest ? rest : 0;
  if (used_bytes() + skipped + whole > ring_bytes_) return Status::full;

  JournalBlock b{};
  b.magic = kJournalBlockMagic;
  b.incarnation = header_.incarnation;
  if (skipped != 0) {
    DirectBuffer unit;
    unit.reserve(kJournalUnitBytes);
    std::memset(unit.data(), 0, kJournalUnitBytes);
    b.number = end_.block;
    b.position = end_.at;
    b.kind = static_cast<std::uint32_t>(JournalBlockKind::skip);
    b.crc = crc_of(b);
    std::memcpy(unit.data(), &b, sizeof b);
    TENUTO_TRY(write_unit_run(end_.at, unit.data(), kJournalUnitBytes));
    end_ = {end_.at + skipped, end_.block + 1};
  }
  b.number = end_.block;
  b.position = end_.at;
  b.kind = static_cast<std::uint32_t>(JournalBlockKind::lines);
  b.lines = static_cast<std::uint32_t>(lines.size());
  b.raw_bytes = static_cast<std::uint32_t>(raw_bytes);
  b.packed_bytes = static_cast<std::uint32_t>(packed);
  b.payload_crc = crc32c(payload, static_cast<std::size_t>(packed));
  b.crc = crc_of(b);
  std::memcpy(block_.data(), &b, sizeof b);
  std::memset(block_.data() + content, 0, whole - content);
  TENUTO_TRY(write_unit_run(end_.at, block_.data(), whole));
  end_ = {end_.at + whole, end_.block + 1};
  payload_bytes_ += content;
  return Status::ok;
}

Status JournalFile::write_unit_run(std::uint64_t position, const std::byte* data,
                                   std::size_t bytes) {
  if (!write_all(write_fd_, kJournalRingOffset + position % ring_bytes_, data, bytes)) {
    return status_of_errno(errno);
  }
  written_bytes_ += bytes;
  device_flushes_ += 1;
  return Status::ok;
}

bool JournalFile::read_block(Position at, JournalBlock* block, LineMap* lines) {
  const std::uint64_t offset = at.at % ring_bytes_;
  block_.reserve(kJournalUnitBytes);
  const std::uint64_t file_offset = kJournalRingOffset + offset;
  if (read_all(write_fd_, file_offset, block_.data(), kJournalUnitBytes) != kJournalUnitBytes) {
    return false;
  }
  std::memcpy(block, block_.data(), sizeof *block);
  const bool ours = block->magic == kJournalBlockMagic && block->crc == crc_of(*block) &&
                    block->incarnation == header_.incarnation && block->number == at.block &&
                    block->position == at.at;
  if (!ours) return false;
  if (block->kind == static_cast<std::uint32_t>(JournalBlockKind::skip)) return true;
  const std::uint64_t content = sizeof *block + std::uint64_t{block->packed_bytes};
  const bool fits = block->kind == static_cast<std::uint32_t>(JournalBlockKind::lines) &&
                    content <= ring_bytes_ - offset && block->packed_bytes <= block->raw_bytes &&
                    block->raw_bytes < kBlockBytesMax;
  if (!fits) return false;
  const std::uint64_t whole = round_up(content, kJournalUnitBytes);
  block_.reserve(whole);
  if (read_all(write_fd_, file_offset, block_.data(), whole) != whole) return false;
  const std::byte* payload = block_.data() + sizeof *block;
  const bool believed = TENUTO_PLANT_DISK("journal_torn_block_believed");
  if (crc32c(payload, block->packed_bytes) != block->payload_crc && !believed) return false;
  const std::byte* p = payload;
  if (block->packed_bytes != block->raw_bytes) {
    raw_.resize(block->raw_bytes);
    const int n = ::LZ4_decompress_safe(
        reinterpret_cast<const char*>(payload), reinterpret_cast<char*>(raw_.data()),
        static_cast<int>(block->packed_bytes), static_cast<int>(block->raw_bytes));
    if (n != static_cast<int>(block->raw_bytes)) return false;
    p = raw_.data();
  }
  return unpack_lines(p, block->raw_bytes, block->lines, *lines);
}

Status JournalFile::replay(const Apply& apply, Report* report) {
  LineMap lines;
  for (;;) {
    JournalBlock block{};
    if (!read_block(end_, &block, &lines)) break;
    if (block.kind == static_cast<std::uint32_t>(JournalBlockKind::skip)) {
      end_ = {end_.at + ring_bytes_ - end_.at % ring_bytes_, end_.block + 1};
    } else {
      TENUTO_TRY(apply(lines));
      end_.at += round_up(sizeof block + std::uint64_t{block.packed_bytes}, kJournalUnitBytes);
      end_.block += 1;
    }
    if (end_.at - start_.at > ring_bytes_) break;
  }
  if (TENUTO_PLANT_DISK("journal_damage_taken_for_its_end")) return Status::ok;
  return find_block_behind(end_, report);
}

// Blocks are written strictly one after the other: a whole one behind the end says that the end is
// a damaged block, not a torn last one.
Status JournalFile::find_block_behind(Position end, Report* report) {
  DirectBuffer piece;
  piece.reserve(kCopyBytes);
  for (std::uint64_t at = 0; at < ring_bytes_; at += kCopyBytes) {
    const auto want =
        static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, ring_bytes_ - at));
    if (read_all(write_fd_, kJournalRingOffset + at, piece.data(), want) != want) {
      return failed("cannot read the journal", report);
    }
    for (std::size_t unit = 0; unit < want; unit += kJournalUnitBytes) {
      JournalBlock b{};
      std::memcpy(&b, piece.data() + unit, sizeof b);
      const bool behind = b.magic == kJournalBlockMagic && b.crc == crc_of(b) &&
                          b.incarnation == header_.incarnation && b.number > end.block &&
                          b.position % ring_bytes_ == at + unit;
      if (!behind) continue;
      return fail(Status::corrupt, report,
                  "a block of the journal is damaged, later ones are whole",
                  path_ + ", offset " + std::to_string(kJournalRingOffset + end.at % ring_bytes_) +
                      " (block " + std::to_string(end.block) + ")");
    }
  }
  return Status::ok;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

#include "journal/file.h"

#include <fcntl.h>
#include <lz4.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

void JournalFile::remove() {
  if (fd_ >= 0) remove_name(path_, fd_);
}

Status JournalFile::failed(const char* what, Report* report) const {
  return fail_errno(errno, what, path_, report);
}

// --- opening -------------------------------------------------------------------------------------

namespace {

constexpr int kMakersMax = 3;  // that another maker of a journal comes before

Status no_journal(const JournalExpected& expected, const std::string& path, Report* report) {
  const bool elsewhere = !expected.place.empty() && expected.place != path;
  return fail(Status::not_found, report,
              "the pool was not closed cleanly and needs its journal, which is not there; " +
                  (elsewhere ? "at the last open it was " + expected.place +
                                   ": open the pool by the path it had then, or give that place"
                             : std::string("give its place")) +
                  " as PoolOptions::journal.path",
              path, "journal " + id_text(expected.journal_id), "nothing");
}

}  // namespace

Result<std::unique_ptr<JournalFile>> JournalFile::open(std::string_view path, std::uint64_t bytes,
                                                       const Expected& expected, Report* report) {
  for (int left = kMakersMax;; --left) {
    auto f = open_or_make(path, bytes, expected, report);
    // Another maker's journal has got its name meanwhile: as if it had been there before.
    const bool again = !f && f.error() == Status::exists && left > 0;
    if (!again || TENUTO_PLANT("journal_of_another_maker_not_looked_at")) return f;
  }
}

Result<std::unique_ptr<JournalFile>> JournalFile::open_or_make(std::string_view path,
                                                               std::uint64_t bytes,
                                                               const Expected& expected,
                                                               Report* report) {
  std::unique_ptr<JournalFile> f(new JournalFile);
  f->path_ = path;
  change([&] { f->fd_ = open_file(f->path_, O_RDWR | O_NOFOLLOW | O_NONBLOCK); });
  if (f->fd_ < 0 && errno == ELOOP) {
    return fail(Status::invalid_argument, report,
                "a symbolic link stands where the pool's journal goes, and what it leads to is not "
                "touched; give the journal's place as PoolOptions::journal.path",
                f->path_);
  }
  if (f->fd_ < 0 && errno != ENOENT) return f->failed("cannot open the pool's journal", report);
  if (f->fd_ < 0) {
    if (expected.in_use) return no_journal(expected, f->path_, report);
    TENUTO_TRY(f->make(bytes, expected, report));
    return f;
  }
  const Status s = f->check_file(expected, report);
  if (s == Status::invalid_argument && TENUTO_PLANT("journal_place_overwritten")) {
    ::unlink(f->path_.c_str());
    ::close(f->fd_);
    TENUTO_TRY(f->make(bytes, expected, report));
    return f;
  }
  TENUTO_TRY(s);
  TENUTO_TRY(f->open_direct(O_RDWR, report));
  return f;
}

Result<std::unique_ptr<JournalFile>> JournalFile::open_to_read(std::string_view path,
                                                               const Expected& expected,
                                                               Report* report) {
  std::unique_ptr<JournalFile> f(new JournalFile);
  f->path_ = path;
  change([&] { f->fd_ = open_file(f->path_, O_RDONLY | O_NONBLOCK); });
  if (f->fd_ < 0) return f->failed("cannot open the pool's journal", report);
  TENUTO_TRY(f->check_file(expected, report));
  TENUTO_TRY(f->open_direct(O_RDONLY, report));
  return f;
}

Status JournalFile::open_direct(int access, Report* report) {
  const int dsync = TENUTO_PLANT("journal_blocks_not_synced") ? 0 : O_DSYNC;
  const std::string& name = hidden_.empty() ? path_ : hidden_;
  change([&] {
    direct_fd_ = reopen_file(fd_, name, access | dsync | O_DIRECT);
    direct_ = direct_fd_ >= 0;
    if (!direct_) direct_fd_ = reopen_file(fd_, name, access | dsync);
  });
  if (direct_fd_ < 0) return failed("cannot open the pool's journal", report);
  return Status::ok;
}

// Uses nothing of the file before it is known that it is a journal, whose it is, and that its
// fields are within bounds.
Status JournalFile::check_file(const Expected& expected, Report* report) {
  struct stat st {};
  if (::fstat(fd_, &st) != 0) return failed("cannot look at the journal (fstat)", report);
  if (!S_ISREG(st.st_mode)) {
    return fail(Status::invalid_argument, report,
                "what stands where the pool's journal goes is no regular file, and is left alone",
                path_);
  }
  const bool may_write = (::fcntl(fd_, F_GETFL) & O_ACCMODE) == O_RDWR;
  TENUTO_TRY(lock_file(fd_, may_write, path_, report));
  // After a kill, blocks that can be read may not be durable. What is replayed must be.
  if (may_write && !sync_data(fd_)) return failed("cannot sync the pool's journal", report);
  JournalHeader h{};
  if (const Status s = find_header(h, report); s != Status::ok) {
    // If the pool needs a journal here, this is damage. Otherwise it is a file of others.
    if (s != Status::invalid_argument || !expected.to_be_read()) return s;
    return fail(Status::corrupt, report,
                "the journal's header is damaged, or another file was put in the journal's place",
                path_, "journal " + id_text(expected.journal_id));
  }
  if (h.version == kJournalVersionOld) {
    JournalHeaderOld old{};
    std::memcpy(&old, &h, sizeof old);
    TENUTO_TRY(take_old_header(old, expected, report));
    h = header_;
  } else {
    auto use = match_journal(h, expected, path_, report);
    if (!use) return use.error();
    use_ = *use;
  }
  TENUTO_TRY(check_places(h, static_cast<std::uint64_t>(st.st_size), report));
  header_ = h;
  temporary_ = h.temporary != 0;
  ring_bytes_ = h.ring_bytes;
  start_ = end_ = {h.start, h.start_block};
  return Status::ok;
}

// The newest sound header, of either version. invalid_argument: this is no journal.
Status JournalFile::find_header(JournalHeader& best, Report* report) {
  for (std::uint64_t i = 0; i < 2; ++i) {
    JournalHeader h{};
    if (read_all(fd_, i * kJournalUnitBytes, &h, sizeof h) != sizeof h) {
      if (errno != 0) return failed("cannot read the journal's header", report);
      continue;
    }
    if (h.magic != kJournalMagic || (h.sequence & 1) != i) continue;
    JournalHeaderOld old{};
    std::memcpy(&old, &h, sizeof old);
    const bool is_old = h.version == kJournalVersionOld;
    const bool sound =
        is_old ? old.crc == crc32c(&old, offsetof(JournalHeaderOld, crc)) : h.crc == crc_of(h);
    if (!sound) continue;
    if (h.byte_order != kByteOrderMark) {
      return fail(Status::wrong_version, report, "the journal has another byte order", path_);
    }
    if (h.version != kJournalVersion && !is_old) {
      return fail(Status::wrong_version, report, "the journal has another version", path_,
                  std::to_string(kJournalVersion), std::to_string(h.version));
    }
    if (best.magic == 0 || h.sequence > best.sequence) best = h;
  }
  if (best.magic != 0) return Status::ok;
  return fail(Status::invalid_argument, report,
              "a file that is no journal stands where the pool's journal goes, and is left alone; "
              "move it away, or give another place as PoolOptions::journal.path",
              path_);
}

// A journal of version 0.1: that version closed its pool and kept the journal, empty.
Status JournalFile::take_old_header(const JournalHeaderOld& old, const Expected& expected,
                                    Report* report) {
  if (old.pool_id != expected.pool_id) {
    return fail(expected.to_be_read() ? Status::corrupt : Status::invalid_argument, report,
                "this is another pool's journal; give another place as PoolOptions::journal.path",
                path_, "pool " + id_text(expected.pool_id), "pool " + id_text(old.pool_id));
  }
  JournalBlock b{};
  const std::uint64_t ring = old.ring_bytes == 0 ? 1 : old.ring_bytes;
  static_cast<void>(read_all(fd_, kJournalRingOffset + old.start % ring, &b, sizeof b));
  const bool holds = b.magic == kJournalBlockMagic && b.life == old.incarnation &&
                     b.number == old.start_block && b.position == old.start &&
                     b.crc == crc32c(&b, offsetof(JournalBlock, crc));
  if (holds || expected.in_use) {
    return fail(Status::wrong_version, report,
                "the journal is of version 0.1 and is not empty: open and close the pool once with "
                "version 0.1.0, or move the journal away to go on with what is in the pool",
                path_);
  }
  header_ = {};
  header_.magic = kJournalMagic;
  header_.version = kJournalVersion;
  header_.byte_order = kByteOrderMark;
  header_.pool_id = expected.pool_id;
  header_.ring_bytes = old.ring_bytes;
  header_.sequence = old.sequence;
  header_.journal_id = random_id();
  header_.life = random_id();
  header_.start_block = 1;
  header_.state = static_cast<std::uint32_t>(JournalState::made);
  use_ = JournalUse::begin;
  return Status::ok;
}

// A correct checksum does not prove that the fields are sane.
Status JournalFile::check_places(const JournalHeader& h, std::uint64_t file_bytes,
                                 Report* report) const {
  const bool whole = h.ring_bytes <= file_bytes && file_bytes - h.ring_bytes >= kJournalRingOffset;
  if (!whole) {
    return fail(
        Status::corrupt, report,
        "the journal is shorter than it says: truncated? If the pool was closed, it needs no "
        "journal: move this one away, and open again",
        path_, std::to_string(h.ring_bytes) + " bytes and two headers", std::to_string(file_bytes));
  }
  const bool sane = h.ring_bytes % kJournalUnitBytes == 0 && h.ring_bytes != 0 &&
                    h.start % kJournalUnitBytes == 0 && h.start < kJournalPositionMax &&
                    h.start_block >= 1 && h.start_block < kJournalPositionMax &&
                    h.state >= static_cast<std::uint32_t>(JournalState::made) &&
                    h.state <= static_cast<std::uint32_t>(JournalState::closed) &&
                    h.sequence < kJournalPositionMax && h.journal_id != 0 && h.life != 0;
  if (sane || TENUTO_PLANT("journal_start_not_checked")) return Status::ok;
  return fail(Status::corrupt, report, "the journal's header has an impossible field", path_);
}

Status JournalFile::replay(const ReplayOptions& options, const ApplyImages& apply,
                           ReplayStats* stats, Report* report) {
  const Ring ring{direct_fd_, path_, ring_bytes_, header_.life,
                  salt_of(header_.pool_id, header_.journal_id, header_.life)};
  return replay_ring(ring, end_, options, apply, stats, report);
}

// --- writing -------------------------------------------------------------------------------------

// The other copy is not written. So it stays valid if this write fails or is torn.
Status JournalFile::write_header(Position start, Report* report) {
  JournalHeader h = header_;
  h.sequence += 1;
  h.start = start.at;
  h.start_block = start.block;
  h.temporary = temporary_ ? 1 : 0;
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

Status JournalFile::begin(const Expected& expected, std::uint64_t life, Report* report) {
  header_.pool_id = expected.pool_id;
  set_pool_path(header_, expected.pool_path);
  if (!TENUTO_PLANT("journal_life_kept")) header_.life = life;
  header_.state = static_cast<std::uint32_t>(JournalState::running);
  end_ = {0, 1};
  return write_header(end_, report);
}

Status JournalFile::close_life(Report* report) {
  header_.state = static_cast<std::uint32_t>(JournalState::closed);
  return write_header(end_, report);
}

Status JournalFile::append(std::span<const LineImage> images, Report* report) {
  pack_lines(images, raw_);
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

  const std::uint32_t salt = salt_of(header_.pool_id, header_.journal_id, header_.life);
  b.magic = kJournalBlockMagic;
  b.life = header_.life;
  if (skipped != 0) {
    JournalBlock skip{};
    skip.magic = b.magic;
    skip.life = b.life;
    skip.number = end_.block;
    skip.position = end_.at;
    skip.kind = static_cast<std::uint32_t>(JournalBlockKind::skip);
    skip.crc = crc_of(skip, salt);
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
  b.lines = static_cast<std::uint32_t>(images.size());
  b.raw_bytes = static_cast<std::uint32_t>(raw_bytes);
  b.payload_crc = crc32c(payload, static_cast<std::size_t>(packed), salt);
  b.crc = crc_of(b, salt);
  std::memcpy(block_.data(), &b, sizeof b);
  std::memset(block_.data() + content, 0, whole - content);
  TENUTO_TRY(write_unit_run(end_.at, block_.data(), whole, report));
  end_ = {end_.at + whole, end_.block + 1};
  payload_bytes_ += content;
  return Status::ok;
}

// Every failure is io, also a file system without space. The ring was written when it was made, so
// the device or file system broke its promise. `full` means the ring here.
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

}  // namespace TENUTO_NS::pm

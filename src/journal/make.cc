// A journal file is made and unmade, and its ring made larger.
//
//   grow     zeros behind the ring, fsync | begin(): a header of the new life with the new length
//   double   zeros behind the ring, fsync | both headers, with twice the length | the next block
//
// The header is authoritative: what is behind the ring that it names is nothing. A kill before the
// header leaves a longer file, and the next open begins again.
//
// An open grows the ring while it is empty: replay's lines are durable in the pool. A ring in use
// is doubled when the blocks that count are all in one lap of it, and the lap's number is even.
// Then each of them is at the same place in the larger ring, and none skips to the ring's end:
//
//   position mod 2 R == position mod R    where position / R is even
//
// Both headers say the new length before a block depends on it. So if one of them is damaged later,
// the other leads to no block at the wrong place.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "journal/file.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

namespace {
constexpr std::size_t kCopyBytes = 1u << 20;
constexpr std::uint64_t kPreparedAtOnce = 4u << 20;  // between two commits
constexpr std::uint64_t kAutomaticBytesMin = 6u << 20;
constexpr std::uint64_t kAutomaticBytesMax = 64u << 20;
// Of the ring, at most: its line images are in memory until a checkpoint.
constexpr std::uint64_t kMemoryShare = 32;
}  // namespace

std::uint64_t JournalFile::ring_bytes_for(const JournalOptions& options, int pool_fd) {
  if (options.bytes != 0) return options.bytes;
  struct stat st {};
  const bool known = ::fstat(pool_fd, &st) == 0;
  const std::uint64_t half = known ? static_cast<std::uint64_t>(st.st_size) / 2 : 0;
  const std::uint64_t most = std::min(kAutomaticBytesMax, memory_limit() / kMemoryShare);
  return std::clamp(half, kAutomaticBytesMin, std::max(kAutomaticBytesMin, most));
}

Status JournalFile::make(std::uint64_t bytes, const Expected& expected, Report* report) {
  change([&] { fd_ = make_nameless(path_, expected.mode, hidden_); });
  if (fd_ < 0) return failed("cannot create the pool's journal", report);
  TENUTO_TRY(lock_file(fd_, true, path_, report));
  ring_bytes_ = round_up(std::max(bytes, kJournalBytesMin), kJournalUnitBytes);
  TENUTO_TRY(write_zeros(0, kJournalRingOffset + ring_bytes_, report));
  TENUTO_TRY(open_direct(O_RDWR, report));
  header_ = {};
  header_.magic = kJournalMagic;
  header_.version = kJournalVersion;
  header_.byte_order = kByteOrderMark;
  header_.ring_bytes = ring_bytes_;
  temporary_ = expected.temporary;  // before a kill can leave it
  TENUTO_TRY(claim(expected, report));
  if (!sync_whole(fd_)) return failed("cannot sync the journal", report);
  if (!give_lasting_name(fd_, hidden_, path_)) {
    return failed("cannot give the pool's journal a name that lasts", report);
  }
  made_ = true;
  return Status::ok;
}

// Zeros are written, not only reserved. A commit that overwrites written blocks is one device
// write, without any metadata write of the file system.
Status JournalFile::write_zeros(std::uint64_t from, std::uint64_t to, Report* report) {
  TENUTO_TRY(reserve_space(fd_, from, to, path_, report));
  const std::vector<std::byte> zeros(kCopyBytes);
  for (std::uint64_t at = from; at < to; at += kCopyBytes) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, to - at));
    if (write_all(fd_, at, zeros.data(), n)) continue;
    if (errno != EINVAL) return failed("cannot write the journal", report);
    return failed(
        "cannot write the journal (hugetlbfs has no writes: choose another place, or "
        "medium cache or line)",
        report);
  }
  if (!sync_whole(fd_)) return failed("cannot sync the journal", report);
  return Status::ok;
}

Status JournalFile::claim(const Expected& expected, Report* report) {
  header_.pool_id = expected.pool_id;
  header_.journal_id = random_id();
  header_.life = random_id();
  header_.state = static_cast<std::uint32_t>(JournalState::made);
  set_pool_path(header_, expected.pool_path);
  end_ = {0, 1};
  return write_header(end_, report);
}

Status JournalFile::grow_ring(std::uint64_t bytes, Report* report) {
  const std::uint64_t wanted = round_up(bytes, kJournalUnitBytes);
  if (wanted <= ring_bytes_) return Status::ok;
  const std::uint64_t old_end = kJournalRingOffset + ring_bytes_;
  if (!TENUTO_PLANT("journal_ring_grown_without_space")) {
    const Status s = write_zeros(old_end, kJournalRingOffset + wanted, report);
    if (s != Status::ok) {
      static_cast<void>(::ftruncate(fd_, static_cast<off_t>(old_end)));
      return s;
    }
  }
  ring_bytes_ = header_.ring_bytes = wanted;
  return Status::ok;
}

Result<bool> JournalFile::prepare_double(Report* report) {
  const std::uint64_t ring_end = kJournalRingOffset + ring_bytes_;
  const std::uint64_t n = std::min(kPreparedAtOnce, ring_bytes_ - prepared_bytes_);
  const std::uint64_t from = ring_end + prepared_bytes_;
  const Status s = write_zeros(from, from + n, report);
  if (s != Status::ok) {
    static_cast<void>(::ftruncate(fd_, static_cast<off_t>(ring_end)));
    prepared_bytes_ = 0;
    return s;
  }
  prepared_bytes_ += n;
  return prepared_bytes_ == ring_bytes_;
}

bool JournalFile::may_double() const {
  const std::uint64_t lap = start_.at / ring_bytes_;
  if (TENUTO_PLANT("journal_ring_doubled_in_any_lap")) return true;
  return lap % 2 == 0 && end_.at <= (lap + 1) * ring_bytes_;
}

Status JournalFile::double_ring(Report* report) {
  header_.ring_bytes = 2 * ring_bytes_;
  if (!TENUTO_PLANT("journal_doubled_ring_not_in_the_header")) {
    TENUTO_TRY(write_header(start_, report));
    const bool one = TENUTO_PLANT("journal_doubled_ring_in_one_header");
    if (!one) TENUTO_TRY(write_header(start_, report));
  }
  ring_bytes_ = header_.ring_bytes;
  prepared_bytes_ = 0;
  return Status::ok;
}

// --- a journal file in parent and child ----------------------------------------------------------

JournalFile::JournalFile() { join(); }

JournalFile::~JournalFile() {
  if (made_) remove();
  if (!hidden_.empty()) remove_name(hidden_, fd_);
  change([this] {
    if (fd_ >= 0 && !forked()) unlock_file(fd_);
    close_all({&direct_fd_, &fd_});
  });
  part();
}

void JournalFile::let_go() { close_all({&direct_fd_, &fd_}); }

}  // namespace TENUTO_NS::pm

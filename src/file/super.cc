// The superblock of a pool file: read, checked, and written with a new state.
//
// Authoritative: the valid copy with the higher sequence. A write goes to the other copy, so a torn
// write damages only the older one. After that the state in the damaged copy is unknown. So
// recovery runs, and a journal counts if its ids fit. The next write to the damaged copy has
// another sequence than a torn close can have: if it is torn as well, its words must not complete
// that close.
//
// An upgrade is one step, too: the write of the first superblock of the new layout. The old copy
// that version 0.1 could still read is overwritten right after it. Otherwise version 0.1 would open
// the pool as an older one with a damaged copy.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "file/pool_file.h"
#include "journal/journal.h"
#include "pm/crc32c.h"
#include "pm/format.h"
#include "pm/metadata_key.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

namespace {

// Offsets at the end of layout 4's superblock, which is one line.
constexpr std::size_t kOldJournal = 56;  // if running: incarnation of the journal in use; 0: none
constexpr std::size_t kOldCrc = 60;
constexpr std::size_t kOldBytes = 64;

std::uint32_t word_at(const Superblock& s, std::size_t at) {
  std::uint32_t w = 0;
  std::memcpy(&w, reinterpret_cast<const char*>(&s) + at, sizeof w);
  return w;
}

bool is_old(const Superblock& s) { return s.version == kLayoutVersionOld; }

bool is_sound(const Superblock& s) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&s);
  if (is_old(s)) return word_at(s, kOldCrc) == crc32c(bytes, kOldCrc);
  return s.crc == crc32c(bytes, offsetof(Superblock, crc));
}

// ok if the bytes are a sound superblock that this build reads. Else why not.
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
  if (s.version != kLayoutVersion && !is_old(s)) {
    return fail(Status::wrong_version, report,
                "the pool has a layout that this version does not read; open it with the version "
                "that wrote it",
                std::move(where),
                std::to_string(kLayoutVersionOld) + " or " + std::to_string(kLayoutVersion),
                std::to_string(s.version));
  }
  if (!is_sound(s) && !TENUTO_PLANT("pm_superblock_checksum_not_compared")) {
    return fail(Status::corrupt, report, "the superblock's checksum does not match",
                std::move(where));
  }
  if (s.line_bytes != kLineBytes) {
    return fail(Status::wrong_version, report, "the pool was made for another cache line size",
                std::move(where), std::to_string(kLineBytes), std::to_string(s.line_bytes));
  }
  const std::uint32_t variant =
      s.variant & ~(kVariantCanaries | kVariantJoint | kVariantDamaged | kVariantLeafLost);
  if (variant < static_cast<std::uint32_t>(Consistency::log) ||
      variant > static_cast<std::uint32_t>(Consistency::internal)) {
    return fail(Status::wrong_version, report,
                "the pool has a consistency that this version does not know", std::move(where),
                "1 to 3", std::to_string(s.variant));
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

// --- reading -------------------------------------------------------------------------------------

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
    // Neither copy is sound. The one that looks more like a pool has the better report.
    const int told = status[0] == Status::not_a_pool ? 1 : 0;
    if (report != nullptr) *report = why[told];
    return status[told];
  }
  // With one copy damaged, the other may be the older one. Its clean state may be out of date, so
  // recovery runs.
  const bool both = status[1 - best] == Status::ok ||
                    (copy[best].sequence == 1 && status[1 - best] == Status::not_a_pool);
  copy_damaged_ = copy_torn_ = !both;
  was_clean_ = (both || TENUTO_PLANT("pm_damaged_superblock_copy_ignored")) &&
               copy[best].state == static_cast<std::uint32_t>(PoolState::clean);
  take_superblock(copy[best]);
  // An earlier build wrote it, whose lives may have used the heap and left the list's seal whole.
  const bool foreign = super_.closed_at != super_.sequence &&
                       !TENUTO_PLANT("pm_closed_of_an_earlier_build_believed");
  if (foreign) super_.closed = was_clean_ ? super_.sequence : 0;
  if (copy_damaged_) super_.closed = 0;
  return Status::ok;
}

void PoolFile::take_superblock(const Superblock& s) {
  super_ = s;
  consistency_ = static_cast<Consistency>(s.variant & kVariantConsistency);
  if (!is_old(s)) return;
  old_journal_ =
      s.state == static_cast<std::uint32_t>(PoolState::running) && word_at(s, kOldJournal) != 0;
  std::memset(reinterpret_cast<char*>(&super_) + kOldJournal, 0, sizeof super_ - kOldJournal);
  super_.born_version = kLayoutVersionOld;
  static_assert(offsetof(Superblock, born_version) == kOldJournal && kOldBytes == kLineBytes);
}

// --- writing -------------------------------------------------------------------------------------

Status PoolFile::set_state(PoolState state, Report* report) {
  TENUTO_TRY(bad_pages(report));
  const bool clean = state == PoolState::clean;
  if (clean && journal_ != nullptr && !TENUTO_PLANT("journal_clean_before_it_is_empty")) {
    TENUTO_TRY(journal_->finish(report));
  }
  super_.state = static_cast<std::uint32_t>(state);
  super_.variant =
      static_cast<std::uint32_t>(consistency_) | (super_.variant & ~kVariantConsistency);
  super_.journal_life_before = 0;
  if (clean) super_.closed = super_.sequence + 1;
  TENUTO_TRY(put_superblock(report));
  if (clean && journal_ != nullptr) journal_->closed();
  return bad_pages(report);
}

Status PoolFile::mark_joint() {
  if ((marks_.load(std::memory_order_acquire) & kVariantJoint) != 0) [[likely]]
    return Status::ok;
  TENUTO_TRY(writable());
  return mark(kVariantJoint);
}

void PoolFile::mark_damaged(const Report& why, std::uint32_t bit) {
  {
    const std::lock_guard lock(poison_mu_);
    if (poisoned() == Status::ok) poison_ = why;
  }
  if (!opened_to_read_ && !forked()) static_cast<void>(mark(bit));
}

// Both copies get the mark: an older version takes a copy that it does not read for a damaged one.
Status PoolFile::mark(std::uint32_t bit) {
  const std::lock_guard lock(marks_mu_);
  if ((marks_.load(std::memory_order_relaxed) & bit) != 0) return Status::ok;
  __atomic_store_n(&super_.variant, super_.variant | bit, __ATOMIC_RELAXED);
  TENUTO_TRY(put_superblock(nullptr));
  TENUTO_TRY(put_superblock(nullptr));
  marks_.fetch_or(bit, std::memory_order_release);
  return Status::ok;
}

void PoolFile::stay_damaged() {
  if ((variant() & kVariantDamaged) == 0) return;
  Report why;
  static_cast<void>(fail(Status::corrupt, &why,
                         "this or an earlier open found a slab damaged, and said where. Its "
                         "recovery cannot tell which blocks are free, so the pool is read-only for "
                         "good: copy what it holds into a new one",
                         poison_.where.empty() ? path_ : poison_.where));
  poison(Status::corrupt, why);
}

// Writes the next superblock; two of them when it upgrades a pool of layout 4.
Status PoolFile::put_superblock(Report* report) {
  const bool upgraded = super_.version != kLayoutVersion;
  super_.version = kLayoutVersion;
  for (int n = upgraded ? 2 : 1; n > 0; --n) {
    // Two more are the same copy.
    const bool torn = std::exchange(copy_torn_, false) && !TENUTO_PLANT("pm_torn_sequence_again");
    super_.sequence += TENUTO_PLANT("pm_superblock_copies_not_in_turn") ? 2 : torn ? 3 : 1;
    super_.closed_at = super_.sequence;
    super_.crc = crc32c(&super_, offsetof(Superblock, crc));
    Report local;
    Report* r = report != nullptr ? report : &local;
    const Status s = write_superblock(r);
    if (s == Status::ok) continue;
    poison(Status::io, *r);
    return s;
  }
  return Status::ok;
}

// Every failure is io. Before the pool is mapped, and under a journal, it writes past the mapping:
// a private mapping is never written back.
Status PoolFile::write_superblock(Report* report) {
  const MetadataOpen rights;
  const auto failed = [&](const char* what) {
    static_cast<void>(fail_errno(errno, what, path_, report));
    return Status::io;
  };
  const std::uint64_t at = (super_.sequence & 1) * kFrameBytes;
  if (journal_ != nullptr || bytes() == 0) {
    const bool lazy = TENUTO_PLANT("journal_superblock_not_synced");
    if (!write_all(fd_, at, &super_, sizeof super_)) return failed("cannot write the superblock");
    if (!lazy && !sync_data(fd_)) return failed("cannot write the superblock (fdatasync)");
    return Status::ok;
  }
  const bool on_device = !in_memory_ && !map_sync_;
  const bool clean = super_.state == static_cast<std::uint32_t>(PoolState::clean);
  if (clean && on_device && !sync_data(fd_)) {
    return failed("cannot write the pool to its device (fdatasync)");
  }
  copy_flush(this->at<Superblock>({at}), &super_, sizeof super_);
  fence("superblock copy", "pool state change");
  if (on_device && uninterrupted([&] { return ::msync(base_, kFrameBytes * 2, MS_SYNC); }) != 0) {
    return failed("cannot write the superblock to its device (msync)");
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::pm

// A pool file mapped into memory: creation, opening, growth, closing, and the translation between
// offsets and addresses. Recovery is up to the layers above (store/pool/open.cc).
//
// The whole size_max of address space is reserved once; growth maps more of the file into it, so
// addresses never move while the pool is open. The mapping may be shared or private: nothing
// above this file may assume that the file's bytes change with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pm/bus_error.h"
#include "pm/format.h"
#include "pm/process.h"
#include "tenuto/pool_options.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

// Where a mapping begins, so that frames align in memory, and so that the lower bits of an address
// are those of the offset whatever the process.
inline constexpr std::uint64_t kMapAlignBytes = 4u << 20;

// Writes the first state of zone 0 before the superblock makes the file a pool, and of each later
// zone before the zone count commits it.
using FormatZone = std::function<void(const ZoneEntry&, std::uint64_t head_bytes)>;

class Journal;
class JournalFile;
struct JournalExpected;

class PoolFile final : public OfProcess {
 public:
  // Makes a nameless file, preallocates and maps it, and writes zone 0's entry (head page and
  // lanes are zero). The caller formats its layers, sets the state, and gives the file its name by
  // link_into_place: a crash before that leaves nothing behind. of_a_copy: it gets its name when
  // it was filled and closed, so it needs no journal before.
  static Result<std::unique_ptr<PoolFile>> create(std::string_view path, const PoolOptions& options,
                                                  Report* report, bool of_a_copy = false);
  Status link_into_place(Report* report);

  // Locks, validates and maps. Does not change the file but by what its journal holds.
  static Result<std::unique_ptr<PoolFile>> open(std::string_view path, const PoolOptions& options,
                                                Report* report);
  // For the rescue of what is left of a damaged pool (store/rescue/rescue.cc): believes nothing but
  // the length of the file, which is mapped privately, so that recovery may write and the file
  // never changes. Superblock and state are what could be found; `notes` gets what could not. A
  // pool left with its journal (`journal`, or beside it) is mapped with what that holds, read by so
  // many threads (0: all cores); `losses` gets what of it cannot be had. not_a_pool, wrong_version
  // (a sound superblock says so), corrupt (a journal is there and not this pool's), busy,
  // permission, not_found, io.
  static Result<std::unique_ptr<PoolFile>> open_damaged(
      std::string_view path, const std::string& journal, unsigned threads,
      std::vector<Report>& notes, std::vector<Report>& losses, Report* report);
  // Medium journal: begins the journal's next life. Called once it is known that the pool will be
  // opened, and before anything is stored. Others: nothing to do.
  Status begin_life(Report* report);
  ~PoolFile();  // unmaps and unlocks, whatever the state
  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;

  // Writes the next superblock with this state; fenced. The last step of create and of a clean
  // close, and the first store of an open for writing. On an ordinary file system a clean state
  // is written only after all else has reached the device. io when that fails.
  Status set_state(PoolState state, Report* report = nullptr);

  // --- file/times.cc: milliseconds since 1970, for lifetimes; 0: unknown
  std::uint64_t time_floor() const;
  std::uint64_t time_seen() const;
  bool times_damaged() const;  // something was written, and cannot be read
  // Flushes and fences. REQUIRES: writable; one thread at a time.
  void set_times(std::uint64_t floor, std::uint64_t seen);

  // Appends a zone of at least `bytes` (more if the growth policy says so): extends the file,
  // maps, calls format, commits the entry. full at size_max or when the file system has no room.
  Result<ZoneEntry> grow(std::uint64_t bytes, const FormatZone& format);

  // Copies words out of the pool as they are now. Where the mapping is the file's, without mapping
  // their pages: for recovery, which looks at a few lines here and there. REQUIRES: o and bytes are
  // multiples of 8, inside the pool.
  void copy_out(PoolOffset o, void* to, std::size_t bytes) const;

  // --- file/holes.cc: whole frames, behind the head
  // Whether free space may be given back to the file system now: the one place to forbid it.
  bool may_punch() const;
  // Gives the pages of [o, o + bytes) back. Contents are undefined from then on. Anything but ok:
  // nothing was done; when the file system cannot do it at all, may_punch() says so from now on.
  // REQUIRES: nobody owns the place, whatever a crash leaves.
  Status punch(PoolOffset o, std::uint64_t bytes);
  // Makes sure that stores to [o, o + bytes) have space, where there may be holes. full.
  Status fill(PoolOffset o, std::uint64_t bytes);
  std::uint64_t bytes_on_disk() const;
  void for_each_hole(const std::function<void(PoolOffset, std::uint64_t)>& f) const;

  std::byte* base() const { return base_; }
  template <class T>
  T* at(PoolOffset o) const {
    return reinterpret_cast<T*>(base_ + o.value);
  }
  PoolOffset offset_of(const void* p) const {
    return {static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - base_)};
  }
  bool contains(const void* p) const {
    const auto d = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_);
    return d < bytes();
  }
  // [o, o + n) lies behind the head and inside the file. For everything read from media.
  bool in_range(PoolOffset o, std::uint64_t n) const {
    const std::uint64_t end = bytes();
    return o.value >= kHeadBytes && o.value <= end && n <= end - o.value;
  }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_acquire); }
  std::uint64_t bytes_max() const { return bytes_max_; }

  HeadPage& head() const { return *at<HeadPage>({kHeadPageOffset}); }
  const ZoneEntry& zone(std::size_t i) const { return at<ZoneEntry>({kZoneTableOffset})[i]; }
  std::size_t zone_count() const;

  const std::string& path() const { return path_; }
  const Superblock& superblock() const { return super_; }
  unsigned mode() const { return mode_; }
  bool was_clean() const { return was_clean_; }
  bool read_only() const { return health_.read_only.load(std::memory_order_relaxed); }
  // Damage was found or a write failed: from now on nothing is written. Sticky.
  void poison(Status why, const Report& report = {});
  // Not all that is in use is known: a close leaves the pool as a crash would.
  void leave_to_recovery() { left_to_recovery_.store(true, std::memory_order_relaxed); }
  bool left_to_recovery() const { return left_to_recovery_.load(std::memory_order_relaxed); }
  Status poisoned() const { return health_.poisoned.load(std::memory_order_relaxed); }
  // ok, or why the pool turned read-only, with what is known of it.
  Status health(Report* report) const;
  // To be asked after the work and before an operation says how it went: io when a page could not
  // be read or written (pm/bus_error.h), so that zeros in its place may have been seen. One load.
  Status bad_pages() const {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (health_.bad_page.load(std::memory_order_acquire) == 0) [[likely]]
      return Status::ok;
    return bad_pages_found(nullptr);
  }
  Status bad_pages(Report* report) const {
    return bad_pages() == Status::ok ? Status::ok : bad_pages_found(report);
  }
  // ok, or why writes are refused: forked, read_only, or what poisoned it.
  Status writable() const;
  Medium medium() const { return medium_; }
  // What an open for writing takes with these options.
  Medium medium_to_write() const { return medium_to_write_; }
  // Whether a power cut leaves what the fences (on medium journal: the syncs) promised, when it is
  // open for writing.
  bool power_cut_safe() const {
    const Medium m = medium_to_write_;
    return m == Medium::journal ? !in_memory_ : map_sync_ && m != Medium::cache;
  }
  // Whether `create` made it for medium journal: it is to be closed and opened again.
  bool wants_journal() const { return wants_journal_; }
  // Null but on medium journal.
  const Journal* journal() const { return journal_.get(); }
  // Where this open looks for its journal, where that was before, and what stands there.
  const std::string& journal_place() const { return journal_place_; }
  std::string journal_last_place() const;
  JournalFound journal_found() const;
  // Medium journal: everything fenced before is durable on return. Others: nothing to do. io.
  Status sync();
  // What an operation that wrote and fenced returns in the end. sync: it is durable. buffered: it
  // is in the journal's hands; io when the journal failed meanwhile, and did not take all of it.
  Status acknowledge(Durability d);
  void log(std::string_view text) const;
  // "path, offset 4096 (what)": the `where` of reports.
  std::string where(PoolOffset o, std::string_view what) const;

 private:
  PoolFile();
  void let_go() override;
  Status lock(bool exclusive, Report* report);
  Status reserve_addresses(std::uint64_t size_max, Report* report);
  void choose_medium(const PoolOptions& options);
  std::string journal_path(const JournalOptions& options) const;
  JournalExpected expect_journal() const;
  Status make_journal(const PoolOptions& options, Report* report);
  Status check_old_journal(const std::string& path, Report* report) const;
  Status check_unneeded_journal(const JournalExpected& expected, Report* report) const;
  Status open_journal(const PoolOptions& options, Report* report);
  Status put_superblock(Report* report);
  Status write_superblock(Report* report);
  void take_superblock(const Superblock& s);
  std::uint64_t time_word(std::size_t which) const;
  Status apply_journal(const std::string& given, unsigned threads, bool super_known,
                       std::vector<Report>& losses, Report* report);
  Status apply_journal(JournalFile& journal, unsigned threads, std::vector<Report>& losses);
  Status map_file(std::uint64_t from, std::uint64_t to);
  Status map(const PoolOptions& options, std::uint64_t bytes, Report* report);
  Status register_mapping(const PoolOptions& options, Report* report);
  Status bad_pages_found(Report* report) const;
  Status say_forked(Report* report) const;
  Status read_at(std::uint64_t offset, void* to, std::size_t bytes, std::string_view what,
                 Report* report) const;
  Status read_superblock(std::uint64_t file_bytes, Report* report);
  Status check_zones(std::uint64_t pool_bytes, Report* report);

  // Constant after open.
  std::string path_;
  int fd_ = -1;
  // Holds the lock, and nothing is mapped through it: a mapping keeps what it was made through
  // open, and with that its lock, in children that closed the descriptor, too.
  int lock_fd_ = -1;
  bool opened_to_read_ = false;
  std::string journal_place_;
  std::string unnamed_;            // the name of a file still being created, when it needs one
  std::byte* reserved_ = nullptr;  // what munmap gets
  std::uint64_t reserved_bytes_ = 0;
  std::byte* base_ = nullptr;  // on kMapAlignBytes
  std::uint64_t bytes_max_ = 0;
  Medium medium_ = Medium::cache;
  Medium medium_to_write_ = Medium::cache;  // the same, unless nothing is written here
  bool map_sync_ = false;                   // the file system granted MAP_SYNC
  bool in_memory_ = false;                  // tmpfs: there is no device to write to
  bool wants_journal_ = false;
  bool shared_ = false;  // what is stored in the mapping can be read from the file
  bool was_clean_ = true;
  bool copy_damaged_ = false;  // of the superblock: super_ may be the older one
  bool old_journal_ = false;   // running with a journal of version 0.1
  unsigned mode_ = 0600;       // of the file, and of its journal
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<JournalFile> new_journal_;  // of a pool that has no name yet
  std::function<void(std::string_view)> log_;
  // Atomic.
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<bool> left_to_recovery_{false};
  PoolHealth health_;
  std::atomic<bool> can_punch_ = true;
  mutable std::atomic<bool> told_ = false;  // the log knows of the bad page
  // Guarded by grow_mu_.
  std::mutex grow_mu_;
  // Guarded by poison_mu_.
  mutable std::mutex poison_mu_;
  Report poison_;  // what turned it read-only
  // Written by set_state only, which is not concurrent.
  Superblock super_{};
};

}  // namespace TENUTO_NS::pm

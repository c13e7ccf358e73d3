// A pool file mapped into memory: creation, opening, growth, closing, and translation between
// offsets and addresses. The layers above do the recovery (store/pool/open.cc).
//
// The address space for size_max is reserved once. Growth maps more of the file into it, so
// addresses never move while the pool is open. The mapping may be shared or private. So no layer
// above may assume that a store changes the file's bytes.
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

// The alignment of a mapping. Frames are aligned in memory, and the low bits of an address equal
// those of its offset in every process.
inline constexpr std::uint64_t kMapAlignBytes = 4u << 20;

// Writes the first state of a zone: of zone 0 before the superblock makes the file a pool, of a
// later zone before the zone count commits it.
using FormatZone = std::function<void(const ZoneEntry&, std::uint64_t head_bytes)>;

// Why it is not known what is in use.
enum class Unknown : std::uint8_t {
  nothing,
  no_memory,  // to note what was replaced
  key_kept,   // the system refused to put a page under the protection key, or to take it out
  damage,     // of what named some blocks
};

class Journal;
class JournalFile;
struct JournalExpected;
struct MappedBytes;

class PoolFile final : public OfProcess {
 public:
  // Makes a nameless file, preallocates and maps it, and writes zone 0's entry (head page and lanes
  // are zero). The caller then formats its layers, sets the state, and names the file by
  // link_into_place. A crash before that leaves nothing behind. of_a_copy: the file gets its name
  // only when it is filled and closed, so it needs no journal before.
  static Result<std::unique_ptr<PoolFile>> create(std::string_view path, const PoolOptions& options,
                                                  Report* report, bool of_a_copy = false);
  Status link_into_place(Report* report);

  // Locks, validates and maps. It changes the file only by replaying its journal.
  static Result<std::unique_ptr<PoolFile>> open(std::string_view path, const PoolOptions& options,
                                                Report* report);
  // Opens a damaged pool for a rescue (store/rescue/rescue.cc). It relies on nothing but the length
  // of the file. The file is mapped privately: recovery may write, and the file never changes.
  // Superblock and state are what could be found; `notes` gets what could not. A pool that was left
  // with its journal (`journal`, or the one beside it) is mapped with the journal's contents, read
  // by `threads` threads (0: all cores). `losses` gets the parts that cannot be read. Errors:
  // not_a_pool, wrong_version (a sound superblock has another version), corrupt (the journal is not
  // this pool's), busy, permission, not_found, io.
  static Result<std::unique_ptr<PoolFile>> open_damaged(
      std::string_view path, const std::string& journal, unsigned threads,
      std::vector<Report>& notes, std::vector<Report>& losses, Report* report);
  // Begins the journal's next life. Without a journal: marks a pool with a torn superblock copy, or
  // of layout 4, as running. Call it when the open is certain, before anything is stored.
  Status begin_life(Report* report);
  ~PoolFile();  // unmaps and unlocks, in every state
  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;

  // Writes the next superblock with this state, fenced. It is the last step of create and of a
  // clean close, and the first store of an open for writing. On an ordinary file system a clean
  // state is written only after everything else has reached the device. io: that failed.
  Status set_state(PoolState state, Report* report = nullptr);

  // --- file/times.cc: milliseconds since 1970, for lifetimes; 0: unknown
  std::uint64_t time_floor() const;
  std::uint64_t time_seen() const;
  bool times_damaged() const;  // a time was written, and cannot be read
  // Flushes and fences. REQUIRES: writable; one thread at a time.
  void set_times(std::uint64_t floor, std::uint64_t seen);

  // Appends a zone of at least `bytes`, or more by the growth policy: extends the file, maps, calls
  // format, commits the entry. full: size_max is reached, or the file system has no room.
  enum class GrowBy : bool { policy, need };  // need: not more, and a failure is not logged
  Result<ZoneEntry> grow(std::uint64_t bytes, const FormatZone& format, GrowBy by = GrowBy::policy);

  // --- file/ahead.cc: space for the next growth, before it is needed
  // How many bytes a growth adds if it may choose.
  std::uint64_t growth_bytes() const;
  // What is prepared: space behind the last zone, reserved, in large pages if possible. The next
  // growth uses it, and makes no system call that needs time or space. It means nothing after a
  // crash.
  std::uint64_t prepared_bytes() const;
  // Prepares one huge frame more. not_found: growth_bytes() are prepared.
  // busy: another thread grows the pool. full: the file system or the memory has not several times
  // as much left, so that only those take the last space who need it; or the place behind the last
  // zone is not free (keeps_tail_). REQUIRES: may_make_large.
  Status prepare();
  // Gives back what is prepared, and what a killed process left behind the last zone, unless that
  // may be a zone (keeps_tail_). Does nothing unless may_make_large.
  void drop_prepared();

  // Copies words out of the pool as they are now. Where the mapping shows the file, it reads the
  // file, so that the pages are not mapped: recovery looks at a few lines here and there. REQUIRES:
  // o and bytes are multiples of 8, inside the pool.
  void copy_out(PoolOffset o, void* to, std::size_t bytes) const;
  // The same by loads, which map the pages.
  void copy_mapped(PoolOffset o, void* to, std::size_t bytes) const;
  // Whether that is the cheaper way for places like these two: the file is in memory, and the first
  // one's page maps the other one, too (large.cc). REQUIRES: both are in one huge frame and are no
  // holes, which a load would fill.
  bool maps_both(PoolOffset one, PoolOffset other) const;

  // --- shared pages on medium journal
  // Maps [o, o + bytes) shared from now on; other media do already. The kernel may write its pages
  // back at any moment, and drop them. So a crash may leave any later store there, whatever the
  // journal has. REQUIRES: whole frames, to which nothing was stored since the pool is open; and
  // from now on no store to a byte that a durable state of the pool names (frees_wait).
  Status share(PoolOffset o, std::uint64_t bytes, Report* report);
  // Whether memory in shared pages may be stored to again only when the epoch that unlinked it is
  // durable: medium journal.
  bool frees_wait() const { return journal_ != nullptr; }
  // Everything flushed before the call is in this epoch or an earlier one.
  std::uint64_t epoch() const;
  // The last epoch that is durable.
  std::uint64_t durable_epoch() const;

  // --- file/protect.cc: metadata under a protection key (pm/metadata_key.h)
  // What an open with these options needs before it begins: MetadataOpen does nothing while there
  // is no key. ok | as take_metadata_key.
  static Status take_key(std::string_view path, const PoolOptions& options, Report* report);
  // From now on these frames are metadata: only the library writes there, within MetadataOpen. ok |
  // full: the process has too many mappings; nothing was done. Does nothing without the option, or
  // if the pool is opened to read. Cost with the option: a system call.
  Status protect(PoolOffset o, std::uint64_t bytes, Report* report);
  // From now on they are not. False: they stay so, and must not be given to the program. The pool
  // is then left to recovery.
  [[nodiscard]] bool unprotect(PoolOffset o, std::uint64_t bytes);
  std::uint64_t protected_bytes() const { return protected_.load(std::memory_order_relaxed); }

  // --- file/holes.cc: whole frames, behind the head
  // Whether free space may be given back to the file system now.
  bool may_punch() const;
  // Before punch() of places that were freed: on medium `journal` it makes their frees durable and
  // writes the journal into the pool; else nothing. REQUIRES: the caller holds the places from
  // before this call until after punch(). io: nothing may be punched.
  Status settle_frees();
  // Gives the pages of [o, o + bytes) back. Their contents are undefined from then on. If the
  // result is not ok, nothing was done. If the file system cannot do it at all, may_punch() is
  // false from now on. REQUIRES: the place has no owner, in every state that a crash may leave; a
  // place that was freed is settled (settle_frees).
  Status punch(PoolOffset o, std::uint64_t bytes);
  // Reserves space for stores to [o, o + bytes), which may have holes. full: there is none.
  Status fill(PoolOffset o, std::uint64_t bytes);
  std::uint64_t bytes_on_disk() const;
  // What this process has of the pool in memory. Cost: pm::mapped_bytes.
  MappedBytes mapped() const;
  void for_each_hole(const std::function<void(PoolOffset, std::uint64_t)>& f) const;

  // --- file/large.cc: pages of 2 MiB
  // Whether it is worth asking for them: in memory and mapped shared, with the option. A private
  // mapping has pages of its own, which the kernel does not join.
  bool may_make_large() const;
  // Joins the pages of the huge frame at o. Returns 0 or errno (pm/os.h). REQUIRES: it has no
  // holes.
  int make_large(PoolOffset o) const;

  // --- file/read_ahead.cc
  // Asks the kernel to read the pages of these places, all at once, if the pool is on a disk and
  // the calling thread has read from a disk lately. A hint. Cost: a system call, and one for each
  // place if it asks. Nothing for a pool in memory.
  void read_ahead(const PoolOffset* places, std::size_t count) const {
    if (on_disk()) ask_to_read(places, count);
  }
  // Whether a load from the pool may wait for a disk.
  bool on_disk() const { return !in_memory_ && !map_sync_; }

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
  // Whether [o, o + n) is behind the head and inside the file. For all offsets read from media.
  bool in_range(PoolOffset o, std::uint64_t n) const {
    const std::uint64_t end = bytes();
    return o.value >= kHeadBytes && o.value <= end && n <= end - o.value;
  }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_acquire); }
  std::uint64_t bytes_max() const { return bytes_max_; }

  HeadPage& head() const { return *at<HeadPage>({kHeadPageOffset}); }
  const ZoneEntry& zone(std::size_t i) const { return at<ZoneEntry>({kZoneTableOffset})[i]; }
  std::size_t zone_count() const;
  int fd() const { return fd_; }  // to read what is in the file
  const std::string& path() const { return path_; }
  const Superblock& superblock() const { return super_; }
  unsigned mode() const { return mode_; }
  bool was_clean() const { return was_clean_; }
  bool read_only() const { return health_.read_only.load(std::memory_order_relaxed); }
  // Damage was found or a write failed: nothing is written from now on. It cannot be undone.
  void poison(Status why, const Report& report);
  // Damage on media: the log names it, and the pool turns read-only. Returns corrupt.
  Status damaged(PoolOffset at, const char* what);
  // Not everything in use is known, so a close leaves the pool as a crash would. The first reason
  // counts.
  void leave_to_recovery(Unknown why) {
    Unknown none = Unknown::nothing;
    left_to_recovery_.compare_exchange_strong(none, why, std::memory_order_relaxed);
  }
  Unknown left_to_recovery() const { return left_to_recovery_.load(std::memory_order_relaxed); }
  Status poisoned() const { return health_.poisoned.load(std::memory_order_relaxed); }
  // ok, or why the pool turned read-only, with a report.
  Status health(Report* report) const;
  // Reports a call that failed with s, and why: the pool is full, or cannot be written. If s is why
  // the pool turned read-only, the report names what was found and where, instead of `where`.
  Status failed(Status s, Report* report, std::string what, std::string where) const;
  // Call it after the work and before an operation returns its result. io: a page could not be read
  // or written (pm/bus_error.h), so the operation may have read zeros in its place. Cost: one load.
  Status bad_pages() const {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (health_.bad_page.load(std::memory_order_acquire) == 0) [[likely]]
      return Status::ok;
    return bad_pages_found(nullptr);
  }
  Status bad_pages(Report* report) const {
    return bad_pages() == Status::ok ? Status::ok : bad_pages_found(report);
  }
  // ok, or why writes are refused: forked, read_only, or what poisoned it; and a report of it.
  Status writable() const { return read_only() ? why_read_only() : Status::ok; }
  Status writable(Report* report) const {
    return writable() == Status::ok ? Status::ok : say_read_only(report);
  }
  Medium medium() const { return medium_; }
  Consistency consistency() const { return consistency_; }
  // By this open; stored with the next change of the state.
  bool consistency_changes() const {
    return static_cast<std::uint32_t>(consistency_) != (variant() & kVariantConsistency);
  }
  // The pool's logged blocks have canaries (heap/guard.h).
  bool canaries() const { return (variant() & kVariantCanaries) != 0; }
  // Says in the superblock that the pool takes part in transactions over several pools. Any thread
  // may call it. Cost: one load, but for the first time. read_only, or what poisoned the pool | io.
  Status mark_joint();
  // Says that it has damage which no later open could see, because it recovers (kVariantDamaged,
  // kVariantLeafLost); stay_damaged() makes it read-only for the first.
  void mark_damaged(const Report& why, std::uint32_t bit);
  void stay_damaged();
  bool opened_to_read() const { return opened_to_read_; }
  // The medium that an open for writing takes with these options.
  Medium medium_to_write() const { return medium_to_write_; }
  // Whether a pool opened for writing keeps, after a power cut, what its fences promised (on medium
  // journal: its syncs).
  bool power_cut_safe() const {
    const Medium m = medium_to_write_;
    return m == Medium::journal ? !in_memory_ : map_sync_ && m != Medium::cache;
  }
  // The pool is in use from now on. If it is watched its addresses are kept when it is closed, and
  // who follows a pointer to them is told (pm/closed_pools.h).
  void used() { used_ = true; }
  // Whether `create` made it for medium journal. Then the caller closes it and opens it again.
  bool wants_journal() const { return wants_journal_; }
  // Null on all media but journal.
  const Journal* journal() const { return journal_.get(); }
  // Where this open looks for the journal, where it was at the last open, and what is there now.
  const std::string& journal_place() const { return journal_place_; }
  std::string journal_last_place() const;
  JournalFound journal_found() const;
  // Medium journal: everything fenced before is durable on return, or io. Others: does nothing.
  Status sync();
  // The last step of an operation that wrote and fenced; the operation returns its result. sync:
  // the write is durable. buffered: the journal has taken it whole. io: the journal failed
  // meanwhile, and may not have taken all of it.
  Status acknowledge(Durability d) {
    return journal_ == nullptr ? Status::ok : acknowledge_journal(d);
  }
  void log(std::string_view text) const;
  // "path, offset 4096 (what)": the `where` of reports.
  std::string where(PoolOffset o, std::string_view what) const;

 private:
  PoolFile();
  std::uint32_t variant() const { return __atomic_load_n(&super_.variant, __ATOMIC_RELAXED); }
  void let_go() override;
  Status lock(bool exclusive, Report* report);
  Status reserve_addresses(std::uint64_t size_max, std::uint64_t least, Report* report);
  void give_back_addresses();
  static bool watches(const PoolOptions& options);
  void choose_medium(const PoolOptions& options);
  Status choose_protection(const PoolOptions& options, Report* report);
  Status choose_consistency(const PoolOptions& options, Report* report);
  std::string journal_path(const JournalOptions& options) const;
  JournalExpected expect_journal() const;
  Status name_is_free(Report* report) const;  // exists | invalid_argument (a link to nothing)
  Status make_journal(const PoolOptions& options, Report* report);
  Status check_old_journal(const std::string& path, Report* report) const;
  Status check_unneeded_journal(const JournalExpected& expected, Report* report) const;
  Status open_journal(const PoolOptions& options, Report* report);
  Status put_superblock(Report* report);
  Status mark(std::uint32_t bit);
  Status write_superblock(Report* report);
  void take_superblock(const Superblock& s);
  std::uint64_t time_word(std::size_t which) const;
  Status apply_journal(const std::string& given, unsigned threads, bool super_known,
                       std::vector<Report>& losses, Report* report);
  Status apply_journal(JournalFile& journal, unsigned threads, std::vector<Report>& losses);
  Status map_file(std::uint64_t from, std::uint64_t to);
  Result<ZoneEntry> grow_locked(std::uint64_t least, std::uint64_t want, const FormatZone& format,
                                Status& reason, Report& told);
  Status refused_space(Status why) const;
  bool file_reaches(std::uint64_t bytes) const;
  void cut_to(std::uint64_t bytes);
  Status map(const PoolOptions& options, std::uint64_t bytes, Report* report);
  Status register_mapping(const PoolOptions& options, Report* report);
  Status bad_pages_found(Report* report) const;
  Status why_read_only() const;
  void ask_to_read(const PoolOffset* places, std::size_t count) const;
  Status say_forked(Report* report) const;
  Status acknowledge_journal(Durability d);
  Status say_read_only(Report* report) const;
  Status read_at(std::uint64_t offset, void* to, std::size_t bytes, std::string_view what,
                 Report* report) const;
  Status read_superblock(std::uint64_t file_bytes, Report* report);
  Status check_zones(std::uint64_t pool_bytes, Report* report);
  bool tail_may_be_a_zone() const;

  // Constant after open.
  std::string path_;       // as it was given: what reports name
  std::string real_path_;  // without symbolic links
  int fd_ = -1;
  // Holds the file lock. Nothing is mapped through it: a mapping keeps its open file description,
  // and so a lock on it, also in children that closed the descriptor.
  int lock_fd_ = -1;
  bool opened_to_read_ = false;
  std::string journal_place_;
  std::string unnamed_;            // the hidden name of a file still being made, if it needs one
  std::byte* reserved_ = nullptr;  // the argument of munmap
  std::uint64_t reserved_bytes_ = 0;
  std::byte* base_ = nullptr;  // aligned to kMapAlignBytes
  std::uint64_t bytes_max_ = 0;
  Consistency consistency_ = Consistency::log;
  Medium medium_ = Medium::cache;
  Medium medium_to_write_ = Medium::cache;  // differs if the pool is opened to read
  bool map_sync_ = false;                   // the file system granted MAP_SYNC
  bool in_memory_ = false;                  // tmpfs: there is no device to write to
  bool wants_journal_ = false;
  bool shared_ = false;                      // stores to the mapping can be read from the file
  std::atomic<bool> partly_shared_ = false;  // share was called
  bool large_pages_ = false;                 // asked for, and of use
  bool watched_ = false;                     // mistakes of the program are looked for
  bool used_ = false;                        // the program may have had pointers into it
  bool protects_ = false;                    // the option, if the mapping can be written
  bool was_clean_ = true;
  bool keeps_tail_ = false;    // what is behind the last zone may be a zone: it is never cut off
  bool copy_damaged_ = false;  // of the superblock: super_ may be the older one
  bool copy_torn_ = false;     // perhaps, and not yet written again
  bool old_journal_ = false;   // it was running with a journal of version 0.1
  unsigned mode_ = 0600;       // of the file, and of its journal
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<JournalFile> new_journal_;  // of a pool that has no name yet
  std::function<void(std::string_view)> log_;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<Unknown> left_to_recovery_{Unknown::nothing};
  std::atomic<std::uint64_t> protected_ = 0;
  PoolHealth health_;
  std::atomic<bool> can_punch_ = true;
  std::atomic<Status> fill_told_ = Status::ok;  // as growth_told_, of a hole that is filled
  mutable std::atomic<bool> told_ = false;      // the bad page was logged
  // One thread grows the file at a time. Guards the next three.
  std::mutex grow_mu_;
  std::atomic<std::uint64_t> ready_ = 0;  // where the reserved space ends; read without the lock
  std::uint64_t changes_ = 0;             // of the file's length, by others than prepare
  Status growth_told_ = Status::ok;       // what the last growth returned, and the log was told
  std::mutex marks_mu_;                   // while mark writes super_
  std::atomic<std::uint32_t> marks_{0};   // kVariant..., in both copies, by this open
  mutable std::mutex poison_mu_;          // of the next two
  Report poison_;                         // what turned it read-only
  struct {
    PoolOffset at;
    const char* what = nullptr;
  } damage_;  // or the damage that did
  // Written by create, open, begin_life and set_state, which are not concurrent.
  Superblock super_{};
};

}  // namespace TENUTO_NS::pm

// Medium `journal`: a pool on any file system, safe against power cuts. The pool is mapped
// privately. Flushes take line images (capture.h). A cut goes to the journal file (journal/file.h)
// in one device write for all threads that wait. The line images reach the pool file later.
//
//   flush    line image into the epoch                    nothing waits
//   fence    orders against the epochs                    buffered: a crash loses whole epochs
//   sync     cut, block appended durably                  everything fenced before survives
//   checkpoint   S = end of the journal
//                | a stamp that line images before S may be in the pool file, fdatasync
//                | they, and a stamp that all are, fdatasync | header: start = S
//                | ring space before S is reused
//   open     both files synced: a kill may have left them ahead of their devices
//            | ids and stamp compared | blocks from start on into the pool file, announced and
//            synced as by a checkpoint
//            | superblock announces the new life | header: the new life, nothing in it
//            | superblock says that it runs | stores (a clean pool's says so after recovery, which
//            has nothing to repair then)
//   close    checkpoint | superblock: clean | header: closed
//
// Authoritative: the pool file, then blocks from the header's start on, of the life that the
// superblock names (journal/match.h has the ids at each step). The pool file's pages in memory
// never count: the kernel never writes a private mapping back.
//
// A thread that needs a commit makes it, for all threads that wait meanwhile. One thread alone pays
// no hand-over, and many threads share one device write. The journal has two threads of its own.
// One makes the periodic commits, early when many line images wait, because an epoch that fits into
// a core's cache costs much less. The other makes the checkpoints, for which no commit waits unless
// the ring is full.
//
// A failed write or sync is final. What a failed sync had to write may be gone from the page cache,
// and a later sync that succeeds does not prove anything about it. From then on nothing is
// committed or checkpointed, line images are dropped, and the pool turns read-only. The next open
// replays what was durable. An operation calls status() after its last line image, so it never
// returns ok if its line images were dropped.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "journal/capture.h"
#include "journal/file.h"
#include "journal/line_map.h"
#include "journal/turns.h"
#include "pm/media.h"
#include "tenuto/pool_options.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

struct PoolHealth;

// Replays and checkpoints measure the time of a line. With fewer lines they measure mostly the
// sync.
inline constexpr std::uint64_t kLinesMeasuredMin = 1000;
inline double ns_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

struct JournalStats {
  std::uint64_t commits = 0;         // blocks
  std::uint64_t lines = 0;           // merged line images in them
  std::uint64_t payload_bytes = 0;   // compressed, with headers
  std::uint64_t written_bytes = 0;   // with padding
  std::uint64_t device_flushes = 0;  // of journal and pool
  std::uint64_t checkpoints = 0;
  std::uint64_t checkpoint_bytes = 0;  // written to the pool file
  std::uint64_t used_bytes = 0;        // of the ring, now
  std::uint64_t ring_bytes = 0;
  bool direct = false;     // blocks go past the page cache
  double recovery_ms = 0;  // estimate of a replay after a crash now
  ReplayStats replayed;    // by the open
};

class Journal final : public FlushSink {
 public:
  // Called once, from any thread, when a write or sync has failed.
  using OnFailure = std::function<void(const Report&)>;

  // Opens the pool's journal and replays it into the pool file (pool_fd). `expected` as for
  // JournalFile::open. Nothing is captured before start().
  static Result<std::unique_ptr<Journal>> open(const JournalOptions& options, std::string_view path,
                                               int pool_fd, const JournalFile::Expected& expected,
                                               const ReplayOptions& how, Report* report);
  // The file's path and ids. The superblock names the ids before begin().
  const std::string& path() const { return file_->path(); }
  std::uint64_t journal_id() const { return file_->journal_id(); }
  std::uint64_t life() const { return file_->life(); }
  // Begins a new life. REQUIRES: the superblock has announced it.
  Status begin(const JournalFile::Expected& expected, std::uint64_t life, Report* report);
  // Before begin(): the ring that the options ask for with a pool that has grown. If it fails, with
  // the report, the ring stays as it is, and everything works with it.
  Status grow(Report* report);
  // Instead of begin(): closes it. REQUIRES: the superblock says that the next life uses none.
  void let_go();
  // Starts captures: the pool is mapped at base, and stores begin. Once `health` has a bad page
  // nothing more is committed, because line images may come from the zeros in its place. io: the
  // system has no thread for the journal.
  Status start(const std::byte* base, const PoolHealth* health, OnFailure on_failure,
               Report* report);
  // Stops the journal's threads. What was not synced is lost, as in a crash.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // A flush: takes line images. When too many wait for a cut, it makes a commit first. Any thread.
  void capture(const void* p, std::size_t bytes) override;
  Fence fence() const override { return &Capture::fence_all; }

  // Everything fenced before the call is durable on return. io: the journal failed, now or before.
  // Any thread.
  Status sync();
  // ok, or io: the journal has failed, and what was flushed since may be lost.
  Status status() const { return failed_.load(std::memory_order_acquire); }
  // Everything flushed before the call is in this epoch or an earlier one. Any thread.
  std::uint64_t epoch() const { return capture_->epoch(); }
  // All epochs up to this one are durable. Any thread.
  std::uint64_t durable_epoch() const { return durable_.load(std::memory_order_acquire); }
  // From now on the pool file's own pages hold these lines (PoolFile::share). They still go to the
  // ring, so that a sync makes them durable and a replay restores them. A checkpoint syncs their
  // pages and writes nothing to them. full: no memory.
  Status leave_to_kernel(std::uint64_t first_line, std::uint64_t lines);

  // Makes all that was flushed before durable, and writes it into the pool file. Then no line image
  // of memory that nobody stores to is on its way.
  Status settle();
  // Calls f while no checkpoint writes the pool file.
  template <class F>
  void between_checkpoints(const F& f) {
    const std::lock_guard lock(checkpoint_mu_);
    f();
  }

  // fsync of the pool file, for other code. If it fails, the journal has failed: the next
  // checkpoint's sync would not report it again.
  Status sync_pool(Report* report);

  // Writes all of it into the pool file, durably. REQUIRES: quiescent.
  Status finish(Report* report);

  // Called when the superblock says clean. Stops the journal's threads, which may be about to make
  // a checkpoint. Then marks the file closed, or removes it if it was made for this open only.
  void closed();

  JournalStats stats() const;
  const ReplayStats& replayed() const { return stats_.replayed; }  // constant after open

 private:
  Journal(const JournalOptions& options, int pool_fd);
  Status check_stamp(const JournalFile::Expected& expected, const ReplayOptions& how,
                     Report* report);
  Status replay(const JournalFile::Expected& expected, ReplayOptions how, Report* report);
  // These write stamps into the pool file (journal/page.h). False, with errno: that failed.
  // REQUIRES: checkpoint_mu_ is held, or the pool is being opened.
  bool announce_blocks(std::uint64_t end);
  bool stamp(std::uint64_t block, std::uint64_t end);
  Status commit(std::uint64_t wanted);
  Status commit_now();
  Status append(std::span<const LineImage> images);
  void note_appended(std::span<const LineImage> images);        // REQUIRES: state_mu_
  void note_for_checkpoint(std::span<const LineImage> images);  // REQUIRES: state_mu_
  Status checkpoint();
  Status checkpoint_now();  // REQUIRES: checkpoint_mu_
  template <class F>
  Status unless_without_memory(const F& f);
  Status fail_without_memory();
  double recovery_ms_locked() const;
  Status fail_for_good(Report why);
  Report failure(const char* what) const;  // of the call that set errno
  void make_commits();
  void make_checkpoints();
  bool goes_on_doubling();
  void stop();  // its threads

  const JournalOptions options_;
  const int pool_fd_;
  std::shared_ptr<Capture> capture_;
  const PoolHealth* health_ = nullptr;
  OnFailure on_failure_;
  Report without_memory_;          // constant after start
  std::uint64_t epoch_lines_ = 0;  // max per epoch: a checkpoint makes room for any
  std::uint64_t early_lines_ = 0;  // when more wait, a periodic commit comes early
  std::atomic<bool> early_ = false;
  std::atomic<std::uint64_t> durable_ = 0;  // all epochs <= this are durable
  std::atomic<Status> failed_ = Status::ok;

  CommitTurns turns_;  // one commit at a time
  // The leader's: what it cut, and the newest images of that.
  CutRows cut_;
  NewestImages newest_;
  // Lock order: the lead of a commit, checkpoint_mu_, state_mu_, threads_mu_.
  std::mutex checkpoint_mu_;
  LineMap applied_;  // guarded by checkpoint_mu_
  // Of the newest stamp; guarded by checkpoint_mu_.
  std::uint64_t stamp_sequence_ = 0;
  std::uint64_t in_pool_ = 1;  // all blocks before this one are in the pool file
  std::atomic<bool> begun_ = false;
  mutable std::mutex state_mu_;
  std::unique_ptr<JournalFile> file_;  // guarded by state_mu_
  LineMap since_checkpoint_;  // guarded by state_mu_: line images of the blocks since start
  // Guarded by state_mu_: what the kernel writes back, ascending; and how many line images of it
  // are in the blocks since the start.
  struct Lines {
    std::uint64_t first;
    std::uint64_t end;
  };
  std::vector<Lines> kernels_;
  std::uint64_t kernels_since_checkpoint_ = 0;
  std::uint64_t applying_lines_ = 0;  // guarded by state_mu_: of the checkpoint under way
  double ns_per_line_;                // guarded by state_mu_: to the pool file, as measured
  double ns_per_byte_;                // of the ring, to read and unpack; constant after open
  JournalStats stats_;                // guarded by state_mu_

  std::mutex threads_mu_;
  std::condition_variable wake_commits_;
  std::condition_variable wake_checkpoints_;
  bool stopping_ = false;          // guarded by threads_mu_
  bool wants_checkpoint_ = false;  // guarded by threads_mu_
  std::thread commits_;            // none if sync_every_ms is 0
  std::thread checkpoints_;
  // Of the thread of checkpoints: how far it is with twice the ring.
  enum class Doubling : std::uint8_t { prepares, prepared, refused };
  Doubling doubling_ = Doubling::prepares;
};

}  // namespace TENUTO_NS::pm

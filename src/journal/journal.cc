#include "journal/journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "journal/page.h"
#include "pm/assert.h"
#include "pm/bus_error.h"
#include "pm/no_memory.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/thread.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kPieceBytes = 8u << 10;  // captured at once, so that a cut waits only briefly
constexpr std::uint64_t kEpochShare = 8;       // an epoch is at most an eighth of the ring
static_assert(kJournalBytesMin / kEpochShare > kPieceBytes);
constexpr std::uint64_t kEarlyLines = 16u << 10;  // a MiB of line images: fits into a core's cache
constexpr std::uint64_t kEpochBytesMax = 32u << 20;
constexpr std::uint64_t kCheckpointShare = 2;  // at half of the ring a checkpoint begins

// What a replay costs, before anything was measured.
constexpr double kNsPerLine = 1000;
constexpr double kNsPerByte = 2;

Status look(std::span<const LineImage>) { return Status::ok; }  // writes nothing

constexpr const char* kWhatToDo =
    "; what was synced is safe: see to the device, close the pool, and open it again";

}  // namespace

// --- opening -------------------------------------------------------------------------------------

Journal::Journal(const JournalOptions& options, int pool_fd)
    : options_(options), pool_fd_(pool_fd), ns_per_line_(kNsPerLine), ns_per_byte_(kNsPerByte) {}

Result<std::unique_ptr<Journal>> Journal::open(const JournalOptions& options, std::string_view path,
                                               int pool_fd, const JournalFile::Expected& expected,
                                               const ReplayOptions& how, Report* report) {
  std::unique_ptr<Journal> j(new Journal(options, pool_fd));
  // A killed process may have left a superblock that can be read but is not durable. It decides
  // whether the blocks count, so it must be durable before they are used.
  if (!sync_data(pool_fd)) {
    return fail_errno(errno, "cannot sync the pool before its journal is read", path, report);
  }
  const std::uint64_t ring_bytes = JournalFile::ring_bytes_for(options, pool_fd);
  auto file = JournalFile::open(path, ring_bytes, expected, report);
  if (!file) return file.error();
  j->file_ = std::move(*file);
  const StampsFound stamps = read_stamps(pool_fd, j->file_->life());
  j->stamp_sequence_ = stamps.sequence;
  j->in_pool_ = stamps.block;
  if (j->file_->use() == JournalUse::replay) {
    TENUTO_TRY(j->check_stamp(expected, how, report));
    TENUTO_TRY(j->replay(expected, how, report));
  }
  if (j->file_->use() == JournalUse::unborn) {
    ReplayStats found;
    TENUTO_TRY(j->file_->replay(how, look, &found, report));
    if (found.blocks != 0) {
      return fail(Status::corrupt, report,
                  "the journal holds writes of a life that the pool file only announces: the pool "
                  "is an older copy than its journal; put the right one back",
                  std::string(path));
    }
  }
  j->file_->set_temporary(!options.keep);
  return j;
}

// Refuses a pool file, or a journal, that is an older copy of the same life. A stamp ahead of the
// start is of a checkpoint or a replay that was cut short. Only then the ring is read twice, to
// check that it reaches to the stamp's end.
Status Journal::check_stamp(const JournalFile::Expected& expected, const ReplayOptions& how,
                            Report* report) {
  if (expected.any_pool() || TENUTO_PLANT("journal_older_copy_believed")) return Status::ok;
  const StampsFound stamps = read_stamps(pool_fd_, file_->life());
  const auto start = file_->start().block;
  if (start > stamps.block && !stamps.damaged) {
    return fail(Status::corrupt, report,
                "the journal says that the pool file holds more than it does: the pool is an older "
                "copy than its journal; put the right one back",
                file_->path(), "blocks before " + std::to_string(stamps.block) + " in the pool",
                "before " + std::to_string(start));
  }
  if (start >= stamps.end) return Status::ok;
  const JournalFile::Position from = file_->end();
  TENUTO_TRY(file_->replay(how, look, nullptr, report));
  const std::uint64_t end = file_->end().block;
  file_->rewind(from);
  if (end >= stamps.end) return Status::ok;
  return fail(Status::corrupt, report,
              "the pool file holds more than its journal ever did: the journal is an older copy, "
              "or damaged; put the right one back",
              file_->path(), "blocks up to " + std::to_string(stamps.end),
              "up to " + std::to_string(end));
}

Status Journal::replay(const JournalFile::Expected& expected, ReplayOptions how, Report* report) {
  struct stat st {};
  if (::fstat(pool_fd_, &st) != 0) {
    return fail_errno(errno, "cannot look at the pool file (fstat)", expected.pool_path, report);
  }
  how.lines_max = static_cast<std::uint64_t>(st.st_size) / kLineBytes;
  ReplayStats& r = stats_.replayed;
  const auto failed = [&] {
    return fail_errno(errno, "cannot write what the journal holds to the pool", file_->path(),
                      report);
  };
  in_pool_ = std::max(in_pool_, file_->start().block);  // if no stamp can be read
  const auto to_pool = [&](std::span<const LineImage> images) {
    if (images.empty()) return Status::ok;
    if (!announce_blocks(file_->end().block)) return failed();
    const Status s = write_to_pool(pool_fd_, images, how.threads, &r.pool_bytes);
    return s == Status::ok ? s : failed();
  };
  const auto begin = std::chrono::steady_clock::now();
  TENUTO_TRY(file_->replay(how, to_pool, &r, report));
  if (!TENUTO_PLANT("journal_replay_not_synced") && !sync_data(pool_fd_)) return failed();
  r.ms = ns_since(begin) / 1e6;
  if (r.lines >= kLinesMeasuredMin) {
    ns_per_line_ = r.ms * 1e6 / static_cast<double>(r.lines);
    ns_per_byte_ = 0;  // ns_per_line_ includes it
  }
  return Status::ok;
}

Status Journal::grow(Report* report) {
  if (options_.bytes != 0) return Status::ok;
  return file_->grow_ring(JournalFile::ring_bytes_for(options_, pool_fd_), report);
}

Status Journal::begin(const JournalFile::Expected& expected, std::uint64_t life, Report* report) {
  TENUTO_TRY(file_->begin(expected, life, report));
  in_pool_ = 1;
  file_->keep();
  begun_.store(true);
  return Status::ok;
}

Status Journal::start(const std::byte* base, const PoolHealth* health, OnFailure on_failure,
                      Report* report) {
  capture_ = std::make_shared<Capture>(base);
  epoch_lines_ = std::min(file_->ring_bytes() / kEpochShare, kEpochBytesMax) / kLineBytes;
  early_lines_ = std::min(epoch_lines_ / 2, kEarlyLines);
  if (options_.sync_every_ms == 0) early_lines_ = ~std::uint64_t{0};
  health_ = health;
  on_failure_ = std::move(on_failure);
  without_memory_ = {std::string("there is no memory for what the journal is to write") + kWhatToDo,
                     file_->path(),
                     {},
                     {}};
  const bool started = started_threads([this] {
    checkpoints_ = pm::new_thread([this] { make_checkpoints(); });
    if (options_.sync_every_ms != 0) commits_ = pm::new_thread([this] { make_commits(); });
  });
  if (started) return Status::ok;
  stop();
  return fail(Status::io, report, kNoThread, file_->path());
}

Journal::~Journal() { stop(); }

void Journal::stop() {
  {
    const std::lock_guard lock(threads_mu_);
    stopping_ = true;
  }
  wake_commits_.notify_all();
  wake_checkpoints_.notify_all();
  for (std::thread* const t : {&commits_, &checkpoints_}) {
    if (t->joinable()) join(*t);
  }
}

// --- use -----------------------------------------------------------------------------------------

void Journal::capture(const void* p, std::size_t bytes) {
  const auto* at = reinterpret_cast<const std::byte*>(line_of(p));
  const auto* const end = static_cast<const std::byte*>(p) + bytes;
  for (bool failed_before = false; at < end;) {
    const auto n = std::min<std::size_t>(static_cast<std::size_t>(end - at), kPieceBytes);
    bool no_memory = false;
    const std::byte* const stopped = capture_->capture(at, n, epoch_lines_, &no_memory);
    at = stopped == nullptr ? at + n : stopped;
    if (capture_->pending_lines() > early_lines_ && !early_.load(std::memory_order_relaxed) &&
        !early_.exchange(true, std::memory_order_relaxed)) {
      const std::lock_guard lock(threads_mu_);
      wake_commits_.notify_one();
    }
    // A cut may leave this thread a row with more room. If there is no memory after that either,
    // the journal fails as after a failed write: without a line image nothing becomes durable.
    if (no_memory && std::exchange(failed_before, true)) {
      static_cast<void>(fail_without_memory());
      return;
    }
    failed_before = no_memory;
    // Waits here, never inside a capture. After a failure no thread makes room, and nothing is
    // written any more: the pool is read-only.
    if (stopped != nullptr && commit(capture_->epoch()) != Status::ok) return;
  }
}

Status Journal::sync() {
  if (TENUTO_PLANT("journal_sync_does_not_wait")) return Status::ok;
  return commit(capture_->epoch());
}

Status Journal::commit(std::uint64_t wanted) {
  const auto is_durable = [&] { return durable_.load(std::memory_order_acquire) >= wanted; };
  if (is_durable()) return Status::ok;
  turns_.arrive(wanted);
  Status s = Status::ok;
  while (s == Status::ok && !is_durable()) {
    const std::uint32_t round = turns_.round();
    s = failed_.load();
    if (s != Status::ok || is_durable()) continue;
    if (!turns_.lead()) {
      turns_.wait(round, wanted);
      continue;
    }
    if (!is_durable()) s = unless_without_memory([this] { return commit_now(); });
    turns_.pass(durable_.load(std::memory_order_relaxed), s != Status::ok);
  }
  return s;
}

// For code that leads or holds checkpoint_mu_: other threads wait for it, so it must not throw.
template <class F>
Status Journal::unless_without_memory(const F& f) {
  Status s = Status::ok;
  return had_memory([&] { s = f(); }) ? s : fail_without_memory();
}

Status Journal::commit_now() {
  if (TENUTO_PLANT("journal_no_memory_in_a_commit")) throw_bad_alloc();
  TENUTO_TRY(status());
  turns_.gather(capture_->epoch());
  cut_.clear();
  const std::uint64_t e = capture_->cut(cut_);
  if (health_ != nullptr && health_->bad_page.load() != 0) {
    return fail_for_good(
        {"a page of the pool cannot be read or written, so nothing more is written "
         "to the journal",
         file_->path(),
         {},
         {}});
  }
  const std::span<const LineImage> images = newest_.of(cut_.rows());
  if (!images.empty()) {
    TENUTO_ASSERT(begun_.load());
    Status s = append(images);
    if (s == Status::full) {
      TENUTO_TRY(checkpoint());
      s = append(images);
    }
    TENUTO_ASSERT(s != Status::full);  // an empty ring has room for any epoch
    TENUTO_TRY(s);
  }
  durable_.store(e, std::memory_order_release);
  return Status::ok;
}

// Moves the journal's end together with the line images for the next checkpoint. io is final.
Status Journal::append(std::span<const LineImage> images) {
  Report why;
  bool too_long = false;
  {
    const std::lock_guard lock(state_mu_);
    since_checkpoint_.make_room(images.size());  // before the block is durable
    const Status s = file_->append(images, &why);
    if (s == Status::full) return s;
    if (s == Status::ok) {
      note_appended(images);
      too_long = options_.recovery_ms_max != 0 && recovery_ms_locked() > options_.recovery_ms_max;
    }
    if (s != Status::ok && TENUTO_PLANT("journal_failed_write_forgotten")) return Status::ok;
  }
  if (!why.what.empty()) return fail_for_good(std::move(why));
  return too_long && !TENUTO_PLANT("journal_recovery_not_bounded") ? checkpoint() : Status::ok;
}

void Journal::note_appended(std::span<const LineImage> images) {
  stats_.commits += 1;
  stats_.lines += images.size();
  const bool missed = TENUTO_PLANT("journal_block_missed_by_checkpoint");
  if (missed && stats_.commits % 4 == 0) return;
  if (TENUTO_PLANT("journal_checkpoint_keeps_older_images")) {
    for (const LineImage& p : images) {
      if (!since_checkpoint_.has(p.line)) since_checkpoint_.put_all({&p, 1});
    }
  } else {
    note_for_checkpoint(images);
  }
  const bool half_full = file_->used_bytes() > file_->ring_bytes() / kCheckpointShare;
  const bool half_long = options_.recovery_ms_max != 0 &&
                         recovery_ms_locked() > options_.recovery_ms_max / 2.0 &&
                         !TENUTO_PLANT("journal_recovery_not_bounded");
  if (!half_full && !half_long) return;
  const std::lock_guard lock_of_threads(threads_mu_);
  wants_checkpoint_ = true;
  wake_checkpoints_.notify_one();
}

double Journal::recovery_ms_locked() const {
  const auto lines =
      static_cast<double>(since_checkpoint_.size() + kernels_since_checkpoint_ + applying_lines_);
  const auto bytes = static_cast<double>(file_->used_bytes());
  return (lines * ns_per_line_ + bytes * ns_per_byte_) / 1e6;
}

// `why` says what failed and where. What to do is the same for all failures, and is added.
Status Journal::fail_for_good(Report why) {
  Status none = Status::ok;
  if (!failed_.compare_exchange_strong(none, Status::io)) return Status::io;
  why.what += kWhatToDo;
  on_failure_(why);
  return Status::io;
}

// Builds no text: there may be no memory for it.
Status Journal::fail_without_memory() {
  Status none = Status::ok;
  if (!failed_.compare_exchange_strong(none, Status::io)) return Status::io;
  // on_failure_ first turns the pool read-only. Only the texts after that need memory.
  static_cast<void>(had_memory([this] { on_failure_(without_memory_); }));
  return Status::io;
}

// A failure is reported before the next checkpoint may begin: the line images that this one took
// are in no map any more.
Status Journal::checkpoint() {
  const std::lock_guard lock(checkpoint_mu_);
  return unless_without_memory([this] { return checkpoint_now(); });
}

// The two threads of a journal. A commit does not wait for a checkpoint, or buffered writes would
// be late by as long as the pool file takes. Both tell the pool of a failure; they have no caller.
void Journal::make_commits() {
  const auto every = std::chrono::milliseconds(options_.sync_every_ms);
  std::unique_lock lock(threads_mu_);
  while (!stopping_) {
    wake_commits_.wait_for(lock, every,
                           [&] { return stopping_ || early_.load(std::memory_order_relaxed); });
    if (stopping_) return;
    lock.unlock();
    early_.store(false, std::memory_order_relaxed);
    if (capture_->pending_lines() != 0) static_cast<void>(sync());
    lock.lock();
  }
}

void Journal::make_checkpoints() {
  bool doubles = false;  // the ring, piece by piece
  std::unique_lock lock(threads_mu_);
  while (!stopping_) {
    wake_checkpoints_.wait(lock, [&] { return stopping_ || wants_checkpoint_ || doubles; });
    if (stopping_) return;
    const bool wants_checkpoint = std::exchange(wants_checkpoint_, false);
    lock.unlock();
    if (wants_checkpoint) static_cast<void>(checkpoint());
    doubles = goes_on_doubling();
    lock.lock();
  }
}

JournalStats Journal::stats() const {
  const std::lock_guard lock(state_mu_);
  JournalStats s = stats_;
  s.payload_bytes = file_->payload_bytes();
  s.written_bytes = file_->written_bytes();
  s.device_flushes += file_->device_flushes();
  s.used_bytes = file_->used_bytes();
  s.ring_bytes = file_->ring_bytes();
  s.direct = file_->direct();
  s.recovery_ms = recovery_ms_locked();
  return s;
}

}  // namespace TENUTO_NS::pm

#include "pm/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "pm/journal_lines.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {

constexpr std::size_t kPieceBytes = 8u << 10;  // captured at once, so that a cut waits little
constexpr std::uint64_t kEpochShare = 8;       // no epoch is more than an eighth of the ring
static_assert(kJournalBytesMin / kEpochShare > kPieceBytes);
constexpr std::uint64_t kEarlyLines = 16u << 10;  // a MiB of pictures: fits into a core's cache
constexpr std::uint64_t kCheckpointShare = 2;     // at half of the ring a checkpoint begins

}  // namespace

// --- opening -------------------------------------------------------------------------------------

Result<std::unique_ptr<Journal>> Journal::open(const JournalOptions& options, std::string_view path,
                                               int pool_fd, const JournalFile::Expected& expected,
                                               std::uint64_t* replayed, Report* report) {
  std::unique_ptr<Journal> j(new Journal(options, pool_fd));
  // A killed process may have left a superblock that can be read and is not durable. It says
  // whether the blocks count, so it comes before what is done about them.
  if (::fdatasync(pool_fd) != 0) {
    return fail_errno(errno, "cannot sync the pool before its journal is read", path, report);
  }
  auto file = JournalFile::open(path, options.bytes, expected, report);
  if (!file) return file.error();
  j->file_ = std::move(*file);
  *replayed = 0;
  if (expected.incarnation != 0) {
    LineMap merged;
    TENUTO_TRY(j->file_->replay(
        [&](const LineMap& block) {
          *replayed += 1;
          for (std::size_t i = 0; i < block.size(); ++i) {
            merged.put(block.line(i), 0, block.picture(i));
          }
          return Status::ok;
        },
        report));
    std::uint64_t bytes = 0;
    const bool forgets_sync = TENUTO_PLANT_DISK("journal_replay_not_synced");
    if (write_to_pool(pool_fd, merged, &bytes) != Status::ok ||
        (!forgets_sync && ::fdatasync(pool_fd) != 0)) {
      return fail_errno(errno, "cannot write what the journal holds to the pool", path, report);
    }
  }
  TENUTO_TRY(j->file_->begin(report));
  return j;
}

void Journal::start(const std::byte* base, OnFailure on_failure) {
  capture_ = std::make_shared<Capture>(base);
  epoch_lines_ = file_->ring_bytes() / kEpochShare / kLineBytes;
  early_lines_ = std::min(epoch_lines_ / 2, kEarlyLines);
  if (options_.sync_every_ms == 0) early_lines_ = ~std::uint64_t{0};
  on_failure_ = std::move(on_failure);
  thread_ = std::thread([this] { run(); });
}

Journal::~Journal() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(thread_mu_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// In the order of the file, neighbours together.
Status Journal::write_to_pool(int pool_fd, const LineMap& lines, std::uint64_t* bytes) {
  const std::vector<std::uint32_t> order = in_order(lines);
  std::vector<LineBytes> run;
  for (std::size_t i = 0; i < order.size();) {
    const std::uint64_t first = lines.line(order[i]);
    run.clear();
    for (; i < order.size() && lines.line(order[i]) == first + run.size() &&
           run.size() < kPieceBytes / kLineBytes;
         ++i) {
      run.push_back(lines.picture(order[i]));
    }
    const auto* data = reinterpret_cast<const char*>(run.data());
    for (std::size_t done = 0, want = run.size() * kLineBytes; done < want;) {
      const ssize_t n = ::pwrite(pool_fd, data + done, want - done,
                                 static_cast<off_t>(first * kLineBytes + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        if (n == 0) errno = EIO;
        return status_of_errno(errno);
      }
      done += static_cast<std::size_t>(n);
    }
    *bytes += run.size() * kLineBytes;
  }
  return Status::ok;
}

// --- use -----------------------------------------------------------------------------------------

void Journal::capture(const void* p, std::size_t bytes) {
  const auto* at = reinterpret_cast<const std::byte*>(line_of(p));
  const auto* const end = static_cast<const std::byte*>(p) + bytes;
  while (at < end) {
    const auto n = std::min<std::size_t>(static_cast<std::size_t>(end - at), kPieceBytes);
    const std::byte* const stopped = capture_->capture(at, n, epoch_lines_);
    at = stopped == nullptr ? at + n : stopped;
    if (capture_->pending_lines() > early_lines_ && !early_.load(std::memory_order_relaxed) &&
        !early_.exchange(true, std::memory_order_relaxed)) {
      const std::lock_guard lock(thread_mu_);
      wake_.notify_one();
    }
    // Waits here, never inside a capture. After a failure nobody makes room, and nothing is written
    // any more: the pool is read-only.
    if (stopped != nullptr && commit(capture_->epoch()) != Status::ok) return;
  }
}

Status Journal::sync() {
  if (TENUTO_PLANT_DISK("journal_sync_does_not_wait")) return Status::ok;
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
    if (!is_durable()) s = commit_now();
    turns_.pass(durable_.load(std::memory_order_relaxed), s != Status::ok);
  }
  return s;
}

Status Journal::commit_now() {
  TENUTO_TRY(failed_.load());
  turns_.gather(capture_->epoch());
  cut_.clear();
  const std::uint64_t e = capture_->cut(cut_);
  if (cut_.size() != 0) {
    Status s = append();
    if (s == Status::full) {
      TENUTO_TRY(checkpoint());
      s = append();
    }
    if (s != Status::ok) return fail_for_good(s, "cannot write to the journal");
  }
  durable_.store(e, std::memory_order_release);
  return Status::ok;
}

// The end of the journal and the pictures for the next checkpoint move together.
Status Journal::append() {
  const std::lock_guard lock(state_mu_);
  TENUTO_TRY(file_->append(cut_));
  stats_.commits += 1;
  stats_.lines += cut_.size();
  const bool missed = TENUTO_PLANT_DISK("journal_block_missed_by_checkpoint");
  if (missed && stats_.commits % 4 == 0) return Status::ok;
  for (std::size_t i = 0; i < cut_.size(); ++i) {
    if (TENUTO_PLANT_DISK("journal_checkpoint_keeps_older_pictures")) {
      since_checkpoint_.merge(cut_.line(i), ~file_->end().block, cut_.picture(i));
      continue;
    }
    since_checkpoint_.put(cut_.line(i), 0, cut_.picture(i));
  }
  if (file_->used_bytes() > file_->ring_bytes() / kCheckpointShare) {
    const std::lock_guard lock_of_thread(thread_mu_);
    wants_checkpoint_ = true;
    wake_.notify_one();
  }
  return Status::ok;
}

Status Journal::fail_for_good(Status why, const std::string& what) {
  Status none = Status::ok;
  const Status told = why == Status::full ? Status::full : Status::io;
  if (failed_.compare_exchange_strong(none, told)) on_failure_(told, what);
  return failed_.load();
}

Status Journal::checkpoint() {
  const std::lock_guard lock(checkpoint_mu_);
  JournalFile::Position start;
  applied_.clear();
  {
    const std::lock_guard state(state_mu_);
    start = file_->end();
    std::swap(applied_, since_checkpoint_);
  }
  std::uint64_t bytes = 0;
  const bool early = TENUTO_PLANT_DISK("journal_start_before_pool_synced");
  if (write_to_pool(pool_fd_, applied_, &bytes) != Status::ok ||
      (!early && ::fdatasync(pool_fd_) != 0)) {
    return fail_for_good(Status::io, "cannot write the journal's content to the pool");
  }
  const std::lock_guard state(state_mu_);
  if (file_->set_start(start) != Status::ok) {
    return fail_for_good(Status::io, "cannot write the journal's header");
  }
  stats_.checkpoints += 1;
  stats_.checkpoint_bytes += bytes;
  stats_.device_flushes += 1;
  return Status::ok;
}

Status Journal::finish(Report* report) {
  Status s = sync();
  if (s == Status::ok) s = checkpoint();
  if (s == Status::ok) return s;
  return fail(s, report, "the journal could not be written into the pool: a write or sync failed",
              file_->path());
}

void Journal::closed() {
  if (!options_.keep) ::unlink(file_->path().c_str());
}

void Journal::run() {
  const auto every = std::chrono::milliseconds(options_.sync_every_ms);
  std::unique_lock lock(thread_mu_);
  while (!stopping_) {
    const auto woken = [this] {
      return stopping_ || wants_checkpoint_ || early_.load(std::memory_order_relaxed);
    };
    if (options_.sync_every_ms == 0) {
      wake_.wait(lock, woken);
    } else {
      wake_.wait_for(lock, every, woken);
    }
    if (stopping_) return;
    const bool wants_checkpoint = std::exchange(wants_checkpoint_, false);
    lock.unlock();
    early_.store(false, std::memory_order_relaxed);
    // Failures are told to the pool; there is nobody else to tell here.
    if (wants_checkpoint) static_cast<void>(checkpoint());
    if (options_.sync_every_ms != 0 && capture_->pending_lines() != 0) static_cast<void>(sync());
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
  return s;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

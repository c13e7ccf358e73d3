// Checkpoints: the contents of the journal's durable blocks go into the pool file and are synced
// there. Only then the journal's start moves (journal.h). Also what follows one: a larger ring, or
// the end of a life.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "journal/journal.h"
#include "journal/page.h"
#include "pm/no_memory.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

namespace {

// The weight of a new measurement in the average. A replay must first read pages that a checkpoint
// finds in the page cache, so it takes kColdFactor times as long.
constexpr double kNewShare = 0.25;
constexpr double kColdFactor = 2;

}  // namespace

// Called before anything of the blocks before `end` goes into the pool file. A journal that ends
// earlier is then known to be an older copy, however far the writes came.
bool Journal::announce_blocks(std::uint64_t end) {
  if (TENUTO_PLANT("journal_pool_written_unannounced")) return true;
  return stamp(in_pool_, end) && sync_data(pool_fd_);
}

bool Journal::stamp(std::uint64_t block, std::uint64_t end) {
  if (!write_stamp(pool_fd_, file_->life(), block, end, ++stamp_sequence_)) return false;
  in_pool_ = block;
  return true;
}

// Both are in ascending order.
void Journal::note_for_checkpoint(std::span<const LineImage> images) {
  if (TENUTO_PLANT("journal_checkpoint_writes_shared_pages")) {
    return since_checkpoint_.put_all(images);
  }
  const auto before = [](const LineImage& i, std::uint64_t line) { return i.line < line; };
  auto from = images.begin();
  for (const Lines& shared : kernels_) {
    const auto first = std::lower_bound(from, images.end(), shared.first, before);
    const auto end = std::lower_bound(first, images.end(), shared.end, before);
    since_checkpoint_.put_all({from, first});
    kernels_since_checkpoint_ += static_cast<std::uint64_t>(end - first);
    from = end;
  }
  since_checkpoint_.put_all({from, images.end()});
}

Status Journal::leave_to_kernel(std::uint64_t first_line, std::uint64_t lines) {
  const std::lock_guard lock(state_mu_);
  const bool there = had_memory([&] { kernels_.push_back({first_line, first_line + lines}); });
  if (!there) return Status::full;
  std::sort(kernels_.begin(), kernels_.end(),
            [](const Lines& a, const Lines& b) { return a.first < b.first; });
  return Status::ok;
}

Status Journal::checkpoint_now() {
  // The line images of a failed checkpoint are gone, so the start must not move.
  TENUTO_TRY(status());
  JournalFile::Position start;
  applied_.clear();
  {
    const std::lock_guard state(state_mu_);
    start = file_->end();
    std::swap(applied_, since_checkpoint_);
    applying_lines_ = applied_.size() + std::exchange(kernels_since_checkpoint_, 0);
  }
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t bytes = 0;
  const bool early = TENUTO_PLANT("journal_start_before_pool_synced");
  const bool careless = TENUTO_PLANT("journal_failed_checkpoint_forgotten");
  const bool applied = announce_blocks(start.block) &&
                       write_to_pool(pool_fd_, applied_.in_order(), 1, &bytes) == Status::ok &&
                       stamp(start.block, start.block) && (early || sync_data(pool_fd_));
  if (!applied && !careless)
    return fail_for_good(failure("cannot write the journal's content to the pool"));
  Report why;
  {
    const std::lock_guard state(state_mu_);
    if (file_->set_start(start, &why) == Status::ok) {
      applying_lines_ = 0;
      const auto lines = static_cast<double>(applied_.size());
      if (applied_.size() >= kLinesMeasuredMin && !TENUTO_PLANT("journal_rate_not_measured")) {
        const double measured = kColdFactor * ns_since(begin) / lines;
        ns_per_line_ += kNewShare * (measured - ns_per_line_);
      }
      stats_.checkpoints += 1;
      stats_.checkpoint_bytes += bytes;
      stats_.device_flushes += 2;
    }
  }
  return why.what.empty() ? Status::ok : fail_for_good(std::move(why));
}

// A pool that grew while it is open gets a larger ring, so that fewer checkpoints write its leaves
// again and again. After a checkpoint few blocks count. Without space the ring stays as it is.
// True: there is more to prepare.
bool Journal::goes_on_doubling() {
  if (options_.bytes != 0 || doubling_ == Doubling::refused || status() != Status::ok) return false;
  if (2 * file_->ring_bytes() > JournalFile::ring_bytes_for(options_, pool_fd_)) return false;
  if (doubling_ == Doubling::prepares) {
    Result<bool> whole = Status::full;
    static_cast<void>(had_memory([&] { whole = file_->prepare_double(nullptr); }));
    if (whole && !*whole) return true;
    doubling_ = whole ? Doubling::prepared : Doubling::refused;
    if (!whole) return false;
  }
  Report why;
  {
    const std::lock_guard lock(state_mu_);
    if (!file_->may_double() || status() != Status::ok) return false;
    doubling_ = Doubling::prepares;
    if (file_->double_ring(&why) == Status::ok) return false;
  }
  static_cast<void>(fail_for_good(std::move(why)));
  return false;
}

Report Journal::failure(const char* what) const {
  Report why;
  static_cast<void>(fail_errno(errno, what, file_->path(), &why));
  return why;
}

Status Journal::settle() {
  TENUTO_TRY(sync());
  return TENUTO_PLANT("journal_images_of_holes_kept") ? Status::ok : checkpoint();
}

Status Journal::sync_pool(Report* report) {
  const std::lock_guard lock(checkpoint_mu_);
  if (sync_whole(pool_fd_)) return Status::ok;
  Report why = failure("cannot sync the pool file");
  if (report != nullptr) *report = why;
  if (TENUTO_PLANT("journal_failed_sync_of_the_pool_forgotten")) return Status::io;
  return fail_for_good(std::move(why));
}

Status Journal::finish(Report* report) {
  Status s = sync();
  if (s == Status::ok) s = checkpoint();
  if (s == Status::ok) return s;
  return fail(s, report,
              "the journal could not be written into the pool: a write or sync failed. What was "
              "synced is safe: see to the device, and open the pool again",
              file_->path());
}

// A failure loses nothing: the header then says running in a life that the pool knows to be over.
void Journal::closed() {
  if (!TENUTO_PLANT("journal_thread_outlives_its_life")) stop();
  const std::lock_guard state(state_mu_);
  if (file_->temporary()) return file_->remove();
  static_cast<void>(file_->close_life(nullptr));
}

void Journal::let_go() {
  file_->keep();
  closed();
}

}  // namespace TENUTO_NS::pm

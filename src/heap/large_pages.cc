#include "heap/large_pages.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/process.h"
#include "pm/thread.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kTriesMax = 3;     // of one huge frame
constexpr unsigned kRefusalsMax = 8;  // in a row: the kernel cannot do it here
constexpr auto kLater = std::chrono::seconds(1);
// An open pool that takes less has no need of space.
constexpr std::int64_t kFramesBeforeLook = (1u << 20) / kFrameBytes;

// Threads that touch a huge frame wait while it is joined. Joins take at most a tenth of the time.
constexpr int kRestFactor = 9;

// A thread that waits for the end of a step gets its turn before the next one.
constexpr auto kBetweenSteps = std::chrono::microseconds(200);

std::unique_lock<std::mutex> no_fork() {
  std::this_thread::sleep_for(kBetweenSteps);
  std::unique_lock lock(pm::process_locks.steps, std::defer_lock);
  if (!TENUTO_PLANT("heap_pages_joined_beside_fork")) lock.lock();
  return lock;
}
}  // namespace

LargePages::LargePages(pm::PoolFile& file, Holes& holes, const frame::Frames& frames)
    : file_(file),
      holes_(holes),
      frames_(frames),
      until_look_(kFramesBeforeLook),
      tries_pages_(file.bytes_max() / kHugeBytes + 1),
      tries_(tries_pages_.as<std::uint8_t>()),
      rests_pages_((file.bytes_max() / kHugeBytes + 1) * sizeof(std::int64_t)),
      rests_(rests_pages_.as<std::int64_t>()) {}

void LargePages::start() {
  file_.drop_prepared();
  const std::lock_guard lock(mu_);
  started_ = true;
  start_thread();
}

void LargePages::look() {
  {
    const std::lock_guard lock(mu_);
    wanted_ = true;
    start_thread();
  }
  wake_.notify_one();
}

void LargePages::grown() {
  grows_.store(true, std::memory_order_relaxed);
  look_for_space();
}

void LargePages::look_for_space() {
  due_.store(true, std::memory_order_relaxed);
  look();
}

// REQUIRES: mu_.
void LargePages::start_thread() {
  if (!started_ || stopping_ || thread_.joinable()) return;
  if (!file_.may_make_large()) return;
  if (file_.bytes() < kPoolBytesLeast && !grows_.load(std::memory_order_relaxed)) return;
  if (tries_ == nullptr || rests_ == nullptr) return;
  static_cast<void>(pm::had_thread([this] { thread_ = pm::new_thread([this] { run(); }); }));
}

void LargePages::stop() {
  std::thread ended;
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    ended = std::move(thread_);
  }
  wake_.notify_one();
  if (!ended.joinable()) return;
  pm::join(ended);
  file_.drop_prepared();
}

bool LargePages::stopping() {
  const std::lock_guard lock(mu_);
  return stopping_;
}

void LargePages::run() {
  const pm::MetadataOpen rights;
  pm::lower_priority();
  std::unique_lock lock(mu_);
  while (!stopping_) {
    wanted_ = false;
    later_ = false;
    lock.unlock();
    if (!file_.may_make_large()) return;
    prepare();
    while (join_all()) prepare();
    lock.lock();
    const auto called = [this] { return stopping_ || wanted_; };
    if (later_) {
      wake_.wait_for(lock, kLater, called);
    } else {
      wake_.wait(lock, called);
    }
  }
}

// --- space ---------------------------------------------------------------------------------------

// Each look sets when the next one is due, and does so first: a growth meanwhile asks for another.
void LargePages::prepare() {
  if (!prepares_ || !due_.exchange(false, std::memory_order_relaxed)) return;
  const std::uint64_t growth = file_.growth_bytes();
  const std::uint64_t least = growth / 2;
  const std::uint64_t free = frames_.stats().frames_free * kFrameBytes;
  const std::uint64_t spare = free > least ? free - least : 0;
  const auto next = static_cast<std::int64_t>((spare > 0 ? spare : growth / 4) / kFrameBytes);
  until_look_.store(std::max(next, kFramesBeforeLook), std::memory_order_relaxed);
  if (spare > 0) return;
  Status s = Status::ok;
  for (std::uint64_t ready = file_.prepared_bytes(); s == Status::ok && !stopping();
       ready += kHugeBytes) {
    s = Status::full;
    static_cast<void>(pm::had_memory([&] { s = prepare_step(ready); }));
  }
  if (s != Status::busy) return;  // full: not tried again before the next look
  due_.store(true, std::memory_order_relaxed);
  later_ = true;
}

// The space may become a zone, and lose pages, before they are joined. So nothing is punched.
// `ready` is prepared. If it is less, a trim has given it back, or a growth has taken it and asks
// for more.
Status LargePages::prepare_step(std::uint64_t ready) {
  const auto lock = no_fork();
  const auto no_punch = holes_.try_to_stop_punches();
  if (file_.prepared_bytes() < ready) return Status::full;
  return no_punch.owns_lock() ? file_.prepare() : Status::busy;
}

// --- large pages ---------------------------------------------------------------------------------

// Joins what can be joined. True: it stopped half-way, because there is something newer.
bool LargePages::join_all() {
  if (file_.bytes() < kPoolBytesLeast) return false;
  for (std::uint64_t huge = file_.bytes() / kHugeBytes; huge > 0; --huge) {
    if (!file_.may_make_large() || refusals_ == kRefusalsMax) return false;
    const auto begin = std::chrono::steady_clock::now();
    if (!step(huge - 1)) continue;
    std::unique_lock lock(mu_);
    const auto called = [this] { return stopping_ || due_.load(std::memory_order_relaxed); };
    wake_.wait_for(lock, kRestFactor * (std::chrono::steady_clock::now() - begin), called);
    if (stopping_) return false;
    if (std::exchange(wanted_, false)) return true;
  }
  return false;
}

// Whether it has been whole for a while, as far as the thread knows.
bool LargePages::rested(std::uint64_t huge) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                       std::chrono::steady_clock::now().time_since_epoch())
                       .count();
  if (holes_.take_punched(huge)) rests_[huge] = now + rest_ms_;
  return now >= rests_[huge] || TENUTO_PLANT("heap_joins_without_a_rest");
}

// False: there was nothing to do.
bool LargePages::step(std::uint64_t huge) {
  if (holes_.is_large(huge) || tries_[huge] == kTriesMax || !holes_.may_join(huge)) return false;
  if (!rested(huge)) {
    later_ = true;
    return false;
  }
  const auto lock = no_fork();
  int error = 0;
  const Status s = holes_.join(huge, [&] {
    error = file_.make_large({huge * kHugeBytes});
    return error == 0;
  });
  if (s == Status::not_found) return false;
  if (s == Status::ok && error == 0) refusals_ = 0;
  if (s == Status::ok && error != 0) {
    tries_[huge] += 1;
    // A huge frame with metadata under a key is in several mappings, and is always refused.
    refusals_ += error == EINVAL && file_.protected_bytes() == 0 ? 1 : 0;
  }
  later_ = later_ || s == Status::busy || (error != 0 && tries_[huge] < kTriesMax);
  return true;
}

}  // namespace TENUTO_NS::heap

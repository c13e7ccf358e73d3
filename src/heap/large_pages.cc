#include "heap/large_pages.h"

#include <cerrno>
#include <chrono>

#include "pm/no_memory.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/process.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kTriesMax = 3;     // of one huge frame
constexpr unsigned kRefusalsMax = 8;  // in a row: the kernel cannot do it here
constexpr auto kLater = std::chrono::seconds(1);
}  // namespace

LargePages::LargePages(pm::PoolFile& file, Holes& holes)
    : file_(file),
      holes_(holes),
      tries_pages_(file.bytes_max() / kHugeBytes + 1),
      tries_(tries_pages_.as<std::uint8_t>()) {}

void LargePages::start() {
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

// REQUIRES: mu_.
void LargePages::start_thread() {
  if (!started_ || stopping_ || thread_.joinable()) return;
  if (!file_.may_make_large() || file_.bytes() < kPoolBytesLeast || tries_ == nullptr) return;
  static_cast<void>(pm::had_thread([this] { thread_ = std::thread([this] { run(); }); }));
}

void LargePages::stop() {
  std::thread ended;
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    ended = std::move(thread_);
  }
  wake_.notify_one();
  if (ended.joinable()) ended.join();
}

void LargePages::run() {
  pm::lower_priority();
  std::unique_lock lock(mu_);
  while (!stopping_) {
    wanted_ = false;
    later_ = false;
    lock.unlock();
    const bool useful = pass();
    lock.lock();
    if (!useful) return;
    const auto called = [this] { return stopping_ || wanted_; };
    if (later_) {
      wake_.wait_for(lock, kLater, called);
    } else {
      wake_.wait(lock, called);
    }
  }
}

// Joins what can be joined. It begins anew when there is something newer. False: the kernel, or the
// state of the pool, allows no more joins at all.
bool LargePages::pass() {
  for (std::uint64_t huge = file_.bytes() / kHugeBytes; huge > 0; --huge) {
    if (!file_.may_make_large() || refusals_ == kRefusalsMax) return false;
    if (!step(huge - 1)) continue;
    const std::lock_guard lock(mu_);
    if (stopping_ || wanted_) return true;
  }
  return true;
}

// False: there was nothing to do.
bool LargePages::step(std::uint64_t huge) {
  if (holes_.is_large(huge) || tries_[huge] == kTriesMax) return false;
  std::unique_lock no_fork(pm::process_locks.steps, std::defer_lock);
  if (!TENUTO_PLANT("heap_pages_joined_beside_fork")) no_fork.lock();
  int error = 0;
  const Status s = holes_.join(huge, [&] {
    error = file_.make_large({huge * kHugeBytes});
    return error == 0;
  });
  if (s == Status::not_found) return false;
  if (s == Status::ok && error == 0) refusals_ = 0;
  if (s == Status::ok && error != 0) {
    tries_[huge] += 1;
    refusals_ += error == EINVAL ? 1 : 0;
  }
  later_ = later_ || s == Status::busy || (error != 0 && tries_[huge] < kTriesMax);
  return true;
}

}  // namespace TENUTO_NS::heap

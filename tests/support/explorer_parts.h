// Shared by the tests of the crash explorer: a raw pool, and an append log with known bugs.
#pragma once

#include <cstdint>
#include <string>

#include "pm/plant.h"
#include "support/raw_pool.h"
#include "tenuto/crash.h"
#include "tenuto/persist.h"

namespace tenuto::test {

inline constexpr std::uint64_t kPoolBytes = 64 << 10;

inline void make_pool(const std::string& path) { RawPool::create(path, kPoolBytes); }
inline std::string all_is_well(const CrashImage&) { return {}; }

// Checks each state once, so that checks and states can be counted.
inline CrashOptions counting() {
  CrashOptions o;
  o.recover_twice = false;
  o.recovery_depth = 0;
  return o;
}

// An entry has two equal words. A count promises that it is whole.
struct Entry {
  std::uint64_t value, copy;
  std::uint64_t unused[6];
};

enum class Bug { none, no_flush, no_fence, count_first, no_last_fence, torn_entry };

class AppendLog {
 public:
  explicit AppendLog(const std::string& path, Bug bug = Bug::none) : pool_(path), bug_(bug) {}

  std::uint64_t count() const { return pool_.at<std::uint64_t>(0); }
  Entry& entry(std::uint64_t i) const { return pool_.at<Entry>(64 + 64 * i); }

  void append(std::uint64_t value) {
    const std::uint64_t n = count();
    if (bug_ == Bug::count_first) publish(pool_.at<std::uint64_t>(0), n + 1);
    entry(n).value = value;
    if (bug_ == Bug::torn_entry) {
      // Publishes the entry by `copy` instead of the count: right only if the other word came
      // first.
      publish(entry(n).copy, value);
      fence("torn entry", "append returns");
      return;
    }
    entry(n).copy = value;
    if (bug_ != Bug::no_flush && !TENUTO_PLANT("append without flush")) flush(entry(n));
    if (bug_ != Bug::no_fence) fence("log entry", "log count");
    if (bug_ != Bug::count_first) publish(pool_.at<std::uint64_t>(0), n + 1);
    if (bug_ != Bug::no_last_fence) fence("log count", "append returns");
  }

 private:
  RawPool pool_;
  Bug bug_;
};

inline constexpr std::uint64_t kAppends = 4;

inline void append_all(CrashContext& c, Bug bug) {
  AppendLog log(c.path(), bug);
  for (std::uint64_t i = 0; i < kAppends; ++i) {
    c.invoke();
    log.append(100 + i);
    c.ack();
  }
}

// Checks the log. `data` is the pool's content.
inline std::string check_log(const std::byte* data, const CrashImage& image) {
  const std::uint64_t n = *reinterpret_cast<const std::uint64_t*>(data);
  const auto* entries = reinterpret_cast<const Entry*>(data + 64);
  if (n < image.acknowledged()) return "an acknowledged entry is lost";
  if (n > image.invoked()) return "an entry that nobody appended";
  for (std::uint64_t i = 0; i < n; ++i) {
    if (entries[i].value != 100 + i || entries[i].copy != 100 + i) return "a broken entry";
  }
  return {};
}

inline std::string check_log_file(const CrashImage& image) {
  const RawPool pool(image.path());
  return check_log(&pool.at<std::byte>(0), image);
}

inline CrashResult explore_log(Bug bug, const CrashOptions& options = {}) {
  return CrashRunner(options).run(
      make_pool, [bug](CrashContext& c) { append_all(c, bug); }, check_log_file);
}

}  // namespace tenuto::test

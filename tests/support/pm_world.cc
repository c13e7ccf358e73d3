#include "support/pm_world.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "file/pool_file.h"
#include "tenuto/persist.h"

namespace tenuto::test {

namespace {

using pm::PoolFile;
using pm::PoolState;
using File = std::unique_ptr<PoolFile>;

PoolOptions pool_options() {
  PoolOptions o;
  o.size = kPoolBytesMin;
  o.size_max = 2 * kPoolBytesMin;
  o.medium = Medium::line;
  return o;
}

void make_pool(const std::string& path) {
  auto made = PoolFile::create(path, pool_options(), nullptr);
  ASSERT_TRUE(made);
  ASSERT_EQ((*made)->set_state(PoolState::running), Status::ok);
  ASSERT_EQ((*made)->set_state(PoolState::clean), Status::ok);
  ASSERT_EQ((*made)->link_into_place(nullptr), Status::ok);
}

// --- states --------------------------------------------------------------------------------------

// In two lines of the head page that nothing else uses here.
std::uint64_t& first_word(const PoolFile& f) { return f.head().heap[0]; }
std::uint64_t& second_word(const PoolFile& f) { return f.head().store[0]; }

// Opens and recovers. Returns what is wrong, or an empty string.
std::string open_words(const std::string& path, File& file) {
  Report report;
  auto opened = PoolFile::open(path, pool_options(), &report);
  if (!opened) return "open: " + report.text();
  file = std::move(*opened);
  if (file->was_clean() && first_word(*file) != second_word(*file)) {
    return "closed cleanly, but the words are " + std::to_string(first_word(*file)) + " and " +
           std::to_string(second_word(*file));
  }
  if (!file->was_clean()) publish(second_word(*file), first_word(*file));
  return file->set_state(PoolState::running) == Status::ok ? "" : "no state change";
}

void change_words(CrashContext& c, PoolFile& file) {
  c.invoke();
  publish(first_word(file), first_word(file) + 1);
  fence("first word", "second word");
  c.ack();
  publish(second_word(file), first_word(file));  // the next fence makes it durable
}

void close_words(PoolFile& file) {
  fence("second word", "clean close");
  ASSERT_EQ(file.set_state(PoolState::clean), Status::ok);
}

void change_states(CrashContext& c) {
  for (int round = 0; round < 3; ++round) {
    File file;
    ASSERT_EQ(open_words(c.path(), file), "");
    change_words(c, *file);
    change_words(c, *file);
    if (round != 1) close_words(*file);  // otherwise as a killed process leaves it
  }
}

std::string check_states(const CrashImage& image) {
  File file;
  if (std::string wrong = open_words(image.path(), file); !wrong.empty()) return wrong;
  const std::uint64_t n = first_word(*file);
  if (n < image.acknowledged() || n > image.invoked()) return "the word is " + std::to_string(n);
  image.recovered();
  close_words(*file);
  file.reset();
  return open_words(image.path(), file);
}

// --- growth --------------------------------------------------------------------------------------

constexpr std::uint64_t kZoneMark = 0x6b72616d;

bool grow(PoolFile& file) {
  const auto zone = file.grow(kHugeBytes, [&](const pm::ZoneEntry& z, std::uint64_t) {
    auto& mark = *file.at<std::uint64_t>({z.offset});
    mark = kZoneMark;
    flush(mark);
  });
  return zone.has_value();
}

void grow_once(CrashContext& c) {
  auto file = PoolFile::open(c.path(), pool_options(), nullptr);
  ASSERT_TRUE(file);
  ASSERT_EQ((*file)->set_state(PoolState::running), Status::ok);
  c.invoke();
  ASSERT_TRUE(grow(**file));
  c.ack();
}

std::string check_growth(const CrashImage& image) {
  for (const bool again : {false, true}) {
    Report report;
    auto opened = PoolFile::open(image.path(), pool_options(), &report);
    if (!opened) return "open: " + report.text();
    PoolFile& file = **opened;
    const std::uint64_t grown = file.zone_count() - 1;
    if (!again && (grown < image.acknowledged() || grown > image.invoked())) return "zones";
    if (again && grown != 1) return "the zone made after recovery is not there";
    if (grown == 1 && *file.at<std::uint64_t>({file.zone(1).offset}) != kZoneMark) {
      return "a zone that was never formatted";
    }
    if (again) break;
    if (file.set_state(PoolState::running) != Status::ok) return "no state change";
    image.recovered();
    if (grown == 0 && !grow(file)) return "no room to grow after the crash";
  }
  return {};
}

// --- times ---------------------------------------------------------------------------------------

constexpr std::uint64_t kTimeStep = 1000;

void move_times(CrashContext& c) {
  auto file = PoolFile::open(c.path(), pool_options(), nullptr);
  ASSERT_TRUE(file);
  ASSERT_EQ((*file)->set_state(PoolState::running), Status::ok);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    c.invoke();
    (*file)->set_times(n * kTimeStep, n * kTimeStep + 7);
    c.ack();
  }
}

std::string check_times(const CrashImage& image) {
  Report report;
  auto opened = PoolFile::open(image.path(), pool_options(), &report);
  if (!opened) return "open: " + report.text();
  const std::uint64_t floor = (*opened)->time_floor();
  const std::uint64_t n = floor / kTimeStep;
  if (floor % kTimeStep != 0 || n < image.acknowledged() || n > image.invoked()) {
    return "the floor is " + std::to_string(floor);
  }
  const std::uint64_t seen = (*opened)->time_seen();
  if (seen != 0 && seen % kTimeStep != 7) return "the time seen is " + std::to_string(seen);
  return {};
}

}  // namespace

CrashOptions pm_crash_options() {
  CrashOptions o;
  o.recovery_states_max = 50;
  return o;
}

CrashResult explore_pool_states(const CrashOptions& options) {
  return CrashRunner(options).run(make_pool, change_states, check_states);
}

CrashResult explore_pool_times(const CrashOptions& options) {
  return CrashRunner(options).run(make_pool, move_times, check_times);
}

CrashResult explore_pool_growth(const CrashOptions& options) {
  return CrashRunner(options).run(make_pool, grow_once, check_growth);
}

}  // namespace tenuto::test

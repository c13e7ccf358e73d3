// Frames that change owners under the crash explorer. The owner is as small as possible: a row of
// records, one line each. It keeps the contract of frame/frames.h: a fence between get and the
// record, and between erasing the record and put. After each crash the records name their frames,
// and exactly these must be taken. frame_crash.cc and planted_crash.cc use it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "tenuto/crash.h"

namespace tenuto::test {

// An owner's record: frames | first << 24. 0: it owns nothing.
struct FrameOwner {
  std::uint64_t raw = 0;

  static FrameOwner make(FrameId first, std::uint64_t frames) {
    return {first.value << 24 | frames};
  }
  FrameId first() const { return {raw >> 24}; }
  std::uint64_t frames() const { return raw & 0xffffff; }
};

struct FramePoolParts {
  std::unique_ptr<pm::PoolFile> file;
  std::unique_ptr<frame::Frames> frames;

  // Records are in the place of the lanes, which nothing else uses here.
  std::uint64_t& record(std::size_t i) const {
    return *file->at<std::uint64_t>({pm::kLanesOffset + i * kLineBytes});
  }
  std::string open(const std::string& path);
};

inline constexpr std::size_t kFrameRecords = 12;

// What the records may contain: all acknowledged changes, and perhaps the one that runs.
struct FrameModel {
  std::array<FrameOwner, kFrameRecords> before{};
  std::array<FrameOwner, kFrameRecords> after{};
};

class FrameSession {
 public:
  FrameSession(CrashContext& context, FrameModel& model);

  // `thread` 0 is the calling thread, 1 another thread, whose flushes our fences do not cover.
  void get(std::size_t i, unsigned order, unsigned thread);
  void get_run(std::size_t i, std::uint64_t count, unsigned thread);
  void put(std::size_t i, unsigned thread);
  void grow();
  bool owns(std::size_t i) const { return pool.record(i) != 0; }
  void close();

  FramePoolParts pool;

 private:
  void record(std::size_t i, FrameOwner o);
  void erase(std::size_t i);

  CrashContext& context_;
  FrameModel& model_;
};

// Fills the first huge frame for good. Everything else then happens in three huge frames, in which
// frames of all orders follow each other.
void make_frame_world(const std::string& path);
std::string check_frame_world(const CrashImage& image, const FrameModel& model);
CrashResult explore_frames(const CrashOptions& options,
                           const std::function<void(FrameSession&)>& work);

// Frames of all kinds follow each other in the same huge frame, by two threads that do not fence
// for each other.
void frames_handed_over(FrameSession& s);
// Adds a second zone, and uses its frames at once.
void frames_of_a_new_zone(FrameSession& s);

}  // namespace tenuto::test

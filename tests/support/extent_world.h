// A pool that holds extents only, for tests of extents.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "heap/extent.h"
#include "support/pool_parts.h"

namespace tenuto::test {

inline constexpr unsigned kExtentShards = 2;

struct ExtentWorld {
  explicit ExtentWorld(const std::string& name, std::uint64_t bytes = 32u << 20) : path(name) {
    options.size = options.size_max = bytes;
    options.medium = Medium::cache;
    options.heap.decay_ms = -1;
    options.heap.clock_ms = [this] { return now; };
    options.log = [this](std::string_view text) { told.emplace_back(text); };
  }

  void create() {
    auto made = pm::PoolFile::create(path.str(), options, &report);
    ASSERT_TRUE(made) << report.text();
    file = std::move(*made);
    frame::Frames::format_zone(*file, file->zone(0), pm::kHeadBytes);
    attach(true);
    ASSERT_EQ(file->set_state(pm::PoolState::running), Status::ok);
    ASSERT_EQ(file->link_into_place(&report), Status::ok);
  }
  // Opens the pool as after a kill.
  void reopen(bool keep_derived) {
    extents.reset();
    source.reset();
    frames.reset();
    file.reset();
    auto opened = pm::PoolFile::open(path.str(), options, &report);
    ASSERT_TRUE(opened) << report.text();
    file = std::move(*opened);
    attach(false, keep_derived);
  }
  void attach(bool clean, bool keep_derived = false) {
    auto f = frame::Frames::open(*file, clean, &report);
    ASSERT_TRUE(f) << report.text();
    frames = std::move(*f);
    source = std::make_unique<heap::FrameSource>(*file, *frames);
    extents = std::make_unique<heap::Extents>(*file, *source, options.heap, shards);
    ASSERT_EQ(extents->open(false, &report), Status::ok) << report.text();
    ASSERT_EQ(extents->build(!keep_derived, &report), Status::ok) << report.text();
    if (clean) return;
    frames->begin_recovery();
    ASSERT_EQ(extents->own_frames([&](PoolOffset o, std::uint64_t n) {
      return frames->keep(frame_of_offset(o), n, &report);
    }),
              Status::ok);
    frames->end_recovery();
  }

  PoolOffset take(std::uint64_t bytes, std::uint64_t align = kFrameBytes, unsigned core = 0) {
    const auto b = extents->reserve(bytes, heap::Kind::derived, core, align);
    EXPECT_TRUE(b) << bytes;
    return b ? b->offset : PoolOffset{};
  }
  void give(PoolOffset o) { extents->release(o, 0); }
  void soil(PoolOffset o, std::uint64_t bytes, int with = 0x5a) {
    std::memset(file->at<std::byte>(o), with, bytes);
  }
  void expect_sound() {
    EXPECT_EQ(extents->validate(&report), Status::ok) << report.text();
    EXPECT_EQ(frames->validate(&report), Status::ok) << report.text();
  }

  TempPath path;
  PoolOptions options;
  unsigned shards = kExtentShards;
  std::int64_t now = 1000;
  std::vector<std::string> told;
  Report report;
  std::unique_ptr<pm::PoolFile> file;
  std::unique_ptr<frame::Frames> frames;
  std::unique_ptr<heap::FrameSource> source;
  std::unique_ptr<heap::Extents> extents;
};

}  // namespace tenuto::test

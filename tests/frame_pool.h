// A pool file that holds nothing but frames, in shared memory, unlinked before and after.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "pm/assert.h"

namespace tests {

struct FramePool {
  explicit FramePool(std::uint64_t bytes, tenuto::Medium medium = tenuto::Medium::cache)
      : path("/dev/shm/tenuto-frames-" + std::to_string(::getpid())) {
    options.size = bytes;
    options.size_max = 4ull << 30;
    options.medium = medium;
    ::unlink(path.c_str());
    auto made = tenuto::pm::PoolFile::create(path, options, &report);
    TENUTO_ASSERT(made);
    file = std::move(*made);
    tenuto::frame::Frames::format_zone(*file, file->zone(0), tenuto::pm::kHeadBytes);
    TENUTO_ASSERT(file->set_state(tenuto::pm::PoolState::running) == tenuto::Status::ok);
    TENUTO_ASSERT(file->link_into_place(&report) == tenuto::Status::ok);
    TENUTO_ASSERT(open_frames(true) == tenuto::Status::ok);
  }
  ~FramePool() {
    frames.reset();
    file.reset();
    ::unlink(path.c_str());
  }
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  tenuto::Status open_frames(bool clean) {
    frames.reset();
    auto opened = tenuto::frame::Frames::open(*file, clean, &report);
    if (!opened) return opened.error();
    frames = std::move(*opened);
    return tenuto::Status::ok;
  }
  tenuto::Status close() {
    frames->close();
    frames.reset();
    TENUTO_TRY(file->set_state(tenuto::pm::PoolState::clean));
    file.reset();
    return tenuto::Status::ok;
  }
  tenuto::Status open() {
    auto opened = tenuto::pm::PoolFile::open(path, options, &report);
    if (!opened) return opened.error();
    file = std::move(*opened);
    return open_frames(file->was_clean());
  }
  tenuto::Status grow(std::uint64_t bytes,
                      tenuto::frame::ZoneUse use = tenuto::frame::ZoneUse::any) {
    auto& f = *file;
    const auto zone = f.grow(bytes, [&](const tenuto::pm::ZoneEntry& z, std::uint64_t head) {
      tenuto::frame::Frames::format_zone(f, z, head, use);
    });
    if (!zone) return zone.error();
    return frames->add_zone(*zone);
  }
  std::string disagreement() {
    return frames->validate(&report) == tenuto::Status::ok ? "" : report.text();
  }
  std::uint64_t free() const { return frames->stats().frames_free; }

  std::string path;
  tenuto::PoolOptions options;
  tenuto::Report report;
  std::unique_ptr<tenuto::pm::PoolFile> file;
  std::unique_ptr<tenuto::frame::Frames> frames;
};

}  // namespace tests

// Memory that looks like the file of a pool to the frame layer, for tests that need no pool: zones
// one after the other, each formatted, in anonymous memory. Only what is touched takes space.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "frame/upper.h"
#include "pm/assert.h"

namespace tests {

class FrameMemory {
 public:
  // Zones of these lengths in bytes; the first is zone 0 with the pool's head.
  explicit FrameMemory(const std::vector<std::uint64_t>& zone_bytes) {
    for (const std::uint64_t bytes : zone_bytes) {
      zones_.push_back({end_, bytes});
      end_ += bytes;
    }
    constexpr std::uint64_t kAlign = 4u << 20;
    mapped_ = end_ + kAlign;
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TENUTO_ASSERT(map_ != MAP_FAILED);
    const auto at = reinterpret_cast<std::uintptr_t>(map_);
    base_ = static_cast<std::byte*>(map_) + (tenuto::round_up(at, kAlign) - at);
    for (std::uint32_t i = 0; i < zones_.size(); ++i) {
      tenuto::frame::Lower::format(base_, geometry(i), i);
    }
  }
  ~FrameMemory() { ::munmap(map_, mapped_); }
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;

  std::byte* base() const { return base_; }
  std::uint32_t zones() const { return static_cast<std::uint32_t>(zones_.size()); }
  std::uint64_t frames() const { return end_ / tenuto::kFrameBytes; }
  tenuto::frame::ZoneGeometry geometry(std::uint32_t i) const {
    return *tenuto::frame::ZoneGeometry::of(zones_[i], i == 0 ? tenuto::pm::kHeadBytes : 0);
  }
  tenuto::frame::Lower lower(std::uint32_t i) const {
    return tenuto::frame::Lower(base_, geometry(i));
  }
  // Base frames that can be handed out.
  std::uint64_t usable() const {
    std::uint64_t n = 0;
    for (std::uint32_t i = 0; i < zones(); ++i) n += geometry(i).frames - geometry(i).own;
    return n;
  }

  // An upper layer that serves all zones (or the first `count` of them).
  std::unique_ptr<tenuto::frame::Upper> attach(unsigned cores, std::uint32_t count = ~0u) const {
    auto upper = std::make_unique<tenuto::frame::Upper>(cores);
    for (std::uint32_t i = 0; i < zones() && i < count; ++i) add_zone(*upper, i);
    return upper;
  }
  void add_zone(tenuto::frame::Upper& upper, std::uint32_t i) const {
    auto zone = std::make_unique<tenuto::frame::Zone>(base_, geometry(i), i);
    TENUTO_ASSERT(upper.add_zone(std::move(zone), true) == tenuto::Status::ok);
  }

  // Both layers against each other; empty when they agree.
  static std::string disagreement(const tenuto::frame::Upper& upper) {
    tenuto::Report report;
    for (std::uint32_t z = 0; z < upper.zone_count(); ++z) {
      if (upper.zone(z).lower.check(z, true, &report) != tenuto::Status::ok) return report.text();
    }
    return upper.validate(&report) == tenuto::Status::ok ? "" : report.text();
  }

 private:
  std::vector<tenuto::pm::ZoneEntry> zones_;
  std::uint64_t end_ = 0;
  std::uint64_t mapped_ = 0;
  void* map_ = nullptr;
  std::byte* base_ = nullptr;
};

}  // namespace tests

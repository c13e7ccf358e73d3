// The pool files that the recorder watches: where they are mapped, and how their lines are named.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tenuto/abi.h"
#include "tenuto/crash.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

// A line of a watched file is one number: the number of the file in the high bits, the line in the
// file below. So lines of one file that are neighbours have numbers that are. In file 0 the number
// is offset / kLineBytes.
inline constexpr std::size_t kFileShift = 56;

constexpr std::uint64_t first_line(std::size_t file) { return std::uint64_t{file} << kFileShift; }
constexpr std::size_t file_of(std::uint64_t line) { return line >> kFileShift; }
constexpr std::uint64_t line_in_file(std::uint64_t line) { return line & (first_line(1) - 1); }
constexpr std::uint64_t offset_of(std::uint64_t line) { return line_in_file(line) * kLineBytes; }

// A file to watch. `durable`, if given, is its durable content; it is as long as the file, and the
// observer keeps it up to date.
struct TraceFile {
  std::uint64_t device = 0, inode = 0;
  const std::byte* durable = nullptr;
  std::uint64_t bytes = 0;  // the longest that the file was when it was mapped
};

// The mappings whose stores are recorded. Every store of the process reads the bounds without a
// lock. With one file they are its mapping. With several there may be other memory in between.
class TraceRegions {
 public:
  struct Mapping {
    std::atomic<std::uintptr_t> base = 0;
    std::atomic<std::uintptr_t> bytes = 0;

    std::uintptr_t begin() const { return base.load(std::memory_order_relaxed); }
    std::uintptr_t size() const { return bytes.load(std::memory_order_relaxed); }
  };

  bool touches(const void* p, std::size_t n) const {
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    if (at >= high_.load(std::memory_order_relaxed)) return false;
    if (at + n <= low_.load(std::memory_order_relaxed)) return false;
    return file_at(p, n) < kCrashFilesMax;
  }
  // The first file with a mapping that the bytes touch; kCrashFilesMax if there is none.
  std::size_t file_at(const void* p, std::size_t n) const;
  const Mapping& of(std::size_t file) const { return files_[file]; }

  // REQUIRES: no other thread stores to this file.
  void set(std::size_t file, std::uintptr_t base, std::uintptr_t bytes);

 private:
  // Each bound is right or too wide while another file is mapped or unmapped, in whatever order a
  // thread sees them change.
  std::atomic<std::uintptr_t> low_ = UINTPTR_MAX;
  std::atomic<std::uintptr_t> high_ = 0;
  std::array<Mapping, kCrashFilesMax> files_;
};
extern constinit TraceRegions trace_regions;

}  // namespace TENUTO_NS::pm

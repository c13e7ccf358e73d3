// Skewed loads for wear levelling: most objects live on, a few are replaced again and again. Their
// sizes are those of PMMS, or extents, or derived blocks, as the store's records are. The clock is
// the test's, so a run repeats exactly.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/pool_parts.h"

namespace tenuto::test {

struct WearLoad {
  const char* name;
  std::uint64_t bytes_least, bytes_most;
  std::size_t objects;
  std::size_t replacements;
  heap::Kind kind;
  std::uint64_t pool_bytes;
};

inline constexpr std::uint64_t kMiB = 1u << 20;
// The objects take a tenth of the pool, or a third; what is written in all is ten times the pool,
// or 40 times.
inline constexpr WearLoad kSmall{"64..1024 bytes",   64,       1024, 10'000, 1'200'000,
                                 heap::Kind::logged, 64 * kMiB};
inline constexpr WearLoad kDerived{"64..1024 bytes, derived", 64,       1024, 10'000, 1'200'000,
                                   heap::Kind::derived,       64 * kMiB};
inline constexpr WearLoad kFuller{
    "64..1024 bytes, a third lives on", 64, 1024, 10'000, 1'200'000, heap::Kind::logged, 16 * kMiB};
inline constexpr WearLoad kLarge{"16..256 KiB",      16'384,   262'144, 40, 6'000,
                                 heap::Kind::logged, 64 * kMiB};

inline PoolOptions wear_options(bool on) {
  PoolOptions o = PoolParts::small_options();
  o.heap.wear_levelling = on;
  o.heap.wear_rest_ms = 10;
  o.heap.decay_ms = -1;
  return o;
}

// Lines by frame.
using FrameLines = std::vector<std::uint64_t>;

// Nine of ten objects live on, each tenth one is hot. Hot ones are replaced in random order, with
// random sizes. What is counted is what the objects' own lines get: a whole object at a time.
inline FrameLines wear_load(const std::string& path, PoolOptions options, const WearLoad& load) {
  std::int64_t now = 0;
  options.heap.clock_ms = [&now] { return now; };
  options.size = load.pool_bytes;
  PoolParts p;
  EXPECT_EQ(p.create(path, options), Status::ok);
  std::mt19937_64 rng(7);
  FrameLines lines;
  std::vector<PoolOffset> object(load.objects);
  const auto put = [&](std::size_t i) {
    const std::uint64_t bytes = load.bytes_least + rng() % (load.bytes_most - load.bytes_least + 1);
    const auto block = p.heap->reserve(bytes, load.kind);
    ASSERT_TRUE(block) << status_name(block.error());
    object[i] = block->offset;
    lines.resize(p.file->bytes() / kFrameBytes);
    const std::uint64_t end = (block->offset.value + bytes + kLineBytes - 1) / kLineBytes;
    for (std::uint64_t l = block->offset.value / kLineBytes; l < end; ++l) {
      lines[l * kLineBytes / kFrameBytes] += 1;
    }
  };
  for (std::size_t i = 0; i < load.objects; ++i) put(i);
  for (std::size_t n = 0; n < load.replacements; ++n) {
    const std::size_t i = rng() % (load.objects / 10) * 10;
    p.heap->release(object[i]);
    put(i);
    if (n % 64 == 0) now += 1;
  }
  Report report;
  EXPECT_EQ(p.heap->validate(&report), Status::ok) << report.text();
  return lines;
}

// Most over mean, of all frames behind the head.
inline double spread_of(const FrameLines& lines) {
  std::uint64_t most = 0;
  std::uint64_t sum = 0;
  const std::size_t first = pm::kHeadBytes / kFrameBytes;
  for (std::size_t f = first; f < lines.size(); ++f) {
    most = std::max(most, lines[f]);
    sum += lines[f];
  }
  return static_cast<double>(most) * static_cast<double>(lines.size() - first) /
         static_cast<double>(sum);
}

}  // namespace tenuto::test

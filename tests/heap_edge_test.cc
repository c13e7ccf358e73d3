// Edge cases that once broke or might break the heap: full pools, clean closes with work left over,
// too few lanes, blocks cancelled twice, metadata with impossible contents.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "heap/format.h"
#include "heap/heap.h"
#include "heap/size_class.h"
#include "heap/slab.h"
#include "pm/media.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using heap::Kind;
using test::PoolParts;
using test::TempPath;

constexpr std::uint64_t kMiB = 1u << 20;

PoolOptions fixed_size(std::uint64_t bytes) {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = bytes;
  return o;
}

// The words of a block that root 0 names.
std::vector<PtrWord*> words(PoolParts& p, std::size_t n) {
  if (p.root(0).raw == 0) {
    EXPECT_EQ(p.heap->malloc_to(n * sizeof(PtrWord), p.root(0)), Status::ok);
    zero_flush(PtrWord::decode(&p.root(0), p.root(0).raw), n * sizeof(PtrWord));
  }
  auto* first = static_cast<PtrWord*>(PtrWord::decode(&p.root(0), p.root(0).raw));
  std::vector<PtrWord*> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(first + i);
  return all;
}

PoolOffset target(PoolParts& p, PtrWord* w) {
  return p.file->offset_of(PtrWord::decode(w, w->raw));
}

// A thread that does `first` and stays alive until this object is destroyed.
class LivingThread {
 public:
  explicit LivingThread(const std::function<void()>& first) {
    thread_ = std::thread([this, first] {
      first();
      std::unique_lock lock(mu_);
      done_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return end_; });
    });
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return done_; });
  }
  ~LivingThread() {
    {
      const std::lock_guard lock(mu_);
      end_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool done_ = false, end_ = false;
  std::thread thread_;
};

// A chunk of extents has 4 MiB, but an open finds only the halves that hold an extent.
TEST(HeapEdge, clean_close_leaves_no_frames_without_owner) {
  TempPath path("edge1");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), fixed_size(64 * kMiB)), Status::ok) << p.report.text();
  auto w = words(p, 40);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(p.heap->malloc_to(kMiB, *w[i]), Status::ok);
  // Chunk 0 keeps one extent in its first half, chunk 1 keeps none, and some extents are only
  // reserved.
  for (int i = 1; i < 8; ++i) ASSERT_EQ(p.heap->free_from(*w[i]), Status::ok);
  ASSERT_TRUE(p.heap->reserve(2 * kMiB, Kind::logged));
  ASSERT_TRUE(p.heap->reserve(2 * kMiB, Kind::logged));
  ASSERT_TRUE(p.heap->reserve(5 * kMiB, Kind::logged));
  ASSERT_EQ(p.close(), Status::ok);
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  EXPECT_TRUE(p.file->was_clean());
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  EXPECT_EQ(p.heap->stats().extents, 1u);
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  EXPECT_FALSE(p.file->was_clean());
  EXPECT_LT(p.leaked, 512u) << "more than empty slabs";
}

TEST(HeapEdge, cancelled_or_freed_blocks_are_not_found_again) {
  TempPath path("edge2");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  auto w = words(p, 8);
  for (const std::uint64_t bytes : {64ull, 4000ull, 100'000ull, 3ull * kMiB}) {
    const auto b = p.heap->reserve(bytes, Kind::logged);
    ASSERT_TRUE(b);
    EXPECT_TRUE(p.heap->find_taken(b->offset, Kind::logged));
    EXPECT_FALSE(p.heap->find_allocated(b->offset));
    p.heap->release(b->offset);
    EXPECT_FALSE(p.heap->find_taken(b->offset, Kind::logged)) << bytes << ": cancelled twice";
    EXPECT_EQ(p.heap->publish(*b, *w[0]), Status::invalid_argument) << bytes;

    ASSERT_EQ(p.heap->malloc_to(bytes, *w[1]), Status::ok);
    const PoolOffset o = target(p, w[1]);
    EXPECT_TRUE(p.heap->find_allocated(o));
    ASSERT_EQ(p.heap->free_from(*w[1]), Status::ok);
    EXPECT_FALSE(p.heap->find_taken(o, Kind::logged)) << bytes << ": in limbo, cancelled";
  }
  const auto kept = p.heap->reserve(64, Kind::logged);
  ASSERT_TRUE(kept);
  ASSERT_EQ(p.heap->publish(*kept, *w[2]), Status::ok);
  EXPECT_EQ(p.heap->publish(*kept, *w[3]), Status::invalid_argument) << "published twice";
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST(HeapEdge, every_one_of_many_living_threads_gets_a_lane) {
  TempPath path("edge3");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), fixed_size(32 * kMiB)), Status::ok);
  constexpr std::size_t kThreads = 4 * pm::kLanesPerSegment + 5;
  auto w = words(p, kThreads);
  std::atomic<std::size_t> ready = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(p.heap->malloc_to(64, *w[i]), Status::ok);
      ready += 1;
      while (ready < kThreads) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST(HeapEdge, a_read_only_pool_refuses_more_threads_than_it_has_lanes) {
  TempPath path("edge4");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  ASSERT_EQ(p.heap->malloc_to(64, p.root(0)), Status::ok);
  ASSERT_EQ(p.close(), Status::ok);
  PoolOptions o = PoolParts::small_options();
  o.read_only = true;
  ASSERT_EQ(p.open(path.str(), o), Status::ok) << p.report.text();
  std::atomic<std::size_t> ready = 0;
  constexpr std::size_t kThreads = pm::kLanesPerSegment + 10;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(p.heap->malloc_to(64, p.root(1)), Status::read_only);
      EXPECT_EQ(p.heap->free_from(p.root(0)), Status::read_only);
      EXPECT_EQ(p.heap->reserve(64, Kind::logged).error(), Status::read_only);
      ready += 1;
      while (ready < kThreads) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST(HeapEdge, slabs_emptied_by_one_class_serve_all_others) {
  TempPath path("edge5");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), fixed_size(16 * kMiB)), Status::ok);
  auto w = words(p, 4000);
  const auto fill = [&](std::uint64_t bytes) {
    std::size_t n = 0;
    while (n < w.size() && p.heap->malloc_to(bytes, *w[n]) == Status::ok) ++n;
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(p.heap->free_from(*w[i]), Status::ok);
    return n;
  };
  const std::size_t before = fill(60'000);
  for (const std::uint64_t bytes : {16'000u, 9'000u, 4'096u, 5'000u, 7'000u, 12'000u}) fill(bytes);
  EXPECT_GE(fill(60'000) + 2, before) << "small classes hold on to their last slabs";
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

// An ended thread's free names a word inside the block that is freed here. The block waits for that
// thread's lane, which no thread uses any more.
TEST(HeapEdge, a_full_pool_finds_what_waits_for_an_idle_lane) {
  TempPath path("edge6");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), fixed_size(16 * kMiB)), Status::ok);
  auto w = words(p, 16);
  std::size_t n = 0;
  while (n < w.size() && p.heap->malloc_to(2 * kMiB, *w[n]) == Status::ok) ++n;
  ASSERT_GT(n, 2u);
  auto* inside = static_cast<PtrWord*>(PtrWord::decode(w[0], w[0]->raw));
  inside->raw = 0;
  std::thread([&] {
    EXPECT_EQ(p.heap->malloc_to(64, *inside), Status::ok);
    EXPECT_EQ(p.heap->free_from(*inside), Status::ok);
  }).join();
  ASSERT_EQ(p.heap->free_from(*w[0]), Status::ok);
  EXPECT_EQ(p.heap->malloc_to(2 * kMiB, *w[0]), Status::ok);
}

// A log needs a whole frame. In a full pool that may be one whose blocks wait in a thread's cache.
TEST(HeapEdge, a_full_pool_has_a_frame_for_a_log_if_caches_hold_one) {
  TempPath path("edge-log");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), fixed_size(16 * kMiB)), Status::ok);
  auto w = words(p, 2000);
  std::size_t made = 0;
  while (made < w.size() && p.heap->malloc_to(15'000, *w[made]) == Status::ok) ++made;
  ASSERT_LT(made, w.size()) << "it is full";
  EXPECT_EQ(p.heap->take_log_frame().error(), Status::full);
  for (std::size_t i = 0; i < 12; ++i) ASSERT_EQ(p.heap->free_from(*w[i]), Status::ok);
  const Result<PoolOffset> frame = p.heap->take_log_frame();
  ASSERT_TRUE(frame);
  p.heap->put_log_frame(*frame);
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

// The same while that thread is alive: then only that thread can end the wait.
// On medium cache no destination is pending when a call has returned.
class Pending : public testing::TestWithParam<Medium> {};
INSTANTIATE_TEST_SUITE_P(HeapEdge, Pending, testing::Values(Medium::line, Medium::cache));
TEST_P(Pending, a_block_with_a_pending_destination_is_not_handed_out) {
  TempPath path("edge7");
  PoolParts p;
  PoolOptions o = fixed_size(16 * kMiB);
  o.medium = GetParam();
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  auto w = words(p, 16);
  std::size_t n = 0;
  while (n < w.size() && p.heap->malloc_to(2 * kMiB, *w[n]) == Status::ok) ++n;
  ASSERT_GT(n, 2u);
  auto* inside = static_cast<PtrWord*>(PtrWord::decode(w[0], w[0]->raw));
  inside->raw = 0;
  const Status waits = GetParam() == Medium::cache ? Status::ok : Status::full;
  {
    const LivingThread other([&] {
      EXPECT_EQ(p.heap->malloc_to(64, *inside), Status::ok);
      EXPECT_EQ(p.heap->free_from(*inside), Status::ok);
    });
    ASSERT_EQ(p.heap->free_from(*w[0]), Status::ok);
    EXPECT_EQ(p.heap->malloc_to(2 * kMiB, *w[0]), waits);
  }
  if (waits == Status::full) {
    EXPECT_EQ(p.heap->malloc_to(2 * kMiB, *w[0]), Status::ok);
  }
}

TEST(HeapEdge, an_object_larger_than_any_zone_makes_a_zone_of_its_own) {
  TempPath path("edge8");
  PoolParts p;
  PoolOptions o = PoolParts::small_options();
  o.size = 8 * kMiB;
  o.size_max = 256 * kMiB;
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  ASSERT_EQ(p.heap->malloc_to(100 * kMiB, p.root(0)), Status::ok);
  EXPECT_EQ(p.file->zone_count(), 2u);
  EXPECT_EQ(p.heap->malloc_to(256 * kMiB, p.root(1)), Status::full);
  EXPECT_EQ(p.heap->malloc_to(257 * kMiB, p.root(1)), Status::too_large);
}

// --- damage --------------------------------------------------------------------------------------

struct Damage {
  TempPath path{"edge9"};
  PoolParts p;
  PoolOffset small, large;

  Damage() {
    EXPECT_EQ(p.create(path.str()), Status::ok);
    EXPECT_EQ(p.heap->malloc_to(64, p.root(0)), Status::ok);
    EXPECT_EQ(p.heap->malloc_to(100'000, p.root(1)), Status::ok);
    small = p.file->offset_of(PtrWord::decode(&p.root(0), p.root(0).raw));
    large = p.file->offset_of(PtrWord::decode(&p.root(1), p.root(1).raw));
    EXPECT_EQ(p.close(), Status::ok);
  }
  void read(void* to, std::uint64_t at, std::size_t n) const {
    const int fd = ::open(path.str().c_str(), O_RDONLY);
    EXPECT_EQ(::pread(fd, to, n, static_cast<off_t>(at)), static_cast<ssize_t>(n));
    ::close(fd);
  }
  void write(const void* from, std::uint64_t at, std::size_t n) const {
    const int fd = ::open(path.str().c_str(), O_WRONLY);
    EXPECT_EQ(::pwrite(fd, from, n, static_cast<off_t>(at)), static_cast<ssize_t>(n));
    ::close(fd);
  }
  heap::BookChunk chunk(std::uint64_t* at) const {
    heap::BookHead head;
    read(&head, pm::kHeadPageOffset + offsetof(pm::HeadPage, heap), sizeof head);
    *at = head.list[head.alt];
    heap::BookChunk c;
    read(&c, *at, sizeof c);
    return c;
  }
};

TEST(HeapEdge, an_entry_for_frames_of_somebody_else_is_damage) {
  Damage d;
  std::uint64_t at = 0;
  heap::BookChunk c = d.chunk(&at);
  const heap::BookEntry entry{c.entry(0)};
  ASSERT_EQ(entry.offset(), d.large);
  // In the huge frame of the slabs, in a free huge frame behind all others, and across a chunk's
  // end.
  const PoolOffset slab{round_down(d.small.value, heap::kSlabBytes)};
  for (const PoolOffset there : {slab, PoolOffset{14 * kMiB}, PoolOffset{8 * kMiB - 4096}}) {
    c.entry(0) = heap::BookEntry::make_extent(entry.type(), there, entry.frames()).raw;
    d.write(&c, at, sizeof c);
    EXPECT_EQ(d.p.open(d.path.str()), Status::corrupt) << there.value;
    EXPECT_FALSE(d.p.report.text().empty());
    d.p.crash();
  }
}

TEST(HeapEdge, overlapping_extents_are_damage) {
  Damage d;
  std::uint64_t at = 0;
  heap::BookChunk c = d.chunk(&at);
  const heap::BookEntry entry{c.entry(0)};
  ASSERT_EQ(entry.offset(), d.large);
  ASSERT_EQ(c.entry(1), 0u);
  c.entry(1) = heap::BookEntry::make_extent(entry.type(), d.large + kFrameBytes, 2).raw;
  d.write(&c, at, sizeof c);
  const std::uint64_t no_seal = 0;  // else it would tell first
  constexpr std::size_t kSealAt = offsetof(pm::HeadPage, heap) + offsetof(heap::BookHead, seal);
  d.write(&no_seal, pm::kHeadPageOffset + kSealAt, sizeof no_seal);
  EXPECT_EQ(d.p.open(d.path.str()), Status::corrupt);
  EXPECT_NE(d.p.report.text().find("extents overlap"), std::string::npos) << d.p.report.text();
}

TEST(HeapEdge, a_slab_cut_for_other_stripes_is_none) {
  Damage d;
  const std::uint64_t at = round_down(d.small.value, heap::kSlabBytes);
  heap::SlabHeader h;
  d.read(&h, at, sizeof h);
  ASSERT_EQ(h.magic, heap::kSlabMagic);
  h.stripes += 1;
  heap::SlabShape shape = h.shape.shape();
  shape.now.end_line += 1;
  h.shape = heap::ShapeWord::make(shape, {at});
  h.crc = heap::slab_crc(h);
  d.write(&h, at, sizeof h);
  ASSERT_EQ(d.p.open(d.path.str()), Status::ok) << d.p.report.text();
  EXPECT_EQ(d.p.heap->usable_size(d.small), 0u);
}

// An aligned block may be an extent, although it is smaller than the largest small block.
TEST(HeapEdge, the_free_of_a_small_extent_is_replayed) {
  TempPath path("edge13");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  const auto block = p.heap->reserve(5000, Kind::logged, kFrameBytes);
  ASSERT_TRUE(block);
  ASSERT_EQ(block->bytes, 2 * kFrameBytes);
  ASSERT_EQ(p.heap->publish(*block, p.root(0)), Status::ok);
  ASSERT_EQ(p.heap->free_from(p.root(0)), Status::ok);
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  EXPECT_EQ(p.heap->usable_size(block->offset), 0u);
}

// An intent may have a right checksum and impossible contents.
TEST(HeapEdge, intents_that_name_impossible_places_are_damage) {
  using heap::IntentForm;
  using heap::IntentHead;
  using heap::IntentOp;
  using heap::IntentTarget;
  const auto head = [](IntentOp op, IntentForm form = IntentForm::pairs, std::size_t count = 1) {
    return IntentHead::make(op, form, count, 0).raw;
  };
  const auto malloc_to = IntentOp::malloc_to, free_from = IntentOp::free_from;
  const std::uint64_t block = IntentTarget::make({1u << 20}, 0).raw;
  const std::uint64_t words[][7] = {
      {head(static_cast<IntentOp>(9)), 64, 64, block, 0, 0, 0},            // unknown operation
      {head(malloc_to, static_cast<IntentForm>(3)), 64, 64, block, 0, 0},  // unknown form
      {head(malloc_to, IntentForm::pairs, 3), 64, 64, block, 0, 0, 0},     // too many
      {head(malloc_to, IntentForm::run, 5), 64, 64, block, 0, 0, 0},
      {head(malloc_to, IntentForm::packed, 17), 64, 64, block, 0, 0, 0},
      {head(malloc_to, IntentForm::pairs, 0), 64, 64, block, 0, 0, 0},  // no elements
      {head(malloc_to), 64, 1ull << 40, block, 0, 0, 0},                // destination outside
      {head(malloc_to), 64, 65, block, 0, 0, 0},                        // destination not aligned
      {head(free_from), 64, 64, block, 0, 0, 0},                        // no slab at the block
      {head(IntentOp::versioned_free), 64, 64, block, 0, 0, 0},
      {head(malloc_to), 20000, 64, block, 0, 0, 0},                        // not whole frames
      {head(malloc_to), 64, 64, IntentTarget::make({1ull << 43}, 0).raw},  // block outside the pool
      {head(free_from), 64, 64, 0, 0, 0, 0},                               // no block
      {head(free_from), 64, 64, ~0ull, 0, 0, 0},
      {head(IntentOp::swap, IntentForm::pairs, 2), 64, 64, block, ~0ull, block, 64},
      {~0ull, ~0ull, ~0ull, ~0ull, 0, 0, 0},
  };
  for (const auto& w : words) {
    TempPath path("edge10");
    PoolParts p;
    ASSERT_EQ(p.create(path.str()), Status::ok);
    pm::write_log_line(p.lanes->all()[3]->lines[pm::kLaneIntentLine + 2], w, 77);
    p.crash();
    EXPECT_EQ(p.open(path.str()), Status::corrupt) << w[0] << " " << w[1];
    EXPECT_FALSE(p.report.text().empty());
  }
  // Attached extents across a chunk's end, or a huge extent that is not on huge frames.
  for (const std::uint64_t there : {8 * kMiB - 4096, 9 * kMiB}) {
    TempPath path("edge11");
    PoolParts p;
    ASSERT_EQ(p.create(path.str()), Status::ok);
    PtrWord& d = p.root(0);
    d.raw = PtrWord::encode(&d, p.file->at<void>({there}));
    const std::uint64_t bytes = there == 9 * kMiB ? 3 * kMiB : 2 * 4096 + 4096 * 4;
    const std::uint64_t w2[7] = {head(malloc_to), bytes, p.file->offset_of(&d).value,
                                 IntentTarget::make({there}, 0).raw};
    pm::write_log_line(p.lanes->all()[3]->lines[pm::kLaneIntentLine], w2, 77);
    p.crash();
    EXPECT_EQ(p.open(path.str()), Status::corrupt) << there;
  }
}

TEST(HeapEdge, bits_are_gathered_from_their_stripes) {
  std::mt19937_64 rng(7);
  for (const unsigned pool_stripes : {1u, 2u, 6u, 7u, 31u, 32u}) {
    for (const std::uint32_t bytes : heap::kClassBytes) {
      alignas(kLineBytes) static std::array<std::byte, 8192> lines;
      lines.fill({});
      const heap::SlabGeometry g = heap::slab_geometry(bytes, pool_stripes);
      heap::Slab slab(heap::kBlocksMax / 64);
      slab.header = reinterpret_cast<heap::SlabHeader*>(lines.data());
      slab.shape.now.first_line = 1;
      slab.set_stripes(g.stripes);
      slab.blocks = g.blocks;
      heap::BlockBits want{};
      for (unsigned i = 0; i < g.blocks; ++i) {
        if ((rng() & 1) == 0) continue;
        flush(slab.store_persistent(i, true));
        want[i / 64] |= 1ull << (i % 64);
      }
      heap::BlockBits got;
      heap::read_stripes(slab, got);
      EXPECT_EQ(got, want) << bytes << " in " << pool_stripes;
    }
  }
}

}  // namespace
}  // namespace tenuto

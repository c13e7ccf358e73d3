#include "support/heap_scripts.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "heap/format.h"
#include "heap/lane_heap.h"
#include "pm/assert.h"
#include "support/heap_script_parts.h"
#include "tenuto/persist.h"

namespace tenuto::test {

namespace {

using Cells = HeapCells;
constexpr std::uint64_t kMiB = 1u << 20;

void small_blocks(HeapSession& s, CrashContext&) {
  s.put(0, 64);
  s.put_unfilled(1, 48);
  s.put(2, 104);
  s.take(0);
  s.take(1);
  s.put(0, 64);
  for (std::size_t i = 3; i < 9; ++i) s.put(i, 32);
  for (std::size_t i = 2; i < 9; ++i) s.take(i);  // the first retirement in the ring
  s.put(Cells::inner(0), 200);
  s.take(Cells::inner(0));
  s.take(0);
  for (std::size_t i = 0; i < 3; ++i) s.put(i, 32);
  scavenge(s);
  s.put(4, 4096);
}

// The freed extent is the best fit at once, but its free is not retired yet.
void no_reuse(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  s.take(0);
  s.put(1, 20'000);
  s.put(0, 40'000);
  s.take(1);
}

// New slabs in frames with arbitrary contents.
void dirty_slabs(HeapSession& s, CrashContext&) {
  s.put(0, 16'000);
  s.put(1, 9'000);
  s.put(Cells::derived(0), 64);
}

// All blocks of a class are allocated and freed, and so are slabs.
void slabs(HeapSession& s, CrashContext&) {
  for (std::size_t i = 0; i < 9; ++i) s.put(i, 16'000);  // four fit a slab
  for (std::size_t i = 0; i < 8; ++i) s.take(i);
  scavenge(s);
  s.put(0, 9'000);
  s.take(8);
  s.close();
  s.reopen();
  s.put(1, 16'000);
}

void extents(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  s.put(1, 40'000);
  s.put(2, 20'000);
  s.take(1);
  s.put(3, 30'000);  // into the gap
  s.take(0);
  s.take(3);
  s.put(4, 2 * kMiB);
  s.take(2);
  s.put(5, 3 * kMiB);
  s.take(4);
  s.take(5);
  scavenge(s);
  s.put(6, kMiB);
}

void derived(HeapSession& s, CrashContext&) {
  s.put(Cells::derived(0), 64);
  s.put(Cells::derived(1), 64);
  s.put(Cells::derived(2), 20'000);
  s.take(Cells::derived(0));
  s.put(Cells::derived(3), 20'000);
  s.take(Cells::derived(2));
  s.put(0, 20'000);
  s.put(Cells::derived(4), 3 * kMiB);
  s.take(Cells::derived(4));
  s.close();
  s.reopen();
  s.put(Cells::derived(0), 64);
  s.take(Cells::derived(1));
  s.close();
}

void derived_closed(HeapSession& s, CrashContext&) {
  s.put(Cells::derived(0), 64);
  s.put(Cells::derived(1), 20'000);
  s.put(0, 64);
  s.close();
}

// A container is freed and reused while another thread's free of a word in it is pending. The new
// contents look like the old pointer.
void containers(HeapSession& s, CrashContext&) {
  Worker other;
  s.put(0, 20'000);
  std::uint64_t raw = 0;
  other.run([&] {
    s.put(Cells::inner(0), 64, 1);
    raw = s.word(Cells::inner(0)).raw;
    s.take(Cells::inner(0), 1);
  });
  s.take(0);
  scavenge(s);
  s.put(1, 20'000, 0, raw);
  s.put(2, 20'000, 0, raw);
  s.put(3, 40'000, 0, raw);
}

void two_lanes(HeapSession& s, CrashContext&) {
  Worker other;
  s.put(0, 64);
  other.run([&] { s.put(1, 64, 1); });
  s.take(1);
  other.run([&] { s.take(0, 1); });
  s.put(0, 64);
  other.run([&] { s.put_unfilled(1, 20'000, 1); });
  s.take(1);
  other.run([&] { s.put(2, 64, 1); });
  other.run([&] { s.take(2, 1); });
  s.put_unfilled(1, 20'000);
  other.run([&] { s.take(1, 1); });
  other.run([&] { s.put_unfilled(4, 64, 1); });
  s.close();
  s.reopen();
  s.take(4);
  s.put(5, 64);
  s.put_unfilled(4, 64);
}

// A close also covers a thread that stays alive and never fences again.
void living_thread(HeapSession& s, CrashContext&) {
  Worker other;
  other.run([&] {
    s.put(0, 64, 1);
    s.put(1, 20'000, 1);
    s.put_unfilled(2, 64, 1);
    s.take(0, 1);
    s.take(1, 1);
  });
  s.close();
  s.reopen();
  s.put(3, 64);
}

// A thread ends, and its lane, with pending frees, passes to the next thread.
void handed_on(HeapSession& s, CrashContext&) {
  s.put(0, 64);
  for (std::size_t round = 0; round < 2; ++round) {
    std::thread([&] {
      for (std::size_t i = 1; i < 6; ++i) s.put(i, 64, 1);
      for (std::size_t i = 1; i < 6; ++i) s.take(i, 1);
    }).join();
  }
  std::thread([&] { s.put_unfilled(7, 64, 1); }).join();
  std::thread([&] {
    s.take(7, 1);
    s.put(8, 64, 1);
  }).join();
}

// The next block that this thread frees leaves limbo at once, because it is the last of a batch.
void fill_quarantine(HeapSession& s) {
  heap::Heap& h = *s.pool().heap;
  for (std::size_t i = 1; i < heap::kQuarantineBatch; ++i) {
    h.release(h.reserve(64, heap::Kind::logged)->offset);
  }
}

// A thread's first call reads the slabs and breaks the seal of the last close. It makes no other
// call, and another thread changes bits.
void first_use(HeapSession& s, CrashContext&) {
  Worker other;
  s.put(0, 64);
  s.put(1, 64);
  s.close();
  s.reopen();
  other.run([&] { static_cast<void>(s.pool().heap->stats()); });
  s.take(0);
}

// A thread ends right after a malloc, and no thread takes its lane. Its last flush said that its
// intent is over. Another thread frees the block, and gets it again for another word.
void last_malloc(HeapSession& s, CrashContext&) {
  s.put(0, 64);
  fill_quarantine(s);
  std::thread([&] { s.put_unfilled(1, 20'000, 1); }).join();
  const void* const block = PtrWord::decode(&s.word(1), s.word(1).raw);
  s.take(1);
  s.put(2, 64);
  s.take(2);
  s.put(3, 20'000);
  EXPECT_EQ(PtrWord::decode(&s.word(3), s.word(3).raw), block);
}

// Two threads free the same word. One is refused, does nothing more and stays alive. The other one
// gets the block again for another word.
void lost_race(HeapSession& s, CrashContext& c) {
  s.put(0, 20'000);
  fence("block for others", "test");
  std::atomic<unsigned> ready = 0, won = 0, lost = 0, over = 0;
  const auto body = [&](unsigned thread) {
    fill_quarantine(s);
    ready.fetch_add(1);
    while (ready.load() != 2) {
    }
    if (!s.take_raced(0, thread)) {
      lost.fetch_add(1);
      while (over.load() == 0 && lost.load() != 2) {
      }
      return;
    }
    won.fetch_add(1);
    while (won.load() + lost.load() != 2) {
    }
    s.put(2 * thread + 1, 64, thread);
    s.take(2 * thread + 1, thread);
    s.put(2 * thread + 2, 20'000, thread);
    over.fetch_add(1);
  };
  c.interleave({[&] { body(0); }, [&] { body(1); }});
  EXPECT_EQ(won.load(), 1u);
}

void interleaved(HeapSession& s, CrashContext& c) {
  c.interleave({[&] {
                  s.put(0, 64, 0);
                  s.put_unfilled(1, 20'000, 0);
                  s.take(0, 0);
                  s.put(0, 16'000, 0);
                  s.take(1, 0);
                },
                [&] {
                  s.put(8, 64, 1);
                  s.put_unfilled(9, 20'000, 1);
                  s.take(8, 1);
                  s.put(8, 30'000, 1);
                  s.take(9, 1);
                }});
}

void zone_growth(HeapSession& s, CrashContext&) {
  s.put(0, 64);
  EXPECT_TRUE(s.pool().heap->reserve(7 * kMiB, heap::Kind::logged));
  Worker other;
  other.run([&] { s.put(1, 7 * kMiB, 1); });
  s.put(2, 2 * kMiB);
  s.put(3, 64);
  s.take(1);
}

void lane_growth(HeapSession& s, CrashContext&) {
  std::vector<std::unique_ptr<Worker>> threads;
  for (std::size_t i = 0; i < pm::kLanesPerSegment + 1; ++i) {
    threads.push_back(std::make_unique<Worker>());
    threads.back()->run([&] { static_cast<void>(s.pool().lanes->mine()); });
  }
  Worker last;
  last.run([&] {
    s.put(1, 64, 1);
    s.take(1, 1);
    s.put(2, 64, 1);
  });
  s.put(0, 64);
}

// Frames are reused as they are. Soils the places where slabs have their header and stripes, and
// lanes their intents.
void dirty_frames(PoolParts& p) {
  constexpr std::size_t kSoiledBytes = (pm::kLaneIntentLine + 1) * kLineBytes;
  std::vector<PoolOffset> frames;
  for (int i = 0; i < 40; ++i) {
    const auto f = p.heap->take_log_frame();
    TENUTO_ASSERT(f);
    std::memset(p.file->at<std::byte>(*f), 0xff, kSoiledBytes);
    flush_bytes(p.file->at<std::byte>(*f), kSoiledBytes);
    frames.push_back(*f);
  }
  for (const PoolOffset f : frames) p.heap->put_log_frame(f);
}

// A freed block is the next one that its lane would hand out.
void move(HeapSession& s, CrashContext&) {
  for (std::size_t i = 0; i < 3; ++i) s.put(i, 64);
  s.move(0, 3, 64);
  s.move(1, 0, 64);
  s.put(4, 20'000);
  s.move(4, 5, 20'000);
  s.move(5, 4, 20'000);
  s.move_unfilled(4, 5, 20'000);
  s.move_unfilled(3, 1, 64);
}

}  // namespace

const std::vector<HeapScript>& heap_scripts() {
  static const std::vector<HeapScript> all = [] {
    std::vector<HeapScript> list = {
        {"small_blocks", small_blocks},
        {"no_reuse", no_reuse},
        {"slabs", slabs},
        {"dirty_slabs", dirty_slabs, dirty_frames},
        {"living_thread", living_thread},
        {"first_use", first_use},
        {"extents", extents, {}, 0, false, 16 * kMiB},
        {"derived", derived, {}, 0, false, 16 * kMiB},
        {"derived_closed", derived_closed},
        {"containers", containers, {}, 0, true},
        {"two_lanes", two_lanes, {}, 0, true},
        {"handed_on", handed_on},
        {"last_malloc", last_malloc},
        {"move", move},
        {.name = "lost_race", .body = lost_race, .switch_every = 2},
        {"interleaved", interleaved},
        {"zone_growth", zone_growth, {}, 64 * kMiB},
        {"lane_growth", lane_growth, dirty_frames},
    };
    for (HeapScript& log : heap_log_scripts()) list.push_back(std::move(log));
    add_versioned_scripts(list);
    add_typed_scripts(list);
    add_morph_scripts(list);
    return list;
  }();
  return all;
}

const HeapScript& heap_script(const std::string& name) {
  for (const HeapScript& s : heap_scripts()) {
    if (s.name == name) return s;
  }
  TENUTO_ASSERT(!"no such script");
  return heap_scripts().front();
}

namespace {
PoolOptions options_of(const HeapScript& s) {
  PoolOptions o = heap_world_options(std::max(s.size_max, s.size));
  o.size = s.size;
  o.heap = s.heap;
  if (s.stripes != 0) o.stripes = s.stripes;
  return o;
}

}  // namespace

CrashOptions crash_options(const HeapScript& s) {
  CrashOptions o;
  o.product_max = crash_scaled(100);
  o.samples_max = crash_scaled(40);
  o.recovery_states_max = crash_scaled(4);
  o.points_percent = s.points_percent;
  o.switch_every = s.switch_every;
  if (s.slow) {
    o.product_max = o.samples_max = crash_scaled(20);
    o.recovery_states_max = crash_scaled(1);
  }
  o.locked_instructions_fence = s.locked_instructions_fence;
  return o;
}

CrashResult run(const HeapScript& s, const CrashOptions& crash) {
  static HeapModel model;
  const PoolOptions options = options_of(s);
  return CrashRunner(crash).run(
      [&](const std::string& path) { make_heap_world(path, options, s.before, s.table_bytes); },
      [&](CrashContext& c) {
        HeapSession session(c, model, options);
        s.body(session, c);
      },
      [&](const CrashImage& image) { return check_heap_world(image, model, options); });
}

}  // namespace tenuto::test

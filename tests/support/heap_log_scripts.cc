// Scripts for extents and the bookkeeping log: see heap_scripts.h.
#include "heap/format.h"
#include "pm/assert.h"
#include "support/heap_script_parts.h"

namespace tenuto::test {

namespace {

using Cells = HeapCells;
constexpr std::uint64_t kMiB = 1u << 20;

// --- what one thread makes and another uses first: the maker's own next fence does not help it --

void use_extents(PoolParts& p, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    TENUTO_ASSERT(p.heap->malloc_to(20'000, p.root(1)) == Status::ok);
    TENUTO_ASSERT(p.heap->free_from(p.root(1)) == Status::ok);
  }
}

void log_segment(HeapSession& s, CrashContext&) {
  EXPECT_TRUE(s.pool().heap->reserve(3 * kMiB, heap::Kind::logged));
  Worker other;
  other.run([&] { s.put(0, 20'000, 1); });
  s.put(1, 20'000);
}

void shared_chunk(HeapSession& s, CrashContext&) {
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::logged));
  Worker other;
  other.run([&] { s.put(0, 20'000, 1); });
  s.put(1, 20'000);
}

// The log's list continues in a second chunk, and a tombstone kills an entry of the first.
void log_chunks(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  s.put(1, 20'000);
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::derived));
  Worker other;
  other.run([&] { s.put(2, 20'000, 1); });
  s.take(1);
  s.take(0);
}

// Entries of two threads in one chunk. No fence covers the first entry: recovery may find only the
// second, and append behind it.
void log_holes(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::derived));
  Worker other;
  other.run([&] {
    s.put(1, 20'000, 1);
    s.put(2, 20'000, 1);
  });
}

// The number of entries in the log's list, of any kind.
std::size_t log_entries(PoolParts& p) {
  const auto& head = *reinterpret_cast<heap::BookHead*>(p.file->head().heap);
  std::size_t n = 0;
  for (PoolOffset o{head.list[head.alt]}; o;) {
    const auto& c = *p.file->at<heap::BookChunk>(o);
    for (const std::uint64_t e : c.entries) n += e != 0 ? 1 : 0;
    o = {c.next};
  }
  return n;
}

// Makes and drops derived extents until the list has so many entries. Each turn adds one entry of
// each kind.
void fill_log(PoolParts& p, std::size_t entries) {
  while (log_entries(p) + 1 < entries) {
    const auto block = p.heap->reserve(20'000, heap::Kind::derived);
    TENUTO_ASSERT(block);
    p.heap->release(block->offset);
  }
}

// Two threads have chunks of their own. Each takes what the other put: the first thread's chunk is
// older than the entry of cell 1, so its tombstone goes to the other's.
void log_tails(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  Worker other;
  other.run([&] { s.put(1, 20'000, 1); });
  s.take(1);
  other.run([&] { s.take(0, 1); });
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::derived));
  other.run([&] { s.put(2, 20'000, 1); });
  s.put(3, 20'000);
}

// The first thread begins its next chunk, so the other's is not the last. Then all entries of the
// other's are dead, and the first thread collects. The other's is a tail still, and used again.
void log_tail_stays(HeapSession& s, CrashContext&) {
  s.put(4, 64);  // takes the first lane, whose core has the chunk that is there
  Worker other;
  other.run([&] { s.put(0, 20'000, 1); });
  for (std::size_t i = 1; i < 4; ++i) s.put(i, 20'000);
  other.run([&] { s.take(0, 1); });
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::derived));
  other.run([&] { s.put(0, 20'000, 1); });
}

// The other thread fills its chunk, and takes what the first one put after it began its next one.
void log_tails_compacted(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  Worker other;
  other.run([&] { s.put(1, 20'000, 1); });
  s.put(2, 20'000);
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::logged));
  other.run([&] { s.take(0, 1); });
  s.take(1);
  other.run([&] { s.put(3, 20'000, 1); });
}

HeapOptions with_cores(unsigned n, HeapOptions o = {}) {
  o.numa.cores = n;
  return o;
}

// Compacts the list soon. It is compacted for the second time, so that chunks are reused.
HeapOptions compact_soon() {
  HeapOptions o;
  o.book_chunks_least = o.book_dead_factor = 1;
  return o;
}
void compaction_before(PoolParts& p) {
  const auto& head = *reinterpret_cast<heap::BookHead*>(p.file->head().heap);
  TENUTO_ASSERT(p.heap->malloc_to(20'000, p.root(2)) == Status::ok);
  while (head.alt == 0) use_extents(p, 1);
  TENUTO_ASSERT(p.heap->free_from(p.root(2)) == Status::ok);
  fill_log(p, heap::kBookChunkEntries - 4);
}
void compaction(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::logged));
  Worker other;
  other.run([&] { s.put(1, 20'000, 1); });
  s.take(0);
  s.put(2, 20'000);
  other.run([&] { s.take(1, 1); });
  s.put(3, 20'000);
  s.take(2);
}

// One thread compacts the list, and the other fills it and begins a chunk in the old one's place.
void compaction_reuse(HeapSession& s, CrashContext&) {
  heap::Heap& h = *s.pool().heap;
  std::vector<PoolOffset> extents;
  for (unsigned i = 0; i + 3 < heap::kBookChunkEntries; ++i) {
    extents.push_back(h.reserve(20'000, heap::Kind::derived)->offset);
  }
  for (int i = 0; i < 3; ++i) {
    h.release(extents.back());
    extents.pop_back();
  }
  EXPECT_TRUE(h.reserve(20'000, heap::Kind::derived));  // this begins a second chunk
  EXPECT_TRUE(h.reserve(20'000, heap::Kind::logged));
  EXPECT_EQ(h.stats().book_slow_gcs, 1u);
  Worker other;
  other.run([&] {
    for (std::size_t i = 0; i < 6; ++i) s.put(i, 20'000, 1);
  });
}

// The table's entry keeps the first chunk in the list. The second chunk has only dead entries.
// Their tombstones are in the third chunk, together with one for the first. The third has room for
// one more entry.
void fast_gc_before(PoolParts& p) {
  fill_log(p, heap::kBookChunkEntries);
  TENUTO_ASSERT(p.heap->malloc_to(20'000, p.root(1)) == Status::ok);
  TENUTO_ASSERT(log_entries(p) == heap::kBookChunkEntries);
  fill_log(p, heap::kBookChunkEntries + 3);
  std::vector<PoolOffset> extents;
  while (log_entries(p) < 2 * heap::kBookChunkEntries) {
    extents.push_back(p.heap->reserve(20'000, heap::Kind::derived)->offset);
  }
  for (const PoolOffset o : extents) p.heap->release(o);
  TENUTO_ASSERT(p.heap->free_from(p.root(1)) == Status::ok);
  TENUTO_ASSERT(log_entries(p) == 3 * heap::kBookChunkEntries - 1);
}
// One thread takes the chunk out of the list. The other one reuses it, and stores entries whose
// predecessors have tombstones.
void fast_gc(HeapSession& s, CrashContext&) {
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::logged));
  Worker other;
  other.run([&] {
    for (std::size_t i = 0; i < 4; ++i) s.put(i, 20'000, 1);
  });
  s.take(0);
  s.put(4, 20'000);
}

// The table's own entry keeps the first chunk in the list. A tombstone in the first chunk keeps the
// second. The third is about to hold only entries that no longer matter.
void fast_gc_middle_before(PoolParts& p) {
  TENUTO_ASSERT(p.heap->malloc_to(20'000, p.root(1)) == Status::ok);
  fill_log(p, heap::kBookChunkEntries);
  TENUTO_ASSERT(p.heap->free_from(p.root(1)) == Status::ok);
  fill_log(p, 3 * heap::kBookChunkEntries - 1);
}
void fast_gc_middle(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  s.take(0);
  for (std::size_t i = 1; i < 4; ++i) s.put(i, 20'000);
  s.take(2);
}

// More entries were reserved than ever existed, so the log has one segment too many.
void segments_before(PoolParts& p) {
  std::vector<PoolOffset> extents;
  while (p.heap->stats().book_bytes <= heap::kBookSegmentBytes) {
    extents.push_back(p.heap->reserve(20'000, heap::Kind::derived)->offset);
  }
  for (const PoolOffset o : extents) p.heap->release(o);
}
void segments(HeapSession& s, CrashContext&) {
  s.put(0, 20'000);
  s.pool().heap->trim();
  EXPECT_EQ(s.pool().heap->stats().book_segments_given_back, 1u);
  s.put(1, 16'000);
  s.put(2, 20'000);
  s.take(0);
}

// The log's only chunk is full. The next segment will be below it, and the lowest free chunk is
// taken first, so the next chunk is in the next segment.
void second_segment_before(PoolParts& p) {
  std::vector<PoolOffset> frames;
  do {
    frames.push_back(*p.heap->take_log_frame());
  } while (frames.back().value < 50 * kMiB);
  fill_log(p, heap::kBookChunkEntries);
  TENUTO_ASSERT(log_entries(p) == heap::kBookChunkEntries);
  for (const PoolOffset f : frames) p.heap->put_log_frame(f);
}
// One thread reserves room, which needs a second segment. The other begins a chunk in it, which the
// last chunk names.
void second_segment(HeapSession& s, CrashContext&) {
  heap::Heap& h = *s.pool().heap;
  const auto& head = *reinterpret_cast<heap::BookHead*>(s.pool().file->head().heap);
  const std::uint64_t first = head.segment;
  while (head.segment == first) EXPECT_TRUE(h.reserve(20'000, heap::Kind::logged));
  EXPECT_LT(head.segment, first);
  Worker other;
  other.run([&] { s.put(0, 20'000, 1); });
  s.put(1, 20'000);
}

// Free extents lose their pages at once.
HeapOptions decay_at_once() {
  HeapOptions o;
  o.decay_ms = 0;
  return o;
}
void holes(HeapSession& s, CrashContext&) {
  for (std::size_t i = 0; i < 4; ++i) s.put(i, 20'000);
  s.put(Cells::derived(0), 40'000);
  s.take(1);
  s.take(2);
  s.take(Cells::derived(0));
  scavenge(s);
  s.put(1, 30'000);
  s.take(0);
  s.pool().heap->trim();
  s.put(2, 20'000);
  s.put(5, 3 * kMiB);
  s.take(5);
  s.close();
  s.reopen();
  s.take(3);
}

// Each close writes the counts of wear anew, and so does a call after an eighth of the pool.
HeapOptions wear_levelling() {
  HeapOptions o;
  o.wear_levelling = true;
  o.wear_rest_ms = 0;
  return o;
}
void wear(HeapSession& s, CrashContext&) {
  s.put(0, 64);
  s.put(1, 20'000);
  s.close();
  s.reopen();
  s.take(0);
  s.take(1);
  EXPECT_TRUE(s.pool().heap->reserve(2 * kMiB, heap::Kind::logged));
  s.put(2, 20'000);
  EXPECT_EQ(s.pool().heap->stats().wear_tables, 1u);
  s.put(3, 64);
}

}  // namespace

std::vector<HeapScript> heap_log_scripts() {
  const HeapOptions one_core = with_cores(1);
  const HeapOptions two_cores = with_cores(2);
  const auto pairs_59 = [](PoolParts& p) { use_extents(p, 59); };
  return {
      {"log_segment", log_segment, {}, 0, false, 16 * kMiB, one_core},
      {"shared_chunk", shared_chunk, {}, kPoolBytesMin, false, kPoolBytesMin, one_core},
      {"log_chunks", log_chunks, pairs_59, kPoolBytesMin, false, kPoolBytesMin, one_core},
      {"log_tails", log_tails, {}, kPoolBytesMin, false, kPoolBytesMin, two_cores},
      {"log_tail_stays", log_tail_stays, pairs_59, kPoolBytesMin, false, kPoolBytesMin, two_cores},
      {"log_tails_compacted", log_tails_compacted, compaction_before, 0, false, kPoolBytesMin,
       with_cores(2, compact_soon())},
      {"compaction", compaction, compaction_before, 0, false, kPoolBytesMin,
       with_cores(1, compact_soon())},
      {"compaction_reuse",
       compaction_reuse,
       {},
       0,
       false,
       16 * kMiB,
       with_cores(1, compact_soon()),
       0,
       true},
      {"fast_gc", fast_gc, fast_gc_before, 0, false, 16 * kMiB, one_core, 20'000},
      {"fast_gc_middle", fast_gc_middle, fast_gc_middle_before, 0, false, 16 * kMiB, one_core,
       20'000},
      {"segments", segments, segments_before, 64 * kMiB, false, 64 * kMiB, one_core},
      {"second_segment", second_segment, second_segment_before, 64 * kMiB, false, 64 * kMiB,
       one_core},
      {"holes", holes, {}, 0, false, 16 * kMiB, decay_at_once()},
      {"log_holes", log_holes, {}, kPoolBytesMin, false, kPoolBytesMin, one_core},
      {"wear", wear, {}, 0, false, 16 * kMiB, wear_levelling()},
  };
}

}  // namespace tenuto::test

// The scripts of heap_scripts.h that morph slabs. The table's slab is alone in its class and sparse
// after every open, so it is morphed first.
#include "heap/format.h"
#include "support/heap_script_parts.h"

namespace tenuto::test {

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

void from_large_to_small(HeapSession& s, CrashContext&) {
  for (std::size_t i = 0; i < 6; ++i) s.put(i, 128);  // in the table's slab
  for (std::size_t i = 0; i < 5; ++i) s.take(i);
  s.close();
  s.reopen();
  s.put(6, 128);
  s.take(5);
}

// Three classes in one slab, one after the other. The blocks of each part are freed while the next
// part exists. The first has no room for the second's stripes, which come over blocks.
void three_classes(HeapSession& s, CrashContext&) {
  s.put(20, 128);  // takes the table's slab
  for (std::size_t i = 0; i < 12; ++i) s.put(i, 4904);
  for (std::size_t i = 0; i < 8; ++i) s.take(i);
  scavenge(s);
  s.put(12, 1000);  // into the slab with four blocks of 4904, behind dirty blocks
  s.take(9);
  s.put(13, 1000);
  for (const std::size_t i : {10, 11, 8}) s.take(i);
  scavenge(s);
  s.put(14, 1000);  // where the last blocks of 4904 were
  scavenge(s);
  for (std::size_t i = 0; i < 3; ++i) s.put(i, 320);
  s.take(12);
}

// Blocks in use, and then a block of another class beside them. The last block of 80 begins where a
// block of 320 would. The table's slab is not sparse enough here.
void room_between(HeapSession& s, CrashContext&) {
  for (std::size_t i = 0; i < 12; ++i) s.put(i, 80);
  for (std::size_t i = 0; i < 8; ++i) s.take(i);
  scavenge(s);
  s.put(0, 320);
  for (std::size_t i = 8; i < 12; ++i) s.take(i);
}

// Fills the rest of the pool, so that blocks of the old part are handed out once more.
void old_part_again(HeapSession& s, CrashContext&) {
  s.put(20, 128);
  for (std::size_t i = 0; i < 5; ++i) s.put(i, 320);
  for (std::size_t i = 0; i < 3; ++i) s.take(i);
  scavenge(s);
  s.put(12, 1000);
  scavenge(s);
  for (const std::uint64_t bytes : {kMiB, std::uint64_t{20'000}, std::uint64_t{16'000}}) {
    while (s.pool().heap->reserve(bytes, heap::Kind::derived)) continue;
  }
  for (std::size_t i = 0; i < 2; ++i) s.put(i, 320);
  const auto slab = [&](std::size_t cell) {
    return reinterpret_cast<std::uintptr_t>(PtrWord::decode(&s.word(cell), s.word(cell).raw)) /
           heap::kSlabBytes;
  };
  EXPECT_EQ(slab(0), slab(3));
  EXPECT_EQ(slab(12), slab(3));
  s.take(1);
  s.take(3);
}

// A block in use is where the new part's stripes would be.
void header_in_use(HeapSession& s, CrashContext&) {
  s.put(20, 128);
  for (std::size_t i = 0; i < 4; ++i) s.put(i, 4904);
  s.take(2);
  scavenge(s);
  s.put(5, 1000);
  s.take(1);
  s.put(6, 1000);
}

// The blocks in a lane's cache have become old ones when they are handed out.
void cached_old_blocks(HeapSession& s, CrashContext&) {
  s.put(20, 128);
  for (std::size_t i = 0; i < 10; ++i) s.put(i, 64);
  for (std::size_t i = 0; i < 9; ++i) s.take(i);
  s.close();
  s.reopen();  // now another core has the slab of 64
  Worker other;
  other.run([&] {
    s.put(0, 1000, 1);
    s.put(1, 64, 1);
  });
  s.take(9);
  other.run([&] {
    scavenge(s);
    s.put(2, 320, 1);
    s.put(3, 64, 1);
    s.take(1, 1);
    s.put_unfilled(4, 64, 1);
  });
  s.take(4);
  scavenge(s);
  s.put(5, 320);
}

// One thread morphs a slab while the other frees its old blocks.
void morph_among_threads(HeapSession& s, CrashContext& c) {
  s.put(20, 128);
  for (std::size_t i = 0; i < 12; ++i) s.put(i, 64);
  for (std::size_t i = 0; i < 8; ++i) s.take(i);
  scavenge(s);
  c.interleave({[&] {
                  s.put(12, 1000, 0);
                  s.take(9, 0);
                  s.put(13, 1000, 0);
                },
                [&] {
                  s.take(10, 1);
                  s.take(8, 1);
                  s.put(14, 64, 1);
                }});
}

}  // namespace

void add_morph_scripts(std::vector<HeapScript>& scripts) {
  const HeapScript more[] = {
      {"from_large_to_small", from_large_to_small},
      {"three_classes", three_classes, {}, kPoolBytesMin, false, kPoolBytesMin, {}, 0, false, 60},
      {.name = "room_between", .body = room_between, .heap = {.morph_occupancy = .02}},
      {"old_part_again", old_part_again, {}, kPoolBytesMin, false, kPoolBytesMin, {}, 0, false, 30},
      {"header_in_use", header_in_use},
      {"cached_old_blocks",
       cached_old_blocks,
       {},
       kPoolBytesMin,
       true,
       kPoolBytesMin,
       {},
       0,
       false,
       40},
      {"morph_among_threads", morph_among_threads},
  };
  scripts.insert(scripts.end(), std::begin(more), std::end(more));
}

}  // namespace tenuto::test

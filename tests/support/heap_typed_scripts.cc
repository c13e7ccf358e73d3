// The scripts of blocks with types, for heap_scripts.cc. A reused block still has the type of its
// last use, which must not be taken for the new one.
#include "support/heap_script_parts.h"

namespace tenuto::test {

namespace {

using Cells = HeapCells;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::size_t V(std::size_t i) { return Cells::versioned(i); }

std::vector<std::size_t> range(std::size_t first, std::size_t count) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

// A slab has four blocks of this size, so the blocks of cells 0 to 3 are reused with other types.
constexpr std::uint64_t kQuarterSlab = 16'000;

void typed(HeapSession& s, CrashContext&) {
  s.set_type(1);
  s.put(0, 64);
  s.put_unfilled(1, 48);
  s.set_type(2);
  s.put(2, 64);
  s.set_type(0);
  s.put(3, 64);
  s.take(0);
  s.set_type(3);
  s.put(Cells::inner(2), 200);
  s.take(1);
  s.take(Cells::inner(2));
  s.take(2);
  s.put(0, 64);
  scavenge(s);
  s.put(1, 48);
  s.close();
  s.reopen();
  s.set_type(1);
  s.put(2, 64);
  s.take(0);
}

void typed_again(HeapSession& s, CrashContext&) {
  for (std::uint64_t type = 1; type < HeapSession::kTypesEnd; ++type) {
    s.set_type(type);
    for (std::size_t i = 0; i < 4; ++i) {
      i % 2 == 0 ? s.put(i, kQuarterSlab) : s.put_unfilled(i, kQuarterSlab);
    }
    for (std::size_t i = 0; i < 4; ++i) s.take(i);
    scavenge(s);
  }
  s.put(0, kQuarterSlab);
}

void typed_extents(HeapSession& s, CrashContext&) {
  s.set_type(1);
  s.put(0, 20'480);
  s.put_unfilled(1, 40'000);
  s.set_type(2);
  s.take(0);
  s.put(2, 2 * kMiB - 8);
  s.put(3, 2 * kMiB);  // with its type word it is a huge object
  scavenge(s);
  s.put_unfilled(0, 20'480);
  s.put_unfilled(V(0), 20'480);
  s.swap(V(0), V(1));
  s.take(3);
  s.take(1);
  scavenge(s);
  s.set_type(3);
  s.put(1, 40'000);
  s.take(V(1));
  s.take(2);
}

// Frames of slabs are reused by slabs of another kind.
void typed_slabs(HeapSession& s, CrashContext&) {
  for (const std::uint64_t type : {1u, 0u, 2u}) {
    s.set_type(type);
    for (std::size_t i = 0; i < 5; ++i) s.put(i, kQuarterSlab);
    s.put(Cells::derived(0), kQuarterSlab);
    for (std::size_t i = 0; i < 5; ++i) s.take(i);
    s.take(Cells::derived(0));
    scavenge(s);
  }
  s.put(0, kQuarterSlab);
  s.close();
  s.reopen();
  s.put(1, kQuarterSlab);
}

void typed_versioned(HeapSession& s, CrashContext&) {
  for (std::uint64_t type = 1; type < HeapSession::kTypesEnd; ++type) {
    s.set_type(type);
    s.put_unfilled(V(0), kQuarterSlab);
    s.put_unfilled(V(1), kQuarterSlab);
    s.put(V(2), kQuarterSlab);
    s.swap(V(1), V(3));
    s.take(V(0));
    s.put_unfilled(V(0), kQuarterSlab);
    s.take(V(3));
    s.take(V(2));
    s.take(V(0));
    scavenge(s);
  }
  s.put_unfilled(V(0), 64);
}

void typed_batches(HeapSession& s, CrashContext&) {
  for (std::uint64_t type = 1; type < HeapSession::kTypesEnd; ++type) {
    s.set_type(type);
    s.put_all(range(Cells::row(0), 8), 4992);
    s.put_all(range(0, 13), 4992);
    s.take_all(range(3, 10));
    s.put_all({V(0), V(1), V(2)}, 20'000);
    s.take_all(range(Cells::row(0), 8));
    s.take_all({V(2), V(0), V(1)});
    s.take_all({2, 0, 1});
    scavenge(s);
  }
}

// A block moves to the thread that frees it, and comes back with another type.
void typed_lanes(HeapSession& s, CrashContext&) {
  Worker other;
  s.set_type(1);
  s.put(0, kQuarterSlab);
  s.put_unfilled(V(0), kQuarterSlab);
  other.run([&] {
    s.take(0, 1);
    s.set_type(2);
    s.put_unfilled(1, kQuarterSlab, 1);
    s.swap(V(0), V(1), 1);
    s.put_unfilled(V(0), kQuarterSlab, 1);
  });
  s.take(1);
  s.take(V(0));
  s.set_type(3);
  scavenge(s);
  s.put_unfilled(V(0), kQuarterSlab);
  other.run([&] {
    s.take(V(1), 1);
    s.put_unfilled(V(1), 64, 1);
  });
  s.take(V(0));
  s.put(2, 64);
}

void typed_interleaved(HeapSession& s, CrashContext& c) {
  s.set_type(1);
  c.interleave({[&] {
                  s.put(0, 64, 0);
                  s.put_unfilled(V(0), 64, 0);
                  s.take(0, 0);
                  s.put_unfilled(0, 20'000, 0);
                },
                [&] {
                  s.put(8, 64, 1);
                  s.put_all({Cells::row(0), Cells::row(1)}, 64, 1);
                  s.take(Cells::row(0), 1);
                  s.take(8, 1);
                }});
}

}  // namespace

void add_typed_scripts(std::vector<HeapScript>& all) {
  all.push_back({"typed", typed});
  all.push_back({"typed_extents", typed_extents, {}, kPoolBytesMin, false, 16 * kMiB});
  all.push_back({"typed_interleaved", typed_interleaved});
  // Scripts with many similar steps try fewer states each.
  for (HeapScript s : {HeapScript{"typed_again", typed_again},
                       {"typed_slabs", typed_slabs},
                       {"typed_versioned", typed_versioned},
                       {"typed_batches", typed_batches},
                       {"typed_lanes", typed_lanes}}) {
    s.slow = true;
    s.points_percent = 50;
    all.push_back(std::move(s));
  }
}

}  // namespace tenuto::test

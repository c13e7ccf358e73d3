// The scripts of versioned pointers and batches, for heap_scripts.cc.
#include <thread>

#include "heap/word_kind.h"
#include "pm/assert.h"
#include "support/heap_scripts.h"
#include "support/heap_worker.h"
#include "tenuto/persist.h"

namespace tenuto::test {

namespace {

using Cells = HeapCells;

constexpr std::size_t V(std::size_t i) { return Cells::versioned(i); }

void versioned(HeapSession& s, CrashContext&) {
  s.put(V(0), 64);
  s.put_unfilled(V(1), 48);
  s.swap(V(0), V(1));
  s.take(V(1));
  s.swap(V(0), V(2));
  s.put(V(0), 104);
  s.take(V(2));
  s.put_unfilled(V(3), 20'000);
  s.swap(V(3), V(1));
  s.take(V(1));
  s.put(V(1), 32);
  s.put(V(2), 20'000);
  scavenge(s);
  s.take(V(0));
  s.swap(V(1), V(2));
  s.close();
  s.reopen();
  s.take(V(2));
  s.put(0, 64);
  s.put(V(2), 64);
}

// No thread fences what the other one flushed, except for its own lane's intents.
void lanes(HeapSession& s, CrashContext&) {
  Worker other;
  s.put_unfilled(V(0), 64);
  other.run([&] { s.swap(V(0), V(1), 1); });
  other.run([&] { s.take(V(1), 1); });
  s.put_unfilled(V(0), 64);
  other.run([&] { s.take(V(0), 1); });
  s.put(V(0), 64);
  other.run([&] { s.put_unfilled(V(1), 64, 1); });
  s.swap(V(1), V(2));  // the bit of its block is not durable yet
  s.swap(V(2), V(3));
  s.swap(V(3), V(2));
  s.swap(V(2), V(1));
  s.put(1, 64);
  s.put(2, 64);  // this ends the swaps
  other.run([&] {
    s.take(V(0), 1);
    s.put_unfilled(V(2), 20'000, 1);
  });
  s.take(V(2));
  s.put(0, 64);
  other.run([&] { s.put(V(0), 64, 1); });
  s.close();
  s.reopen();
  s.take(V(0));
  s.put(V(0), 64);
}

// The lane that recovery replays last has the older intents.
void lanes_in_reverse(HeapSession& s, CrashContext&) {
  Worker other;
  s.put_unfilled(V(3), 64);
  other.run([&] {
    s.put_unfilled(V(0), 64, 1);
    s.swap(V(0), V(1), 1);
  });
  s.take(V(1));
  other.run([&] { s.put_unfilled(V(1), 64, 1); });
  s.swap(V(1), V(3));
}

std::vector<std::size_t> range(std::size_t first, std::size_t count) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

// A block is reused as soon as intents alone allow it: it is the last of a batch that is checked
// together.
void reuse(HeapSession& s, CrashContext&) {
  s.put_unfilled(V(0), 20'000);
  s.put_all(range(Cells::row(0), 8), 64);
  s.take_all(range(Cells::row(0), 8));
  s.put_all(range(Cells::row(0), 8), 64);
  s.take_all(range(Cells::row(0), 7));
  s.take(V(0));
  s.put_unfilled(V(1), 64);
  s.swap(V(1), V(2));
  s.put_unfilled(V(0), 20'000);
  s.swap(V(2), V(1));
}

// The same with another thread. Only the retirement allows it to reuse the block.
void reuse_by_other(HeapSession& s, CrashContext&) {
  Worker other;
  s.put(0, 20'000);
  s.put_all(range(3, 15), 64);
  s.take_all(range(3, 15));
  s.take(0);
  s.put(1, 64);
  other.run([&] { s.put(2, 20'000, 1); });
  s.put(3, 64);
}

// A container is freed and reused while another thread's malloc of a word in it is pending. The new
// contents look like an older version.
void containers(HeapSession& s, CrashContext&) {
  Worker other;
  s.put(0, 20'000);
  other.run([&] { s.put_unfilled(Cells::versioned_inner(0), 64, 1); });
  s.take(Cells::versioned_inner(0));
  s.take(0);
  scavenge(s);
  s.put(1, 20'000, 0, 6);
  s.put(2, 20'000, 0, 6);
  s.put(V(0), 20'000, 0, 6);
}

// Sets a version directly, because a test cannot go through half of all versions.
void set_version(HeapSession& s, std::size_t cell, std::uint32_t version) {
  VPtrWord& word = s.versioned(cell);
  publish(word.raw, VPtrWord::encode(&word, nullptr, version));
  fence("version", "test");
}

// Two words are about to pass a guarded version while another thread's intents name them.
// Later the words have versions from which those intents look new.
void wraps(HeapSession& s, CrashContext&) {
  constexpr std::uint32_t kLater = heap::kGuardAt + VPtrWord::kVersions / 2 + 5;
  set_version(s, V(0), heap::kGuardAt - 2);
  set_version(s, V(1), heap::kGuardAt - 3);
  Worker other;
  other.run([&] {
    s.put_unfilled(V(1), 64, 1);
    s.take(V(1), 1);
    s.put_unfilled(V(0), 64, 1);
  });
  s.put_unfilled(V(1), 64);
  s.take(V(0));
  s.take(V(1));
  scavenge(s);
  set_version(s, V(0), kLater);
  set_version(s, V(1), kLater);
  s.put(0, 64);
}

void batches(HeapSession& s, CrashContext&) {
  s.put_all(range(Cells::row(0), 8), 64);
  s.take_all(range(Cells::row(0), 3));
  s.put_all({V(0), V(1), Cells::row(1)}, 48);
  s.swap(V(0), Cells::row(0));
  s.put_all(range(0, 20), 32);  // more lines than a group has
  s.take_all(range(Cells::row(3), 5));
  s.take_all(range(2, 16));
  s.put_all({V(0), V(2), V(3)}, 20'000);
  s.take_all({V(3), V(0)});
  scavenge(s);
  s.put_all(range(Cells::row(2), 6), 64);
  s.take_all({0, 18, 1});
  s.put(0, 64);
}

void batches_of_lanes(HeapSession& s, CrashContext&) {
  Worker other;
  s.put_all(range(Cells::row(0), 8), 64);
  other.run([&] { s.take_all(range(Cells::row(2), 6), 1); });
  s.put_all(range(Cells::row(2), 5), 32);
  other.run([&] {
    s.put_all({V(0), V(1), V(2)}, 64, 1);
    s.swap(V(0), V(3), 1);
  });
  s.take_all({V(1), V(3), Cells::row(0)});
  s.put(0, 64);
}

void interleaved(HeapSession& s, CrashContext& c) {
  c.interleave({[&] {
                  s.put_unfilled(V(0), 64, 0);
                  s.swap(V(0), V(1), 0);
                  s.put_all({Cells::row(0), Cells::row(1)}, 48, 0);
                  s.take(V(1), 0);
                },
                [&] {
                  s.put_all({Cells::row(2), Cells::row(3)}, 48, 1);
                  s.put(V(2), 64, 1);
                  s.take(Cells::row(2), 1);
                  s.swap(V(2), V(3), 1);
                }});
}

// Threads end, and their lanes pass to the next ones.
void handed_on(HeapSession& s, CrashContext&) {
  for (std::size_t round = 0; round < 3; ++round) {
    std::thread([&] {
      if (round > 0) s.take(V(0), 1);
      s.put_unfilled(V(0), 64, 1);
      s.put(V(1), 64, 1);
      s.take(V(1), 1);
    }).join();
  }
}

}  // namespace

void add_versioned_scripts(std::vector<HeapScript>& all) {
  all.push_back({"versioned", versioned});
  all.push_back({"versioned_lanes", lanes});
  all.push_back({"versioned_reverse", lanes_in_reverse});
  all.push_back({"versioned_reuse", reuse});
  all.push_back({"reuse_by_other", reuse_by_other});
  all.push_back({"versioned_containers", containers});
  all.push_back({"versioned_wraps", wraps});
  all.push_back({"versioned_interleaved", interleaved});
  all.push_back({"versioned_handed_on", handed_on});
  all.push_back({"batches", batches});
  all.push_back({"batches_of_lanes", batches_of_lanes});
}

}  // namespace tenuto::test

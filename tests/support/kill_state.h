// What a killed writer leaves for its judge: the model of a store and of some pool objects, in
// memory that outlives the process. Each writer thread owns a part of the keys and announces every
// operation before it begins and ends it after it returned, so that at any moment of a kill the
// right state is known but for one operation a thread, which may be in or out, as a whole.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <string>

namespace tenuto::test {

inline constexpr int kKillThreads = 3;
inline constexpr int kKillKeys = 600;  // a thread
inline constexpr int kKillBatch = 12;  // entries at most
inline constexpr int kKillWords = 64;  // pointers to objects

struct KillOp {
  int key;
  std::uint32_t before;  // version, 0: absent
  std::uint32_t after;
};

struct KillThread {
  std::atomic<int> pending;  // entries of `op` that may be in or out
  KillOp op[kKillBatch];
  std::uint32_t version[kKillKeys];
  std::atomic<std::uint64_t> done;
};

// Objects of the pool itself: words[i] points to a block stamped with its version, and the sum of
// `balance` never changes.
struct KillState {
  KillThread thread[kKillThreads];
  std::atomic<int> word_pending;  // index + 1 of the word being changed, 0: none
  std::uint32_t word_before, word_after;
  std::uint32_t word_version[kKillWords];
  std::atomic<std::uint64_t> objects_done;
  std::atomic<std::uint64_t> verified;  // successful verifications, ended
  std::uint64_t rolled_back, leaked_frames, unclean;
  double recovery_ms_sum, recovery_ms_max;
  char failure[4096];

  static KillState* map() {
    void* p = ::mmap(nullptr, sizeof(KillState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    return p == MAP_FAILED ? nullptr : new (p) KillState{};
  }
};

// Keys and values follow from (thread, key, version) alone. Lengths cover inline separators and
// long ones, records in slabs and in extents.
inline std::string kill_key(int thread, int key) {
  std::mt19937 rng(static_cast<unsigned>(key * 31 + thread));
  std::string k =
      std::to_string(rng() % 1000) + "/" + std::to_string(thread) + "/" + std::to_string(key);
  if (key % 40 == 0) k += std::string(rng() % 300, 'k');
  return k;
}

inline std::string kill_value(int thread, int key, std::uint32_t version) {
  std::mt19937 rng(static_cast<unsigned>(key * 7919 + thread) ^ version * 2654435761u);
  std::size_t bytes = rng() % 200;
  if (rng() % 16 == 0) bytes = rng() % 4000;
  if (rng() % 200 == 0) bytes = 20000 + rng() % 30000;
  std::string v = std::to_string(version) + ":";
  while (v.size() < bytes) v.push_back(static_cast<char>(rng()));
  return v;
}

}  // namespace tenuto::test

// How acknowledgements leave a process that is about to be killed. The writer's threads push each
// acknowledged write into rings in shared memory the moment put() has returned; a second process
// carries them to a side file; a third, after the kill, reads the file and knows what must be
// there. Before each put the thread also notes what it is about to write: the one operation a
// thread that may or may not have happened.
//
// Nothing of the store under test takes part: the rings are plain memory that outlives the writer.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

inline constexpr unsigned kWriterThreadsMax = 8;
inline constexpr std::uint64_t kRingEntries = 1u << 15;

// A write of `version` to `record`.
struct AckEntry {
  std::uint32_t record = 0;
  std::uint32_t version = 0;
};

// One thread's ring. acknowledged - carried <= kRingEntries; the writer waits for room.
struct alignas(64) AckRing {
  std::atomic<std::uint64_t> acknowledged{0};  // pushed; the release meets the carrier's acquire
  alignas(64) std::atomic<std::uint64_t> carried{0};
  alignas(64) std::atomic<std::uint64_t> in_flight{0};  // an AckEntry in one word; 0: none yet
  // What the thread needs to go on after a kill; only hints, the side file is the truth.
  std::uint64_t loaded = 0;    // records of its share that were inserted
  std::uint32_t sequence = 1;  // of the next version
  std::uint64_t reads = 0;
  AckEntry entries[kRingEntries];

  void begin(AckEntry e);
  void acknowledge(AckEntry e);
};

struct AckChannel {
  std::atomic<bool> writer_open{false};  // it has opened the store and is about to write
  std::atomic<bool> writer_gone{false};
  std::atomic<std::uint32_t> writers_loading{0};
  char error[400] = {};  // the writer's, when it stops by itself
  AckRing rings[kWriterThreadsMax];
};

enum class AckKind : std::uint32_t {
  acknowledged = 1,
  in_flight = 2,  // at the moment of the kill
  settled = 3,    // what the check found for an in-flight write: from now on this is the truth
};

// The side file: records of 16 bytes, appended.
struct AckLine {
  AckKind kind = AckKind::acknowledged;
  std::uint32_t kill = 0;
  AckEntry entry;
};
static_assert(sizeof(AckLine) == 16);

// Runs in its own process: moves entries from the rings to the file until the writer is gone and
// the rings are empty, then notes what was in flight. False: the file could not be written.
bool carry_acknowledgements(AckChannel& channel, unsigned threads, std::uint32_t kill,
                            const std::string& path);

bool append_lines(const std::string& path, const std::vector<AckLine>& lines);
bool read_lines(const std::string& path, std::vector<AckLine>& lines);

}  // namespace bench

// The path of acknowledgements out of a process that is about to be killed. The writer's threads
// push each acknowledged write into rings in shared memory as soon as put() returns. A second
// process moves them to a side file. A third process reads the file after the kill and checks the
// store against it. Before each put, the thread also notes the write. It is the only write of that
// thread which may or may not have happened.
//
// The store under test takes no part in this: the rings are plain memory that outlives the writer.
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
  std::atomic<std::uint64_t> acknowledged{0};  // stored with release, the carrier acquires
  alignas(64) std::atomic<std::uint64_t> carried{0};
  alignas(64) std::atomic<std::uint64_t> in_flight{0};  // an AckEntry in one word; 0: none yet
  // Used by the thread to continue after a kill. Only hints: the side file is authoritative.
  std::uint64_t loaded = 0;    // inserted records of its share
  std::uint32_t sequence = 1;  // of the next version
  std::uint64_t reads = 0;
  AckEntry entries[kRingEntries];

  void begin(AckEntry e);
  void acknowledge(AckEntry e);
};

struct AckChannel {
  std::atomic<bool> writer_open{false};  // the writer has opened the store and is about to write
  std::atomic<bool> writer_gone{false};
  std::atomic<std::uint32_t> writers_loading{0};
  char error[400] = {};  // of the writer, when it stops by itself
  AckRing rings[kWriterThreadsMax];
};

enum class AckKind : std::uint32_t {
  acknowledged = 1,
  in_flight = 2,  // when the writer was killed
  settled = 3,    // the check's result for an in-flight write; authoritative from now on
};

// The side file: records of 16 bytes, appended.
struct AckLine {
  AckKind kind = AckKind::acknowledged;
  std::uint32_t kill = 0;
  AckEntry entry;
};
static_assert(sizeof(AckLine) == 16);

// Runs in its own process. It moves entries from the rings to the file until the writer is gone and
// the rings are empty. Then it notes the writes in flight. Returns false if the file could not be
// written.
bool carry_acknowledgements(AckChannel& channel, unsigned threads, std::uint32_t kill,
                            const std::string& path);

bool append_lines(const std::string& path, const std::vector<AckLine>& lines);
bool read_lines(const std::string& path, std::vector<AckLine>& lines);

}  // namespace bench

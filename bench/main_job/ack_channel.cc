// The rings and the side file; see ack_channel.h.
#include "bench/main_job/ack_channel.h"

#include <sched.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace bench {
namespace {

constexpr auto kIdle = std::chrono::microseconds(200);

std::uint64_t pack(AckEntry e) { return std::uint64_t{e.record} << 32 | e.version; }
AckEntry unpack(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
}

}  // namespace

void AckRing::begin(AckEntry e) {
  // Release: a reader that sees this note also sees every earlier acknowledgement.
  in_flight.store(pack(e), std::memory_order_release);
}

void AckRing::acknowledge(AckEntry e) {
  const std::uint64_t at = acknowledged.load(std::memory_order_relaxed);
  while (at - carried.load(std::memory_order_acquire) >= kRingEntries) ::sched_yield();
  entries[at % kRingEntries] = e;
  acknowledged.store(at + 1, std::memory_order_release);
}

bool carry_acknowledgements(AckChannel& channel, unsigned threads, std::uint32_t kill,
                            const std::string& path) {
  std::vector<AckLine> lines;
  bool gone = false;
  while (!gone) {
    gone = channel.writer_gone.load(std::memory_order_acquire);  // before the last pass
    lines.clear();
    for (unsigned t = 0; t < threads; ++t) {
      AckRing& ring = channel.rings[t];
      const std::uint64_t end = ring.acknowledged.load(std::memory_order_acquire);
      std::uint64_t at = ring.carried.load(std::memory_order_relaxed);
      for (; at < end; ++at) {
        lines.push_back({AckKind::acknowledged, kill, ring.entries[at % kRingEntries]});
      }
      ring.carried.store(at, std::memory_order_release);
    }
    if (!lines.empty() && !append_lines(path, lines)) return false;
    if (!gone && lines.empty()) std::this_thread::sleep_for(kIdle);
  }
  lines.clear();
  for (unsigned t = 0; t < threads; ++t) {
    const std::uint64_t word = channel.rings[t].in_flight.load(std::memory_order_acquire);
    if (word != 0) lines.push_back({AckKind::in_flight, kill, unpack(word)});
  }
  return append_lines(path, lines);
}

bool append_lines(const std::string& path, const std::vector<AckLine>& lines) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) return false;
  const bool written =
      std::fwrite(lines.data(), sizeof(AckLine), lines.size(), file) == lines.size();
  return std::fclose(file) == 0 && written;
}

bool read_lines(const std::string& path, std::vector<AckLine>& lines) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  lines.clear();
  AckLine block[1024];
  while (const std::size_t n = std::fread(block, sizeof(AckLine), 1024, file)) {
    lines.insert(lines.end(), block, block + n);
  }
  const bool sound = std::ferror(file) == 0;
  std::fclose(file);
  return sound;
}

}  // namespace bench

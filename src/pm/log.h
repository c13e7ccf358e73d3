// Log records of one line each: seven payload words and a seal (sequence and checksum). The seal is
// zeroed first and stored last. Stores to one line become durable in order, so a sealed line is
// whole. The checksum is not needed for that: it finds damage of the medium. The heap's intents and
// the transaction log use these records.
#pragma once

#include <cstdint>

#include "pm/crc32c.h"
#include "pm/format.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

struct alignas(kLineBytes) LogLine {
  std::uint64_t word[7];
  std::uint64_t seal;  // sequence << 16 | checksum; 0: no record
};
static_assert(OnMedia<LogLine> && sizeof(LogLine) == kLineBytes);

inline constexpr std::uint64_t kLogSequenceMax = (1ull << 48) - 1;

inline std::uint64_t log_seal(const std::uint64_t (&word)[7], std::uint64_t sequence) {
  std::uint64_t crc = crc32c_wide(~0u, sequence);
#pragma GCC unroll 7
  for (const std::uint64_t w : word) crc = crc32c_wide(crc, w);
  return sequence << 16 | ((crc ^ crc >> 16) & 0xffff);
}

// Stores one record, which the caller flushes. REQUIRES: `sequence` is not 0.
[[gnu::always_inline]] inline void store_log_line(LogLine& line, const std::uint64_t (&word)[7],
                                                  std::uint64_t sequence) {
  if (!TENUTO_PLANT("pm_log_seal_not_zeroed_first")) store_ordered(line.seal, 0);
  if (TENUTO_PLANT("pm_log_seal_before_words")) store_ordered(line.seal, log_seal(word, sequence));
#pragma GCC unroll 7
  for (int i = 0; i < 7; ++i) store_ordered(line.word[i], word[i]);
  store_ordered(line.seal, log_seal(word, sequence));
}

// Stores and flushes one record. It is durable after the caller's fence. Cost: one line.
[[gnu::always_inline]] inline void write_log_line(LogLine& line, const std::uint64_t (&word)[7],
                                                  std::uint64_t sequence) {
  store_log_line(line, word, sequence);
  flush(line);
}

// Erases a record, durably after the caller's fence. Cost: one line.
inline void clear_log_line(LogLine& line) {
  store_ordered(line.seal, 0);
  flush(line);
}

enum class LogLineState { empty, sealed, damaged };

inline LogLineState log_line_state(const LogLine& line) {
  if (line.seal == 0) return LogLineState::empty;
  if (TENUTO_PLANT("pm_log_checksum_not_compared")) return LogLineState::sealed;
  return log_seal(line.word, line.seal >> 16) == line.seal ? LogLineState::sealed
                                                           : LogLineState::damaged;
}
inline std::uint64_t log_sequence(const LogLine& line) { return line.seal >> 16; }

}  // namespace TENUTO_NS::pm

#include "journal/page.h"

#include <algorithm>
#include <cstring>

#include "pm/os.h"

namespace TENUTO_NS::pm {

namespace {

std::uint32_t crc_of(const CheckpointStamp& s) {
  return crc32c(&s, offsetof(CheckpointStamp, crc));
}
std::uint32_t crc_of(const JournalPlace& p) {
  return crc32c(&p.bytes, sizeof p - offsetof(JournalPlace, bytes));
}
std::uint64_t slot_of(std::uint64_t sequence) {
  return kJournalPageOffset + (sequence & 1) * kStampBytes;
}

}  // namespace

StampsFound read_stamps(int pool_fd, std::uint64_t life) {
  StampsFound found;
  for (std::uint64_t i = 0; i < 2; ++i) {
    CheckpointStamp s{};
    const CheckpointStamp blank{};
    if (read_all(pool_fd, slot_of(i), &s, sizeof s) != sizeof s) {
      found.damaged = true;
    } else if (std::memcmp(&s, &blank, sizeof s) == 0) {
      continue;
    } else if (s.crc != crc_of(s) || (s.sequence & 1) != i) {
      found.damaged = true;
    } else {
      found.sequence = std::max(found.sequence, s.sequence);
      if (s.life != life) continue;
      found.block = std::max(found.block, s.block);
      found.end = std::max(found.end, s.block + s.more);
    }
  }
  return found;
}

bool write_stamp(int pool_fd, std::uint64_t life, std::uint64_t block, std::uint64_t end,
                 std::uint64_t sequence) {
  CheckpointStamp s{life, block, sequence, static_cast<std::uint32_t>(end - block), 0};
  s.crc = crc_of(s);
  return write_all(pool_fd, slot_of(sequence), &s, sizeof s);
}

std::string read_journal_place(int pool_fd) {
  JournalPlace p{};
  if (read_all(pool_fd, kJournalPlaceOffset, &p, sizeof p) != sizeof p) return {};
  if (p.bytes == 0 || p.bytes > kJournalPlaceMax || p.crc != crc_of(p)) return {};
  return {p.path, p.bytes};
}

bool write_journal_place(int pool_fd, const std::string& path) {
  JournalPlace p{};
  const std::size_t n = std::min(path.size(), kJournalPlaceMax);
  p.bytes = static_cast<std::uint32_t>(n);
  std::memcpy(p.path, path.data() + (path.size() - n), n);
  p.crc = crc_of(p);
  return write_all(pool_fd, kJournalPlaceOffset, &p, sizeof p);
}

}  // namespace TENUTO_NS::pm

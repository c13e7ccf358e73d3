// Medium `journal`, reading: the blocks of a ring are checked and unpacked by all cores, and handed
// on in the order of the pool.
//
// The ring is read once, in windows. In each window the headers are walked first, because they say
// where the next block is. Then checksums are compared and payloads unpacked in parallel. Then the
// line images are sorted by line; of each line the one of the last block counts. A window is
// applied before the next one is read. So a later line image always overwrites an earlier one, and
// the window bounds the memory, not the journal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "journal/format.h"
#include "journal/lines.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

struct Ring {
  int fd = -1;  // O_DIRECT where the file system has it
  const std::string& path;
  std::uint64_t bytes = 0;
  std::uint64_t life = 0;
  std::uint32_t salt = 0;  // start value of the blocks' checksums
};

struct ReplayOptions {
  unsigned threads = 0;  // 0: all cores
  // The number of lines of the pool file. A line image behind them is damage; nothing of its window
  // is applied.
  std::uint64_t lines_max = ~std::uint64_t{0};
  std::function<void(std::string_view)> log = {};  // gets the progress, about once a second
};

struct ReplayStats {
  std::uint64_t blocks = 0;
  std::uint64_t lines = 0;  // line images in them
  std::uint64_t ring_bytes = 0;
  std::uint64_t pool_bytes = 0;  // written to the pool file
  double ms = 0;                 // of reading and applying
};

// One line image for each line, by ascending line. They are valid until it returns.
using ApplyImages = std::function<Status(std::span<const LineImage>)>;

// Reads from `end` on, and sets `end` to where the journal ends. corrupt: a block that is not the
// torn last one is damaged, or one with a correct checksum has impossible fields; the blocks before
// it were applied. io: the ring cannot be read, so its end is not known. Other errors are those of
// `apply`.
Status replay_ring(const Ring& ring, JournalPosition& end, const ReplayOptions& options,
                   const ApplyImages& apply, ReplayStats* stats, Report* report);

}  // namespace TENUTO_NS::pm

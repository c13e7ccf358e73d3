// Medium `journal`, reading: what the blocks of a ring hold, checked and unpacked by all cores, and
// handed on in the order of the pool.
//
// The ring is read once, in windows. Of a window the headers are walked first (they say where the
// next block stands), then checksums are compared and payloads unpacked in parallel, then the
// line images are put in order: by line, of each line the one of the last block. A window is
// applied before the next one is read, so a later line image always goes over an earlier one, and
// memory is bounded by the window, not by the journal.
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
  int fd = -1;  // past the page cache, where the file system has that
  const std::string& path;
  std::uint64_t bytes = 0;
  std::uint64_t life = 0;
  std::uint32_t salt = 0;  // of its blocks' checksums
};

struct ReplayOptions {
  unsigned threads = 0;  // 0: all cores
  // Lines that the pool file has. A line image of another is damage, and nothing of it is applied.
  std::uint64_t lines_max = ~std::uint64_t{0};
  std::function<void(std::string_view)> log = {};  // told how far it is, about once a second
};

struct ReplayStats {
  std::uint64_t blocks = 0;
  std::uint64_t lines = 0;  // line images in them
  std::uint64_t ring_bytes = 0;
  std::uint64_t pool_bytes = 0;  // written to the pool file
  double ms = 0;                 // of reading and applying
};

// One line image a line, by ascending line. The line images stand until it returns.
using ApplyImages = std::function<Status(std::span<const LineImage>)>;

// Reads from *end on and leaves there where the journal ends. corrupt: a block that is not the torn
// last one is damaged, or one with a right checksum says what cannot be (what stands before it was
// applied). io: the ring cannot be read, which says
// nothing of where it ends. Else what `apply` said.
Status replay_ring(const Ring& ring, JournalPosition& end, const ReplayOptions& options,
                   const ApplyImages& apply, ReplayStats* stats, Report* report);

}  // namespace TENUTO_NS::pm

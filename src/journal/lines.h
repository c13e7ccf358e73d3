// Line images on their way between memory and files: the newest of each line from a cut; the same
// as bytes of a journal block (line numbers as differences, then the line images in the same
// order); and written to the pool file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "journal/capture.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// Refers to a line image at any address.
struct LineImage {
  std::uint64_t line = 0;
  const std::byte* bytes = nullptr;
};

// Sorts by line. `scratch` grows to the same size.
void sort_by_line(std::vector<LineImage>& images, std::vector<LineImage>& scratch);

// The line images of a cut that count: of each line the one with the highest sequence, by ascending
// line. Valid until the rows change or it is called again.
class NewestImages {
 public:
  std::span<const LineImage> of(std::span<const ImageRow> rows);

 private:
  struct Place {
    std::uint64_t line;
    std::uint32_t row;
    std::uint32_t at;
  };
  std::vector<Place> places_, scratch_;
  std::vector<LineImage> newest_;
};

void pack_lines(std::span<const LineImage> images, std::vector<std::byte>& out);
// Writes the `count` packed line images to `out`, in ascending order. They refer to the packed
// bytes. False: the bytes are not those of `count` lines.
bool unpack_lines(const std::byte* p, std::size_t bytes, std::uint64_t count, LineImage* out);

// Writes the line images to the pool file, in pages, because the file system writes pages. Pages
// between them are read and rewritten where that is cheaper. The result is not durable yet. *bytes
// grows by what was written. io, full, corrupt (a line number that is too large), with errno.
// REQUIRES: ascending lines.
Status write_to_pool(int pool_fd, std::span<const LineImage> images, unsigned threads,
                     std::uint64_t* bytes);

}  // namespace TENUTO_NS::pm

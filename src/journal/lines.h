// Line images on their way between memory and files: of what a cut took the newest of each
// line, as the bytes of a journal block (line numbers, as differences, then the line images in the
// same order), and written to the pool file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "journal/capture.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// A line image that stands somewhere else, on any address.
struct LineImage {
  std::uint64_t line = 0;
  const std::byte* bytes = nullptr;
};

// Sorts by line; scratch gets as large.
void sort_by_line(std::vector<LineImage>& images, std::vector<LineImage>& scratch);

// The line images that count of what a cut took: of each line the one with the highest sequence, by
// ascending line. They stand until the rows change or it is called again.
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
// Appends the `count` line images of packed lines, which stay where they are, in ascending order;
// false when the bytes are not those of so many lines.
bool unpack_lines(const std::byte* p, std::size_t bytes, std::uint64_t count, LineImage* out);

// Writes the line images, which come by ascending line, to the pool file: page by page, since what
// the file system writes is pages; pages between them come along where that is cheaper. Not
// durable yet. *bytes grows by what was written. io, full, corrupt (a line beyond what can be),
// with errno.
Status write_to_pool(int pool_fd, std::span<const LineImage> images, unsigned threads,
                     std::uint64_t* bytes);

}  // namespace TENUTO_NS::pm

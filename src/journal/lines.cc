#include "journal/lines.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "pm/os.h"
#include "pm/parallel.h"
#include "pm/plant.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

// --- order ---------------------------------------------------------------------------------------

namespace {

constexpr unsigned kDigitBits = 11;
constexpr std::size_t kDigits = 1u << kDigitBits;
constexpr std::size_t kRadixMin = 512;  // fewer are sorted by comparison

// Sorts by line: radix sort from the lowest digit, only over digits in which lines differ.
template <class T>
void sort_lines(std::vector<T>& v, std::vector<T>& scratch) {
  const auto less = [](const T& a, const T& b) { return a.line < b.line; };
  if (v.size() < kRadixMin) {
    std::sort(v.begin(), v.end(), less);
    return;
  }
  std::uint64_t differ = 0;
  for (const T& t : v) differ |= t.line ^ v.front().line;
  scratch.resize(v.size());
  for (unsigned shift = 0; shift < 64 && differ >> shift != 0; shift += kDigitBits) {
    if ((differ >> shift) % kDigits == 0) continue;
    const auto digit = [shift](const T& t) { return (t.line >> shift) % kDigits; };
    std::array<std::uint32_t, kDigits> at{};
    for (const T& t : v) at[digit(t)] += 1;
    std::uint32_t before = 0;
    for (std::uint32_t& n : at) n = std::exchange(before, before + n);
    for (const T& t : v) scratch[at[digit(t)]++] = t;
    v.swap(scratch);
  }
}

}  // namespace

void sort_by_line(std::vector<LineImage>& images, std::vector<LineImage>& scratch) {
  sort_lines(images, scratch);
}

std::span<const LineImage> NewestImages::of(std::span<const ImageRow> rows) {
  places_.clear();
  for (std::uint32_t r = 0; r < rows.size(); ++r) {
    for (std::uint32_t i = 0; i < rows[r].size(); ++i) places_.push_back({rows[r].line(i), r, i});
  }
  sort_lines(places_, scratch_);
  newest_.clear();
  const auto sequence = [&](const Place& p) { return rows[p.row].sequence(p.at); };
  for (auto p = places_.begin(); p != places_.end();) {
    auto newest = p;
    for (++p; p != places_.end() && p->line == newest->line; ++p) {
      const bool newer = sequence(*p) > sequence(*newest);
      if (newer != TENUTO_PLANT("journal_cut_keeps_older_images")) newest = p;
    }
    const LineBytes& image = rows[newest->row].image(newest->at);
    newest_.push_back({newest->line, reinterpret_cast<const std::byte*>(&image)});
  }
  return newest_;
}

// --- blocks --------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kNumberBytesMax = 10;  // of 64 bits, 7 a byte

std::byte* put_number(std::byte* to, std::uint64_t n) {
  for (; n >= 0x80; n >>= 7) *to++ = static_cast<std::byte>(n | 0x80);
  *to++ = static_cast<std::byte>(n);
  return to;
}

bool take_number(const std::byte*& p, const std::byte* end, std::uint64_t* n) {
  *n = 0;
  for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
    const auto b = static_cast<std::uint64_t>(*p++);
    *n |= (b & 0x7f) << shift;
    if (b < 0x80) return true;
  }
  return false;
}

}  // namespace

void pack_lines(std::span<const LineImage> images, std::vector<std::byte>& out) {
  out.resize(images.size() * (kNumberBytesMax + kLineBytes));
  std::byte* to = out.data();
  std::uint64_t before = 0;
  for (const LineImage& l : images) {
    to = put_number(to, l.line - before);
    before = l.line;
  }
  for (const LineImage& l : images) {
    std::memcpy(to, l.bytes, kLineBytes);
    to += kLineBytes;
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
}

bool unpack_lines(const std::byte* p, std::size_t bytes, std::uint64_t count, LineImage* out) {
  if (count > bytes / kLineBytes) return false;
  const std::byte* const images = p + (bytes - count * kLineBytes);
  std::uint64_t line = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t delta = 0;
    if (!take_number(p, images, &delta)) return false;
    line += delta;
    out[i] = {line, images + i * kLineBytes};
  }
  return true;
}

// --- the pool file -------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t kLinesPerPage = kFrameBytes / kLineBytes;
constexpr std::uint64_t kSpanBytesMax = 1u << 20;  // read and written at once
// A span may include this many pages without a line image: to read and write them costs a device
// less than another request.
constexpr std::uint64_t kGapPagesMax = 8;
constexpr std::size_t kPartsMax = 128;
constexpr unsigned kThreadsMin = 8;  // they wait for the device more than they work
constexpr std::uint64_t kLineMax = std::uint64_t{1} << 56;

std::uint64_t page_of(const LineImage& l) { return l.line / kLinesPerPage; }

bool is_zero(const std::byte* page) {
  static constexpr std::array<std::byte, kFrameBytes> kZeros{};
  return std::memcmp(page, kZeros.data(), kFrameBytes) == 0;
}

// Writes one span from a buffer of its size. What no line image covers is read first. Bytes behind
// the end of the file (it may grow meanwhile) are zeros. Gap pages of zeros may be holes, so they
// stay as they are.
Status write_span(int fd, std::span<const LineImage> images, std::byte* buffer,
                  std::uint64_t* bytes) {
  const std::uint64_t first = page_of(images.front());
  const std::uint64_t pages = page_of(images.back()) - first + 1;
  const std::uint64_t at = first * kFrameBytes;
  if (images.size() * kLineBytes != pages * kFrameBytes) {
    const std::size_t got = read_all(fd, at, buffer, pages * kFrameBytes);
    if (got != pages * kFrameBytes && errno != 0) return status_of_errno(errno);
    std::memset(buffer + got, 0, pages * kFrameBytes - got);
  }
  std::uint64_t from = 0;  // the first page of the span that is to be written still
  const auto write = [&](std::uint64_t end) {
    const std::uint64_t n = (end - from) * kFrameBytes;
    *bytes += n;
    return write_all(fd, at + from * kFrameBytes, buffer + from * kFrameBytes, n);
  };
  std::uint64_t page = 0;
  for (const LineImage& l : images) {
    for (const std::uint64_t its = page_of(l) - first; page <= its; ++page) {
      const bool gap = page < its && is_zero(buffer + page * kFrameBytes);
      if (!gap || TENUTO_PLANT("journal_gaps_fill_holes")) continue;
      if (from < page && !write(page)) return status_of_errno(errno);
      from = page + 1;
    }
    std::memcpy(buffer + (l.line * kLineBytes - at), l.bytes, kLineBytes);
  }
  if (!write(pages)) return status_of_errno(errno);
  return Status::ok;
}

// The index at which each span begins, and the end.
std::vector<std::size_t> spans_of(std::span<const LineImage> images) {
  std::vector<std::size_t> begins;
  std::uint64_t first_page = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::uint64_t page = page_of(images[i]);
    const bool near = i != 0 && page - page_of(images[i - 1]) <= kGapPagesMax + 1 &&
                      (page - first_page + 1) * kFrameBytes <= kSpanBytesMax;
    if (near) continue;
    begins.push_back(i);
    first_page = page;
  }
  begins.push_back(images.size());
  return begins;
}

}  // namespace

Status write_to_pool(int pool_fd, std::span<const LineImage> images, unsigned threads,
                     std::uint64_t* bytes) {
  if (images.empty()) return Status::ok;
  if (images.back().line > kLineMax) {
    errno = EFBIG;
    return Status::corrupt;
  }
  const std::vector<std::size_t> begins = spans_of(images);
  const std::size_t spans = begins.size() - 1;
  const std::size_t parts = std::min(spans, threads == 1 ? 1 : kPartsMax);
  std::atomic<std::uint64_t> written = 0;
  std::atomic<int> error = 0;
  const auto write = [&](std::size_t part) {
    const std::unique_ptr<std::byte[]> buffer(new std::byte[kSpanBytesMax]);
    for (std::size_t i = spans * part / parts; i < spans * (part + 1) / parts; ++i) {
      if (error.load(std::memory_order_relaxed) != 0) return;
      std::uint64_t n = 0;
      const auto span = images.subspan(begins[i], begins[i + 1] - begins[i]);
      if (write_span(pool_fd, span, buffer.get(), &n) != Status::ok) error.store(errno);
      written.fetch_add(n, std::memory_order_relaxed);
    }
  };
  waiting_each(parts, threads == 1 ? 1 : std::max(threads, kThreadsMin), write);
  *bytes += written.load();
  if (error.load() == 0) return Status::ok;
  errno = error.load();
  return status_of_errno(errno);
}

}  // namespace TENUTO_NS::pm

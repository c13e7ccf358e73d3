#include "pm/journal_lines.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tenuto::inline TENUTO_ABI::pm {

namespace {

void put_number(std::vector<std::byte>& to, std::uint64_t n) {
  for (; n >= 0x80; n >>= 7) to.push_back(static_cast<std::byte>(n | 0x80));
  to.push_back(static_cast<std::byte>(n));
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

std::vector<std::uint32_t> in_order(const LineMap& lines) {
  std::vector<std::uint32_t> order(lines.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return lines.line(a) < lines.line(b); });
  return order;
}

void pack_lines(const LineMap& lines, std::vector<std::byte>& out) {
  const std::vector<std::uint32_t> order = in_order(lines);
  out.clear();
  std::uint64_t before = 0;
  for (const std::uint32_t i : order) {
    put_number(out, lines.line(i) - before);
    before = lines.line(i);
  }
  for (const std::uint32_t i : order) {
    const auto* p = reinterpret_cast<const std::byte*>(&lines.picture(i));
    out.insert(out.end(), p, p + kLineBytes);
  }
}

bool unpack_lines(const std::byte* p, std::size_t bytes, std::uint64_t count, LineMap& lines) {
  if (count > bytes / kLineBytes) return false;
  const std::byte* const pictures = p + (bytes - count * kLineBytes);
  const std::byte* picture = pictures;
  std::uint64_t line = 0;
  lines.clear();
  for (std::uint64_t i = 0; i < count; ++i, picture += kLineBytes) {
    std::uint64_t delta = 0;
    if (!take_number(p, pictures, &delta)) return false;
    line += delta;
    LineBytes content;
    std::memcpy(&content, picture, sizeof content);
    lines.put(line, 0, content);
  }
  return true;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

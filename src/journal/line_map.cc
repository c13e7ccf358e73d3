#include "journal/line_map.h"

#include <algorithm>
#include <cstring>

namespace TENUTO_NS::pm {

namespace {
// How far ahead index entries are prefetched. The index is too large for a cache, and the lines are
// known.
constexpr std::size_t kAhead = 16;
}  // namespace

void LineMap::make_room(std::size_t images) {
  const std::size_t wanted = lines_.size() + images;
  if (wanted > lines_.capacity()) lines_.reserve(std::max(wanted, 2 * lines_.capacity()));
  if (wanted > images_.capacity()) images_.reserve(std::max(wanted, 2 * images_.capacity()));
  std::size_t slots = std::max<std::size_t>(64, index_.size());
  while (wanted * 2 > slots) slots *= 2;
  if (slots != index_.size()) rehash(slots);
}

void LineMap::put_all(std::span<const LineImage> images) {
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (i + kAhead < images.size()) {
      __builtin_prefetch(&index_[slot_of(images[i + kAhead].line)]);
    }
    const std::uint64_t line = images[i].line;
    const std::size_t place = probe(line);
    if (!is_taken(place)) {
      index_[place] = {line, generation_, static_cast<std::uint32_t>(lines_.size())};
      lines_.push_back(line);
      images_.emplace_back();
    }
    std::memcpy(&images_[index_[place].at], images[i].bytes, kLineBytes);
  }
}

void LineMap::rehash(std::size_t slots) {
  std::vector<Entry> fresh(slots);
  index_.swap(fresh);
  generation_ = 1;
  for (std::size_t k = 0; k < lines_.size(); ++k) {
    index_[probe(lines_[k])] = {lines_[k], generation_, static_cast<std::uint32_t>(k)};
  }
}

void LineMap::clear() {
  lines_.clear();
  images_.clear();
  if (++generation_ != 0) return;
  std::fill(index_.begin(), index_.end(), Entry{});
  generation_ = 1;
}

std::vector<LineImage> LineMap::in_order() const {
  std::vector<LineImage> order(lines_.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = {lines_[i], reinterpret_cast<const std::byte*>(&images_[i])};
  }
  std::vector<LineImage> scratch;
  sort_by_line(order, scratch);
  return order;
}

}  // namespace TENUTO_NS::pm

#include "store/tree/image.h"

#include <algorithm>
#include <cstring>

#include "pm/crc32c.h"
#include "pm/plant.h"
#include "store/tree/leaf.h"
#include "store/tree/unmade.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

namespace {

constexpr std::uint64_t kMagic = 0x454741494d495454;  // "TTIMAGE", reversed
constexpr std::size_t kNameAt = sizeof(TreeCounts);

struct ImageHead {
  std::uint64_t magic;
  std::uint64_t leaves;
  std::uint64_t text_bytes;  // of all separators
  std::uint64_t check;       // crc32c of the tree, the offset, the fields above, and what follows
};
static_assert(pm::OnMedia<ImageHead>);

std::uint64_t check_of(const ImageHead& head, TreeId tree, PoolOffset at, const void* words,
                       const void* text) {
  std::uint32_t crc = pm::crc32c_u64(pm::crc32c_u64(~0u, tree.value), at.value);
  crc = pm::crc32c(&head, offsetof(ImageHead, check), crc);
  crc = pm::crc32c(words, head.leaves * sizeof(UnmadeLeaf), crc);
  return pm::crc32c(text, head.text_bytes, crc);
}

// Lengths, seven bits a byte, the lowest first.
void put_length(std::string& out, std::size_t n) {
  for (; n > 0x7f; n >>= 7) out.push_back(static_cast<char>(n | 0x80));
  out.push_back(static_cast<char>(n));
}
bool take_length(std::string_view& in, std::size_t& n) {
  n = 0;
  for (unsigned shift = 0; shift <= 14 && !in.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(in.front());
    in.remove_prefix(1);
    n |= std::size_t{byte & 0x7fu} << shift;
    if (byte <= 0x7f) return true;
  }
  return false;
}

}  // namespace

Result<PoolOffset> write_image(const pm::PoolFile& file, heap::Heap& heap, TreeId tree,
                               const LeafList& leaves) {
  std::string text;
  std::string_view before;
  for (const std::string& low : leaves.lows) {
    const std::size_t shared = common_prefix(before, low);
    put_length(text, shared);
    put_length(text, low.size() - shared);
    text.append(low, shared);
    before = low;
  }
  ImageHead head{kMagic, leaves.children.size(), text.size(), 0};
  const std::size_t words_bytes = head.leaves * sizeof(UnmadeLeaf);
  const Result<heap::Block> block =
      heap.reserve(sizeof head + words_bytes + text.size(), heap::Kind::derived);
  if (!block) return block.error();
  const PoolOffset at = block->offset;
  head.check = check_of(head, tree, at, leaves.children.data(), text.data());
  copy_flush(file.at<char>(at), &head, sizeof head);
  copy_flush(file.at<char>(at + sizeof head), leaves.children.data(), words_bytes);
  copy_flush(file.at<char>(at + sizeof head + words_bytes), text.data(), text.size());
  return at;
}

bool read_image(const pm::PoolFile& file, TreeId tree, PoolOffset at, LeafList& out) {
  if (at.value % alignof(ImageHead) != 0 || !file.in_range(at, sizeof(ImageHead))) return false;
  const ImageHead& head = *file.at<ImageHead>(at);
  const std::size_t room = file.bytes() - at.value - sizeof head;
  if (head.magic != kMagic || head.leaves == 0 || head.leaves > room / sizeof(UnmadeLeaf))
    return false;
  const std::size_t words_bytes = head.leaves * sizeof(UnmadeLeaf);
  if (head.text_bytes > room - words_bytes) return false;
  const auto* const words = file.at<UnmadeLeaf>(at + sizeof head);
  const char* const text = file.at<char>(at + sizeof head + words_bytes);
  const bool sound = head.check == check_of(head, tree, at, words, text);
  if (!sound && !TENUTO_PLANT("store_image_checksum_not_compared")) return false;
  std::string_view rest(text, head.text_bytes);
  out.children.reserve(head.leaves);
  out.lows.reserve(head.leaves);
  for (std::size_t i = 0; i < head.leaves; ++i) {
    std::size_t shared = 0;
    std::size_t own = 0;
    if (!take_length(rest, shared) || !take_length(rest, own) || own > rest.size()) return false;
    if (shared > (i == 0 ? 0 : out.lows.back().size())) return false;
    if (!words[i].can_be() || !file.in_range(words[i].at(), sizeof(Leaf))) return false;
    std::string& low = out.lows.emplace_back();
    low.reserve(shared + own);
    if (i > 0) low.assign(out.lows[i - 1], 0, shared);
    low.append(rest.substr(0, own));
    rest.remove_prefix(own);
    out.children.push_back(words[i].child());
  }
  return out.lows.front().empty();
}

// The name's own place is its salt, as for the words of a leaf's header.
void set_image(Leaf& first, PoolOffset image) {
  auto& name = *reinterpret_cast<HeaderWord*>(first.low.data + kNameAt);
  name = image ? header_word(name, image.value) : HeaderWord{0};
}

Result<PoolOffset> image_of(const Leaf& first) {
  const auto& name = *reinterpret_cast<const HeaderWord*>(first.low.data + kNameAt);
  if (name.raw == 0) return Status::not_found;
  if (!is_sound(name)) return Status::corrupt;
  return PoolOffset{name.value()};
}

}  // namespace TENUTO_NS::store

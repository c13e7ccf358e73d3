#include "store/tree/image.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "pm/crc32c.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "store/tree/leaf.h"
#include "store/tree/unmade.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

namespace {

constexpr std::uint64_t kMagic = 0x34454d4954495454;  // "TTITIME4"
// The last letter is the version. All versions have this head.
constexpr std::uint64_t kMagicOfAll = kMagic & ~0ull >> 8;
constexpr std::size_t kNameAt = sizeof(TreeCounts);

constexpr std::size_t kPartBytes = 512u << 10;  // one node more at most, and its separator
constexpr std::size_t kBodyAt = kLineBytes;     // so that nodes begin at lines

struct PartHead {
  std::uint64_t magic;
  std::uint64_t next;   // offset of the next part; 0: the last
  std::uint64_t after;  // how many parts follow
  std::uint64_t nodes;
  std::uint64_t bytes;  // of all that follows
  std::uint64_t life;   // the default collection's: as in the head page; others: 0
  std::uint64_t check;  // crc32c of the tree, the offset, the fields above, and what follows
};
static_assert(pm::OnMedia<PartHead> && sizeof(PartHead) <= kBodyAt);

std::uint64_t check_of(const PartHead& head, TreeId tree, PoolOffset at, const void* body) {
  std::uint32_t crc = pm::crc32c_u64(pm::crc32c_u64(~0u, tree.value), at.value);
  crc = pm::crc32c(&head, offsetof(PartHead, check), crc);
  return pm::crc32c(body, head.bytes, crc);
}

HeaderWord& life_word(const pm::PoolFile& file) {
  return reinterpret_cast<HeaderWord&>(file.head().store[kHeadImageLife]);
}

// corrupt: the word in the head page is damaged. conflict: see the head of image.h. A head page
// without the word (a rescue may meet one) has nothing to compare with.
Status check_life(pm::PoolFile& file, TreeId tree, const PartHead& head) {
  if (tree != kDefaultTree || TENUTO_PLANT("store_image_of_another_close_believed"))
    return Status::ok;
  const pm::MetadataOpen rights;
  const HeaderWord& word = life_word(file);
  if (word.raw == 0) return Status::ok;
  if (!is_sound(word)) return Status::corrupt;
  return word.value() == head.life ? Status::ok : Status::conflict;
}

// Nodes begin at lines, so that their words are aligned.
std::size_t room_of(std::size_t node_bytes) { return round_up(node_bytes, kLineBytes); }

// The nodes read so far. The destructor frees them unless the index has them.
struct NodesRead {
  std::vector<Node*> nodes;
  ~NodesRead() {
    for (Node* n : nodes) {
      if (n != nullptr) Node::destroy(n);
    }
  }
};

// Whether all children are words that can name leaves.
bool leads_to_leaves(const pm::PoolFile& file, const Node& n) {
  for (unsigned i = 0; i < n.count(); ++i) {
    const UnmadeLeaf leaf = UnmadeLeaf::of(n.child(i));
    if (!leaf.can_be() || !file.in_range(leaf.at(), sizeof(Leaf))) return false;
  }
  return true;
}

}  // namespace

namespace {

constexpr unsigned kAhead = 3;  // leaves
void prefetch_words(const void* child) {
  if (!UnmadeLeaf::is(child)) static_cast<const ShadowLeaf*>(child)->words().prefetch();
}

// A part that is being made.
struct Part {
  std::uint64_t nodes = 0;
  std::vector<std::byte> body;
  std::string lows;

  bool full() const { return body.size() + lows.size() >= kPartBytes; }
  void add(const pm::PoolFile& file, const Node& n, std::string_view low, bool with_kept) {
    const std::size_t from = body.size();
    body.resize(from + room_of(n.image_bytes(with_kept)));
    n.write(&body[from], with_kept, [&](unsigned i, KeptLeaf& kept) {
      void* const child = n.child(i);
      if (i + kAhead < n.count()) prefetch_words(n.child(i + kAhead));
      if (UnmadeLeaf::is(child)) {
        kept = n.kept(i) != nullptr ? *n.kept(i) : KeptLeaf::nothing();
        return child;
      }
      const auto& shadow = *static_cast<const ShadowLeaf*>(child);
      const ShadowLeaf::Words words = shadow.words();
      kept.check = content_check(shadow.used_slots(), fingerprints_of(shadow),
                                 [&](unsigned slot) { return words[slot]; });
      shadow.order.keep(kept);
      return UnmadeLeaf::of(file.offset_of(shadow.leaf), shadow.low_check).child();
    });
    const auto bytes = static_cast<std::uint32_t>(low.size());
    lows.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    lows.append(low);
    nodes += 1;
  }
  void end() {
    const auto* const text = reinterpret_cast<const std::byte*>(lows.data());
    body.insert(body.end(), text, text + lows.size());
  }
};

// The head of a part; null: there is no sound one.
const PartHead* part_at(const pm::PoolFile& file, TreeId tree, PoolOffset at) {
  if (at.value % kLineBytes != 0 || !file.in_range(at, kBodyAt)) return nullptr;
  const PartHead& head = *file.at<PartHead>(at);
  const std::size_t room = file.bytes() - at.value - kBodyAt;
  if ((head.magic & ~0ull >> 8) != kMagicOfAll) return nullptr;
  if (head.bytes > room || head.nodes > head.bytes) return nullptr;
  const bool sound = head.check == check_of(head, tree, at, file.at<std::byte>(at + kBodyAt));
  return sound || TENUTO_PLANT("store_image_checksum_not_compared") ? &head : nullptr;
}

// What a part holds goes behind what the parts before it held.
bool read_part(const pm::PoolFile& file, const PartHead& head, PoolOffset at, NodesRead& read,
               std::vector<std::string>& lows) {
  const std::byte* from = file.at<std::byte>(at + kBodyAt);
  std::size_t left = head.bytes;
  const auto take = [&](std::size_t bytes) {
    from += bytes;
    left -= bytes;
  };
  for (std::uint64_t i = 0; i < head.nodes; ++i) {
    read.nodes.push_back(nullptr);
    Node* const n = read.nodes.back() = Node::read(from, left);
    if (n == nullptr || room_of(n->bytes()) > left || !leads_to_leaves(file, *n)) return false;
    take(room_of(n->bytes()));
  }
  for (std::uint64_t i = 0; i < head.nodes; ++i) {
    std::uint32_t bytes = 0;
    if (left < sizeof bytes) return false;
    std::memcpy(&bytes, from, sizeof bytes);
    take(sizeof bytes);
    if (bytes > left) return false;
    lows.emplace_back(reinterpret_cast<const char*>(from), bytes);
    take(bytes);
  }
  return left == 0;
}

// Calls f(head, at) for each part. False: one is not sound, or f said so.
template <class F>
bool each_part(const pm::PoolFile& file, TreeId tree, PoolOffset at, const F& f) {
  for (const PartHead* before = nullptr;;) {
    const PartHead* const head = part_at(file, tree, at);
    if (head == nullptr || (before != nullptr && head->after + 1 != before->after)) return false;
    if (!f(*head, at)) return false;
    if (head->next == 0) return head->after == 0;
    if (head->after == 0) return false;
    before = head;
    at = {head->next};
  }
}

}  // namespace

static Result<PoolOffset> write_parts(const pm::PoolFile& file, heap::Heap& heap, TreeId tree,
                                      const Index& index, bool with_kept) {
  if (with_kept && TENUTO_PLANT("store_image_without_room_for_the_kept")) return Status::full;
  std::vector<Part> parts(1);
  index.each_low_node([&](const Node& n, std::string_view low) {
    if (parts.back().full()) parts.emplace_back();
    parts.back().add(file, n, low, with_kept);
  });
  for (Part& p : parts) p.end();
  std::vector<PoolOffset> at;
  at.reserve(parts.size());
  for (const Part& p : parts) {
    const Result<heap::Block> block =
        heap.reserve(kBodyAt + p.body.size(), heap::Kind::derived, kLineBytes);
    if (!block) {
      for (const PoolOffset o : at) heap.release(o);
      return block.error();
    }
    at.push_back(block->offset);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    const bool as_before = TENUTO_PLANT("store_image_of_another_version");
    PartHead head{kMagic - (as_before ? 1ull << 56 : 0),
                  0,
                  parts.size() - 1 - i,
                  p.nodes,
                  p.body.size(),
                  tree == kDefaultTree ? life_word(file).value() : 0,
                  0};
    if (head.after != 0) head.next = at[i + 1].value;
    head.check = check_of(head, tree, at[i], p.body.data());
    copy_flush(file.at<char>(at[i]), &head, sizeof head);
    copy_flush(file.at<char>(at[i] + kBodyAt), p.body.data(), p.body.size());
  }
  return at[0];
}

// What is kept of the leaves is most of it, and may be more than the pool has room for.
Result<PoolOffset> write_image(const pm::PoolFile& file, heap::Heap& heap, TreeId tree,
                               const Index& index) {
  Result<PoolOffset> whole = write_parts(file, heap, tree, index, true);
  if (whole) return whole;
  return write_parts(file, heap, tree, index, false);
}

Status read_image(pm::PoolFile& file, TreeId tree, PoolOffset first_leaf, PoolOffset at,
                  Index& index, std::vector<PoolOffset>& blocks) {
  NodesRead read;
  std::vector<std::string> lows;
  bool other_version = false;
  Status life = Status::ok;
  const bool whole = each_part(file, tree, at, [&](const PartHead& head, PoolOffset part) {
    blocks.push_back(part);
    other_version = other_version || head.magic != kMagic;
    if (!other_version) life = check_life(file, tree, head);
    return other_version || (life == Status::ok && read_part(file, head, part, read, lows));
  });
  if (whole && other_version) return Status::wrong_version;
  TENUTO_TRY(life);
  if (!whole || lows.empty() || !lows[0].empty()) return Status::corrupt;
  if (UnmadeLeaf::of(read.nodes[0]->child(0)).at() != first_leaf) return Status::corrupt;
  index.build_above(std::exchange(read.nodes, {}), std::move(lows));
  return Status::ok;
}

void name_life_of_image(pm::PoolFile& file) {
  HeaderWord& word = life_word(file);
  word = header_word(word, file.superblock().sequence & kOffsetMask);
}

Status image_is_of_another_close(pm::PoolFile& file, PoolOffset first_leaf, Report* report) {
  Report why;
  const Status s = fail(
      Status::corrupt, &why,
      "the first leaf and the head page are not of the same close, as if the medium had lost a "
      "write: rescue the pool (tenuto check --repair)",
      file.where(first_leaf, "first leaf"));
  file.mark_damaged(why, pm::kVariantLeafLost);
  if (report != nullptr) *report = std::move(why);
  return s;
}

Status each_kept_leaf(pm::PoolFile& file, TreeId tree, PoolOffset at,
                      const std::function<void(PoolOffset, const KeptLeaf*)>& f) {
  NodesRead read;
  std::vector<std::string> lows;
  Status status = Status::ok;
  const bool whole = each_part(file, tree, at, [&](const PartHead& head, PoolOffset part) {
    status = head.magic == kMagic ? check_life(file, tree, head) : Status::wrong_version;
    return status == Status::ok && read_part(file, head, part, read, lows);
  });
  TENUTO_TRY(status);
  if (!whole) return Status::corrupt;
  for (const Node* n : read.nodes) {
    for (unsigned i = 0; i < n->count(); ++i) f(UnmadeLeaf::of(n->child(i)).at(), n->kept(i));
  }
  return Status::ok;
}

std::vector<PoolOffset> blocks_of_image(const pm::PoolFile& file, TreeId tree, PoolOffset at) {
  std::vector<PoolOffset> blocks;
  const bool whole = each_part(file, tree, at, [&](const PartHead&, PoolOffset part) {
    blocks.push_back(part);
    return true;
  });
  if (!whole) blocks.clear();
  return blocks;
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

// The table of derived slabs that a clean close leaves. The first call of the next open that needs
// the slabs reads it, instead of a page of each slab: of a store larger than memory, seconds.
//
// The table is a hint, and nobody owns it. A close takes frames, writes the table there, and gives
// the frames back. Any of them may be used again as soon as the pool is open. So the table is
// believed only as far as it is proven:
//
//   BookHead::table   the superblock of that close; place and checksum of the last part
//   a part            place and checksum of the part before it
//
// Authoritative: the headers and stripes of the slabs, which the close writes as well. A slab that
// is in no proven part is looked for there. Order: parts, name | the superblock says clean (the
// fence is Frames::close's). Another sequence means that there is no table: after a crash, or when
// an earlier build, which knows no table, closed the pool last. A life that needs no slab names the
// table again. A pool without a free frame is closed without a table.
#include <array>
#include <memory>

#include "heap/heap_paths.h"
#include "pm/crc32c.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {

SlabTableName& name_in(pm::PoolFile& file) {
  return reinterpret_cast<BookHead*>(file.head().heap)->table;
}

void store_name(SlabTableName& name, const SlabTableName& value) {
  store_ordered(name.seal, value.seal);
  store_ordered(name.part, value.part);
  flush(name);
}

std::size_t words_of(unsigned blocks) { return (blocks + 63) / 64; }

std::uint32_t crc_of(const SlabTablePart* part) {
  return pm::crc32c(part, sizeof *part + std::size_t{part->words} * 8);
}

// The slab as format_slab makes it. Only such are in a table.
SlabHeader header_of(const pm::PoolFile& file, PoolOffset slab, ClassId class_id) {
  const std::uint32_t stripes = file.superblock().stripes;
  SlabHeader h{};
  h.kind = static_cast<std::uint8_t>(Kind::derived);
  h.stripes = static_cast<std::uint8_t>(stripes);
  h.shape = ShapeWord::make({whole_cut(class_id, stripes, false), {}}, slab);
  return h;
}

class Writer {
 public:
  Writer(pm::PoolFile& file, FrameSource& frames) : file_(file), frames_(frames) {}
  // The frames are free again, with what is in them.
  ~Writer() {
    for (PoolOffset o = last_; o;) {
      const PoolOffset before{file_.at<SlabTablePart>(o)->before};
      frames_.put(o, frame::kOrderSlab, 0);
      o = before;
    }
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // False: there is no frame, and no table.
  bool add(const Slab& slab) {
    const std::size_t bits = words_of(slab.blocks);
    if (part_ == nullptr || part_->words + 1 + bits > kSlabTableWords) {
      if (!next_part()) return false;
    }
    auto* word = reinterpret_cast<std::uint64_t*>(part_ + 1) + part_->words;
    *word++ = SlabTableEntry::make(slab.offset, slab.class_id.value).raw;
    for (std::size_t w = 0; w < bits; ++w) *word++ = slab.used_word(w);
    part_->words += static_cast<std::uint32_t>(1 + bits);
    return true;
  }

  SlabTableName end(std::uint64_t sequence) {
    if (part_ == nullptr) return {};
    return {BookSeal::make(sequence, end_part()), last_.value};
  }

 private:
  bool next_part() {
    const Result<PoolOffset> frame = frames_.get(frame::kOrderSlab, 0);
    if (!frame) return false;
    const std::uint32_t before_crc = part_ == nullptr ? 0 : end_part();
    part_ = file_.at<SlabTablePart>(*frame);
    *part_ = {
        kSlabTableMagic, frame->value, file_.superblock().pool_id, last_.value, before_crc, 0, {}};
    last_ = *frame;
    return true;
  }
  std::uint32_t end_part() const {
    flush_bytes(part_, sizeof *part_ + std::size_t{part_->words} * 8);
    return crc_of(part_);
  }

  pm::PoolFile& file_;
  FrameSource& frames_;
  SlabTablePart* part_ = nullptr;  // that is being filled
  PoolOffset last_;                // its place
};

struct alignas(kLineBytes) Part {
  SlabTablePart head;
  std::array<std::uint64_t, kSlabTableWords> words;
};
static_assert(sizeof(Part) == kSlabBytes);

// Copies the part that is named, if it is whole: its frame may be in use, and may change.
bool copy_part(const pm::PoolFile& file, PoolOffset at, std::uint32_t crc, Part& part) {
  if (at.value % kSlabBytes != 0 || at.value + kSlabBytes > file.bytes()) return false;
  std::array<PoolOffset, kSlabBytes / kFrameBytes> pages;
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = at + i * kFrameBytes;
  file.read_ahead(pages.data(), pages.size());
  file.copy_out(at, &part.head, sizeof part.head);
  const SlabTablePart& h = part.head;
  const bool ours = h.magic == kSlabTableMagic && h.self == at.value &&
                    h.pool_id == file.superblock().pool_id && h.words <= kSlabTableWords;
  if (!ours) return false;
  file.copy_out(at + sizeof h, part.words.data(), std::size_t{h.words} * 8);
  return crc_of(&h) == crc || TENUTO_PLANT("heap_slab_table_checksum_not_compared");
}

}  // namespace

// When the bits of all slabs are final. Flushed, not fenced.
void Heap::State::write_slab_table() {
  frames.end_growth();
  Writer writer(file, frames);
  if (TENUTO_PLANT("heap_closed_without_slab_table")) return;
  bool room = true;
  for_each_slab([&](const Slab& slab) {
    const SlabHeader usual = header_of(file, slab.offset, slab.class_id);
    const bool listed = is_derived(slab.kind) && slab.shape.now == usual.shape.shape().now;
    if (room && listed) room = writer.add(slab);
  });
  store_name(name_in(file), room ? writer.end(file.superblock().sequence + 1) : SlabTableName{});
}

// For the close of a life that needed no slab.
void Heap::State::keep_slab_table() {
  SlabTableName name = name_in(file);
  if (!name.seal.is_of(file.superblock().closed)) return;
  name.seal = BookSeal::make(file.superblock().sequence + 1, name.seal.crc());
  store_name(name_in(file), name);
}

// Makes the shadows of the slabs in the table that have none. Throws bad_alloc, and may be called
// again then.
void Heap::State::adopt_slab_table() {
  const SlabTableName name = name_in(file);
  const bool of_this = name.seal.is_of(file.superblock().closed);
  if (!of_this && !TENUTO_PLANT("heap_slab_table_of_any_close")) return;
  const auto part = std::make_unique<Part>();
  std::uint32_t crc = name.seal.crc();
  std::size_t turn = 0;
  for (PoolOffset at{name.part}; at; at = {part->head.before}) {
    if (!copy_part(file, at, crc, *part)) return;
    crc = part->head.before_crc;
    for (std::size_t i = 0; i < part->head.words;) {
      const SlabTableEntry entry{part->words[i++]};
      const PoolOffset o = entry.offset();
      const SlabHeader header = header_of(file, o, {static_cast<std::uint8_t>(entry.class_id())});
      const std::uint64_t* const used = &part->words[i];
      const std::size_t words =
          words_of(cut_geometry(header.shape.shape().now, header.stripes).blocks);
      i += words;
      if (pages.find(o).owner != PageOwner::none) continue;
      Slab& slab = *arena_for(o, turn++).adopt(o, header, true);
      slab.sealed = true;
      for (std::size_t w = 0; w < words; ++w) slab.set_live_word(w, used[w]);
    }
  }
}

}  // namespace TENUTO_NS::heap

#include "support/heap_world.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "frame/format.h"
#include "heap/extent.h"
#include "heap/size_class.h"
#include "pm/assert.h"
#include "tenuto/persist.h"

#include "support/explored_medium.h"

namespace tenuto::test {

using heap::Kind;

namespace {

HeapTable& table_of(PoolParts& p) {
  return *static_cast<HeapTable*>(PtrWord::decode(&p.root(0), p.root(0).raw));
}

bool is_derived(std::size_t cell) {
  return cell >= HeapCells::derived(0) && cell < HeapCells::kFirstVersioned;
}
bool is_versioned(std::size_t cell) { return cell >= HeapCells::kFirstVersioned; }
bool is_inner(std::size_t cell) {
  return (cell >= HeapCells::kSlots && cell < HeapCells::derived(0)) ||
         cell >= HeapCells::versioned_inner(0);
}
// The slot whose block contains the cell. REQUIRES: is_inner.
std::size_t slot_of(std::size_t cell) {
  return cell - (is_versioned(cell) ? HeapCells::versioned_inner(0) : HeapCells::kSlots);
}

// The word of a cell. Null if the block that contains it does not exist.
std::uint64_t* raw_of(PoolParts& p, std::size_t cell) {
  HeapTable& t = table_of(p);
  if (is_inner(cell)) {
    const PtrWord& outer = t.slot[slot_of(cell)].word;
    auto* block = static_cast<std::uint64_t*>(PtrWord::decode(&outer, outer.raw));
    return block == nullptr ? nullptr : block + (is_versioned(cell) ? 2 : 1);
  }
  if (cell < HeapCells::kSlots) return &t.slot[cell].word.raw;
  if (is_derived(cell)) return &t.derived[cell - HeapCells::derived(0)].word.raw;
  const std::size_t i = cell - HeapCells::kFirstVersioned;
  return i < HeapTable::kSpread ? &t.versioned[i].word.raw : &t.row[i - HeapTable::kSpread].raw;
}
PtrWord* word_of(PoolParts& p, std::size_t cell) {
  return reinterpret_cast<PtrWord*>(raw_of(p, cell));
}
// The offset of the cell's target, or null.
PoolOffset target_of(PoolParts& p, std::size_t cell) {
  const std::uint64_t* raw = raw_of(p, cell);
  if (raw == nullptr) return {};
  if (is_derived(cell)) return {*raw};
  const void* at = is_versioned(cell) ? VPtrWord::decode(raw, *raw) : PtrWord::decode(raw, *raw);
  return at == nullptr ? PoolOffset{} : p.file->offset_of(at);
}

// Stores the tag in the first and the last word, and `second` in the second and third. Flushes.
void fill(std::byte* block, std::uint64_t bytes, std::uint64_t tag, std::uint64_t second) {
  auto* w = reinterpret_cast<std::uint64_t*>(block);
  w[1] = second;
  if (bytes > 32) w[2] = second;
  w[bytes / 8 - 1] = tag;
  w[0] = tag;
  flush_bytes(w, 24);
  flush_bytes(&w[bytes / 8 - 1], 8);
}

}  // namespace

PoolOptions heap_world_options(std::uint64_t size_max) {
  PoolOptions o = PoolParts::small_options();
  o.size = kPoolBytesMin;
  o.size_max = size_max;
  return on_explored_medium(o);
}

void make_heap_world(const std::string& path, const PoolOptions& options,
                     const std::function<void(PoolParts&)>& more, std::uint64_t table_bytes) {
  PoolParts p;
  TENUTO_ASSERT(p.create(path, options) == Status::ok);
  TENUTO_ASSERT(p.heap->malloc_to(std::max<std::uint64_t>(table_bytes, sizeof(HeapTable)),
                                  p.root(0)) == Status::ok);
  zero_flush(&table_of(p), sizeof(HeapTable));
  fence("table", "test");
  if (more) more(p);
  TENUTO_ASSERT(p.close() == Status::ok);
}

// --- the workload's side -------------------------------------------------------------------------

HeapSession::HeapSession(CrashContext& context, HeapModel& model, PoolOptions options)
    : context_(context), model_(model), options_(std::move(options)) {
  context_.update([&] { model_ = {}; });
  reopen();
}

void HeapSession::reopen() {
  const Status s = pool_.begin_open(context_.path(), options_);
  EXPECT_EQ(s, Status::ok) << pool_.report.text();
  EXPECT_EQ(pool_.end_open(), Status::ok) << pool_.report.text();
}

void HeapSession::close() { EXPECT_EQ(pool_.close(), Status::ok); }

PtrWord& HeapSession::word(std::size_t cell) { return *word_of(pool_, cell); }
VPtrWord& HeapSession::versioned(std::size_t cell) {
  return *reinterpret_cast<VPtrWord*>(raw_of(pool_, cell));
}

void HeapSession::change(unsigned thread,
                         const std::vector<std::pair<std::size_t, HeapNode>>& all) {
  TENUTO_ASSERT(all.size() <= HeapModel::kBatch);
  context_.update([&] {
    HeapModel::Change* c = &model_.change[thread * HeapModel::kBatch];
    for (const auto& [cell, after] : all) *c++ = {true, cell, after};
  });
}

void HeapSession::done(unsigned thread) {
  pool_.heap->fence_thread();  // Consistency::gc: the operation is durable only then
  context_.update([&] {
    for (std::size_t i = 0; i < HeapModel::kBatch; ++i) {
      HeapModel::Change& c = model_.change[thread * HeapModel::kBatch + i];
      if (c.on) model_.now[c.cell] = c.after;
      c.on = false;
    }
  });
}

Result<heap::Block> HeapSession::reserve(std::size_t cell, std::uint64_t bytes) {
  if (is_derived(cell)) return pool_.heap->reserve(bytes, Kind::derived);
  if (type_ != 0) return pool_.heap->reserve_typed(bytes, type_);
  return pool_.heap->reserve(bytes, Kind::logged);
}

void HeapSession::put(std::size_t cell, std::uint64_t bytes, unsigned thread, std::uint64_t data) {
  // No number that looks like a pointer into a small pool, for Consistency::gc.
  const std::uint64_t tag = (std::uint64_t{1} << 38) + 2 * ++tag_;
  TENUTO_ASSERT(bytes >= 32 && bytes % 8 == 0);
  change(thread, cell, {bytes, tag, data, is_derived(cell) ? 0 : type_});
  const Result<heap::Block> block = reserve(cell, bytes);
  EXPECT_TRUE(block);
  if (!block) return;
  fill(pool_.file->at<std::byte>(block->offset), bytes, tag, data);
  if (is_derived(cell)) {
    fence("record", "derived word");
    publish(*raw_of(pool_, cell), block->offset.value);
    fence("derived word", "test");
  } else if (is_versioned(cell)) {
    EXPECT_EQ(pool_.heap->publish(*block, versioned(cell)), Status::ok);
  } else {
    EXPECT_EQ(pool_.heap->publish(*block, word(cell)), Status::ok);
  }
  done(thread);
}

void HeapSession::put_unfilled(std::size_t cell, std::uint64_t bytes, unsigned thread) {
  change(thread, cell, {bytes, 0, 0, type_});
  Status s = Status::ok;
  if (type_ != 0) {
    const Result<heap::Block> block = pool_.heap->reserve_typed(bytes, type_);
    EXPECT_TRUE(block);
    if (!block) return;
    s = is_versioned(cell) ? pool_.heap->publish_typed(*block, versioned(cell))
                           : pool_.heap->publish(*block, word(cell));
  } else {
    s = is_versioned(cell) ? pool_.heap->malloc_to(bytes, versioned(cell))
                           : pool_.heap->malloc_to(bytes, word(cell));
  }
  EXPECT_EQ(s, Status::ok);
  done(thread);
}

void HeapSession::take(std::size_t cell, unsigned thread) {
  change(thread, cell, {});
  if (is_derived(cell)) {
    const PoolOffset block{*raw_of(pool_, cell)};
    publish(*raw_of(pool_, cell), 0);
    fence("derived word", "test");
    pool_.heap->release(block);
  } else if (is_versioned(cell)) {
    EXPECT_EQ(pool_.heap->free_from(versioned(cell)), Status::ok);
  } else {
    EXPECT_EQ(pool_.heap->free_from(word(cell)), Status::ok);
  }
  done(thread);
}

void HeapSession::move(std::size_t from, std::size_t to, std::uint64_t bytes) {
  const std::uint64_t tag = (std::uint64_t{1} << 38) + 2 * ++tag_;
  change(0, {{from, {}}, {to, {bytes, tag, 0, 0}}});
  EXPECT_EQ(pool_.heap->free_from(word(from)), Status::ok);
  const Result<heap::Block> block = reserve(to, bytes);
  EXPECT_TRUE(block);
  if (!block) return;
  fill(pool_.file->at<std::byte>(block->offset), bytes, tag, 0);
  EXPECT_EQ(pool_.heap->publish(*block, word(to)), Status::ok);
  done(0);
}

void HeapSession::move_unfilled(std::size_t from, std::size_t to, std::uint64_t bytes) {
  change(0, {{from, {}}, {to, {bytes, 0, 0, 0}}});
  EXPECT_EQ(pool_.heap->free_from(word(from)), Status::ok);
  EXPECT_EQ(pool_.heap->malloc_to(bytes, word(to)), Status::ok);
  done(0);
}

bool HeapSession::take_raced(std::size_t cell, unsigned thread) {
  change(thread, cell, {});
  const Status s = pool_.heap->free_from(word(cell));
  if (s == Status::ok) {
    done(thread);
    return true;
  }
  EXPECT_EQ(s, Status::invalid_argument);
  context_.update([&] { model_.change[thread * HeapModel::kBatch].on = false; });
  return false;
}

namespace {
// Calls f(Words) for the cells' words, as a row if they are neighbours.
template <class Word, class F>
Status with_words(PoolParts& p, const std::vector<std::size_t>& cells, const F& f) {
  std::vector<Word*> words;
  bool row = true;
  for (const std::size_t c : cells) {
    words.push_back(reinterpret_cast<Word*>(raw_of(p, c)));
    row = row && words.back() == words.front() + (words.size() - 1);
  }
  if (row) return f(Words<Word>(std::span<Word>(words.front(), words.size())));
  return f(Words<Word>(std::span<Word* const>(words)));
}
}  // namespace

void HeapSession::put_all(const std::vector<std::size_t>& cells, std::uint64_t bytes,
                          unsigned thread) {
  std::vector<std::pair<std::size_t, HeapNode>> all;
  for (const std::size_t c : cells) all.push_back({c, {bytes, 0, 0, type_}});
  change(thread, all);
  const auto malloc_to = [&](const auto& words) {
    return pool_.heap->malloc_to(bytes, words, {.type = type_});
  };
  const Status s = is_versioned(cells[0]) ? with_words<VPtrWord>(pool_, cells, malloc_to)
                                          : with_words<PtrWord>(pool_, cells, malloc_to);
  EXPECT_EQ(s, Status::ok);
  done(thread);
}

void HeapSession::take_all(const std::vector<std::size_t>& cells, unsigned thread) {
  std::vector<std::pair<std::size_t, HeapNode>> all;
  for (const std::size_t c : cells) all.push_back({c, {}});
  change(thread, all);
  const auto free_from = [&](const auto& words) { return pool_.heap->free_from(words); };
  const Status s = is_versioned(cells[0]) ? with_words<VPtrWord>(pool_, cells, free_from)
                                          : with_words<PtrWord>(pool_, cells, free_from);
  EXPECT_EQ(s, Status::ok);
  done(thread);
}

// Half a swap would leave two cells that name the block, or none.
void HeapSession::swap(std::size_t a, std::size_t b, unsigned thread) {
  change(thread, {{a, model_.now[b]}, {b, model_.now[a]}});
  EXPECT_EQ(pool_.heap->swap(versioned(a), versioned(b)), Status::ok);
  done(thread);
}

// --- the judge -----------------------------------------------------------------------------------

namespace {

class Judge {
 public:
  Judge(PoolParts& p, const HeapModel& model, bool wear) : p_(p), model_(model), wear_(wear) {}

  // Recovery needs the derived blocks named before it ends.
  std::string mark() {
    for (std::size_t i = 0; i < HeapTable::kDerived; ++i) {
      const std::uint64_t raw = table_of(p_).derived[i].word.raw;
      if (raw == 0 || p_.file->was_clean()) continue;
      if (p_.heap->mark({raw}, &p_.report) != Status::ok) return "mark: " + p_.report.text();
    }
    return {};
  }

  std::string cells() {
    for (std::size_t c = 0; c < HeapCells::kCells; ++c) {
      if (std::string e = cell(c); !e.empty()) return "cell " + std::to_string(c) + ": " + e;
    }
    return {};
  }

  // Exactly what is reachable is taken: blocks, slabs, frames. `freed`: blocks were freed since
  // recovery, so that caches may hold slabs and frames.
  std::string exact(bool freed) {
    std::set<std::uint64_t> reachable = {p_.file->offset_of(&table_of(p_)).value};
    std::set<std::uint64_t> derived;
    std::array<std::set<std::uint64_t>, HeapSession::kTypesEnd> typed;
    for (const auto& [cell, offset] : found_) {
      auto& set = is_derived(cell) ? derived : reachable;
      if (!set.insert(offset).second) return "block " + std::to_string(offset) + " is used twice";
      if (!is_derived(cell)) typed.at(p_.heap->type_of({offset})).insert(offset);
    }
    for (std::uint64_t type = 1; type < typed.size(); ++type) {
      std::set<std::uint64_t> shown;
      for (PoolOffset o = p_.heap->find_typed({0}, type); o; o = p_.heap->find_typed(o + 1, type)) {
        shown.insert(o.value);
      }
      if (shown != typed[type]) return "the walk shows other blocks than there are";
    }
    std::set<std::uint64_t> slabs, halves;
    std::uint64_t huge_frames = 0;
    const auto taken = [&](Kind kind) {
      std::set<std::uint64_t> all;
      p_.heap->for_each(kind, [&](PoolOffset o, std::uint64_t bytes) {
        all.insert(o.value);
        if (bytes <= heap::kSmallBytesMax) {
          slabs.insert(o.value / heap::kSlabBytes);
        } else if (bytes > heap::kExtentBytesMax) {
          huge_frames += (bytes + kFrameBytes - 1) / kFrameBytes;  // a type takes one word
        } else {
          halves.insert(o.value / kHugeBytes);
          halves.insert((o.value + bytes - 1) / kHugeBytes);
        }
      });
      return all;
    };
    if (taken(Kind::logged) != reachable) return "logged blocks leak or are lost";
    if (taken(Kind::derived) != derived) return "derived blocks leak or are lost";
    if (const PoolOffset table = p_.heap->wear_table()) {
      halves.insert(table.value / kHugeBytes);  // the heap's own
    } else if (wear_) {
      return "the counts of wear are lost";
    }
    const heap::HeapStats heap = p_.heap->stats();
    if (freed) return {};
    if (!p_.file->was_clean() && heap.slabs != slabs.size()) return "an empty slab stays";
    std::uint64_t owned = heap.slabs * 16 + halves.size() * heap::kHugeFrames + huge_frames +
                          heap.book_bytes / kFrameBytes;
    owned += p_.lanes->extra_segments().size() * (pm::kLaneSegmentBytes / kFrameBytes);
    for (std::size_t z = 0; z < p_.file->zone_count(); ++z) {
      const pm::ZoneEntry& zone = p_.file->zone(z);
      owned += frame::ZoneGeometry::of(zone, zone.offset == 0 ? pm::kHeadBytes : 0)->own;
    }
    const frame::FrameStats frames = p_.frames->stats();
    const std::uint64_t used = frames.frames - frames.frames_free;
    if (used != owned) {
      return std::to_string(used) + " frames taken, " + std::to_string(owned) + " owned";
    }
    return {};
  }

 private:
  bool shows(std::size_t c, const HeapNode& node) {
    const PoolOffset o = target_of(p_, c);
    if (!o || node.bytes == 0) return !o && node.bytes == 0;
    const Kind kind = is_derived(c) ? Kind::derived : Kind::logged;
    const Result<heap::Block> block = p_.heap->find_taken(o, kind);
    if (!block || block->bytes < node.bytes) return false;
    const auto* words = p_.file->at<std::uint64_t>(o);
    if (node.tag != 0 && (words[0] != node.tag || words[node.bytes / 8 - 1] != node.tag)) {
      return false;
    }
    if (node.data != 0 && words[1] != node.data) return false;
    if (kind == Kind::logged && p_.heap->type_of(o) != node.type) return false;
    found_.emplace_back(c, o.value);
    return true;
  }

  // The inner cell is a destination only if its block exists, is filled, and holds no data.
  bool exists(std::size_t c) {
    if (!is_inner(c)) return true;
    const std::size_t slot = slot_of(c);
    const std::uint64_t least = is_versioned(c) ? 40 : 32;
    const auto container = [&](const HeapNode& n) {
      return n.tag != 0 && n.data == 0 && n.bytes >= least;
    };
    if (raw_of(p_, c) == nullptr) return true;
    bool yes = container(model_.now[slot]);
    for (const auto& change : model_.change) {
      if (change.on && change.cell == slot) yes = yes || container(change.after);
    }
    return yes;
  }

  std::string cell(std::size_t c) {
    if (!exists(c) || shows(c, model_.now[c])) return {};
    for (const auto& change : model_.change) {
      if (change.on && change.cell == c && shows(c, change.after)) return {};
    }
    const HeapNode& n = model_.now[c];
    const std::uint64_t* w = raw_of(p_, c);
    return "shows " + std::to_string(w == nullptr ? 0 : *w) + " instead of " +
           std::to_string(n.bytes) + " bytes tagged " + std::to_string(n.tag);
  }

  PoolParts& p_;
  const HeapModel& model_;
  const bool wear_;  // with wear levelling
  std::vector<std::pair<std::size_t, std::uint64_t>> found_;
};

// What an application with Consistency::internal does after a crash: words that name no block are
// cleared, blocks that no word names are freed. A word of its own names them meanwhile.
std::string reconcile(PoolParts& p, bool& freed) {
  HeapTable& t = table_of(p);
  std::set<std::uint64_t> named = {p.file->offset_of(&t).value};
  for (std::size_t c = 0; c < HeapCells::kCells; ++c) {
    const PoolOffset o = is_derived(c) ? PoolOffset{} : target_of(p, c);
    if (!o) continue;
    if (p.heap->find_allocated(o)) {
      named.insert(o.value);
    } else {
      publish(*raw_of(p, c), 0);
    }
  }
  std::vector<PoolOffset> lost;
  p.heap->for_each(Kind::logged, [&](PoolOffset o, std::uint64_t) {
    if (!named.contains(o.value)) lost.push_back(o);
  });
  auto& word = reinterpret_cast<PtrWord&>(t.slot[0].pad[0]);
  for (const PoolOffset o : lost) {
    publish(word.raw, PtrWord::encode(&word, p.file->at<void>(o)));
    if (p.heap->free_from(word) != Status::ok) return "a lost block cannot be freed";
  }
  publish(word.raw, 0);
  freed = !lost.empty();
  return {};
}

// Uses the recovered heap: it must allocate and free as usual.
std::string use(PoolParts& p) {
  std::vector<PtrWord*> dests;
  for (std::size_t c = 0; c < HeapCells::derived(0); ++c) {
    PtrWord* w = word_of(p, c);
    if (c < HeapCells::kSlots && w->raw == 0) dests.push_back(w);
  }
  std::set<void*> fresh;
  for (std::size_t i = 0; i < 6 && i < dests.size(); ++i) {
    const Status s = p.heap->malloc_to(i % 3 == 2 ? 20'000 : 64, *dests[i]);
    if (s == Status::full) break;
    if (s != Status::ok) return std::string("malloc_to: ") + status_name(s);
    if (!fresh.insert(PtrWord::decode(dests[i], dests[i]->raw)).second)
      return "a block given twice";
  }
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (p.heap->free_from(*dests[i]) != Status::ok) return "free_from";
  }
  if (p.heap->validate(&p.report) != Status::ok) return "used: " + p.report.text();
  return {};
}

}  // namespace

std::string check_heap_world(const CrashImage& image, const HeapModel& model,
                             const PoolOptions& options) {
  PoolParts p;
  if (p.begin_open(image.path(), options) != Status::ok) return "open: " + p.report.text();
  Judge judge(p, model, options.heap.wear_levelling);
  if (std::string e = judge.mark(); !e.empty()) return e;
  if (p.end_open() != Status::ok) return "recovery: " + p.report.text();
  if (p.heap->validate(&p.report) != Status::ok) return "validate: " + p.report.text();
  bool freed = false;
  if (explored_consistency == Consistency::internal) {
    if (std::string e = reconcile(p, freed); !e.empty()) return e;
  }
  if (std::string e = judge.cells(); !e.empty()) return e;
  if (std::string e = judge.exact(freed); !e.empty()) return e;
  image.recovered();
  return use(p);
}

}  // namespace tenuto::test

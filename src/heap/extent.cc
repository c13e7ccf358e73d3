#include "heap/extent.h"

#include <functional>

#include "pm/assert.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::heap {

namespace {
// Recovery may find holes where entries were, and has to append those again without a frame to put
// them in: at most one a lane.
constexpr std::uint64_t kRedoneEntriesMax = pm::kLaneSegmentsMax * pm::kLanesPerSegment;
}  // namespace

Extents::~Extents() {
  for (auto& [region, chunk] : chunks_) {
    for (unsigned i = chunk->first; i < chunk->end;) {
      Extent* e = chunk->at[i];
      // An open that found damage may have stopped before the gaps were filled.
      i += e != nullptr ? static_cast<unsigned>(e->frames) : 1;
      delete e;
    }
  }
  for (auto& [offset, e] : huge_) delete e;
}

// REQUIRES for all private functions: mu_ is held.

Chunk& Extents::chunk_of(PoolOffset o) const {
  return *chunks_.at(round_down(o.value, kChunkBytes));
}

// The extent that starts at o, whatever its state.
Extent* Extents::lookup(PoolOffset o) const {
  if (o.value % kFrameBytes != 0) return nullptr;
  const PageTable::Entry entry = pages_.find(o);
  if (entry.owner == PageOwner::huge) {
    return entry.huge()->offset == o ? entry.huge() : nullptr;
  }
  if (entry.owner != PageOwner::chunk) return nullptr;
  const Chunk& c = *entry.chunk();
  Extent* e = c.at[(o.value - c.region.value) / kFrameBytes];
  return e != nullptr && e->offset == o ? e : nullptr;
}

void Extents::place(Chunk& chunk, Extent* e) {
  const auto at = static_cast<unsigned>((e->offset.value - chunk.region.value) / kFrameBytes);
  chunk.at[at] = e;
  chunk.at[at + e->frames - 1] = e;
  if (e->state == ExtentState::free) free_.insert({e->frames, e->offset.value});
}

void Extents::unplace(Chunk& chunk, Extent* e) {
  const auto at = static_cast<unsigned>((e->offset.value - chunk.region.value) / kFrameBytes);
  chunk.at[at] = nullptr;
  chunk.at[at + e->frames - 1] = nullptr;
  if (e->state == ExtentState::free) free_.erase({e->frames, e->offset.value});
}

Chunk& Extents::add_chunk(PoolOffset region, unsigned first, unsigned end) {
  auto chunk = std::make_unique<Chunk>();
  chunk->region = region;
  chunk->first = first;
  chunk->end = end;
  for (std::uint64_t at = first * kFrameBytes; at < end * kFrameBytes; at += kSlabBytes) {
    pages_.set(region + at, PageOwner::chunk, chunk.get());
  }
  return *(chunks_[region.value] = std::move(chunk));
}

// Four MiB where there are, else two. A region's other half may be anybody's, but not another
// chunk's: then this half joins that chunk.
Chunk* Extents::new_chunk(unsigned core, Status* why) {
  unsigned order = frame::kOrderMax;
  Result<PoolOffset> got = frames_.get(order, core);
  if (!got) {
    order = frame::kOrderHuge;
    got = frames_.get(order, core);
  }
  if (!got) {
    *why = got.error();
    return nullptr;
  }
  // Other threads will cut extents from it, and their fences do not cover our flush.
  fence("frames of a chunk", "extents are cut from it");
  const PoolOffset region{round_down(got->value, kChunkBytes)};
  const auto first = static_cast<unsigned>((got->value - region.value) / kFrameBytes);
  const unsigned frames = 1u << order;
  Chunk* chunk = nullptr;
  const auto other = chunks_.find(region.value);
  if (other == chunks_.end()) {
    chunk = &add_chunk(region, first, first + frames);
  } else {
    chunk = other->second.get();
    chunk->first = 0;
    chunk->end = kChunkFrames;
    for (std::uint64_t at = 0; at < kHugeBytes; at += kSlabBytes) {
      pages_.set(*got + at, PageOwner::chunk, chunk);
    }
  }
  // Freed like any extent, so that it joins a free neighbour in the other half.
  auto* e = new Extent{*got, frames, ExtentState::reserved, Kind::logged, {}};
  place(*chunk, e);
  free_extent(*chunk, e, core);
  return chunk;
}

void Extents::drop_chunk(Chunk& chunk, unsigned core) {
  Extent* whole = chunk.at[chunk.first];
  TENUTO_ASSERT(whole->state == ExtentState::free);
  unplace(chunk, whole);
  delete whole;
  for (unsigned f = chunk.first; f < chunk.end; f += kHugeFrames) {
    const PoolOffset half = chunk.region + f * kFrameBytes;
    for (std::uint64_t at = 0; at < kHugeBytes; at += kSlabBytes) pages_.clear(half + at);
    frames_.put(half, frame::kOrderHuge, core);
  }
  if (spare_ == &chunk) spare_ = nullptr;
  chunks_.erase(chunk.region.value);
}

Extent* Extents::take_small(std::uint64_t frames, unsigned core, Status* why) {
  auto fit = free_.lower_bound({frames, 0});
  if (fit == free_.end()) {
    if (new_chunk(core, why) == nullptr) return nullptr;
    fit = free_.lower_bound({frames, 0});
  }
  const PoolOffset at{fit->second};
  Chunk& chunk = chunk_of(at);
  if (spare_ == &chunk) spare_ = nullptr;
  Extent* e = lookup(at);
  unplace(chunk, e);
  if (e->frames > frames) {
    auto* rest = new Extent{
        at + frames * kFrameBytes, e->frames - frames, ExtentState::free, Kind::logged, {}};
    place(chunk, rest);
    e->frames = frames;
  }
  e->state = ExtentState::reserved;
  place(chunk, e);
  return e;
}

Extent* Extents::take_huge(std::uint64_t huge_frames, unsigned core, Status* why) {
  const Result<PoolOffset> got = frames_.get_run(huge_frames, core);
  if (!got) {
    *why = got.error();
    return nullptr;
  }
  auto* e = new Extent{*got, huge_frames * kHugeFrames, ExtentState::reserved, Kind::logged, {}};
  pages_.set(*got, PageOwner::huge, e);
  huge_.emplace(got->value, e);
  return e;
}

// Room for this extent's entry and tombstone, and for everybody else's that are still to come.
Status Extents::ensure_book() {
  if (book_.wants_compaction(live_)) {
    book_.compact(live_, [this](const Book::Sink& sink) {
      for_each_taken([&](Extent& e) {
        if (e.state != ExtentState::live && e.state != ExtentState::claimed) return;
        const auto type = e.kind == Kind::logged ? BookType::logged : BookType::derived;
        e.entry = sink(BookEntry::make_extent(type, e.offset, e.frames));
      });
    });
  }
  return book_.ensure_room(live_ + 2 * (reserved_ + 1) + kRedoneEntriesMax);
}

Result<Block> Extents::reserve(std::uint64_t bytes, Kind kind, unsigned core) {
  const std::lock_guard lock(mu_);
  TENUTO_TRY(ensure_book());
  Status why = Status::full;
  Extent* e = bytes <= kExtentBytesMax
                  ? take_small(round_up(bytes, kFrameBytes) / kFrameBytes, core, &why)
                  : take_huge(round_up(bytes, kHugeBytes) / kHugeBytes, core, &why);
  if (e == nullptr) return why;
  e->kind = kind;
  reserved_ += 1;
  allocated_frames_ += e->frames;
  if (kind == Kind::derived) append_entry(*e);
  return Block{e->offset, e->frames * kFrameBytes};
}

void Extents::append_entry(Extent& e) {
  TENUTO_ASSERT(e.state == ExtentState::reserved);
  const auto type = e.kind == Kind::logged ? BookType::logged : BookType::derived;
  e.entry = book_.append(BookEntry::make_extent(type, e.offset, e.frames));
  e.state = ExtentState::live;
  reserved_ -= 1;
  live_ += 1;
}

void Extents::append_tombstone(Extent& e) {
  TENUTO_ASSERT(e.state == ExtentState::live || e.state == ExtentState::claimed);
  book_.append(BookEntry::make_tombstone(e.entry));
  e.state = ExtentState::killed;
  live_ -= 1;
}

void Extents::release(PoolOffset o, unsigned core) {
  const std::lock_guard lock(mu_);
  Extent* e = lookup(o);
  TENUTO_ASSERT(e != nullptr);
  if (e->kind == Kind::derived) {
    append_tombstone(*e);
    fence("extent tombstone", "extent is reused");
  }
  TENUTO_ASSERT(e->state == ExtentState::reserved || e->state == ExtentState::killed);
  if (e->state == ExtentState::reserved) reserved_ -= 1;
  allocated_frames_ -= e->frames;
  if (pages_.find(o).owner == PageOwner::huge) {
    pages_.clear(o);
    huge_.erase(o.value);
    frames_.put_run(o, e->frames / kHugeFrames, core);
    delete e;
    return;
  }
  free_extent(chunk_of(o), e, core);
}

// Coalesces with free neighbours of the same chunk.
void Extents::free_extent(Chunk& chunk, Extent* e, unsigned core) {
  unplace(chunk, e);
  e->state = ExtentState::free;
  const auto at = static_cast<unsigned>((e->offset.value - chunk.region.value) / kFrameBytes);
  const auto absorb = [&](unsigned neighbour) {
    Extent* n = chunk.at[neighbour];
    if (n == nullptr || n->state != ExtentState::free) return;
    unplace(chunk, n);
    if (n->offset < e->offset) e->offset = n->offset;
    e->frames += n->frames;
    delete n;
  };
  const unsigned after = at + static_cast<unsigned>(e->frames);
  if (after < chunk.end) absorb(after);
  if (at > chunk.first) absorb(at - 1);
  place(chunk, e);
  if (e->frames != chunk.end - chunk.first) return;
  if (spare_ == nullptr) {
    spare_ = &chunk;
  } else if (spare_ != &chunk) {
    drop_chunk(chunk, core);
  }
}

void Extents::trim(unsigned core) {
  const std::lock_guard lock(mu_);
  if (spare_ != nullptr) drop_chunk(*spare_, core);
}

// A half of a chunk that no live extent reaches into is nobody's after the next open.
void Extents::close(unsigned core) {
  const std::lock_guard lock(mu_);
  const auto live = [](const Extent& e) {
    return e.state == ExtentState::live || e.state == ExtentState::claimed;
  };
  for (const auto& [region, chunk] : chunks_) {
    std::array<bool, kChunkFrames / kHugeFrames> used{};
    for (unsigned i = chunk->first; i < chunk->end;) {
      const Extent& e = *chunk->at[i];
      const auto after = i + static_cast<unsigned>(e.frames);
      for (unsigned f = i; live(e) && f < after; ++f) used[f / kHugeFrames] = true;
      i = after;
    }
    for (unsigned f = chunk->first; f < chunk->end; f += kHugeFrames) {
      if (used[f / kHugeFrames]) continue;
      frames_.put(chunk->region + f * kFrameBytes, frame::kOrderHuge, core);
    }
  }
  for (const auto& [offset, e] : huge_) {
    if (!live(*e)) frames_.put_run(e->offset, e->frames / kHugeFrames, core);
  }
}

void Extents::flush_log() const {
  const std::lock_guard lock(mu_);
  book_.flush_list();
}

bool Extents::cancel(PoolOffset o) {
  const std::lock_guard lock(mu_);
  Extent* e = lookup(o);
  if (e == nullptr || e->kind != Kind::logged) return false;
  if (e->state == ExtentState::killed) return true;
  if (e->state != ExtentState::reserved) return false;
  e->state = ExtentState::killed;
  reserved_ -= 1;
  return true;
}

void Extents::mark_allocated(PoolOffset o) {
  const std::lock_guard lock(mu_);
  Extent* e = lookup(o);
  TENUTO_ASSERT(e != nullptr);
  append_entry(*e);
}

void Extents::mark_free(PoolOffset o) {
  const std::lock_guard lock(mu_);
  Extent* e = lookup(o);
  TENUTO_ASSERT(e != nullptr);
  append_tombstone(*e);
}

bool Extents::claim(PoolOffset o) {
  const std::lock_guard lock(mu_);
  Extent* e = lookup(o);
  if (e == nullptr || e->state != ExtentState::live || e->kind != Kind::logged) return false;
  e->state = ExtentState::claimed;
  return true;
}

void Extents::unclaim(PoolOffset o) {
  const std::lock_guard lock(mu_);
  Extent* e = lookup(o);
  TENUTO_ASSERT(e != nullptr && e->state == ExtentState::claimed);
  e->state = ExtentState::live;
}

Result<Block> Extents::find(PoolOffset o, Kind kind, Wanted wanted) const {
  const std::lock_guard lock(mu_);
  const Extent* e = lookup(o);
  if (e == nullptr || e->state == ExtentState::free || e->kind != kind) return Status::not_found;
  const bool live = e->state == ExtentState::live;
  const bool in_use = live || e->state == ExtentState::reserved;
  if (wanted == Wanted::allocated && !live) return Status::not_found;
  if (wanted == Wanted::in_use && !in_use) return Status::not_found;
  return Block{e->offset, e->frames * kFrameBytes};
}

void Extents::for_each_taken(const std::function<void(Extent&)>& f) const {
  for (const auto& [region, chunk] : chunks_) {
    for (unsigned i = chunk->first; i < chunk->end;) {
      Extent* e = chunk->at[i];
      i += static_cast<unsigned>(e->frames);
      if (e->state != ExtentState::free) f(*e);
    }
  }
  for (const auto& [offset, e] : huge_) f(*e);
}

void Extents::for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f) const {
  const std::lock_guard lock(mu_);
  for_each_taken([&](const Extent& e) {
    const bool in_use = e.state == ExtentState::live || e.state == ExtentState::reserved;
    if (e.kind == kind && in_use) f(e.offset, e.frames * kFrameBytes);
  });
}

std::uint64_t Extents::allocated_bytes() const {
  const std::lock_guard lock(mu_);
  return allocated_frames_ * kFrameBytes;
}

std::uint64_t Extents::count() const {
  const std::lock_guard lock(mu_);
  return live_ + reserved_;
}

std::uint64_t Extents::live_logged() const {
  const std::lock_guard lock(mu_);
  std::uint64_t n = 0;
  for_each_taken([&n](const Extent& e) {
    n += e.kind == Kind::logged && e.state == ExtentState::live ? 1 : 0;
  });
  return n;
}

std::uint64_t Extents::book_bytes() const {
  const std::lock_guard lock(mu_);
  return book_.segments().size() * kBookSegmentBytes;
}

}  // namespace tenuto::inline TENUTO_ABI::heap

// Replays the intents that a crash left; malloc.cc has the argument. Idempotent: after a crash on
// the way the same replay runs again. First all words, then all bits: a block's bit depends on a
// word that another lane's intent may still change.
#include <algorithm>

#include "heap/heap_paths.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

struct Heap::State::Replay {
  const pm::LogLine* line;
  IntentView intent;
};

namespace {
// The word has this block and this version: the intent or its replay wrote it last.
bool is_current(const std::uint64_t& word, const void* block, std::uint32_t version) {
  return VPtrWord::version(word) == version && VPtrWord::decode(&word, word) == block;
}

void store_type(std::uint64_t& word, std::uint64_t type) {
  if (word == type || TENUTO_PLANT("heap_replay_keeps_stale_type")) return;
  tenuto::publish(word, type);
}
}  // namespace

Status Heap::State::read_lane(const pm::Lane& lane, std::vector<pm::LogLine*>& sealed,
                              std::vector<Replay>& live, Report* report) {
  std::uint64_t said = 0;
  for (std::size_t i = 0; i < pm::kLaneRetiredLines; ++i) {
    said = std::max(said, lane.lines[pm::kLaneRetiredLine + i].word[0]);
  }
  std::uint64_t retired = TENUTO_PLANT("heap_retired_frees_replayed") ? 0 : said;
  const std::size_t first = live.size();
  for (std::size_t i = 0; i < kIntentLines; ++i) {
    pm::LogLine& line = lane.lines[pm::kLaneIntentLine + i];
    switch (pm::log_line_state(line)) {
      case pm::LogLineState::empty:
        continue;
      case pm::LogLineState::damaged:
        return fail(Status::corrupt, report, "an intent's checksum does not match",
                    file.where(file.offset_of(&line), "lane intent"));
      case pm::LogLineState::sealed:
        break;
    }
    sealed.push_back(&line);
    const std::optional<IntentView> v = unpack_intent(line.word);
    if (!v) {
      return fail(Status::corrupt, report, "no intent looks like this",
                  file.where(file.offset_of(&line), "lane intent"));
    }
    if (!TENUTO_PLANT("heap_retired_frees_replayed")) retired = std::max(retired, v->retired);
    live.push_back({&line, *v});
  }
  const auto over = [&](const Replay& r) { return pm::log_sequence(*r.line) <= retired; };
  live.erase(std::remove_if(live.begin() + static_cast<std::ptrdiff_t>(first), live.end(), over),
             live.end());
  // Else erasing the intents would lose what only they record, and older ones would seem live
  // again.
  if (retired > said && !TENUTO_PLANT("heap_carried_retirement_forgotten")) {
    tenuto::publish(lane.lines[pm::kLaneRetiredLine].word[0], retired);
  }
  return Status::ok;
}

Status Heap::replay_intents(Report* report) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  std::vector<pm::LogLine*> sealed;
  std::vector<State::Replay> live;
  for (const auto& lane : s.lanes.all()) TENUTO_TRY(s.read_lane(*lane, sealed, live, report));
  if (sealed.empty()) return Status::ok;
  const bool mixed = TENUTO_PLANT("heap_bits_while_words_are_replayed");
  for (const State::Replay& r : live) {
    TENUTO_TRY(s.replay_words(r, report));
    if (mixed) TENUTO_TRY(s.replay_bits(r, report));
    if (TENUTO_PLANT("heap_intent_erased_while_replaying")) {
      pm::clear_log_line(*const_cast<pm::LogLine*>(r.line));
    }
  }
  for (const State::Replay& r : live) {
    if (!mixed) TENUTO_TRY(s.replay_bits(r, report));
  }
  fence("replayed intents", "intents are erased");
  for (pm::LogLine* line : sealed) pm::clear_log_line(*line);
  fence("intents are erased", "the heap is used");
  return Status::ok;
}

Status Heap::State::replay_words(const Replay& r, Report* report) const {
  const IntentView& v = r.intent;
  const auto damaged = [&](const char* what) {
    return fail(Status::corrupt, report, what, file.where(file.offset_of(r.line), "lane intent"));
  };
  for (std::size_t i = 0; i < v.count; ++i) {
    const IntentElement& e = v.element[i];
    const bool dest_sound =
        e.dest.value % sizeof(PtrWord) == 0 && e.dest.value <= file.bytes() - sizeof(PtrWord);
    if (!dest_sound) return damaged("its destination lies outside the pool");
    const bool none = !e.block && v.op == IntentOp::swap;
    if (!none && !file.in_range(e.block, 1)) return damaged("its block lies outside the pool");

    auto& word = *file.at<std::uint64_t>(e.dest);
    const void* block = none ? nullptr : file.at<void>(e.block);
    if (v.op == IntentOp::free_from) {
      const bool attached = word != 0 && PtrWord::decode(&word, word) == block;
      if (attached && !TENUTO_PLANT("heap_replay_keeps_destination")) tenuto::publish(word, 0);
    } else if (is_versioned(v.op) && VPtrWord::older(VPtrWord::version(word), e.version)) {
      const void* target = v.op == IntentOp::versioned_free ? nullptr : block;
      if (!TENUTO_PLANT("heap_replay_keeps_versioned_word")) {
        tenuto::publish(word, VPtrWord::encode(&word, target, e.version));
      }
    }
  }
  return Status::ok;
}

Status Heap::State::replay_bits(const Replay& r, Report* report) {
  const IntentView& v = r.intent;
  const auto damaged = [&](const char* what) {
    return fail(Status::corrupt, report, what, file.where(file.offset_of(r.line), "lane intent"));
  };
  for (std::size_t i = 0; i < v.count; ++i) {
    const IntentElement& e = v.element[i];
    if (!e.block) continue;
    const auto& word = *file.at<std::uint64_t>(e.dest);
    const void* block = file.at<void>(e.block);
    bool allocated = false;
    if (v.op == IntentOp::malloc_to) {
      allocated = word != 0 && PtrWord::decode(&word, word) == block;
    } else if (is_versioned(v.op) && v.op != IntentOp::versioned_free) {
      // Else a later operation is responsible for the block, which may have another owner.
      allocated = is_current(word, block, e.version);
      if (!allocated && !TENUTO_PLANT("heap_versioned_bit_of_any_version")) continue;
      allocated = true;
    }
    if (!is_class_bytes(e.bytes)) {
      // The usable bytes of a typed extent are one word less than whole frames.
      const Kind kind = e.bytes % kFrameBytes == 0 ? Kind::logged : Kind::typed;
      const std::uint64_t bytes = e.bytes + (kind == Kind::typed ? kTypeBytes : 0);
      if (bytes % kFrameBytes != 0) return damaged("its size is not whole frames");
      TENUTO_TRY(extents.recover({e.block, bytes / kFrameBytes, kind}, allocated, report));
      if (v.type == 0) continue;
      if (kind != Kind::typed) return damaged("its block cannot have a type");
      store_type(*file.at<std::uint64_t>(e.block + e.bytes), v.type);
      continue;
    }
    const auto [slab, index] = slab_block(e.block, e.bytes);
    const bool sound = slab != nullptr && index != kNoBlock && is_logged(slab->kind);
    if (!sound || slab->block_bytes != e.bytes) return damaged("it names no block of a slab");
    if (TENUTO_PLANT("heap_recovery_trusts_the_bit") && v.op == IntentOp::malloc_to) continue;
    slab->recover(index, allocated);
    if (v.type == 0) continue;
    if (slab->kind != Kind::typed) return damaged("its block cannot have a type");
    store_type(slab->type_word(index), v.type);
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::heap

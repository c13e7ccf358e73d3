// The rescue of records: from the leaves that salvage.cc believes, then, after a clean close, from
// blocks in use that no leaf names any more, then, when asked to, from whatever looks like a
// record. Each is taken by its checksum, its hash and its place; the new pool is written in
// batches.
#include "tenuto/rescue.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "pm/lane.h"
#include "store/hash.h"
#include "store/record.h"
#include "store/rescue_parts.h"
#include "store/salvage.h"
#include "tx/engine.h"

namespace tenuto::inline TENUTO_ABI {

namespace store {
namespace {

class Rescue {
 public:
  Rescue(pm::PoolFile& file, const RescueOptions& options, RescueResult& result)
      : file_(file), options_(options), result_(result), salvage_(file) {}

  // Finds all there is; writes nothing. `losses`: of the journal, which may be about any key.
  void find(std::vector<Report> losses) {
    result_.was_clean = file_.was_clean();
    for (Report& r : losses) lose({std::move(r), true, {}, {}});
    roll_back();
    read_store_word();
    salvage_.run();
    for (const Report& r : salvage_.notes()) result_.notes.push_back(r);
    result_.leaves = salvage_.live().size();
    note_gaps();
    judge_leaves();
  }
  bool anything() const { return !salvage_.live().empty() || !salvage_.unproven().empty(); }

  Status write(Store& to) {
    Writer out(to, result_);
    for (std::size_t i = 0; i < salvage_.live().size(); ++i) TENUTO_TRY(take_leaf(i, out));
    if (!leaves_are_all_) TENUTO_TRY(take_blocks(out));
    TENUTO_TRY(take_unproven(out));
    TENUTO_TRY(out.flush());
    result_.records = to.stats().records;
    return Status::ok;
  }

  // After write.
  Status verdict() {
    if (const Status s = file_.bad_pages(&bad_page_); s != Status::ok) {
      lose({bad_page_, false, {}, {}});
    }
    const bool complete =
        result_.expected && *result_.expected == result_.records && result_.scavenged == 0;
    if (complete && bad_page_.what.empty()) {
      // The clean close counted them, and they are all here: what is damaged cost nothing.
      for (RescueLoss& l : result_.losses) result_.notes.push_back(std::move(l.report));
      result_.losses.clear();
      result_.losses_count = 0;
      result_.unproven = result_.damaged = 0;
      return Status::ok;
    }
    if (result_.expected && *result_.expected != result_.records && result_.losses_count == 0) {
      lose({{"the number of records is not that of the last clean close", file_.path(),
             std::to_string(*result_.expected), std::to_string(result_.records)},
            false,
            {},
            {}});
    }
    const bool all = result_.losses_count == 0 && result_.damaged == 0 && result_.unproven == 0;
    return all ? Status::ok : Status::corrupt;
  }

 private:
  // Transactions and batches that did not end, in every lane that can be found.
  void roll_back() {
    std::vector<pm::Lane> lanes;
    const pm::HeadPage& head = file_.head();
    for (std::size_t i = 0; i < pm::kLaneSegmentsMax; ++i) {
      const PoolOffset segment =
          i == 0 ? PoolOffset{pm::kLanesOffset} : PoolOffset{head.lane_segments[i]};
      if (!segment) break;
      const bool sound = i == 0 || (segment.value % pm::kLaneSegmentBytes == 0 &&
                                    file_.in_range(segment, pm::kLaneSegmentBytes));
      if (!sound) {
        lose({{"a segment of transaction logs lies where none can be: what was under way in it may "
               "be half done",
               file_.where({pm::kHeadPageOffset + offsetof(pm::HeadPage, lane_segments) + i * 8},
                           "lane segment table"),
               {},
               std::to_string(segment.value)},
              false,
              {},
              {}});
        continue;
      }
      for (std::size_t k = 0; k < pm::kLanesPerSegment; ++k) {
        lanes.push_back({{static_cast<std::uint32_t>(i * pm::kLanesPerSegment + k)},
                         file_.at<pm::LogLine>(segment + k * pm::kLaneBytes)});
      }
    }
    std::vector<Report> damaged;
    result_.rolled_back = tx::undo_what_is_left(file_, lanes, damaged);
    for (Report& r : damaged) {
      r.what += ": a transaction that was under way may be half done";
      lose({std::move(r), false, {}, {}});
    }
  }

  void read_store_word() {
    const std::uint64_t* head = file_.head().store;
    const StoreWord word{head[kHeadWord]};
    const bool sound = word.sound({head[kHeadFirstLeaf]});
    result_.key_kind = sound ? word.kind() : options_.key_kind_otherwise;
    if (!sound) {
      result_.notes.push_back(
          {"the store's word is damaged: the kind of its keys is not known, and was taken as asked",
           file_.where({pm::kHeadPageOffset + offsetof(pm::HeadPage, store)}, "store word"),
           {},
           {}});
    } else if (file_.was_clean()) {
      result_.expected = head[kHeadRecords];
    }
  }

  void note_gaps() {
    const std::vector<FoundLeaf>& live = salvage_.live();
    if (live.empty()) {
      return lose({{"no leaf of the store can be read", file_.path(), {}, {}}, true, {}, {}});
    }
    const auto gap = [&](PoolOffset at, std::string from, std::optional<std::string> to) {
      lose({{"leaves are missing here", file_.where(at, "leaf"), {}, {}},
            true,
            std::move(from),
            std::move(to)});
    };
    if (!live[0].low.empty()) gap({pm::kHeadPageOffset}, {}, live[0].low);
    for (std::size_t i = 0; i < live.size(); ++i) {
      if (salvage_.continued(i)) continue;
      const bool last = i + 1 == live.size();
      gap(live[i].at, live[i].low, last ? std::nullopt : std::optional(live[i + 1].low));
    }
  }

  // Leaves that hang together from end to end and hold as many records as the clean close counted
  // need no other witness. Else, after a clean close, the slabs' bits speak, too: an entry whose
  // block is not in use may be of an older state of its leaf.
  void judge_leaves() {
    std::uint64_t entries = 0;
    for (const FoundLeaf& f : salvage_.live()) {
      if (!is_sound(salvage_.leaf(f).head.bitmap)) return;
      entries += static_cast<std::uint64_t>(std::popcount(bitmap_of(salvage_.leaf(f))));
    }
    leaves_are_all_ = result_.losses_count == 0 && result_.expected == std::optional(entries);
  }

  // Whether a sound record with the hash of its slot stands there.
  bool read_sound(SlotWord word, const std::uint8_t* print, Record& r) const {
    if (!read_record(file_, word.record(), r) || !record_sound(file_, word.record(), r)) {
      return false;
    }
    const KeyHash hash = hash_key(r.key);
    return word.hash() == hash.slot && (print == nullptr || *print == hash.print) && kind_fits(r);
  }
  bool kind_fits(const Record& r) const {
    return result_.key_kind != KeyKind::u64 || r.key.size() == sizeof(U64Key);
  }

  Status take_leaf(std::size_t i, Writer& out) {
    const std::vector<FoundLeaf>& live = salvage_.live();
    const FoundLeaf& f = live[i];
    std::optional<std::string> end;
    for (std::size_t k = i + 1; k < live.size() && !end; ++k) {
      if (live[k].low_ok && live[k].low > f.low) end = live[k].low;
    }
    const Leaf& leaf = salvage_.leaf(f);
    accounted_.insert(f.at.value);
    if (const PoolOffset block = f.low_ok ? low_block(leaf) : PoolOffset{}) {
      accounted_.insert(block.value);
    }
    if (!is_sound(leaf.head.bitmap)) {
      lose({{"a leaf's bitmap is damaged: which of its records are current is not known",
             file_.where(f.at, "leaf"),
             {},
             {}},
            true,
            f.low,
            end});
      if (!file_.was_clean()) uncertain_.push_back(f.at);
      return Status::ok;  // after a clean close its records are found by their blocks
    }
    std::uint64_t bad = 0;
    for (std::uint64_t used = bitmap_of(leaf); used != 0; used &= used - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(used));
      const SlotWord word = leaf.slot[slot];
      Record r;
      if (!read_sound(word, &leaf.head.print[slot], r) || r.key < f.low || (end && r.key >= *end)) {
        bad += 1;
        continue;
      }
      if (!leaves_are_all_ && salvage_.in_use(word.record()) == std::optional(false)) {
        outdated_.push_back(word);
      } else if (accounted_.insert(word.record().value).second) {
        TENUTO_TRY(out.put(r));
      }
    }
    if (bad == 0) return Status::ok;
    result_.damaged += bad;
    lose({{std::to_string(bad) + " of a leaf's " + std::to_string(std::popcount(bitmap_of(leaf))) +
               " entries lead to no sound record",
           file_.where(f.at, "leaf"),
           {},
           {}},
          true,
          f.low,
          end});
    return Status::ok;
  }

  // A record that fills a block of this size: what else stands in blocks does not look like one.
  bool record_in_block(PoolOffset block, std::uint64_t bytes, Record& r) const {
    if (!read_record(file_, block, r)) return false;
    const std::uint64_t need = record_block_bytes(record_bytes(r.key.size(), r.value.size()));
    if (need > heap::kSmallBytesMax) return false;
    return heap::kClassBytes[heap::class_of(need).value] == bytes && kind_fits(r) &&
           record_sound(file_, block, r);
  }

  // After a clean close every block in use is current, its leaf readable or not.
  Status take_blocks(Writer& out) {
    Status status = Status::ok;
    salvage_.for_each_block([&](PoolOffset block, std::uint64_t bytes, std::optional<bool> used) {
      if (status != Status::ok || !used.value_or(false) || accounted_.contains(block.value)) return;
      Record r;
      if (!record_in_block(block, bytes, r)) return;
      accounted_.insert(block.value);
      result_.without_leaf += 1;
      // An entry that could not be believed may be of the same key.
      status = out.put(r);
    });
    return status;
  }

  // One that may be old. Where nothing is lost it is. Else it is counted, and taken only if asked
  // for and if no current one has its key.
  Status may_be_old(const Record& r, Writer& out) {
    if (!lost_keys_.contains(r.key)) return Status::ok;
    const Result<bool> there = out.has(r.key);
    if (!there) return there.error();
    if (*there) return Status::ok;
    if (!options_.scavenge) {
      if (unproven_keys_.emplace(r.key).second) result_.unproven += 1;
      return Status::ok;
    }
    result_.scavenged += 1;
    return out.put(r);
  }

  Status take_slots(PoolOffset at, std::uint64_t slots, Writer& out) {
    const Leaf& leaf = *file_.at<Leaf>(at);
    for (; slots != 0; slots &= slots - 1) {
      const SlotWord word = leaf.slot[std::countr_zero(slots)];
      Record r;
      if (accounted_.contains(word.record().value) || !read_sound(word, nullptr, r)) continue;
      if (salvage_.in_use(word.record()) == std::optional(false)) continue;  // freed
      TENUTO_TRY(may_be_old(r, out));
    }
    return Status::ok;
  }

  Status take_unproven(Writer& out) {
    lost_keys_.settle();
    for (const FoundLeaf& f : salvage_.unproven()) {
      const Leaf& leaf = salvage_.leaf(f);
      const bool sound = is_sound(leaf.head.bitmap);
      TENUTO_TRY(take_slots(f.at, sound ? bitmap_of(leaf) : kBitmapMask, out));
    }
    for (const PoolOffset at : uncertain_) TENUTO_TRY(take_slots(at, kBitmapMask, out));
    for (const SlotWord word : outdated_) {
      Record r;
      if (read_sound(word, nullptr, r)) TENUTO_TRY(may_be_old(r, out));
    }
    if (!options_.scavenge) return Status::ok;
    Status status = Status::ok;
    const auto take = [&](PoolOffset block, std::uint64_t bytes, std::optional<bool> used) {
      if (status != Status::ok || used.has_value() || accounted_.contains(block.value)) return;
      Record r;
      if (record_in_block(block, bytes, r)) status = may_be_old(r, out);
    };
    salvage_.for_each_block(take);
    TENUTO_TRY(status);
    return take_large(out);
  }

  // Records too large for slabs begin on frames.
  Status take_large(Writer& out) {
    for (PoolOffset o{round_up(pm::kHeadBytes, kFrameBytes)}; o.value < file_.bytes();
         o = o + kFrameBytes) {
      Record r;
      if (salvage_.in_slab(o) || accounted_.contains(o.value) || !read_record(file_, o, r))
        continue;
      const bool large = record_bytes(r.key.size(), r.value.size()) > heap::kSmallBytesMax;
      if (large && kind_fits(r) && record_sound(file_, o, r)) TENUTO_TRY(may_be_old(r, out));
    }
    return Status::ok;
  }

  void lose(RescueLoss loss) {
    result_.losses_count += 1;
    if (loss.about_keys) lost_keys_.add(loss.from, loss.to);
    if (result_.losses.size() < kRescueLossesMax) result_.losses.push_back(std::move(loss));
  }

  pm::PoolFile& file_;
  const RescueOptions& options_;
  RescueResult& result_;
  Salvage salvage_;
  Report bad_page_;
  std::unordered_set<std::uint64_t> accounted_;  // blocks whose use is known
  std::unordered_set<std::string> unproven_keys_;
  KeyRanges lost_keys_;
  std::vector<PoolOffset> uncertain_;  // live leaves without a readable bitmap
  std::vector<SlotWord> outdated_;     // entries whose blocks are not in use
  bool leaves_are_all_ = false;        // after a clean close: nothing is missing in them
};

}  // namespace
}  // namespace store

Status rescue(std::string_view damaged, std::string_view fresh, const RescueOptions& options,
              RescueResult& result, Report* report) {
  result = {};
  if (::access(std::string(fresh).c_str(), F_OK) == 0) {
    return fail(Status::exists, report, "there is a file already where the new pool should be",
                std::string(fresh));
  }
  std::vector<Report> losses;
  auto file = pm::PoolFile::open_damaged(damaged, options.journal, result.notes, losses, report);
  if (!file) return file.error();
  store::Rescue rescue(**file, options, result);
  rescue.find(std::move(losses));
  if (!rescue.anything() && !options.scavenge) {
    return fail(Status::not_found, report, "nothing usable was found", std::string(damaged));
  }
  StoreOptions to;
  to.pool = options.pool;
  to.error_if_exists = true;
  to.key_kind = result.key_kind;
  Result<Store> store = Store::open(fresh, to, report);
  if (!store) return store.error();
  Status s = rescue.write(*store);
  Status closed = store->close();
  if (s != Status::ok || closed != Status::ok) {
    ::unlink(std::string(fresh).c_str());
    return fail(s != Status::ok ? s : closed, report, "the new pool cannot be written",
                std::string(fresh));
  }
  s = rescue.verdict();
  if (result.records == 0 && s != Status::ok) {
    ::unlink(std::string(fresh).c_str());
    return fail(Status::not_found, report, "nothing usable was found", std::string(damaged));
  }
  if (s == Status::ok) return s;
  return fail(s, report, "not everything could be rescued", std::string(damaged));
}

}  // namespace tenuto::inline TENUTO_ABI

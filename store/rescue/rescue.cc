// The rescue of records, from three sources in this order: the leaves that salvage.cc believes;
// after a clean close, blocks in use that no leaf names; if asked to, whatever looks like a record.
// Every record must pass its checksum. One from a leaf must also have the hash of its slot and a
// key in the leaf's range. The new pool is written in batches.
#include "tenuto/rescue.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "file/lane.h"
#include "pm/plant.h"
#include "store/kv/refused.h"
#include "store/kv/store_impl.h"
#include "store/rescue/tree.h"
#include "store/tree/record.h"
#include "tx/engine.h"

namespace TENUTO_NS {

namespace store {
namespace {

class Rescue {
 public:
  Rescue(pm::PoolFile& file, const RescueOptions& options, RescueResult& result)
      : file_(file), result_(result), ground_{file, options, result} {}

  // Finds the trees and their leaves. Writes nothing. losses: the journal's, maybe of any key.
  void find(std::vector<Report> losses) {
    result_.was_clean = file_.was_clean();
    if ((file_.superblock().variant & pm::kVariantLeafLost) != 0) {
      losses.push_back(
          {"an open found a leaf that was not the one of the close before: its records "
           "may be old, or missing",
           file_.path(),
           {},
           {}});
    }
    for (Report& r : losses) ground_.lose({std::move(r), true, {}, {}, {}});
    ground_.any_key_lost = !losses.empty();
    roll_back();
    ground_.doubtful = result_.losses_count != 0;
    ground_.slabs.emplace(file_);
    read_store_word();
    for (TreeRescue& t : trees_) t.find();
  }
  bool anything() const {
    return std::any_of(trees_.begin(), trees_.end(),
                       [](const TreeRescue& t) { return t.anything(); });
  }

  Status write(Store& to) {
    // Records are copied as they are stored: no codec is needed.
    StoreImpl::of(to).collections()->set_encodings(Encodings::of_stored_keys());
    std::vector<Writer> writers;
    for (TreeRescue& t : trees_) {
      const CollectionOptions options = options_of(t.entry().spec);
      Collection into = to;
      if (t.entry().id != kDefaultTree) {
        Result<Collection> made = to.collection(t.entry().name, options);
        if (!made) return made.error();
        into = *made;
      }
      writers.emplace_back(to, std::move(into), result_);
    }
    for (std::size_t i = 0; i < trees_.size(); ++i) {
      TENUTO_TRY(trees_[i].take_leaves([&](const Record& r) { return writers[i].put(r); }));
    }
    TENUTO_TRY(take_blocks(to, writers));
    for (std::size_t i = 0; i < trees_.size(); ++i) {
      TENUTO_TRY(trees_[i].take_unproven(writers[i]));
    }
    if (ground_.options.scavenge) TENUTO_TRY(scavenge(writers));
    for (Writer& w : writers) TENUTO_TRY(w.flush());
    result_.records = to.stats().records;
    const auto all = to.collections();
    if (!all) return all.error();
    for (const CollectionInfo& info : *all) {
      const Result<Collection> c = to.collection(info.name);
      if (!c) return c.error();
      result_.records += c->stats().records;
    }
    result_.collections = all->size();
    return Status::ok;
  }

  // After write.
  Status verdict() {
    if (const Status s = file_.bad_pages(&bad_page_); s != Status::ok) {
      ground_.lose({bad_page_, false, {}, {}, {}});
    }
    // The right number proves nothing when some are damaged and some taken without a leaf may come
    // from a misplaced page.
    const bool sure = result_.damaged == 0 || unplaced_ == 0;
    const bool complete = result_.expected && *result_.expected == result_.records &&
                          result_.scavenged == 0 &&
                          (sure || TENUTO_PLANT("store_rescue_believes_the_count"));
    if (complete && bad_page_.what.empty()) {
      // All that the clean close counted are here: the damage cost no record.
      for (RescueLoss& l : result_.losses) result_.notes.push_back(std::move(l.report));
      result_.losses.clear();
      result_.losses_count = 0;
      result_.unproven = result_.damaged = 0;
      return Status::ok;
    }
    if (result_.expected && *result_.expected != result_.records && result_.losses_count == 0) {
      ground_.lose({{"the number of records is not that of the last clean close", file_.path(),
                     std::to_string(*result_.expected), std::to_string(result_.records)},
                    false,
                    {},
                    {},
                    {}});
    }
    const bool all = result_.losses_count == 0 && result_.damaged == 0 && result_.unproven == 0;
    return all ? Status::ok : Status::corrupt;
  }

 private:
  // Rolls back transactions and batches that did not end, in every lane that can be found.
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
        ground_.lose(
            {{"a segment of transaction logs lies where none can be: what was under way in it may "
              "be half done",
              file_.where({pm::kHeadPageOffset + offsetof(pm::HeadPage, lane_segments) + i * 8},
                          "lane segment table"),
              {},
              std::to_string(segment.value)},
             false,
             {},
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
      ground_.lose({std::move(r), false, {}, {}, {}});
    }
  }

  void read_store_word() {
    const std::uint64_t* head = file_.head().store;
    const StoreWord word{head[kHeadWord]};
    const bool sound = word.sound({head[kHeadFirstLeaf]});
    result_.order = sound ? word.order() : ground_.options.order_otherwise;
    std::optional<std::uint64_t> expected;
    if (!sound) {
      result_.notes.push_back(
          {"the store's word is damaged: the order of its keys is not known, and was taken as "
           "asked",
           file_.where({pm::kHeadPageOffset + offsetof(pm::HeadPage, store)}, "store word"),
           {},
           {}});
    } else if (file_.was_clean()) {
      expected = head[kHeadRecords];
    }
    result_.expected = expected;
    const CollectionSpec spec{result_.order};
    const PoolOffset again{file_.head().roots[pm::kRootStore]};
    trees_.emplace_back(ground_, CatalogEntry{{}, kDefaultTree, {head[kHeadFirstLeaf]}, spec},
                        again, expected);
    const auto& catalog = reinterpret_cast<const HeaderWord&>(head[kHeadCatalog]);
    const PoolOffset catalog_again{file_.head().roots[pm::kRootCatalog]};
    const bool named = is_sound(catalog) && catalog.value() != 0;
    const bool told = (sound && word.has_catalog()) || catalog_again || (!sound && named);
    // If the word is sound and lacks the bit, only a second name still speaks for a catalog.
    if (told || (!sound && leaf_of_another({kDefaultTree}))) {
      read_catalog(named ? PoolOffset{catalog.value()} : catalog_again, catalog_again);
    }
  }

  // The number of a tree's records at the clean close.
  std::optional<std::uint64_t> counts_at(PoolOffset first_leaf) const {
    const bool there =
        first_leaf.value % kLineBytes == 0 && file_.in_range(first_leaf, sizeof(Leaf));
    if (!file_.was_clean() || !there) return std::nullopt;
    const TreeCounts counts = counts_of(*file_.at<Leaf>(first_leaf));
    return counts.sound(first_leaf) ? std::optional(counts.records) : std::nullopt;
  }

  // Whether, after a clean close, a leaf is in use whose tree is none of these.
  bool leaf_of_another(const std::vector<TreeId>& trees) const {
    bool found = false;
    ground_.slabs->for_each_leaf_block([&](PoolOffset at) {
      if (found || ground_.slabs->in_use(at) != std::optional(true)) return;
      const Leaf& leaf = *file_.at<Leaf>(at);
      if (!bitmap_sound(leaf) || !is_sound(leaf.head.next)) return;
      found = std::none_of(trees.begin(), trees.end(),
                           [&](TreeId id) { return leaf.low.may_be_of(id); });
    });
    return found;
  }

  void read_catalog(PoolOffset first, PoolOffset again) {
    TreeRescue catalog(ground_, {"(catalog)", kCatalogTree, first, {}}, again, counts_at(first));
    const std::uint64_t lost = result_.losses_count;
    catalog.find();
    std::uint64_t wrong = 0;
    std::unordered_set<std::uint64_t> ids;
    static_cast<void>(catalog.take_leaves([&](const Record& r) {
      CatalogEntry entry;
      if (!decode_entry(r.key, r.value, entry) || !ids.insert(entry.id.value).second) {
        wrong += 1;
        return Status::ok;
      }
      const auto expected = counts_at(entry.first_leaf);
      if (result_.expected && expected) {
        *result_.expected += *expected;
      } else {
        result_.expected.reset();
      }
      trees_.emplace_back(ground_, entry, PoolOffset{}, expected);
      return Status::ok;
    }));
    std::vector<TreeId> known = {kCatalogTree};
    for (const TreeRescue& t : trees_) known.push_back(t.entry().id);
    const bool sure = wrong == 0 && !leaf_of_another(known);
    if (sure && catalog.whole()) return;
    if (result_.losses_count == lost && sure && !file_.was_clean()) return;
    catalog_lost_ = true;
    ground_.lose({{"the catalog is damaged: collections may be missing", file_.path(), {}, {}},
                  false,
                  {},
                  {},
                  {}});
    result_.expected.reset();
  }

  // Whether the block holds a sound record of its size class. Other contents do not look like one.
  bool record_in_block(PoolOffset block, std::uint64_t bytes, Record& r) const {
    if (!read_record(file_, block, r)) return false;
    const std::uint64_t need = record_block_bytes(record_bytes(r.key.size(), r.value.size()));
    if (need > heap::kSmallBytesMax) return false;
    return heap::kClassBytes[heap::class_of(need).value] == bytes && record_sound(file_, block, r);
  }

  // The only tree that blocks without a leaf can belong to. None: there are several, or no such.
  std::optional<std::size_t> the_damaged_tree() const {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < trees_.size(); ++i) {
      if (trees_[i].whole()) continue;
      if (found) return std::nullopt;
      found = i;
    }
    return found;
  }

  // Takes blocks that no leaf names. After a clean close every block in use is current.
  Status take_blocks(Store& to, std::vector<Writer>& writers) {
    const bool whole =
        std::all_of(trees_.begin(), trees_.end(), [](const TreeRescue& t) { return t.whole(); });
    if (whole && !catalog_lost_) return Status::ok;
    const std::optional<std::size_t> owner = catalog_lost_ ? std::nullopt : the_damaged_tree();
    std::optional<Writer> found;
    Status status = Status::ok;
    ground_.slabs->for_each_block(
        [&](PoolOffset block, std::uint64_t bytes, std::optional<bool> used) {
          const bool known = !used.value_or(false) || ground_.accounted.contains(block.value);
          Record r;
          if (status != Status::ok || known || !record_in_block(block, bytes, r)) return;
          if (owner && !trees_[*owner].key_fits(r)) return;
          if (!owner && !found) {
            Result<Collection> made = to.collection(kLostAndFound);
            if (!made) return static_cast<void>(status = made.error());
            found.emplace(to, *made, result_);
          }
          ground_.accounted.insert(block.value);
          result_.without_leaf += 1;
          if (!record_of_its_place(file_, block, r)) unplaced_ += 1;
          // This may put a key again that a damaged entry had.
          status = (owner ? writers[*owner] : *found).put(r);
        });
    TENUTO_TRY(status);
    return found ? found->flush() : Status::ok;
  }

  // Takes whatever looks like a record, if only one tree can have had it.
  Status scavenge(std::vector<Writer>& writers) {
    const std::optional<std::size_t> owner = the_damaged_tree();
    if (!owner) return Status::ok;
    TreeRescue& tree = trees_[*owner];
    Writer& out = writers[*owner];
    Status status = Status::ok;
    ground_.slabs->for_each_block(
        [&](PoolOffset block, std::uint64_t bytes, std::optional<bool> used) {
          const bool known = used.has_value() || ground_.accounted.contains(block.value);
          Record r;
          if (status != Status::ok || known || !record_in_block(block, bytes, r)) return;
          if (tree.key_fits(r)) status = tree.may_be_old(r, out);
        });
    TENUTO_TRY(status);
    // Records too large for slabs begin on frames.
    for (PoolOffset o{round_up(pm::kHeadBytes, kFrameBytes)}; o.value < file_.bytes();
         o = o + kFrameBytes) {
      Record r;
      const bool known = ground_.slabs->in_slab(o) || ground_.accounted.contains(o.value);
      if (known || !read_record(file_, o, r)) continue;
      const bool large = record_bytes(r.key.size(), r.value.size()) > heap::kSmallBytesMax;
      if (large && tree.key_fits(r) && record_sound(file_, o, r)) {
        TENUTO_TRY(tree.may_be_old(r, out));
      }
    }
    return Status::ok;
  }

  pm::PoolFile& file_;
  RescueResult& result_;
  RescueGround ground_;
  Report bad_page_;
  std::deque<TreeRescue> trees_;  // the default collection first
  bool catalog_lost_ = false;     // collections may be missing
  std::uint64_t unplaced_ = 0;    // taken without a leaf, and their checksums cover no place
};

}  // namespace
}  // namespace store

Status rescue(std::string_view damaged, std::string_view fresh, const RescueOptions& options,
              RescueResult& result, Report* report) {
  result = {};
  TENUTO_TRY(StoreImpl::check_order(options.order_otherwise, std::string(damaged), report));
  if (::access(std::string(fresh).c_str(), F_OK) == 0) {
    return fail(Status::exists, report, "there is a file already where the new pool should be",
                std::string(fresh));
  }
  std::vector<Report> losses;
  auto file = pm::PoolFile::open_damaged(damaged, options.journal, options.pool.recovery_threads,
                                         result.notes, losses, report);
  if (!file) return file.error();
  TENUTO_TRY(store::check_protocols(**file, report));
  store::Rescue rescue(**file, options, result);
  rescue.find(std::move(losses));
  if ((*file)->times_damaged()) {
    result.notes.push_back(
        {"the last time that the pool knew is damaged: where the clock is behind, "
         "what has expired may be seen again",
         (*file)->path(),
         {},
         {}});
  }
  if (!rescue.anything() && !options.scavenge) {
    return fail(Status::not_found, report, "nothing usable was found", std::string(damaged));
  }
  StoreOptions to;
  to.pool = options.pool;
  if (to.pool.mode == 0) to.pool.mode = (*file)->mode();
  to.order = result.order;
  // It has no name until it is whole: an unfinished rescue leaves nothing.
  Result<Store> store = StoreImpl::create_copy(std::string(fresh), to, report);
  if (!store) return store.error();
  Status s = rescue.write(*store);
  if (s != Status::ok) {
    return fail(s, report, "the new pool cannot be written", std::string(fresh));
  }
  s = rescue.verdict();
  if (result.records == 0 && s != Status::ok) {
    return fail(Status::not_found, report, "nothing usable was found", std::string(damaged));
  }
  Report why;
  const store::Times times = store::load_times(**file);
  if (const Status done = StoreImpl::finish_copy(*store, times, &why); done != Status::ok) {
    if (!why.what.empty() && report != nullptr) *report = why;
    if (!why.what.empty()) return done;
    return fail(done, report, "the new pool cannot be written", std::string(fresh));
  }
  if (s == Status::ok) return s;
  return fail(s, report, "not everything could be rescued", std::string(damaged));
}

}  // namespace TENUTO_NS

#include "support/planted.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "pm/assert.h"
#include "pm/dirty_lines.h"
#include "support/capacity_world.h"
#include "support/collection_world.h"
#include "support/compact_objects_world.h"
#include "support/container_world.h"
#include "support/damage_world.h"
#include "support/frame_world.h"
#include "support/heap_scripts.h"
#include "support/kv_isolation_world.h"
#include "support/kv_world.h"
#include "support/maps_world.h"
#include "support/pm_world.h"
#include "support/root_world.h"
#include "support/tx_scripts.h"

namespace tenuto::test {

std::string Planted::layer() const {
  return std::string(name).substr(0, std::string(name).find('_'));
}

namespace {

const std::vector<Planted>& bugs_below_the_store() {
  static const std::vector<Planted> all = {
      {"pm_later_lane_segments_forgotten", "recovery looks at the lanes of the head only",
       "lane_growth", "cell 1: shows"},
      {"pm_lane_segment_published_early", "a lane segment is in the table before it is zeroed",
       "lane_growth", "lane segment zeroed"},
      {"pm_lane_segment_not_zeroed", "a lane segment holds what its frames held before",
       "lane_growth", "an intent's checksum does not match"},
      {"pm_log_seal_not_zeroed_first", "a log line is overwritten under its old seal",
       "tx_transfers", "a line of a transaction log is damaged"},
      {"pm_log_seal_before_words", "a log line is sealed before its words are stored",
       "small_blocks", "an intent's checksum does not match"},
      {"pm_log_checksum_not_compared", "a damaged log line is believed", "damaged_log",
       "the transaction before the crash"},
      {"pm_superblock_copies_not_in_turn", "every superblock goes over the newest copy",
       "pool_states", "the superblock's checksum does not match"},
      {"pm_superblock_checksum_not_compared", "a torn superblock copy is believed", "pool_states",
       "closed cleanly, but the words are"},
      {"pm_superblock_first_copy_believed", "the first sound copy counts, not the newest",
       "pool_states", "closed cleanly, but the words are"},
      {"pm_damaged_superblock_copy_ignored",
       "clean is believed of the older copy when the newer one is damaged", "damaged_log",
       "the transaction before the crash"},
      {"pm_zone_counted_before_its_entry", "the zone count is raised before the entry is written",
       "pool_growth", "the file is shorter than its zones say"},
      {"pm_file_length_believed", "the whole file is mapped, not what the zone table says",
       "pool_growth", "a zone does not follow the one before it"},
      {"pm_dirty_lines_flushed_and_not_fenced",
       "lines for which there is no room are flushed and left to whoever fences next", "many_frees",
       "a block leaked|names a free block|acknowledged, and"},
      {"frame_bits_flushed_before_set", "get flushes the bitfield line before it sets the bits",
       "frames", "an owner names frames that are not taken"},
      {"frame_huge_get_flushes_bitfield", "get of a huge frame flushes the wrong line", "frames",
       "an owner names huge frames that are not taken"},
      {"frame_bitfields_not_flushed", "formatting, recovery and close flush the counters only",
       "new_zone", "frames of the zone's own state are free"},
      {"frame_bits_without_owner_stay", "recovery gives back whole huge frames, but no bits",
       "frames", ""},
      {"frame_whole_without_owner_stays", "recovery gives back bits, but no whole huge frames",
       "frames", "bits under a whole huge frame"},
      {"frame_whole_over_stale_bits", "recovery leaves bits under a frame kept as a whole",
       "frames", "bits under a whole huge frame"},
      {"frame_own_state_given_back", "recovery gives back the frames of a zone's own state",
       "frames", "frames of the zone's own state are free"},
      {"frame_run_named_by_its_first_frame", "recovery keeps the first huge frame of a run only",
       "frames", "frames are free"},
      {"frame_large_order_kept_by_its_first_word",
       "recovery keeps the first 64 frames of an order above 6", "frames", "frames are free"},
      {"frame_recovery_forgets_later_zones", "recovery gives back frames of the first zone only",
       "new_zone", "frames are free"},
      {"frame_close_forgets_later_zones", "a close flushes the counters of the first zone only",
       "new_zone", "a free counter differs from its bitfield"},
      {"heap_lane_sequence_starts_anew", "sequences of intents start at 1 at every open",
       "two_lanes", "cell 0: shows|logged blocks leak"},
      {"heap_retired_frees_replayed", "recovery replays frees that were retired", "small_blocks",
       "it names no block of a slab"},
      {"heap_recovery_trusts_the_bit", "recovery of a malloc leaves the bit as it is",
       "small_blocks", "cell 0: shows|logged blocks leak"},
      {"heap_intent_erased_while_replaying", "intents are erased before their replay is durable",
       "small_blocks", "replayed intents"},
      {"heap_replay_keeps_destination", "replay of a free forgets the destination", "small_blocks",
       "cell 0: shows"},
      {"heap_destination_before_intent", "malloc_to stores the destination before its intent",
       "small_blocks", "malloc intent"},
      {"heap_bit_cleared_before_intent", "free_from clears the bit before its intent is durable",
       "small_blocks", "free intent"},
      {"heap_free_without_limbo", "a freed block is reused at once", "no_reuse",
       "cell 1: shows|bookkeeping of extents is damaged"},
      {"heap_lost_claim_not_retired", "who loses a race for a free leaves its intent behind",
       "lost_race", "cell .: shows|leak or are lost|two extents"},
      {"heap_free_retired_before_durable", "a free is retired before it is durable", "small_blocks",
       "free intent"},
      {"heap_block_reused_before_retirement", "a block is reused before its free is retired",
       "reuse_by_other", "cell 2: shows|leak or are lost|two extents at one place"},
      {"heap_quarantine_skipped", "a container is reused under another lane's free of its contents",
       "containers", "cell 1: shows"},
      {"heap_carried_retirement_forgotten",
       "recovery erases intents that alone say what is retired, and keeps it nowhere",
       "versioned_reuse", "cell 56: shows"},
      {"heap_versioned_contents_unfenced",
       "publish lets the versioned intent and the contents race", "versioned", "cell 56: shows"},
      {"heap_version_not_raised", "a versioned free leaves the version as it is", "versioned",
       "cell 57: shows"},
      {"heap_replay_keeps_versioned_word", "replay forgets versioned words", "versioned",
       "cell 56: shows"},
      {"heap_bits_while_words_are_replayed",
       "replay sets each intent's bits before it knows all words", "versioned_reverse",
       "leak or are lost"},
      {"heap_versioned_bit_of_any_version",
       "replay of a versioned malloc sets the bit though the word went on", "versioned_lanes",
       "leak or are lost"},
      {"heap_swap_leaves_bits", "a swap trusts others to have fenced the bits of what it moves",
       "versioned_lanes", "cell 57: shows"},
      {"heap_versioned_malloc_not_pending",
       "a container is reused under another lane's versioned malloc in it", "versioned_containers",
       "leak or are lost|cell"},
      {"heap_version_wraps_over_other_lanes",
       "a version goes round while another lane's intent names the word", "versioned_wraps",
       "cell 56: shows"},
      {"heap_batch_fits_one_line", "of a batch, what does not fit the first line has no intent",
       "batches", "cell 61: shows"},
      {"heap_batch_flushes_its_last_line",
       "a batch flushes the last of the lines of its words only", "batches", "cell 57: shows"},
      {"heap_type_not_flushed", "publish and transactions leave a block's type in the cache",
       "typed_again", "typed block without a type|cell .: shows"},
      {"heap_replay_keeps_stale_type",
       "replay of a versioned malloc leaves the type as the block's last use had it",
       "typed_versioned", "typed block without a type|cell 5.: shows"},
      {"heap_recovered_extent_has_no_type", "replay appends an extent's entry without its type",
       "typed_extents", "cell .*: shows"},
      {"heap_batch_flushes_its_last_type",
       "a batch flushes the last of the lines of its types only", "typed_batches",
       "typed block without a type|cell .*: shows"},
      {"heap_walk_shows_what_is_not_allocated", "a walk goes by the types and not by the bits",
       "typed", "the walk shows other blocks"},
      {"heap_close_forgets_living_threads",
       "a close forgets what other threads flushed and did not fence", "living_thread",
       "cell 1: shows"},
      {"heap_close_forgets_derived_bits", "a close does not write the bits of derived blocks",
       "derived_closed", "the bits of a slab"},
      {"heap_slab_stripes_not_zeroed", "a new slab takes its frame's old contents for bits",
       "dirty_slabs", "block's bit and its use disagree"},
      {"heap_morph_stripes_not_zeroed", "a morphed slab takes old blocks' contents for bits",
       "three_classes", ""},
      {"heap_morph_shape_before_stripes", "the shape is stored before the new stripes are empty",
       "three_classes", ""},
      {"heap_morph_blocks_before_shape", "blocks of the new part are handed out before its shape",
       "three_classes", ""},
      {"heap_morph_forgets_old_part", "the shape does not name the old part", "three_classes", ""},
      {"heap_morph_header_over_live_block", "new stripes are put over a block in use",
       "header_in_use", ""},
      {"heap_morph_blocks_over_live_block", "blocks of the new part overlap one in use",
       "room_between", ""},
      {"heap_morph_again_too_early", "a slab is morphed while its old part has blocks",
       "three_classes", ""},
      {"heap_recovery_ignores_old_part", "recovery does not look at the old part's bits",
       "three_classes", ""},
      {"heap_intent_replayed_in_new_part", "replay looks for old blocks in the new part",
       "three_classes", ""},
      {"heap_old_block_clears_new_bit", "the free of an old block clears the new part's bit",
       "room_between", ""},
      {"heap_book_chunk_not_zeroed", "a chunk of the log is reused with its old entries",
       "compaction", "the bookkeeping"},
      {"heap_book_chunk_linked_early", "a chunk is linked before it is zeroed", "log_chunks",
       "chunk header"},
      {"heap_book_tail_leaves", "a chunk leaves the log while a core appends to it",
       "log_tail_stays", ""},
      {"heap_book_segment_linked_early", "a segment of the log is linked before its header",
       "log_segment", "segment header"},
      {"heap_book_holes_not_counted",
       "the log goes on behind as many entries as were found, over some of them", "log_holes", ""},
      {"heap_compaction_flips_early",
       "compaction flips to the other list before it names the new one", "compaction",
       "the bookkeeping|cell .: shows"},
      {"heap_book_tombstone_dropped_early",
       "fast GC drops a chunk whose tombstones are still needed", "fast_gc_middle",
       "logged blocks leak or are lost|overlap|two extents"},
      {"heap_book_chunk_reused_while_linked",
       "fast GC makes a chunk ready for its next use before it has left the list", "fast_gc",
       "cell|leak|bookkeeping"},
      {"heap_book_tombstones_name_places",
       "a chunk keeps its id when it is used again: old tombstones kill new entries", "fast_gc",
       "cell|leak|bookkeeping"},
      {"heap_book_segment_returned_while_linked",
       "a segment's frame is given back before the segment is unlinked", "segments", ""},
      {"heap_hole_before_free_is_durable",
       "an extent's pages are given back before its free is durable", "holes", "cell .: shows"},
      {"heap_extent_not_freed_by_replay", "replay of intents forgets extents", "extents",
       "logged blocks leak or are lost"},
      {"heap_wear_old_table_freed_early", "the old counts of wear go before the new ones are there",
       "wear", "counts of wear are lost"},
      {"heap_unmarked_extents_stay", "derived extents that nothing names stay", "derived",
       "derived blocks leak or are lost"},
      {"heap_second_half_of_chunk_not_kept", "recovery keeps one huge frame of a chunk of two",
       "extents", "frames taken"},
      {"heap_lane_segments_not_kept", "recovery gives back the frames of lane segments",
       "lane_growth", "frames taken"},
      {"heap_log_frames_not_kept", "recovery gives back the frames of transaction logs",
       "tx_overflow", "close failed|the header of a transaction's log frame is damaged"},
      {"tx_commit_record_before_data", "the commit record is stored before the data is flushed",
       "tx_transfers", "modified data"},
      {"tx_committed_before_frees_done", "committed is stored before frees_done", "tx_aborts",
       "a reachable block is free", 2},
      {"tx_new_blocks_not_flushed", "commit does not flush what new blocks hold", "tx_blocks",
       "the world after no number of steps"},
      {"heap_types_of_commit_not_flushed", "commit does not flush the types of new blocks",
       "tx_types", "other blocks of a type than there are"},
      {"tx_bits_freed_before_commit", "commit clears the bits of freed blocks before its record",
       "tx_blocks", "a reachable block is free"},
      {"tx_frees_done_before_durable", "the commit record says that its own frees are done",
       "tx_blocks", "a block leaked"},
      {"tx_freed_blocks_reused_at_once", "freed blocks do not wait until frees_done says so",
       "tx_lanes", "two extents at one place|a reachable block is free"},
      {"tx_one_free_promises_bits_of_its_fence",
       "a free alone says that the bits are durable that its own fence covers", "tx_one_frees",
       "the world after no number of steps"},
      {"tx_cancelled_block_reused_at_once",
       "a block made and freed inside a transaction goes back before its end", "tx_cancelled",
       "a reachable block is free"},
      {"tx_added_bytes_overwritten_early",
       "bytes are overwritten before the entry that saves them is durable", "tx_appends",
       "the world after no number of steps"},
      {"tx_savepoint_keeps_entries_of_frees",
       "a free that a savepoint undid is done with the commit", "tx_savepoints",
       "a reachable block is free"},
      {"tx_adopted_block_has_no_entry", "a reserved block is taken over and not logged",
       "tx_adopted", "a block leaked"},
      {"tx_savepoint_keeps_new_blocks",
       "a savepoint leaves the blocks that were allocated after it", "tx_savepoints",
       "a block leaked"},
      {"tx_overwritten_bytes_not_flushed", "commit flushes logged bytes only", "tx_appends",
       "the world after no number of steps"},
      {"tx_field_stored_before_its_entry", "a field is stored before its old bytes are durable",
       "tx_fields", "the world after no number of steps"},
      {"tx_parts_wait_twice", "a part waits beside the object that it is a part of", "tx_fields",
       "the world after no number of steps"},
      {"tx_fields_stored_after_the_commit_record", "waiting fields are stored after the commit",
       "tx_fields", "the world after no number of steps"},
      {"tx_abort_keeps_frees_done", "an abort leaves frees_done behind", "tx_aborts",
       "a reachable block is free"},
      {"tx_abort_reuses_sequence", "the next transaction has the aborted one's sequence",
       "tx_abort_lanes", "the world after no number of steps"},
      {"tx_areas_not_used_in_turn", "entries overwrite those of the transaction before",
       "tx_blocks", "a block leaked"},
      {"tx_log_frame_linked_early", "a log frame is linked before it is zeroed", "tx_overflow",
       "log frame zeroed"},
      {"tx_overflown_entries_not_undone", "recovery looks at the lane's own lines only",
       "tx_overflow", "the world after no number of steps"},
      {"tx_allocation_not_undone", "recovery stores old bytes back and forgets new blocks",
       "tx_blocks", "a block leaked"},
      {"tx_frees_not_redone", "recovery does not finish the frees of the last commit", "tx_blocks",
       "a block leaked"},
      {"tx_recovery_keeps_frees_done", "recovery leaves frees_done behind", "tx_blocks",
       "a reachable block is free"},
      {"tx_lane_retired_before_undo",
       "recovery retires a lane before it has stored the old bytes back", "tx_transfers",
       "the world after no number of steps"},
      {"tx_header_checksum_not_compared", "a damaged transaction line is believed", "damaged_log",
       "the transaction before the crash"},
  };
  return all;
}

}  // namespace

const std::vector<Planted>& planted_bugs() {
  static const std::vector<Planted> all = [] {
    std::vector<Planted> bugs = bugs_below_the_store();
    for (const auto& more : {planted_container_bugs(), planted_joint_bugs(), planted_store_bugs()})
      bugs.insert(bugs.end(), more.begin(), more.end());
    return bugs;
  }();
  return all;
}

namespace {

Scenario heap_scenario(const char* name) {
  const HeapScript& s = heap_script(name);
  return {name, [&s](const CrashOptions& o) { return run(s, o); }, crash_options(s)};
}

Scenario maps_scenario(const char* name, const MapScript& script) {
  return {name, [&script](const CrashOptions& o) { return MapsCrash(script).run(o); },
          maps_crash_options()};
}

Scenario tx_scenario(const char* name, const Script& script) {
  return {name, [&script](const CrashOptions& o) { return TxCrash(script, o.seed).run(o); },
          tx_crash_options()};
}

Scenario container_scenario(const char* name, const ContainerScript& script) {
  return {name, [&script](const CrashOptions& o) { return ContainerCrash(script, o.seed).run(o); },
          container_crash_options()};
}

Scenario kv_scenario(const char* name, KvCrash (*make)()) {
  return {name, [make](const CrashOptions& o) { return make().run(o); }, kv_crash_options()};
}

Scenario collection_scenario(const char* name, CollectionCrash (*make)()) {
  return {name, [make](const CrashOptions& o) { return make().run(o); }, kv_crash_options()};
}

// The medium is damaged, but the power is not cut.
CrashOptions damage_options() {
  CrashOptions o;
  o.recovery_depth = 0;
  o.recover_twice = false;
  return o;
}

Scenario frame_scenario(const char* name, void (*work)(FrameSession&)) {
  return {name, [work](const CrashOptions& o) { return explore_frames(o, work); }, {}};
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = [] {
    std::vector<Scenario> s = {
        {"pool_states", explore_pool_states, pm_crash_options()},
        {"pool_growth", explore_pool_growth, pm_crash_options()},
        {"damaged_log", explore_damaged_log, damage_options()},
        {"damaged_separator", explore_damaged_separator, damage_options()},
        {"damaged_record", explore_damaged_record, damage_options()},
        frame_scenario("frames", frames_handed_over),
        frame_scenario("new_zone", frames_of_a_new_zone),
        maps_scenario("map_grows", kMapGrows),
        maps_scenario("map_shrinks", kMapShrinks),
        maps_scenario("map_reuses", kMapReuses),
        maps_scenario("table_reuses", kTableReuses),
        maps_scenario("table_merges", kTableMerges),
        tx_scenario("tx_transfers", kTransfers),
        tx_scenario("tx_blocks", kBlocks),
        tx_scenario("tx_appends", kAppends),
        tx_scenario("tx_savepoints", kSavepoints),
        tx_scenario("tx_adopted", kAdopted),
        tx_scenario("tx_types", kTypes),
        tx_scenario("tx_aborts", kAborts),
        tx_scenario("tx_abort_lanes", kAbortLanes),
        tx_scenario("tx_overflow", kOverflow),
        tx_scenario("tx_fields", kFields),
        tx_scenario("tx_lanes", kLanes),
        tx_scenario("tx_one_frees", kOneFrees),
        tx_scenario("tx_cancelled", kCancelled),
        container_scenario("container_vectors", kVectorChanges),
        container_scenario("container_texts", kTextChanges),
        container_scenario("container_queues", kQueueChanges),
        {"many_frees",
         [](const CrashOptions& o) {
           return explore_frees(Frees::transaction, pm::DirtyLines::kLinesMax + 1, o);
         },
         capacity_options()},
        {"root_growth", explore_root_growth, root_growth_options()},
        {"objects_compacted", [](const CrashOptions& o) { return explore_compacted_objects(o); },
         compacted_objects_options()},
        kv_scenario("kv_single", kv_single_operations),
        kv_scenario("kv_large", kv_large_records),
        kv_scenario("kv_half_split", kv_half_split),
        kv_scenario("kv_long_separators", kv_long_separators),
        kv_scenario("kv_batches", kv_batches),
        kv_scenario("kv_images", kv_images),
        {"kv_bulk", [](const CrashOptions& o) { return kv_bulk().run(o); }, kv_bulk_options()},
        {"kv_moved", [](const CrashOptions& o) { return kv_moved_records().run(o); },
         kv_moved_options()},
        {"kv_compaction", [](const CrashOptions& o) { return kv_compaction().run(o); },
         kv_compaction_options()},
        kv_scenario("kv_creation", kv_creation),
        collection_scenario("collections_made", collections_made),
        collection_scenario("collections_dropped", collections_dropped),
        collection_scenario("collections_renamed", collections_renamed),
        collection_scenario("collections_in_transactions", collections_in_transactions),
        {"kv_snapshots", explore_snapshots, schedule_options()},
        {"kv_interleaved", explore_schedules, schedule_options()},
    };
    for (const HeapScript& h : heap_scripts()) s.push_back(heap_scenario(h.name));
    for (Scenario& j : joint_scenarios()) s.push_back(std::move(j));
    return s;
  }();
  return all;
}

const Scenario& scenario(const std::string& name) {
  for (const Scenario& s : scenarios()) {
    if (s.name == name) return s;
  }
  TENUTO_ASSERT(!"no such scenario");
  return scenarios().front();
}

namespace {

// Processor time of this process and of the workers that it waited for.
double cpu_seconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage u{};
    ::getrusage(who, &u);
    for (const timeval& t : {u.ru_utime, u.ru_stime}) {
      sum += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    }
  }
  return sum;
}

}  // namespace

CrashResult find_planted(const Planted& bug, bool minimise) {
  constexpr std::uint64_t kSeeds = 4;
  const Scenario& s = scenario(bug.scenario);
  CrashOptions o = s.options;
  o.findings_max = 1;
  o.minimise = minimise;
  o.lint = false;  // a crash must show it
  o.recovery_depth = std::min(o.recovery_depth, 1u);
  o.plants = {bug.name};
  CrashResult all;
  const double begin = cpu_seconds();
  const char* const text = std::getenv("TENUTO_SEED");
  const std::uint64_t first = text == nullptr ? bug.seed : std::strtoull(text, nullptr, 10);
  for (o.seed = first; o.seed < first + kSeeds && all.ok(); ++o.seed) {
    // First a quick look at some of the crash points, which finds most mistakes. A scenario that
    // tries no fence has many schedules instead.
    const bool fences = s.options.points_percent != 0;
    for (const bool glance : {true, false}) {
      if (!all.ok() || (glance && !fences)) continue;
      o.points_percent = !fences ? 0 : glance ? 20 : 100;
      o.samples_max =
          glance ? std::min<std::size_t>(s.options.samples_max, 20) : s.options.samples_max;
      o.product_max =
          glance ? std::min<std::size_t>(s.options.product_max, 60) : s.options.product_max;
      CrashResult r = s.run(o);
      r.states += all.states;
      r.checks += all.checks;
      all = std::move(r);
    }
  }
  all.seconds = cpu_seconds() - begin;
  return all;
}

}  // namespace tenuto::test

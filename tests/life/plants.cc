#include "plants.h"

#include <chrono>

#include "pm/plant.h"

namespace tenuto::life {

const std::vector<Plant>& plants() {
  static const std::vector<Plant> all = {
      {"journal_ids_not_compared", "A1", "any journal of the same pool is believed (pool id alone)",
       Kind::places, Medium::journal, "faults", true},
      {"journal_path_not_resolved", "A1",
       "the default journal stands beside the name used, links not resolved", Kind::places,
       Medium::journal, "faults", true},
      {"journal_older_copy_believed", "A1",
       "copies of one life are not told apart (no stamp compared)", Kind::places, Medium::journal},
      {"pm_fork_not_noticed", "A2", "a child of fork is not told from its parent", Kind::whole},
      {"pm_thread_parts_end_with_thread_locals", "A3",
       "lanes and image slots die with the thread's C++ thread_locals", Kind::whole,
       Medium::automatic, "faults", true},
      {"pm_dirty_lines_flushed_and_not_fenced", "A4",
       "lines for which there is no room are flushed and left to whoever fences next", Kind::any},
      {"journal_start_not_checked", "A5", "header fields with right checksums are believed",
       Kind::places, Medium::journal},
      {"journal_lines_not_bounded", "A5", "lines beyond the pool are written", Kind::places,
       Medium::journal, "faults", true},
      {"store_list_head_given_back_full", "B1",
       "a dropped tree's list heads go to other leaves with their lists", Kind::few,
       Medium::automatic, "faults", true},
      {"store_tree_ended_under_its_sweep", "B1",
       "a drop does not wait for a release that sweeps the tree", Kind::meetings},
      {"store_bulk_load_keeps_a_list", "B2",
       "a bulk load leaves old versions in the list of the first leaf", Kind::meetings},
      {"store_range_read_shrinks", "B3",
       "a transaction's cursor that turns round shrinks the range it has read", Kind::few,
       Medium::automatic, "faults", true},
      {"store_name_created_twice", "B4", "a name may be created twice in a transaction", Kind::few,
       Medium::automatic, "faults", true},
      {"store_drop_unannounced", "B5", "a drop does not say beforehand that the collection goes",
       Kind::meetings},
      {"store_commit_lives_not_validated", "B5",
       "a commit does not ask again whether its collections are there", Kind::meetings},
      {"store_lists_of_resting_threads_stay", "B6",
       "what threads that rest or ended have retired stays theirs", Kind::held, Medium::automatic,
       "faults", true},
      {"store_cursor_pins_once", "B7", "a cursor at rest holds the epoch of its first leaf",
       Kind::held, Medium::automatic, "faults", true},
      {"store_rests_hold_all", "B7", "what iterators and views at rest may look at is everything",
       Kind::held, Medium::automatic, "faults", true},
      {"store_catalog_list_gives_up", "B8",
       "a list of collections does not look again where a compaction changed a leaf",
       Kind::meetings},
      {"store_lock_kept_when_memory_ends", "B9", "std::bad_alloc leaves a leaf locked", Kind::few,
       Medium::automatic, ""},

      {"store_leaf_made_without_the_lock", "",
       "two threads that come to a leaf first make a shadow each", Kind::meetings},
      {"store_leaf_judged_without_the_lock", "",
       "a thread judges a leaf that another thread has made and changed", Kind::meetings},
      {"store_bytes_counted_beside_writes_are_exact", "",
       "a close keeps a sum of bytes that missed writes", Kind::meetings},
      {"store_image_not_given_back", "", "an open keeps the block of the image that it has read"},
      {"store_image_after_a_crash", "", "an open after a crash believes the image of the leaves"},
      {"journal_begun_before_its_pool_names_it", "",
       "the header has a life that no superblock announced"},
      {"journal_place_overwritten", "", "what is no journal in a journal's place is removed"},
      {"store_pairs_erased_unread", "", "erase of duplicates does not validate what it gathered"},
      {"store_snapshot_without_time", "",
       "a snapshot or transaction judges lifetimes by the present time"},
      {"store_commit_time_not_validated", "",
       "a commit does not ask whether what it read has expired meanwhile"},
      {"store_clock_goes_back", "", "the clock set back revives records"},
      {"store_clock_leap_believed", "", "a leap of the clock is believed at once"},
      {"store_unborn_is_there", "",
       "what a transaction makes can be used from outside before its commit"},
      {"store_node_obsolete_after_its_successor", "",
       "a replaced inner node says too late that it is obsolete"},
      {"store_versions_lost_at_split", "", "a split forgets the old versions of what moves"},
      {"store_versions_lost_at_merge", "", "a merge forgets the old versions of what moves"},
      {"store_commit_ranges_not_validated", "",
       "a commit does not look whether ranges it read changed"},
      {"store_commit_keys_not_validated", "",
       "a commit does not look whether keys it read changed"},
      {"store_validate_beside_drops", "", "a validation lets drops go on"},
      {"tx_open_transaction_handed_on", "",
       "a thread that ends leaves its open transaction to the next holder of its lane"},
      {"journal_no_memory_for_images", "",
       "rows of images cannot grow: what a failed allocation does"},
      {"heap_record_reused_before_it_is_durable", "",
       "a record's block is stored to again before its free is durable", Kind::any,
       Medium::journal},
      {"heap_leaves_in_zones_of_records", "", "leaves are in shared pages, and change there",
       Kind::any, Medium::journal},
      {"heap_closed_with_deferred_frees", "", "a close forgets the frees that wait", Kind::any,
       Medium::journal},
      {"heap_part_marked_before_there_is_memory", "",
       "blocks count as marked, though memory was refused to their marks", Kind::any,
       Medium::automatic, ""},
      {"tx_part_not_prepared", "",
       "a part of a transaction over two pools is undone without asking", Kind::pools,
       Medium::journal},
      {"tx_decision_not_synced", "", "a decision for another pool is not durable before its part",
       Kind::pools, Medium::journal},
      {"heap_gc_forgets_what_is_reached", "", "a collection keeps nothing", Kind::any,
       Medium::cache},
  };
  return all;
}

PlantFound look_for(const Plant& plant, std::uint64_t seed, double seconds_max,
                    const Wanted& wanted, const LifeOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto since = Clock::now();
  Wanted where = wanted;
  if (where.kind == Kind::any) where.kind = plant.kind;
  if (where.medium == Medium::automatic) where.medium = plant.medium;
  std::uint64_t without = 0;
  if (read_groups(plant.without, without)) where.without |= without;
  PlantFound found;
  do {
    found.seed = seed + found.lives;
    found.story = make_story(found.seed, where);
    tenuto::plant(plant.name);
    const LifeResult r = run_story(found.story, options, nullptr);
    tenuto::unplant_all();
    found.kind = r.kind;
    found.calls += r.calls;
    ++found.lives;
    // The mistake counts as found only if the same life is sound without it.
    for (int i = 0; i < 3 && !found.kind.empty(); ++i) {
      if (!run_story(found.story, options, nullptr).ok()) found.kind.clear();
    }
    found.seconds = std::chrono::duration<double>(Clock::now() - since).count();
  } while (found.kind.empty() && found.seconds < seconds_max);
  return found;
}

}  // namespace tenuto::life

#include "plants.h"

#include <chrono>

#include "tenuto/crash.h"

namespace tenuto::life {

const std::vector<Plant>& plants() {
  static const std::vector<Plant> all = {
      {"store_range_read_shrinks",
       "a transactions cursor that turns round shrinks the range it has read"},
      {"store_name_created_twice", "a name may be created twice in a transaction"},
      {"store_drop_unannounced", "a drop does not say beforehand that the collection goes"},
      {"store_commit_lives_not_validated",
       "a commit does not ask again whether its collections are there"},
      {"store_pairs_erased_unread", "erase of duplicates does not validate what it gathered"},
      {"journal_ids_not_compared", "any journal of the same pool is believed (pool id alone)"},
      {"journal_path_not_resolved",
       "the default journal stands beside the name used, links not resolved"},
      {"journal_older_copy_believed", "copies of one life are not told apart (no stamp compared)"},
      {"journal_begun_before_its_pool_names_it",
       "the header has a life that no superblock announced"},
      {"journal_start_not_checked", "header fields with right checksums are believed"},
      {"journal_lines_not_bounded", "lines beyond the pool are written"},
      {"journal_place_overwritten", "what is no journal in a journal's place is removed"},
      {"pm_low_descriptor_kept", "a pool may get descriptor 0..2"},
      {"pm_size_max_checked_after_replay", "a pool that cannot be mapped is replayed first"},
      {"pm_grow_keeps_failed_space", "blocks of a failed growth stay in the file"},
      {"store_moment_without_time",
       "a snapshot or transaction judges lifetimes by the present time"},
      {"store_commit_time_not_validated",
       "a commit does not ask whether what it read has expired meanwhile"},
      {"store_clock_goes_back", "the clock set back revives records"},
      {"store_clock_leap_believed", "a leap of the clock is believed at once"},
      {"store_unborn_is_there",
       "what a transaction makes can be used from outside before its commit"},
      {"store_list_head_given_back_full",
       "a dropped tree's list heads go to other leaves with their lists"},
      {"store_tree_ended_under_its_sweep",
       "a drop does not wait for a release that sweeps the tree"},
      {"store_bulk_load_keeps_a_list",
       "a bulk load leaves old versions in the list of the first leaf"},
      {"store_catalog_list_gives_up",
       "a list of collections does not look again where a compaction changed a leaf"},
      {"store_node_obsolete_after_its_successor",
       "a replaced inner node says too late that it is obsolete"},
      {"journal_unreadable_ends_a_rescue",
       "a rescue whose journal is empty, shortened or foreign makes no pool"},
      {"pm_fork_not_noticed",
       "a child of fork is not told from its parent: its close and destructors close the parent's "
       "pool"},
      {"pm_thread_parts_end_with_thread_locals",
       "lanes and picture slots die with the thread's C++ thread_locals"},
      {"pm_dirty_lines_flushed_and_not_fenced",
       "lines for which there is no room are flushed and left to whoever fences next"},
      {"tx_open_transaction_handed_on",
       "a thread that ends leaves its open transaction to the next holder of its lane"},
      {"tx_throwing_callback_keeps_locks",
       "an exception of on_commit or on_abort leaves locks held and callbacks queued"},
      {"journal_no_memory_for_pictures",
       "rows of pictures cannot grow: what a failed allocation does"},
      {"journal_no_memory_in_a_commit", "a commit meets a failed allocation"},
      {"journal_slot_stays_announced_without_memory",
       "with journal_no_memory_for_pictures: the slot stays odd when a picture found no memory"},
      {"journal_pictures_in_two_halves", "a picture is read in parts, once"},
      {"journal_processor_without_whole_loads", "the processor has no 64-byte loads"},
      {"store_drop_frees_what_is_not_its_own",
       "a drop gives back what a damaged slot names, unread"},
      {"store_fingerprints_not_covered", "a leaf's bitmap is sealed without its fingerprints"},
      {"store_slot_word_not_checked", "a slot's word is copied at open without its check"},
      {"store_record_place_not_covered", "a record's checksum does not cover its place"},
      {"store_key_not_compared_with_its_slot",
       "walks and splits sort by keys they have not compared with their slots"},
      {"store_range_of_keys_not_checked", "a key outside its leaf's range is not noticed"},
      {"store_compaction_reads_nothing", "a compaction reads only what it moves"},
      {"store_backup_loses_a_record", "a backup leaves the eighth record out"},
      {"store_rescue_believes_the_count", "a rescue takes the right number of records for a proof"},
      {"pm_dirty_lines_flushed_and_not_fenced", "lines that did not fit are flushed and forgotten"},
  };
  return all;
}

PlantFound look_for(const std::string& name, std::uint64_t seed, double seconds_max,
                    const Wanted& wanted, const LifeOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto since = Clock::now();
  PlantFound found;
  do {
    found.seed = seed + found.lives;
    const Story story = make_story(found.seed, wanted);
    tenuto::plant(name);
    found.kind = run_story(story, options, nullptr).kind;
    tenuto::unplant_all();
    ++found.lives;
    // It is the mistake's if the same life is sound without it.
    if (!found.kind.empty()) {
      for (int i = 0; i < 3 && !found.kind.empty(); ++i) {
        if (!run_story(story, options, nullptr).ok()) found.kind.clear();
      }
    }
    found.seconds = std::chrono::duration<double>(Clock::now() - since).count();
  } while (found.kind.empty() && found.seconds < seconds_max);
  return found;
}

}  // namespace tenuto::life

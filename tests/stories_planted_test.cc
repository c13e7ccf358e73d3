// Mistakes planted in the end of trees, the index, what readers hold, and the end of threads. Each
// makes a test of another program fail or crash, so those tests run in their own processes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tenuto {
namespace {

struct Mistake {
  const char* name;
  const char* program;
  const char* story;
};

constexpr Mistake kMistakes[] = {
    {"store_list_head_given_back_full", "tree_end_test", "*a_snapshot_keeps_a_version*"},
    {"store_tree_ended_under_its_sweep", "tree_end_test", "*dropped_while_a_release_sweeps*"},
    {"store_bulk_load_keeps_a_list", "tree_end_test", "*a_bulk_load_meets*"},
    {"store_catalog_list_gives_up", "tree_end_test", "*a_compaction_runs*"},
    {"store_validate_beside_drops", "tree_end_test", "*while_the_store_is_validated*"},
    {"store_node_obsolete_after_its_successor", "index_test", "*whose_successor_was_changed*"},
    {"store_leaf_made_without_the_lock", "image_test", "*one_shadow_leaf"},
    {"store_leaf_judged_without_the_lock", "image_test", "*judged_by_the_first"},
    {"store_bytes_counted_beside_writes_are_exact", "image_test", "*beside_a_writer"},
    {"store_bytes_counted_before_their_writers_did", "image_test", "*beside_a_writer"},
    {"store_image_not_given_back", "image_test", "*given_back"},
    {"store_image_named_again", "heap_unread_test", "*splits_after*"},
    {"heap_closed_without_slab_table", "heap_slab_table_test", "*stands_for*"},
    {"heap_slab_table_of_any_close", "heap_slab_table_test", "*older_close*"},
    {"heap_slab_table_checksum_not_compared", "heap_slab_table_test", "*where_it_is_whole"},
    {"heap_damaged_header_is_no_slab", "heap_unread_test", "*damaged_header*"},
    {"heap_damage_not_marked", "heap_unread_test", "*damaged_header*"},
    {"heap_recovery_compares_no_seal", "heap_unread_test", "*before_its_use/*"},
    {"heap_recovery_looks_at_no_header", "heap_unread_test", "*before_its_use/*"},
    {"heap_seal_not_broken_by_use", "heap_unread_test", "*are_no_damage"},
    {"journal_life_forgets_the_last_close", "heap_seal_test", "*while_a_life_begins*"},
    {"pm_closed_of_an_earlier_build_believed", "heap_lives_test", "*in_between/log"},
    {"heap_released_unread_stays", "heap_unread_test", "*between_two_reads*"},
    {"heap_log_frame_gives_up", "heap_edge_test", "*frame_for_a_log*"},
    {"heap_full_beside_free_blocks", "heap_full_test", "*other_cores/*"},
    {"heap_records_fill_single_blocks", "record_slabs_test", "*share_pages"},
    {"heap_full_beside_dense_slabs", "record_slabs_test", "*full_pool*"},
    {"heap_evacuation_beside_dense_slabs", "record_slabs_test", "*compaction*"},
    {"pm_lane_segment_on_any_node", "numa_test", "*without_room*"},
    {"pm_torn_sequence_again", "pm_pool_file_test", "*two_torn_writes*"},
    {"heap_later_marks_are_lost", "heap_unmarked_test", "*only_read*"},
    {"heap_part_marked_before_there_is_memory", "heap_unmarked_test", "*memory_that_fails*"},
    {"store_image_checksum_not_compared", "image_test", "*no_flipped_bit*"},
    {"store_damaged_leaf_looks_empty", "image_test", "*damaged_leaf*"},
    {"store_located_while_locked", "index_test", "*waits_for_no_leaf"},
    {"store_batch_believes_its_hint", "kv_test", "*splits_the_leaf_of*"},
    {"store_fingerprints_not_covered", "damage_test", "*damaged_fingerprint*"},
    {"store_slot_word_not_checked", "damage_test", "*no_bit_of_a_slots_word*"},
    {"store_word_of_the_leaf_not_checked", "damage_test", "*flips_in_an_open_store*"},
    {"store_key_not_compared_with_its_slot", "damage_test", "*split_refuses*"},
    {"store_step_without_hash", "damage_test", "*step_of_a_cursor*"},
    {"store_step_without_checksum", "damage_test", "*step_of_a_cursor*"},
    {"store_range_of_keys_not_checked", "damage_test", "*wrong_leaf*"},
    {"store_record_place_not_covered", "damage_test", "*older_record_at_the_place*"},
    {"store_rescue_believes_the_count", "damage_test", "*right_count*"},
    {"store_compaction_reads_nothing", "damage_test", "*sorts_nowhere*"},
    {"store_lists_of_resting_threads_stay", "kv_held_test", "*threads_that_rest*"},
    {"store_erase_stays_in_the_order", "slot_order_test", "*slot_that_is_used_again*"},
    {"store_insert_at_the_end_of_the_order", "slot_order_test", "*bulk_load*"},
    {"store_equal_heads_not_compared", "slot_order_test", "*takes_its_place*"},
    {"store_prefix_of_a_new_key_not_compared", "slot_order_test", "*neighbour_is_unlinked*"},
    {"store_order_stays_closed_when_its_range_grows", "slot_order_test", "*neighbour_is_unlinked*"},
    {"store_merge_leaves_the_order_closed", "slot_order_test", "*range_of_an_empty_one*"},
    {"store_unknown_order_kept", "slot_order_test", "*what_is_not_known"},
    {"store_kept_leaves_do_not_move", "slot_order_test", "*split_beside"},
    {"store_leaf_not_compared_with_the_kept", "kept_leaf_test", "*older_leaf_is_not*"},
    {"store_image_of_another_close_believed", "kept_leaf_test", "*does_not_vouch*"},
    {"store_lost_leaf_not_marked", "kept_leaf_test", "*older_leaf_is_not*"},
    {"store_rescue_believes_an_older_leaf", "kept_leaf_test", "*rescue_of_an_older*"},
    {"store_kept_leaves_end_with_their_node", "kept_leaf_test", "*older_leaf_is_not*"},
    {"store_cursor_believes_an_old_bound", "kv_iterator_test", "*turns_anywhere*"},
    {"store_freed_leaf_prefetched", "kv_iterator_test", "*freed_meanwhile*"},
    {"store_cursor_pins_once", "kv_held_test", "*slow_scan*"},
    {"store_rests_hold_all", "kv_held_test", "*slow_scan*:*iterators_and_views*"},
    {"store_rests_hold_nothing", "kv_held_test", "*iterators_and_views*"},
    {"store_batch_leaves_all_to_the_next", "kv_held_test", "*large_batch*"},
    {"store_view_holds_nothing", "kv_held_test", "*iterators_and_views*"},
    {"store_lock_kept_when_memory_ends", "no_memory_test", "*.puts_that_split"},
    {"store_bulk_nodes_made_under_lock", "no_memory_collections_test", "*.a_bulk_load"},
    {"heap_slab_made_before_its_shadow", "no_memory_calls_test", "*.objects"},
    {"store_cursor_stays_half_moved", "no_memory_calls_test", "*.a_cursor_stands_nowhere*"},
    {"store_thread_frees_unprepared", "no_memory_calls_test", "*.a_threads_first_call_is_the_end*"},
    {"store_reclaimer_throws", "reclaim_thread_test", "*there_is_no_thread"},
    {"store_own_pin_holds_all", "epoch_test", "*"},
    {"store_garbage_freed_at_once", "epoch_test", "*more_than_a_few_items"},
    {"store_going_items_stay", "epoch_test", "*was_freeing*"},
    {"store_validation_yields_for_long", "kv_transaction_test", "*gives_up_soon*"},
    {"store_reclaim_leaves_retired", "kv_held_test", "*by_reclaim*"},
    {"store_pool_validated_beside_reclaimer", "reclaim_thread_test", "*in_a_round*"},
    {"store_lookup_enters_unchecked", "lookup_cache_test", "*since_the_look*"},
    {"store_lookup_enters_old_table", "lookup_cache_test", "*a_table_that_is_gone"},
    {"store_lookup_change_unseen", "lookup_cache_test", "*every_kind_of_change"},
    {"store_lookup_keeps_erased", "lookup_cache_test", "*every_kind_of_change"},
    {"store_close_waits_for_no_call", "kv_close_test", "*acknowledged*/line"},
    {"store_moved_in_order_of_slots", "kv_key_order_test", "*neighbours_lie*"},
    {"store_lookup_keeps_moved", "lookup_cache_test", "*a_compaction_moves*"},
    {"store_lookup_key_not_compared", "lookup_cache_test", "*with_the_same_tag*"},
    {"store_lookup_forgets_one_by_one", "lookup_cache_test", "*change_together"},
    {"store_lookup_batch_enters_early", "lookup_cache_test", "*change_together"},
    {"store_lookup_change_after_timestamp", "lookup_cache_test", "*not_older_than_a_snapshot*"},
    {"tx_free_without_room", "no_memory_objects_test", "*to_note_it_is_refused"},
    {"tx_open_transaction_handed_on", "tx_end_test", "*"},
    {"tx_throwing_callback_keeps_locks", "tx_end_test", "*"},
};
constexpr int kTries = 60;  // threads race in most; it ends with the first that is found

void PrintTo(const Mistake& m, std::ostream* out) { *out << m.name; }

// A story that hangs with its mistake has found it: one that takes so many times as long as
// without, and at least so many seconds.
constexpr double kHangTimes = 4;
constexpr double kHangSeconds = 10;

class StoriesPlanted : public testing::TestWithParam<Mistake> {};

// Runs the story in a process, with its mistake if `seconds` is not 0: it ends after so many.
// Returns its wait status: 0 if all is well.
int run(const Mistake& m, unsigned seconds) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / m.program;
  EXPECT_TRUE(std::filesystem::exists(program)) << program << " has to be built first";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (seconds != 0) ::setenv("TENUTO_PLANT", m.name, 1);
    ::alarm(seconds);  // it survives the exec
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(125);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(125);
    const std::string filter = std::string("--gtest_filter=") + m.story;
    ::execl(program.c_str(), program.c_str(), filter.c_str(), nullptr);
    ::_exit(126);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST_P(StoriesPlanted, is_found_by_its_story) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(GetParam(), 0), 0);
  const std::chrono::duration<double> sound = std::chrono::steady_clock::now() - start;
#ifndef TENUTO_DEBUG_CHECKS
  GTEST_SKIP() << "mistakes are planted in builds with debug checks";
#endif
  bool found = false;
  const auto seconds =
      static_cast<unsigned>(std::max(kHangSeconds, kHangTimes * sound.count()) + 1);
  for (int i = 0; i < kTries && !found; ++i) found = run(GetParam(), seconds) != 0;
  EXPECT_TRUE(found);
}

INSTANTIATE_TEST_SUITE_P(every, StoriesPlanted, testing::ValuesIn(kMistakes),
                         [](const auto& m) { return std::string(m.param.name); });

}  // namespace
}  // namespace tenuto

// Power cuts at every fence of the heap and of the pool file under it. Scripts run on a small world
// (support/heap_scripts.cc): mallocs and frees of all sizes by one and two threads, containers that
// are reused, slabs and extents that come and go, growth and compaction of the log, zones, lanes,
// clean closes. heap_mutants_crash.cc checks that these tests find mistakes.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "support/heap_scripts.h"

namespace tenuto::test {
namespace {

void expect_sound(const std::string& name, std::size_t seeds = 1) {
  const HeapScript& s = heap_script(name);
  for (std::uint64_t seed = 1; seed <= crash_scaled(seeds); ++seed) {
    CrashOptions o = crash_options(s);
    o.seed = seed;
    const CrashResult r = run(s, o);
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    std::printf("%s, seed %llu: %llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
                s.name, static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(r.points),
                static_cast<unsigned long long>(r.unique),
                static_cast<unsigned long long>(r.recovery_states),
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

TEST(HeapCrash, small_blocks_are_attached_and_detached_whole) { expect_sound("small_blocks"); }
TEST(HeapCrash, freed_blocks_wait) { expect_sound("no_reuse"); }
TEST(HeapCrash, slabs_come_and_go) { expect_sound("slabs"); }
TEST(HeapCrash, large_blocks_make_room_for_small_ones) { expect_sound("from_large_to_small"); }
TEST(HeapCrash, three_classes_follow_each_other_in_a_slab) { expect_sound("three_classes"); }
TEST(HeapCrash, old_blocks_are_handed_out_once_more) { expect_sound("old_part_again"); }
TEST(HeapCrash, a_block_where_the_header_grows_keeps_its_slab) { expect_sound("header_in_use"); }
TEST(HeapCrash, old_blocks_are_handed_out_from_caches) { expect_sound("cached_old_blocks"); }
TEST(HeapCrash, a_slab_is_morphed_among_threads) { expect_sound("morph_among_threads"); }
TEST(HeapCrash, extents_split_and_join) { expect_sound("extents"); }
TEST(HeapCrash, derived_blocks_follow_from_what_names_them) { expect_sound("derived"); }
TEST(HeapCrash, a_clean_close_writes_what_derived_blocks_there_are) {
  expect_sound("derived_closed");
}
TEST(HeapCrash, containers_used_again_keep_their_new_contents) { expect_sound("containers"); }
TEST(HeapCrash, two_lanes_free_each_others_blocks) { expect_sound("two_lanes"); }
TEST(HeapCrash, slabs_are_made_in_frames_that_hold_anything) { expect_sound("dirty_slabs"); }
TEST(HeapCrash, a_close_speaks_for_threads_that_live_on) { expect_sound("living_thread"); }
TEST(HeapCrash, a_first_call_breaks_the_seal_for_all_threads) { expect_sound("first_use"); }
TEST(HeapCrash, lanes_are_handed_on_with_frees_under_way) { expect_sound("handed_on"); }
TEST(HeapCrash, a_thread_ends_behind_a_malloc) { expect_sound("last_malloc"); }
TEST(HeapCrash, two_threads_free_the_same_word) { expect_sound("lost_race", 2); }
TEST(HeapCrash, interleaved_threads_disturb_nobody) { expect_sound("interleaved", 3); }
TEST(HeapCrash, the_log_gets_its_first_segment) { expect_sound("log_segment"); }
TEST(HeapCrash, threads_share_a_chunk) { expect_sound("shared_chunk"); }
TEST(HeapCrash, the_log_goes_on_in_another_chunk) { expect_sound("log_chunks"); }
TEST(HeapCrash, threads_have_chunks_of_their_own) { expect_sound("log_tails"); }
TEST(HeapCrash, a_chunk_that_a_thread_appends_to_stays) { expect_sound("log_tail_stays"); }
TEST(HeapCrash, chunks_of_two_threads_are_compacted) { expect_sound("log_tails_compacted"); }
TEST(HeapCrash, the_log_has_holes) { expect_sound("log_holes"); }
TEST(HeapCrash, the_log_is_compacted) { expect_sound("compaction"); }
TEST(HeapCrash, the_log_uses_chunks_of_its_old_list) { expect_sound("compaction_reuse"); }
TEST(HeapCrash, chunks_of_dead_entries_leave_the_log) { expect_sound("fast_gc"); }
TEST(HeapCrash, tombstones_stay_as_long_as_what_they_kill) { expect_sound("fast_gc_middle"); }
TEST(HeapCrash, the_log_gives_segments_back) { expect_sound("segments"); }
TEST(HeapCrash, the_log_goes_on_in_another_segment) { expect_sound("second_segment"); }
TEST(HeapCrash, free_extents_lose_their_pages) { expect_sound("holes"); }
TEST(HeapCrash, the_counts_of_wear_are_written_anew) { expect_sound("wear"); }
TEST(HeapCrash, zones_are_added) { expect_sound("zone_growth"); }
TEST(HeapCrash, lanes_are_added) { expect_sound("lane_growth"); }
TEST(HeapCrash, versioned_words_are_attached_detached_and_swapped_whole) {
  expect_sound("versioned");
}
TEST(HeapCrash, two_lanes_change_each_others_versioned_words) { expect_sound("versioned_lanes"); }
TEST(HeapCrash, lanes_replayed_in_reverse_agree) { expect_sound("versioned_reverse"); }
TEST(HeapCrash, blocks_are_used_again_when_an_intent_says_so) { expect_sound("versioned_reuse"); }
TEST(HeapCrash, blocks_are_used_again_by_another_thread) { expect_sound("reuse_by_other"); }
TEST(HeapCrash, containers_of_versioned_words_are_used_again) {
  expect_sound("versioned_containers");
}
TEST(HeapCrash, versions_go_round_over_other_lanes_intents) { expect_sound("versioned_wraps"); }
TEST(HeapCrash, interleaved_threads_change_versioned_words) {
  expect_sound("versioned_interleaved", 2);
}
TEST(HeapCrash, lanes_are_handed_on_with_versioned_words_under_way) {
  expect_sound("versioned_handed_on");
}
TEST(HeapCrash, blocks_keep_the_type_they_were_given) { expect_sound("typed"); }
TEST(HeapCrash, blocks_used_again_have_their_new_type) { expect_sound("typed_again"); }
TEST(HeapCrash, extents_have_types) { expect_sound("typed_extents"); }
TEST(HeapCrash, slabs_of_types_come_and_go) { expect_sound("typed_slabs"); }
TEST(HeapCrash, versioned_words_get_blocks_with_types) { expect_sound("typed_versioned"); }
TEST(HeapCrash, batches_have_types) { expect_sound("typed_batches"); }
TEST(HeapCrash, threads_hand_blocks_with_types_to_each_other) { expect_sound("typed_lanes"); }
TEST(HeapCrash, interleaved_threads_make_blocks_with_types) { expect_sound("typed_interleaved"); }
TEST(HeapCrash, batches_are_attached_and_detached_block_by_block) { expect_sound("batches"); }
TEST(HeapCrash, batches_of_two_lanes_change_the_same_words) { expect_sound("batches_of_lanes"); }

}  // namespace
}  // namespace tenuto::test

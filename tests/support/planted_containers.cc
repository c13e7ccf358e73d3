#include "support/planted.h"

namespace tenuto::test {

const std::vector<Planted>& planted_container_bugs() {
  static const std::vector<Planted> all = {
      {"tx_array_old_block_leaks", "a vector that grows forgets its old block", "container_vectors",
       "a block leaked"},
      {"tx_array_insert_not_logged", "an insertion does not log the elements that move",
       "container_vectors", "after no number of steps"},
      {"tx_array_insert_not_fenced", "elements move before their entries are durable",
       "container_vectors", "after no number of steps"},
      {"tx_array_removed_not_logged", "a removed element is not logged, and a push overwrites it",
       "container_vectors", "after no number of steps"},
      {"tx_string_old_block_leaks", "a string forgets its old block", "container_texts",
       "a block leaked"},
      {"tx_string_stored_before_its_entry", "inline text is stored before its entry is durable",
       "container_texts", "after no number of steps|a block leaked"},
      {"tx_string_end_not_logged", "what is appended replaces the zero byte, which is not logged",
       "container_texts", "after no number of steps"},
      {"tx_chain_slot_not_flushed", "a push leaves its element in the cache", "container_queues",
       "after no number of steps"},
      {"tx_chain_link_not_logged", "the link to a new segment is a plain store", "container_queues",
       ""},
      {"tx_chain_segment_leaks", "a segment without elements is forgotten", "container_queues",
       "a block leaked"},
      {"tx_slots_counted_without_an_entry", "the order of a node is stored without an entry",
       "map_grows", "the map after no number of steps|a reachable block is free|order|size"},
      {"tx_filled_slot_not_flushed", "the commit does not flush the slot of a new key", "map_grows",
       "the map after no number of steps"},
      {"tx_vacated_slot_not_saved", "the slot of an erased key is not logged, and filled again",
       "map_reuses", "the map after no number of steps"},
      {"tx_node_of_a_map_not_freed", "a node that was merged is not freed", "map_shrinks",
       "a block leaked"},
      {"tx_last_slot_of_a_node_erased", "an erase drops the last key of the node", "map_shrinks",
       "the map after no number of steps"},
      {"tx_tag_of_an_empty_slot_kept", "the tag of an erased key stays in the bucket",
       "table_reuses", "the map after no number of steps|has a tag"},
      {"tx_merged_bucket_not_saved",
       "a bucket that was merged is not logged, and a split fills it again", "table_merges",
       "the map after no number of steps|size of a hash map|another bucket|has a tag"},
  };
  return all;
}

}  // namespace tenuto::test

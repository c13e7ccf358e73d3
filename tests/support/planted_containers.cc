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
  };
  return all;
}

}  // namespace tenuto::test

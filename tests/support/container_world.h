// Containers of all kinds in a small pool, and scripts of transactions on them, for crash tests.
// After a crash they hold what they held after the first n steps, with acknowledged <= n <=
// invoked, and exactly the blocks that they own are allocated.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/container_model.h"
#include "support/container_parts.h"
#include "support/tx_scripts.h"

namespace tenuto::test {

enum class Change {
  push,
  append,    // outgrows the block
  pop_push,  // of what was there before
  insert,
  erase,
  assign,
  clear,
  fields,        // push, assign and insert fields
  fields_erase,  // and assign
  texts,         // one inline, one in a block
  texts_insert,
  texts_erase,
  texts_grow,  // until the strings move
  text_short,
  text_long,
  text_append,
  text_swap,
  rows,  // an element that is a container grows
  queue_push,
  queue_fill,  // a new segment
  queue_pop,
  queue_drain,  // frees segments
  lines_push,
  lines_pop,
  abort,  // many of these, rolled back
};
using ContainerScript = std::vector<Change>;

inline const ContainerScript kVectorChanges = {
    Change::push,   Change::append,   Change::pop_push,     Change::abort,
    Change::insert, Change::erase,    Change::fields,       Change::fields_erase,
    Change::push,   Change::assign,   Change::push,         Change::insert,
    Change::fields, Change::pop_push, Change::fields_erase, Change::clear};
inline const ContainerScript kTextChanges = {
    Change::text_long,  Change::text_append, Change::text_long, Change::text_append,
    Change::text_short, Change::text_append, Change::text_long};
inline const ContainerScript kStringChanges = {
    Change::texts,       Change::text_short,  Change::text_swap, Change::texts_insert,
    Change::abort,       Change::texts_grow,  Change::rows,      Change::text_long,
    Change::texts_erase, Change::text_append, Change::rows,      Change::text_swap,
    Change::abort};
inline const ContainerScript kQueueChanges = {
    Change::queue_push, Change::queue_pop,  Change::abort,      Change::lines_push,
    Change::queue_fill, Change::queue_pop,  Change::lines_pop,  Change::queue_drain,
    Change::abort,      Change::lines_push, Change::queue_fill, Change::queue_drain,
    Change::queue_push, Change::lines_pop,  Change::lines_pop,  Change::queue_pop};

inline CrashOptions container_crash_options() {
  CrashOptions o;
  o.product_max = crash_scaled(16);
  o.samples_max = crash_scaled(12);
  o.recovery_states_max = crash_scaled(1);
  o.recovery_depth = 1;  // recovery is that of tx, which tx_crash explores
  o.points_percent = 10;
  return o;
}

class ContainerCrash {
 public:
  // `collected`: with Consistency::gc, and after a crash a collection by the references.
  ContainerCrash(ContainerScript script, std::uint64_t seed, bool collected = false);

  CrashResult run(CrashOptions options = {}) const;

 private:
  void workload(CrashContext& c) const;
  std::string check(const CrashImage& image) const;
  std::string check_blocks(TxParts& p, const ContainerRoot& r) const;

  ContainerScript script_;
  std::uint64_t seed_;
  PoolOptions options_;
  mutable std::vector<ContainerModel> states_;  // after each step
};

}  // namespace tenuto::test

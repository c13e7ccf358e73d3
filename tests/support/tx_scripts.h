// The scripts of tx_crash.cc and planted_crash.cc: transactions of all kinds on the small world.
//
// TENUTO_CRASH_SCALE multiplies the number of seeds and of sampled crash states (crash_scale.h).
#pragma once

#include "support/crash_scale.h"
#include "support/tx_world.h"

namespace tenuto::test {

inline CrashOptions tx_crash_options() {
  CrashOptions o;
  o.product_max = crash_scaled(150);
  o.samples_max = crash_scaled(50);
  o.recovery_states_max = crash_scaled(5);
  return o;
}

inline const Script kTransfers = {Op::transfer, Op::transfer, Op::one_by_one, Op::batch,
                                  Op::transfer};
inline const Script kBlocks = {Op::link,    Op::replace, Op::late_link, Op::cancel,     Op::unlink,
                               Op::replace, Op::link,    Op::unlink,    Op::link_large, Op::drain,
                               Op::link,    Op::unlink,  Op::replace};
inline const Script kAdopted = {Op::link_adopted, Op::transfer,     Op::link_adopted,
                                Op::unlink,       Op::link_adopted, Op::link_adopted};
inline const Script kTypes = {
    Op::link_typed,   Op::link_typed,       Op::replace,          Op::link_typed,
    Op::abort_stores, Op::unlink,           Op::link_typed_large, Op::drain,
    Op::link_typed,   Op::link_typed_large, Op::link_typed_large, Op::link_typed};
inline const Script kAborts = {Op::link,         Op::abort_stores, Op::transfer,
                               Op::abort_early,  Op::abort_stores, Op::unlink,
                               Op::abort_stores, Op::link,         Op::abort_early,
                               Op::replace,      Op::transfer};
inline const Script kOverflow = {Op::overflow, Op::abort_overflow, Op::transfer, Op::overflow,
                                 Op::drain,    Op::overflow,       Op::link};

inline const Script kFields = {Op::field_stores, Op::field_link, Op::abort_fields,
                               Op::field_mixed,  Op::field_link, Op::unlink,
                               Op::field_many,   Op::transfer,   Op::abort_fields,
                               Op::field_stores, Op::set_parts,  Op::set_parts};

inline const Script kAppends = {Op::fill_unused, Op::append,       Op::append, Op::abort_append,
                                Op::append,      Op::field_stores, Op::append, Op::abort_append,
                                Op::append,      Op::append,       Op::append, Op::append,
                                Op::append};

inline const Script kSavepoints = {Op::link,        Op::link,        Op::link_typed_large,
                                   Op::part_undone, Op::part_undone, Op::part_undone};

inline const Script kLanes = {{Op::link_many, 0},    {Op::unlink_many, 0}, {Op::link_large, 1},
                              {Op::cancel_many, 0},  {Op::link_large, 1},  {Op::transfer, 1},
                              {Op::abort_stores, 0}, {Op::unlink, 1},      {Op::link_large, 0}};

// Frees that are a transaction each, and others between them. Lane 1 uses the memory again.
inline const Script kOneFrees = [] {
  Script s = {{Op::hold_many, 0}, {Op::free_held, 0}, {Op::free_held, 0}, {Op::unlink, 0}};
  for (int i = 0; i < 10; ++i) s.push_back({Op::free_held, 0});
  for (const Op op : {Op::link_large, Op::link_large, Op::free_held}) s.push_back({op, 1});
  s.insert(s.end(), {{Op::free_held, 0}, {Op::abort_stores, 0}, {Op::free_held, 0}, {Op::link, 0}});
  return s;
}();

// Lane 1 uses the memory of blocks that an open transaction of lane 0 made and freed.
inline const Script kCancelled = {{Op::cancel_many, 0}, {Op::link_large, 1}, {Op::transfer, 0}};

// The world's slab is morphed while it has blocks that transactions free, also after a crash.
inline const Script kMorphed = {Op::link_page, Op::link_page,    Op::sparse,  Op::link,
                                Op::unlink,    Op::abort_stores, Op::replace, Op::link,
                                Op::unlink,    Op::sparse,       Op::link,    Op::unlink};

// Lane 1 at once uses log frames that lane 0 gave back.
inline const Script kReusedFrame = {{Op::overflow, 0}, {Op::drain, 0}, {Op::overflow, 1}};

// The second lane changes what the first one rolled back.
inline const Script kAbortLanes = {{Op::link, 0},  {Op::abort_stores, 0}, {Op::batch, 1},
                                   {Op::link, 1},  {Op::transfer, 0},     {Op::abort_stores, 0},
                                   {Op::batch, 1}, {Op::transfer, 0}};

}  // namespace tenuto::test

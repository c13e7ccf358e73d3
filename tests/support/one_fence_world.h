// Scripts for what the protocol of one fence alone has to fear (store/one_fence.h): stale content
// of blocks, words that are out of date, records that somebody gave up. Used by one_fence_crash.cc
// and, with mistakes planted, by planted_crash.cc.
#pragma once

#include "support/kv_world.h"

namespace tenuto::test {

// So many updates of a few keys that the records they replaced are used again.
KvCrash one_fence_updates();
// Updated keys move in a split and change there.
KvCrash one_fence_updates_and_split();
// A block holds an old record whose tag is that of the record which gets the block.
KvCrash one_fence_stale_record();
// The same, and between them somebody gave up a record in the block.
KvCrash one_fence_given_up_record();
// Records that a snapshot kept are used again after it.
KvCrash one_fence_kept_records();

}  // namespace tenuto::test

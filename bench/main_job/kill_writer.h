// The process that the kill test kills.
#pragma once

#include "bench/main_job/ack_channel.h"
#include "bench/main_job/kill_trial.h"

namespace bench {

// The last version that the writer knows of each record, in shared memory that outlives it. A
// thread writes only records of its own share (record % threads), so the versions of a record are
// ordered.
struct KnownVersions {
  std::uint32_t* version = nullptr;
  std::uint64_t records = 0;
};

std::string store_path(const KillOptions& options);

// Opens the store, inserts the missing records, then runs YCSB A until it is killed. Returns only
// on failure, with channel.error filled.
int run_writer(const PackageRecords& records, const KillOptions& options, unsigned kill,
               AckChannel& channel, KnownVersions known);

}  // namespace bench

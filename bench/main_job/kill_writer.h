// The victim of the kill test.
#pragma once

#include "bench/main_job/ack_channel.h"
#include "bench/main_job/kill_trial.h"

namespace bench {

// The last versions the writer knows of, by record; outlives it in shared memory. A thread writes
// only records of its own share (record % threads), so each record's versions come in order.
struct KnownVersions {
  std::uint32_t* version = nullptr;
  std::uint64_t records = 0;
};

std::string store_path(const KillOptions& options);

// Opens the store, inserts what is not inserted yet, then runs YCSB A until it is killed. Returns
// only on failure, with channel.error filled.
int run_writer(const PackageRecords& records, const KillOptions& options, unsigned kill,
               AckChannel& channel, KnownVersions known);

}  // namespace bench

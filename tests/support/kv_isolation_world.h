// Snapshots and transactions under the crash explorer. One script has a single thread, and compares
// its snapshots with the model after every step. The other has threads interleaved by the seed.
// Their history must be serialisable together with what recovery shows. kv_isolation_crash.cc uses
// it and, with planted mistakes, planted_crash.cc.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

// Updates, inserts, erases, splits, leaves that become empty, batches and commits, under several
// snapshots that are taken and released.
CrashResult explore_snapshots(const CrashOptions& options);

// Three threads with transactions and snapshots, one schedule a seed. The history is judged
// together with what recovery shows.
CrashResult explore_isolation(const CrashOptions& options, int schedules);
// Many more schedules, judged by their histories only: for mistakes that no crash shows.
CrashResult explore_schedules(const CrashOptions& options);

CrashOptions isolation_crash_options();
CrashOptions schedule_options();

}  // namespace tenuto::test

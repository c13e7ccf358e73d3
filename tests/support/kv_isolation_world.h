// Snapshots and transactions under the crash explorer: a script of one thread whose snapshots are
// compared with the model after every step, and threads interleaved by the seed whose history must
// be serialisable, with what recovery shows at its end. Used by kv_isolation_crash.cc and, with
// mistakes planted, by planted_crash.cc.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

// Updates, inserts, erases, splits, leaves that become empty, batches and commits of transactions,
// under several snapshots that come and go.
CrashResult explore_snapshots(const CrashOptions& options);

// Three threads with transactions and snapshots, a schedule a seed; the history is judged with what
// recovery shows.
CrashResult explore_isolation(const CrashOptions& options, int schedules);
// Many more schedules, of which only the histories are judged: for mistakes that no crash shows.
CrashResult explore_schedules(const CrashOptions& options);

CrashOptions isolation_crash_options();
CrashOptions schedule_options();

}  // namespace tenuto::test

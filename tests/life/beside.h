// Judges walks that run beside writers, and so have no single point in time, by real time alone.
#pragma once

#include <string>
#include <vector>

#include "model.h"
#include "record.h"

namespace tenuto::life {

// Judges plain scans, cursors, bounds and multi_get in a spell whose threads ran at once. Each
// record that was returned was there at some time during the call. A record that was there,
// unchanged, for the whole call is returned. Records come in order, and once. Returns what is
// wrong, or an empty string.
std::string judge_beside(const State& base, const std::vector<Op>& ops);

}  // namespace tenuto::life

// Walks beside writers, which are no single moment: what can be said of them from real time alone.
#pragma once

#include <string>
#include <vector>

#include "model.h"
#include "record.h"

namespace tenuto::life {

// Of the calls of a spell whose threads ran at once, plain scans, cursors, bounds and multi_get:
// each record that one returned was there at some moment of the call; what was there, and
// unchanged, for the whole call is returned; in order, and once. Empty, or what was wrong.
std::string judge_beside(const State& base, const std::vector<Op>& ops);

}  // namespace tenuto::life

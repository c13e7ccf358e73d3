// The peers whose packages were not there when this was configured.
#pragma once

#include <string>

namespace bench {

// A line for --list that names them; empty if all are there.
std::string peers_left_out();

}  // namespace bench

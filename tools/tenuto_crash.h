// The command group `tenuto crash`: commands that try to break a store and report what broke.
#pragma once

#include <string>
#include <vector>

#include "crash_kill.h"
#include "error.h"

namespace tenuto::tool {

struct CrashKillArgs {
  KillOptions options;
  bool has_seed = false;
  std::string json_file;  // "-" is standard output; empty: none
  bool quiet = false;
};

Error run_crash_kill(const CrashKillArgs& args);

// They get the words after the command. They return only if the program could not be started, or
// after printing help.
Error run_crash_explorer(int argc, char** argv);
Error run_crash_replay(int argc, char** argv);
Error run_crash_life(int argc, char** argv);
Error run_import_pmemobj(int argc, char** argv);

// Parse "1,2,4", "hot,fill" and "0.5". Return an empty string, or what was expected.
std::string parse_kill_threads(const std::string& text, std::vector<std::uint32_t>& threads);
std::string parse_kill_mixes(const std::string& text, std::vector<KillMix>& mixes);
std::string parse_hours(const std::string& text, double& seconds);

}  // namespace tenuto::tool

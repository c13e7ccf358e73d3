// The file of an import's new pool until it is complete, and how the import fails: a message on
// standard error, nothing left of the new pool, and an exit code.
#pragma once

#include <string>

namespace pmemobj_import {

// Those of tenuto, the numbers of tenuto::Status (tools/tenuto.md).
enum Code {
  kNotFound = 1,
  kUsage = 2,
  kExists = 3,
  kFull = 4,
  kBusy = 6,
  kPermission = 7,
  kIo = 8,
  kCorrupt = 9,
  kNotAPool = 10,
  kStopped = 14
};
Code code_of(int error);

[[noreturn]] void fail(Code code, const std::string& what);

// A name beside `path` that nothing has, for the pool until give_name(). From here on a signal
// removes what has it.
const char* name_unfinished(const std::string& path);
// Never replaces a file.
void give_name(const std::string& path);
void sync_folder_of(const std::string& path);

}  // namespace pmemobj_import

// A worker process that judges the states of many crash points, for checks that need no model but
// the counts: jobs reach it in shared memory, a byte through a pipe says go, a byte comes back when
// it is done, and the end of that pipe says that it died.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "crash/explore_worker.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

class CrashServer {
 public:
  // serve: judges one job in the child; false ends the child.
  using Serve = std::function<bool(const WorkerJob&)>;

  CrashServer();
  ~CrashServer();
  CrashServer(const CrashServer&) = delete;
  CrashServer& operator=(const CrashServer&) = delete;

  // Puts the job where the child finds it. False: it is too large; fork a child of its own.
  bool put(const WorkerJob& job);
  bool running() const { return child_ != 0; }
  // Forks. In the child it returns true: call serve_until_the_end() there.
  bool start();
  [[noreturn]] void serve_until_the_end(const Serve& serve);
  // Has the job judged. False: the child ended, with this status for waitpid's macros.
  bool judge(int* status);
  // Ends the child, whose mappings or plants are out of date.
  void stop();

 private:
  std::byte* buffer_;
  int request_[2] = {-1, -1};
  int reply_[2] = {-1, -1};
  pid_t child_ = 0;
};

}  // namespace TENUTO_NS::pm

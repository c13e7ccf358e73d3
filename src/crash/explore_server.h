// A worker process that judges the states of many crash points, for checks that need no model but
// the counts:
//   parent: write the job to shared memory | write a byte to the request pipe
//   child:  read the byte | judge | write a byte to the reply pipe
// The parent reads end of file from the reply pipe when the child has died.
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
  // Judges one job in the child. False ends the child.
  using Serve = std::function<bool(const WorkerJob&)>;

  CrashServer();
  ~CrashServer();
  CrashServer(const CrashServer&) = delete;
  CrashServer& operator=(const CrashServer&) = delete;

  // Writes the job to shared memory. False: it is too large, and needs a fork of its own.
  bool put(const WorkerJob& job);
  bool running() const { return child_ != 0; }
  // Forks. Returns true in the child, which then calls serve_until_the_end().
  bool start();
  [[noreturn]] void serve_until_the_end(const Serve& serve);
  // Lets the child judge the job. False: the child ended, with this status (as of waitpid).
  bool judge(int* status);
  // Ends the child, for example because its mappings or plants are out of date.
  void stop();

 private:
  std::byte* buffer_;
  int request_[2] = {-1, -1};
  int reply_[2] = {-1, -1};
  pid_t child_ = 0;
};

}  // namespace TENUTO_NS::pm

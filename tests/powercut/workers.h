// The threads of a life: each makes its operations until stop() is called or the power goes.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "powercut/judge.h"
#include "powercut/story.h"
#include "tenuto/kv.h"

namespace tenuto::powercut {

class Workers {
 public:
  // REQUIRES: all arguments outlive this object.
  Workers(Store& store, Objects& objects, Models& models, std::uint64_t life, Wire& wire);

  void start();
  void stop();
  Progress done() const;

 private:
  void write_keys(unsigned thread);
  Status apply(unsigned thread, const KeyOp& op, const Progress& before);
  void change_objects(unsigned thread);
  Status transaction(unsigned thread, const ObjectOp& op, const Progress& before, bool abort);
  // Notes that the thread's operations up to `op` have returned, and reports them if they are
  // durable.
  void returned(unsigned thread, std::uint64_t op, bool durable);
  void sync_all();
  [[noreturn]] void failed(unsigned thread, std::uint64_t op, Status s);

  Store& store_;
  Objects& objects_;
  Models& models_;
  const std::uint64_t life_;
  Wire& wire_;
  std::mutex accounts_mu_;
  std::atomic<bool> stopping_ = false;
  std::array<std::atomic<std::uint64_t>, kThreads> done_{};
  std::vector<std::thread> threads_;
};

}  // namespace tenuto::powercut

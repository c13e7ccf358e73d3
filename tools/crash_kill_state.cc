// The mapping of crash_kill_state.h.
#include "crash_kill_state.h"

#include <sys/mman.h>

#include <new>

#include "crash_kill.h"

namespace tenuto::tool {

KillMemory::~KillMemory() {
  if (at_ != nullptr) ::munmap(at_, bytes_);
}

KillState* KillMemory::make(const KillRecords& records, std::size_t log_operations) {
  const std::size_t keys = records.count();
  bytes_ = sizeof(KillState) + 2 * keys * sizeof(std::uint64_t) +
           kKillThreadsMax * log_operations * sizeof(KillOp);
  // Most of the logs is never touched.
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  at_ = p;
  KillState* state = new (p) KillState{};
  state->records = &records;
  auto* words = reinterpret_cast<std::uint64_t*>(state + 1);
  state->key = {words, keys};
  state->sight.key = {words + keys, keys};
  auto* ops = reinterpret_cast<KillOp*>(words + 2 * keys);
  for (KillThreadLog& log : state->thread) {
    log.op = {ops, log_operations};
    ops += log_operations;
  }
  return state;
}

}  // namespace tenuto::tool

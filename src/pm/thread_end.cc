#include "pm/thread_end.h"

#include <pthread.h>

#include <atomic>
#include <utility>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "pm/process.h"

namespace TENUTO_NS::pm {

namespace {

using End = void (*)(void*);
constinit std::array<std::atomic<End>, kThreadParts> ends{};
constinit thread_local std::uint64_t parts_process = 0;  // of which the thread's parts are

// The loop also finds a part that an earlier end makes, or that the destructor of another key made
// before. A part that is made after the loop sets the key again, so this runs once more.
void end_thread(void*) {
  if (!is_this_process(parts_process)) return;
  for (std::size_t i = 0; i < kThreadParts; ++i) {
    void* const part = thread_parts[i];
    if (part == nullptr) continue;
    ends[i].load(std::memory_order_acquire)(part);
    thread_parts[i] = nullptr;
  }
}

// The key of the process. False: all keys that there may be are in use.
bool find_key(pthread_key_t& key) {
  static constinit std::atomic<std::uint64_t> made{0};  // the key + 1
  std::uint64_t there = made.load(std::memory_order_acquire);
  if (there == 0) {
    if (::pthread_key_create(&key, end_thread) != 0) return false;
    if (made.compare_exchange_strong(there, std::uint64_t{key} + 1)) return true;
    ::pthread_key_delete(key);  // another thread was first
  }
  key = static_cast<pthread_key_t>(there - 1);
  return true;
}

}  // namespace

namespace {
// Plant: the parts end with the thread's other thread_locals. What runs later uses them all the
// same.
struct EndsTooEarly {
  ~EndsTooEarly() {
    for (std::size_t i = 0; i < kThreadParts; ++i) {
      if (thread_parts[i] != nullptr) ends[i].load()(thread_parts[i]);
    }
  }
  bool on = false;
};
}  // namespace

void keep_thread_part(ThreadPart which, void* part, End end) {
  const auto i = static_cast<std::size_t>(which);
  const std::uint64_t process = this_process();
  TENUTO_ASSERT(thread_parts[i] == nullptr);
  // Without a key, or the memory for it, the thread has no part.
  pthread_key_t key{};
  if (!find_key(key) || ::pthread_setspecific(key, &thread_parts) != 0) {
    end(part);
    throw_bad_alloc();
    TENUTO_ASSERT(false);
  }
  ends[i].store(end, std::memory_order_release);
  thread_parts[i] = part;
  parts_process = process;
  if (TENUTO_PLANT("pm_thread_parts_end_with_thread_locals")) {
    static thread_local EndsTooEarly early;
    early.on = true;
  }
}

// This runs in the child handler of fork. It must not allocate: a thread that is not there may have
// held a lock of the allocator (the C library's is safe, others need not be). LeakSanitizer finds
// the parts of the last 16 ancestors here.
void forget_thread_parts() {
  static constinit std::array<std::array<void*, kThreadParts>, 16> forgotten{};
  static constinit std::atomic<unsigned> next = 0;
  if (thread_parts == std::array<void*, kThreadParts>{}) return;
  forgotten[next.fetch_add(1, std::memory_order_relaxed) % forgotten.size()] = thread_parts;
  thread_parts = {};
}

}  // namespace TENUTO_NS::pm

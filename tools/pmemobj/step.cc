#include "tools/pmemobj/step.h"

#include <system_error>
#include <thread>

namespace TENUTO_NS::pmemobj {

Status on_another_thread(Status (*call)(void*), void* argument) {
  Status result = Status::io;
  bool no_memory = false;
  try {
    std::thread([&] {
      try {
        result = call(argument);
      } catch (const std::bad_alloc&) {
        no_memory = true;
      }
    }).join();
  } catch (const std::system_error&) {
    return Status::io;
  }
  if (no_memory) throw std::bad_alloc();
  return result;
}

}  // namespace TENUTO_NS::pmemobj

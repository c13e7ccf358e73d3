// Runs the crash explorer on the queue of queue.h, which has a bug. README.md explains how the
// explorer finds it.
#include <cstdint>
#include <string>

#include "queue.h"
#include "tenuto/crash.h"
#include "tenuto/pool.h"

namespace {

using example::check_of;
using example::Queue;
using namespace tenuto;

constexpr std::uint64_t kPushes = 40;

// The queue in an open pool.
struct Opened {
  Pool pool;
  Queue& queue;

  static Opened at(const std::string& path) {
    Pool pool = Pool::open(path).value();
    Queue& queue = *pool.root<Queue>("queue").value();
    return {std::move(pool), queue};
  }
};

void setup(const std::string& path) {
  Pool pool = Pool::create(path, {.size = 8 << 20}).value();
  (void)pool.root<Queue>("queue").value();
}

// Pushes 1, 2, 3, ... and pops from the eighth on, so that no push finds the queue full.
void workload(CrashContext& context) {
  const Opened opened = Opened::at(context.path());
  for (std::uint64_t n = 1; n <= kPushes; ++n) {
    context.invoke();
    opened.queue.push(n);
    context.ack();
    if (n >= Queue::kEntries / 2) (void)opened.queue.pop();
  }
}

std::string check(const CrashImage& image) {
  const Opened opened = Opened::at(image.path());
  const Queue& q = opened.queue;
  if (q.tail < image.acknowledged() || q.tail > image.invoked()) {
    return "tail is " + std::to_string(q.tail) + " after " + std::to_string(image.acknowledged()) +
           " pushes";
  }
  for (std::uint64_t i = q.head; i < q.tail; ++i) {
    const example::Entry& e = q.entry[i % Queue::kEntries];
    if (e.number != i + 1 || e.check != check_of(e.number)) {
      return "entry " + std::to_string(i) + " of [" + std::to_string(q.head) + ", " +
             std::to_string(q.tail) + ") holds " + std::to_string(e.number);
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CrashOptions options;
  options.counted_model = true;  // check() knows the right content from the counts
  return crash_main(
      argc, argv,
      {{"queue", "pushes, and a pop for every third", setup, workload, check, options}});
}

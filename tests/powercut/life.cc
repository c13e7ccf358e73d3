// powercut_life: runs in the virtual machine, again and again until the power goes. A life opens
// the pool, judges it by the story so far, and writes on from many threads. It ends by a clean
// close, by killing itself, or never.
//
//   powercut_life FOLDER PORT STORY SEED [MEDIUM [PLANT]]
//
// FOLDER is on the disk whose power goes. PORT leads out of the machine. STORY is a file in memory.
// MEDIUM is journal or line. PLANT switches on a mistake in the library (src/pm/plant.h). The exit
// status is 0 after a clean close, 1 if something was wrong, 2 if it could not begin.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "pm/plant.h"
#include "powercut/judge.h"
#include "powercut/workers.h"
#include "tenuto/kv.h"

namespace tenuto::powercut {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBeat = std::chrono::milliseconds(5);
constexpr std::uint64_t kBeatsPerCount = 20;

struct Order {
  std::string folder;
  std::uint64_t seed = 0;
  Medium medium = Medium::journal;
};

StoreOptions options_of(const Order& order, bool create) {
  StoreOptions o;
  o.create_if_missing = create;
  o.pool.size = kPoolBytesMin;
  o.pool.size_max = 64u << 20;
  o.pool.medium = order.medium;
  o.pool.journal.path = order.folder + "/journal";
  o.pool.journal.bytes = 256u << 10;  // so that it fills several times a second
  o.pool.journal.sync_every_ms = 100;
  return o;
}

[[noreturn]] void wrong(Wire& wire, const std::string& what) {
  std::printf("powercut_life: %s\n", what.c_str());
  wire.say("W " + what);
  wire.drain();
  std::_Exit(1);
}

class Stopwatch {
 public:
  std::string lap() {
    const auto begin = std::exchange(begin_, Clock::now());
    return std::to_string(
        std::chrono::duration_cast<std::chrono::milliseconds>(begin_ - begin).count());
  }

 private:
  Clock::time_point begin_ = Clock::now();
};

// Leaves a file, by which the shell that started this knows that the kill was intended.
[[noreturn]] void kill_itself() {
  std::fclose(std::fopen("/tmp/killed_itself", "w"));
  std::raise(SIGKILL);
  std::abort();
}

enum class End { close, kill, never };

void live(const Order& order, const Story& story, Wire& wire) {
  const std::uint64_t life = story.next_life();
  const std::string name = std::to_string(life);
  wire.say("B " + name);
  Stopwatch watch;
  Report report;
  auto store = Store::open(order.folder + "/pool", options_of(order, !story.has_life()), &report);
  if (!store)
    wrong(wire, std::string("open: ") + status_name(store.error()) + ": " + report.text());
  const PoolInfo info = store->pool().info();
  if (!info.power_cut_safe || info.medium != order.medium) wrong(wire, "this medium loses data");
  const std::string opened = watch.lap();
  if (store->validate(&report) != Status::ok) wrong(wire, "validate: " + report.text());
  auto objects = store->pool().root<Objects>(kObjectsLayout, &report);
  if (!objects) wrong(wire, "root: " + report.text());
  const std::string validated = watch.lap();
  Models models(order.seed);
  if (const std::string w = judge(*store, **objects, story, models); !w.empty()) wrong(wire, w);

  std::string found = "L " + name;
  for (const std::uint64_t n : models.done()) found += " " + std::to_string(n);
  wire.say(found);
  wire.say("V " + name + (info.was_clean ? " 1 " : " 0 ") + opened + " " + validated + " " +
           watch.lap());
  wire.drain();  // the story must have this life before its first operation

  std::mt19937_64 rng(mix(order.seed, life));
  const End end = std::array{End::close, End::kill, End::never}[rng() % 3];
  const std::uint64_t beats = 20 + rng() % 80;
  Workers workers(*store, **objects, models, life, wire);
  workers.start();
  for (std::uint64_t beat = 1; end == End::never || beat <= beats; ++beat) {
    std::this_thread::sleep_for(kBeat);
    wire.say("H");
    if (beat % kBeatsPerCount != 0) continue;
    const PoolStats s = store->pool().stats();
    wire.say("T " + name + " " + std::to_string(s.journal_commits) + " " +
             std::to_string(s.journal_checkpoints) + " " + std::to_string(s.file_bytes));
  }
  if (end == End::kill) kill_itself();  // while the threads work
  workers.stop();
  const Progress done = workers.done();
  if (const Status s = store->close(); s != Status::ok) wrong(wire, "the pool does not close");
  for (unsigned t = 0; t < kThreads; ++t) {
    wire.say("A " + std::to_string(t) + " " + std::to_string(done[t]));
  }
}

}  // namespace
}  // namespace tenuto::powercut

int main(int argc, char** argv) {
  using namespace tenuto;
  using namespace tenuto::powercut;
  if (argc < 5 || argc > 7) {
    std::fprintf(stderr, "usage: powercut_life FOLDER PORT STORY SEED [journal|line [PLANT]]\n");
    return 2;
  }
  Order order{argv[1], std::strtoull(argv[4], nullptr, 10), Medium::journal};
  const std::string medium = argc > 5 ? argv[5] : "journal";
  if (medium == "line") order.medium = Medium::line;
  if (medium != "line" && medium != "journal") return 2;
  if (argc > 6) {
#ifdef TENUTO_DEBUG_CHECKS
    plant(argv[6]);
#else
    std::fprintf(stderr, "powercut_life: this build has no planted mistakes\n");
    return 2;
#endif
  }
  const auto story = Story::read(argv[3]);
  if (!story) {
    std::fprintf(stderr, "powercut_life: the story makes no sense\n");
    return 2;
  }
  Wire wire(argv[2], argv[3]);
  live(order, *story, wire);
  return 0;
}

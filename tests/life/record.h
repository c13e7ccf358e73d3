// What the process of a life leaves for its judge, in memory that it shares with its parent, which
// is never killed. Every call is written before it begins, with the meaning of its arguments
// (collection ids, values' tags), and completed after it returns. So after a kill at any point it
// is known what must be there and what may be.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "story.h"
#include "tenuto/status.h"

namespace tenuto::life {

inline constexpr std::size_t kAreaWords = 1u << 20;  // of one thread in one process
inline constexpr std::uint64_t kThrew = 250;         // a status: the call threw std::bad_alloc
inline constexpr std::uint64_t kRefused = 1u << 8;  // with a status: memory was refused to the call

// An entry: kHeader words, then arguments, then results.
struct Entry {
  std::uint64_t words;     // of the whole entry; 0: end of the entries
  std::uint64_t what;      // verb, thread, store, step
  std::uint64_t invoke;    // tickets
  std::uint64_t returned;  // 0: it did not return
  std::uint64_t status;
  std::uint64_t arguments;
  std::uint64_t results;
};
inline constexpr std::size_t kHeader = sizeof(Entry) / 8;

struct Shared {
  std::atomic<std::uint64_t> ticket;
  std::atomic<std::uint64_t> progress;           // grows while calls begin and end
  std::atomic<std::uint64_t> clock_ms;           // the life's time
  std::atomic<std::uint64_t> fresh;              // used to make values unique
  std::atomic<std::uint64_t> next_step;          // for the next process
  std::atomic<std::uint32_t> step[kThreadsMax];  // number + 1 of the step that runs
  std::atomic<std::uint32_t> call[kThreadsMax];  // verb + 1 of the call that runs
  std::atomic<std::uint32_t> kill_wanted;        // the process may die by SIGKILL
  std::atomic<std::uint32_t> ended;              // the process ended by itself
  std::atomic<std::uint32_t> failing;
  std::atomic<std::uint32_t> over;  // the life is over: processes that still run must end
  char refusal[kStores][1024];      // why the last open failed
  char failure[4096];               // an error that the process itself found
  std::uint64_t area[kThreadsMax][kAreaWords];
};

// One call, for the judge.
struct Op {
  Verb verb{};
  unsigned thread = 0, store = 0;
  std::size_t step = 0;
  std::uint64_t invoke = 0, returned = 0, status = 0;
  bool refused = false;  // memory was refused to it, so it may say `full`
  std::vector<std::uint64_t> a, r;
  bool pending() const { return returned == 0; }
  bool ok() const { return status == 0; }
  bool is(Status s) const { return status == static_cast<std::uint64_t>(s); }
};
std::string text_of(const Op& op);

// Writes a thread's entries.
class Recorder {
 public:
  Recorder(Shared& shared, unsigned thread) : shared_(shared), thread_(thread) {}

  void begin(Verb verb, std::size_t step, unsigned store, std::span<const std::uint64_t> arguments);
  void begin(Verb verb, std::size_t step, unsigned store,
             std::initializer_list<std::uint64_t> arguments) {
    begin(verb, step, store, std::span(arguments.begin(), arguments.size()));
  }
  void end(std::uint64_t status, std::span<const std::uint64_t> results = {});
  void end(Status status, std::initializer_list<std::uint64_t> results = {}) {
    end(static_cast<std::uint64_t>(status), std::span(results.begin(), results.size()));
  }
  // Whether there is room for one more entry, even with the results of a whole scan.
  bool room() const { return at_ + kAreaWords / 4 < kAreaWords; }

 private:
  Entry& entry() { return *reinterpret_cast<Entry*>(shared_.area[thread_] + at_); }
  Shared& shared_;
  const unsigned thread_;
  std::size_t at_ = 0;
};

// Returns the entries of all threads, each thread's in order, and removes them.
std::vector<Op> take_record(Shared& shared);

}  // namespace tenuto::life

// What the process of a life leaves for its judge: memory shared with the parent, which is never
// killed. Every call is written down before it begins, with its arguments resolved to what they
// mean (collection ids, values' tags), and completed after it returned, so that at any moment of a
// kill it is known what must be there and what may be.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "story.h"
#include "tenuto/status.h"

namespace tenuto::life {

inline constexpr std::size_t kAreaWords = 1u << 20;  // of one thread, in one process
inline constexpr std::uint64_t kThrew = 250;         // as a status: a std::bad_alloc came out

// An entry: kHeader words, then arguments, then results.
struct Entry {
  std::uint64_t words;     // of all of it; 0: the end
  std::uint64_t what;      // verb, thread, store, step
  std::uint64_t invoke;    // tickets
  std::uint64_t returned;  // 0: it never did
  std::uint64_t status;
  std::uint64_t arguments;
  std::uint64_t results;
};
inline constexpr std::size_t kHeader = sizeof(Entry) / 8;

struct Shared {
  std::atomic<std::uint64_t> ticket;
  std::atomic<std::uint64_t> progress;           // moves while something is done
  std::atomic<std::uint64_t> clock_ms;           // the life's time
  std::atomic<std::uint64_t> fresh;              // makes values unique
  std::atomic<std::uint64_t> next_step;          // for the next process
  std::atomic<std::uint32_t> step[kThreadsMax];  // + 1, of a call that is under way
  std::atomic<std::uint32_t> call[kThreadsMax];  // the verb of it + 1
  std::atomic<std::uint32_t> kill_wanted;        // the process may die by SIGKILL
  std::atomic<std::uint32_t> ended;              // it came to its end by itself
  std::atomic<std::uint32_t> failing;
  std::atomic<std::uint32_t> over;  // the life is: what still runs ends
  char refusal[kStores][1024];      // why the last open failed
  char failure[4096];               // what the process itself saw to be wrong
  std::uint64_t area[kThreadsMax][kAreaWords];
};

// One call, for the judge.
struct Op {
  Verb verb{};
  unsigned thread = 0, store = 0;
  std::size_t step = 0;
  std::uint64_t invoke = 0, returned = 0, status = 0;
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
  // Room for another entry with results of a whole scan.
  bool room() const { return at_ + kAreaWords / 4 < kAreaWords; }

 private:
  Entry& entry() { return *reinterpret_cast<Entry*>(shared_.area[thread_] + at_); }
  Shared& shared_;
  const unsigned thread_;
  std::size_t at_ = 0;
};

// All entries of all threads, those of a thread in its order, and forgets them.
std::vector<Op> take_record(Shared& shared);

}  // namespace tenuto::life

// The recorder of the traced build. It knows what was stored into the pool files, what of it
// is surely durable, and what a crash at this point in time may lose. It gets stores from
// trace_tsan.cc, and flushes and fences from the verbs of tenuto/persist.h. The explorer reads it.
//
// Model: every line has a floor (its durable content) and a list of stores above it, in order. A
// flush remembers the present end of the list. The same thread's next fence raises the floor to
// there. A store is cut into aligned 8-byte words in address order.
//
// The compiler's call comes before the store. So the recorder keeps the store as pending and reads
// the value at the thread's next event ("drain").
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "crash/trace_files.h"
#include "pm/trace.h"
#include "tenuto/abi.h"
#include "tenuto/crash.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

using LineWords = std::array<std::uint64_t, kLineBytes / 8>;

// The source place of a store: return addresses, the storing code first, then its callers.
using TraceSite = std::array<const void*, 4>;

// The calling thread's traced functions, as the compiler reports entry and exit.
struct TraceStack {
  static constexpr std::size_t kDepthMax = 512;
  std::size_t depth = 0;  // may exceed kDepthMax; deeper callers are not kept
  std::array<const void*, kDepthMax> callers{};

  TraceSite site(const void* innermost) const {
    TraceSite s = {innermost, nullptr, nullptr, nullptr};
    for (std::size_t i = 1; i < s.size() && i <= depth && depth <= kDepthMax; ++i) {
      s[i] = callers[depth - i];
    }
    return s;
  }
};
extern constinit thread_local TraceStack trace_stack;

// One word of one store. In the program, neighbours with the same group have no release store,
// flush or fence between them, so a compiler may emit them in any order.
struct StoreRecord {
  std::uint64_t value;  // of the whole word after the store
  std::uint64_t mask;   // the bytes that were stored
  std::uint64_t order;  // among all stores of the run
  std::uint64_t group;
  std::uint8_t word;
  TraceSite site;

  void apply(LineWords& words) const { words[word] = (words[word] & ~mask) | (value & mask); }
};

// floor + all of `stores` == now. `stores` is sorted by order.
struct LineLog {
  std::uint64_t line = 0;  // with the number of its file, see trace_files.h
  LineWords floor{};
  LineWords now{};
  std::uint64_t flushed = 0;  // order of the latest store when it was last flushed
  std::vector<StoreRecord> stores;
};

// Called when durability changes, with the recorder's lock held.
class TraceObserver {
 public:
  // A fence of the calling thread is about to take effect. Until then stores only add crash states;
  // the fence removes some.
  virtual void before_fence(const char* first, const char* then) = 0;
  // The line's floor changed from `old_floor`.
  virtual void floor_raised(const LineLog& log, const LineWords& old_floor) = 0;
  // The pool file is now this long. Returns its durable content, as TraceFile::durable.
  virtual const std::byte* resized(std::size_t file, std::uint64_t bytes) = 0;

 protected:
  ~TraceObserver() = default;
};

inline constexpr std::size_t kGroupShift = 40;        // bits above: thread; below: its barriers
inline constexpr std::size_t kTracedFencesMax = 512;  // different name pairs

class Recorder {
 public:
  struct Settings {
    bool keep_clean_lines = false;           // keep logs whose stores are all durable
    bool locked_instructions_fence = false;  // they complete earlier flushes, as on x86
    bool lint = false;                       // see trace_lint.cc
    bool flush_sectors = false;              // a flush takes the whole 512-byte sector
  };

  static Recorder& instance();
  static TraceCounts thread_counts();

  // From now on records these files, at most kCrashFilesMax, when they are mapped.
  void watch(std::span<const TraceFile> files, TraceObserver* observer, Settings settings);
  void stop();
  // In a forked child: forgets the parent's threads and frees the lock, which they may have held.
  void after_fork();

  // Lines with stores that may be lost, sorted by line; with keep_clean_lines all lines stored to.
  std::vector<const LineLog*> lines() const;
  std::uint64_t last_order() const { return order_; }
  // The mapping of the file, with its present content; null when the file is not mapped.
  const std::byte* mapped(std::size_t file) const;
  std::uint64_t mapped_bytes(std::size_t file) const;
  // The longest that the file was since it is watched; 0 if it was never mapped.
  std::uint64_t file_bytes(std::size_t file) const { return files_[file].bytes; }
  const LineLog* find(std::uint64_t line) const;
  // Whether another thread has a pending store to the line, so that its words may change any time.
  bool stored_elsewhere(std::uint64_t line) const;

  // What the lint found without a crash (trace_lint.cc). Places are addresses here.
  struct Forgotten {
    std::string when;
    TraceSite publish;
    TraceSite store;
    std::uint64_t line;
    std::uint64_t count;
  };
  struct FlushSite {
    TraceSite site;
    std::uint64_t lines, clean, reflush;
  };
  const std::vector<Forgotten>& forgotten() const { return forgotten_; }
  std::vector<FlushSite> flush_sites() const;

  // Lines that a flush found changed without a recorded store.
  const std::vector<std::uint64_t>& unseen() const { return unseen_; }

  void set_mutation(Mutation m) { mutation_ = std::move(m); }
  std::vector<FenceStats> fences() const;
  void clear_fences();
  // Makes everything stored so far durable. REQUIRES: locked.
  void raise_all();
  void mark_explored(const char* first, const char* then);

  // The lock that all events take. Recursive, so that the explorer can hold it during a callback.
  void lock();
  void unlock();
  static bool held_by_caller();
  static bool held_by_any();
  // Records the value of every thread's pending stores. REQUIRES: locked.
  void drain_all();
  // Records the value of the calling thread's pending stores.
  void drain_mine();

  // Events.
  void map(void* base, std::uint64_t bytes, int fd);
  void unmap(void* base);
  void before_store(const void* p, std::size_t n, const TraceSite& site);
  void after_store(const void* p, std::size_t n, const TraceSite& site, bool ordered);
  void flush(const void* p, std::size_t n, const TraceSite& site);
  void fence(const char* first, const char* then);
  void locked_instruction();
  void publish(const void* word, const TraceSite& site);
  void transient(const void* p, std::size_t n);
  // Something now relies on everything that the calling thread stored.
  void checkpoint(const char* when);
  void transaction(TraceTx what);
  // For a store that the caller makes itself: keeps what its lines hold before. The caller holds
  // the lock over prepare_store, the store and after_store.
  void prepare_store(const void* p, std::size_t n);

 private:
  // A store whose value has not been read yet.
  struct Pending {
    const void* p;
    std::size_t n;
    std::uint64_t group;
    TraceSite site;
  };
  struct Mark {
    std::uint32_t call;
    std::uint64_t line;
    std::uint64_t until;  // order of the latest store at the flush
  };
  struct Published {
    std::uint64_t line;
    std::uint64_t order;
    TraceSite site;
  };
  struct Thread {
    std::uint64_t barriers = 0;  // number << kGroupShift | release stores, flushes, fences so far
    std::vector<Pending> pending;
    std::vector<Mark> marks;
    std::uint32_t flush_calls = 0;  // since the last fence
    std::uint64_t flush_lines = 0;
    TraceCounts counts;
    std::unordered_set<std::uint64_t> dirty;  // lines with stores of its own, flushed or not
    std::vector<Published> published;         // since the last fence
    std::uint32_t transactions = 0;           // open ones, at most one of each pool
  };
  Recorder();
  static Thread& self();
  void drain(Thread& t, bool forget);
  void note(Thread& t, const void* p, std::size_t n, std::uint64_t group, const TraceSite& site);
  void note_word(Thread& t, std::uint64_t word, std::uint64_t mask, std::uint64_t group,
                 const TraceSite& site);
  void lint_flush(const Thread& t, std::uint64_t line, const TraceSite& site);
  void lint_fence(Thread& t, const char* first, const char* then);
  void lint(Thread& t, std::uint64_t until, const std::string& when, const TraceSite& publish);
  LineLog& touch(std::uint64_t line);
  LineWords unlogged(std::uint64_t line) const;
  void compare_flushed(std::uint64_t line, Thread& t, const TraceSite& site);
  void raise(Thread& t);
  void raise(LineLog& log, std::uint64_t until);
  void mark_sectors(Thread& t, std::uint64_t begin, std::uint64_t end);
  bool raises_anything(const Thread& t) const;
  FenceStats& stats_of(const char* first, const char* then);
  std::pair<std::uint64_t, std::uint64_t> lines_of(const void* p, std::size_t n) const;
  static std::uintptr_t address_of(std::uint64_t line);  // REQUIRES: its file is mapped

  struct NamesHash {
    std::size_t operator()(const std::pair<const char*, const char*>& p) const {
      return std::hash<const void*>()(p.first) * 31 + std::hash<const void*>()(p.second);
    }
  };

  std::vector<TraceFile> files_;
  TraceObserver* observer_ = nullptr;
  Settings settings_;
  std::atomic<bool> locked_fences_ = false;  // settings_.locked_instructions_fence
  Mutation mutation_;
  std::unordered_map<std::uint64_t, std::unique_ptr<LineLog>> logs_;
  std::vector<Thread*> threads_;
  std::uint64_t order_ = 0;
  std::uint64_t next_thread_ = 1;
  std::vector<std::uint64_t> unseen_;
  std::vector<Forgotten> forgotten_;
  std::unordered_map<const void*, FlushSite> flush_sites_;
  FenceStats* fences_ = nullptr;  // shared with forked workers
  std::unordered_map<std::pair<const char*, const char*>, std::size_t, NamesHash> fence_index_;
};

class TraceLock {
 public:
  TraceLock() { Recorder::instance().lock(); }
  ~TraceLock() { Recorder::instance().unlock(); }
  TraceLock(const TraceLock&) = delete;
  TraceLock& operator=(const TraceLock&) = delete;
};

}  // namespace TENUTO_NS::pm

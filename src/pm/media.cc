#include "pm/media.h"

#include <cpuid.h>
#include <x86intrin.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "pm/no_memory.h"
#include "pm/process.h"
#include "pm/thread_end.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

constinit std::atomic<FlushPath> flush_path = FlushPath::none;

namespace {

constexpr std::size_t kReflushDistance = 4;
constexpr std::uint64_t kBlockBytes = 256;  // Optane's internal write unit

// Delays in nanoseconds that medium `model` adds on request. A reflush takes 800 at distance 0,
// falling to 500 at distance 3. It costs about as much as 3 random or 7 sequential writes.
constexpr std::array<unsigned, kReflushDistance> kReflushNs = {800, 700, 600, 500};
constexpr unsigned kRandomNs = 270;
constexpr unsigned kSequentialNs = 115;

struct Region {
  std::atomic<std::uintptr_t> base = 0;  // 0: free
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<Medium> medium = Medium::cache;
  std::atomic<bool> delays = false;
  std::atomic<FlushSink*> sink = nullptr;
  std::atomic<FlushWatch*> watch = nullptr;
};

constinit std::array<Region, kRegionsMax> regions;
constinit std::atomic<std::size_t> regions_used = 0;  // entries from here on were never used
constinit std::mutex& regions_mu = process_locks.regions;
constinit std::atomic<FlushSink::Fence> sink_fence = nullptr;

// The lines that one thread flushed last, and its counters.
struct ThreadModel {
  ModelCounts counts;
  std::array<std::uintptr_t, kReflushDistance> recent{};  // distinct lines, latest first
  std::uintptr_t block = 0;

  ThreadModel();
  ~ThreadModel();
};

constinit std::mutex& models_mu = process_locks.models;
std::vector<ThreadModel*>& models() {
  static auto* list = new std::vector<ThreadModel*>;  // outlives every thread
  return *list;
}
ModelCounts ended;  // guarded by models_mu

ThreadModel::ThreadModel() {
  const std::lock_guard lock(models_mu);
  models().push_back(this);
}
ThreadModel::~ThreadModel() {
  const std::lock_guard lock(models_mu);
  ended += counts;
  std::erase(models(), this);
}

// Null: there is no memory for it, and the thread is not counted. A flush or a fence is in the
// middle of a protocol, so it must not throw.
ThreadModel* thread_model() {
  ThreadModel* model = nullptr;
  static_cast<void>(had_memory([&] { model = &thread_part<ThreadModel>(ThreadPart::counts); }));
  return model;
}

// Each counter is written by its own thread and read by others.
void bump(std::uint64_t& counter) {
  std::atomic_ref(counter).store(counter + 1, std::memory_order_relaxed);
}

double tsc_per_ns() {
  static const double rate = [] {
    timespec a{}, b{};
    clock_gettime(CLOCK_MONOTONIC, &a);
    const std::uint64_t t0 = __rdtsc();
    do {
      clock_gettime(CLOCK_MONOTONIC, &b);
    } while ((b.tv_sec - a.tv_sec) * 1000000000L + (b.tv_nsec - a.tv_nsec) < 10000000L);
    const auto ns = (b.tv_sec - a.tv_sec) * 1000000000L + (b.tv_nsec - a.tv_nsec);
    return static_cast<double>(__rdtsc() - t0) / static_cast<double>(ns);
  }();
  return rate;
}

void spin_ns(unsigned ns) {
  const std::uint64_t until = __rdtsc() + static_cast<std::uint64_t>(ns * tsc_per_ns());
  while (__rdtsc() < until) _mm_pause();
}

void model_line(std::uintptr_t line, bool delays) {
  ThreadModel* const model = thread_model();
  if (model == nullptr) return;
  ThreadModel& m = *model;
  bump(m.counts.lines);
  unsigned ns = 0;
  std::size_t at = 0;
  while (at < kReflushDistance && m.recent[at] != line) ++at;
  if (at < kReflushDistance) {
    bump(m.counts.reflushes);
    ns = kReflushNs[at];
  } else {
    at = kReflushDistance - 1;
  }
  for (; at > 0; --at) m.recent[at] = m.recent[at - 1];
  m.recent[0] = line;

  const std::uintptr_t block = line / kBlockBytes;
  if (block == m.block + 1) {
    bump(m.counts.writes_sequential);
    if (ns == 0) ns = kSequentialNs;
  } else if (block != m.block) {
    bump(m.counts.writes_random);
    if (ns == 0) ns = kRandomNs;
  }
  m.block = block;
  if (delays && ns != 0) spin_ns(ns);
}

void flush_line_with(FlushInstruction how, const char* line) {
  switch (how) {
    case FlushInstruction::clwb:
      clwb_line(line);
      break;
    case FlushInstruction::clflushopt:
      asm volatile("clflushopt %0" : : "m"(*line) : "memory");
      break;
    case FlushInstruction::clflush:
      asm volatile("clflush %0" : : "m"(*line) : "memory");
      break;
  }
}

struct Found {
  Medium medium = Medium::cache;
  bool delays = false;
  FlushSink* sink = nullptr;
  FlushWatch* watch = nullptr;
};

// The region that holds p. Other threads may reuse other slots meanwhile. So what was read of a
// slot counts only if its base is the same afterwards. The region of p itself stays registered
// while a thread flushes in it.
std::optional<Found> find_region(std::uintptr_t p) {
  const std::size_t used = regions_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    const Region& r = regions[i];
    const std::uintptr_t base = r.base.load(std::memory_order_acquire);
    if (base == 0 || p < base || p >= r.end.load(std::memory_order_acquire)) continue;
    const Found found{
        r.medium.load(std::memory_order_acquire), r.delays.load(std::memory_order_acquire),
        r.sink.load(std::memory_order_acquire), r.watch.load(std::memory_order_acquire)};
    if (r.base.load(std::memory_order_relaxed) == base) return found;
  }
  return std::nullopt;
}

// REQUIRES: regions_mu is held.
void choose_path() {
  bool all_cache = true;
  bool all_line = true;
  bool watched = false;
  for (const Region& r : regions) {
    if (r.base.load(std::memory_order_relaxed) == 0) continue;
    const Medium m = r.medium.load(std::memory_order_relaxed);
    all_cache &= m == Medium::cache;
    all_line &= m == Medium::line;
    watched |= r.watch.load(std::memory_order_relaxed) != nullptr;
  }
  FlushPath path = FlushPath::cold;
  if (watched) {
    // each flush has to be seen
  } else if (all_cache) {
    path = FlushPath::none;
  } else if (all_line && flush_instruction() == FlushInstruction::clwb) {
    path = FlushPath::clwb;
  }
  flush_path.store(path, std::memory_order_release);
}

}  // namespace

void watch_flushes(const void* base, FlushWatch* watch) {
  const std::lock_guard lock(regions_mu);
  for (Region& r : regions) {
    if (r.base.load(std::memory_order_relaxed) == reinterpret_cast<std::uintptr_t>(base)) {
      r.watch.store(watch, std::memory_order_release);
    }
  }
  choose_path();
}

FlushInstruction flush_instruction() {
  static const FlushInstruction best = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
      if ((b & 1u << 24) != 0) return FlushInstruction::clwb;
      if ((b & 1u << 23) != 0) return FlushInstruction::clflushopt;
    }
    return FlushInstruction::clflush;
  }();
  return best;
}

bool register_region(const void* base, std::uint64_t bytes, Medium medium, bool delays,
                     FlushSink* sink) {
  const std::lock_guard lock(regions_mu);
  std::size_t i = 0;
  while (i < kRegionsMax && regions[i].base.load(std::memory_order_relaxed) != 0) ++i;
  if (i == kRegionsMax) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(base);
  regions[i].end.store(at + bytes, std::memory_order_relaxed);
  regions[i].medium.store(medium, std::memory_order_relaxed);
  regions[i].delays.store(delays, std::memory_order_relaxed);
  regions[i].sink.store(sink, std::memory_order_relaxed);
  regions[i].watch.store(nullptr, std::memory_order_relaxed);
  if (sink != nullptr) sink_fence.store(sink->fence(), std::memory_order_relaxed);
  regions[i].base.store(at, std::memory_order_release);
  if (i >= regions_used.load(std::memory_order_relaxed)) {
    regions_used.store(i + 1, std::memory_order_release);
  }
  choose_path();
  return true;
}

void unregister_region(const void* base) {
  const std::lock_guard lock(regions_mu);
  for (Region& r : regions) {
    if (r.base.load(std::memory_order_relaxed) == reinterpret_cast<std::uintptr_t>(base)) {
      r.base.store(0, std::memory_order_release);
    }
  }
  choose_path();
}

namespace {
void flush_in(const Found& region, const void* p, std::size_t bytes) {
  if (region.medium == Medium::cache) return;
  if (region.medium == Medium::journal) return region.sink->capture(p, bytes);
  const FlushInstruction how = flush_instruction();
  const char* end = static_cast<const char*>(p) + bytes;
  for (const char* line = line_of(p); line < end; line += kLineBytes) {
    flush_line_with(how, line);
    if (region.medium == Medium::model) {
      model_line(reinterpret_cast<std::uintptr_t>(line), region.delays);
    }
  }
}
}  // namespace

void flush_cold(const void* p, std::size_t bytes) {
  const std::optional<Found> region = find_region(reinterpret_cast<std::uintptr_t>(p));
  if (!region) return;
  flush_in(*region, p, bytes);
  if (region->watch != nullptr) region->watch->flushed(p, bytes);
}

void fence_cold() {
  sfence();
  // Relaxed is enough: a thread that captured has seen its region (acquire), and register_region
  // stores the fence before the region's base (release).
  if (const FlushSink::Fence fence = sink_fence.load(std::memory_order_relaxed)) fence();
  if (ThreadModel* const model = thread_model()) bump(model->counts.fences);
}

ModelCounts& ModelCounts::operator+=(const ModelCounts& o) {
  lines += o.lines;
  fences += o.fences;
  reflushes += o.reflushes;
  writes_sequential += o.writes_sequential;
  writes_random += o.writes_random;
  return *this;
}

ModelCounts operator-(ModelCounts a, const ModelCounts& b) {
  a.lines -= b.lines;
  a.fences -= b.fences;
  a.reflushes -= b.reflushes;
  a.writes_sequential -= b.writes_sequential;
  a.writes_random -= b.writes_random;
  return a;
}

namespace {
ModelCounts read_counts(ModelCounts& c) {
  const auto load = [](std::uint64_t& n) {
    return std::atomic_ref(n).load(std::memory_order_relaxed);
  };
  return {load(c.lines), load(c.fences), load(c.reflushes), load(c.writes_sequential),
          load(c.writes_random)};
}
}  // namespace

ModelCounts model_counts() {
  const std::lock_guard lock(models_mu);
  ModelCounts sum = ended;
  for (ThreadModel* m : models()) sum += read_counts(m->counts);
  return sum;
}

ModelCounts thread_model_counts() {
  ThreadModel* const model = thread_model();
  return model == nullptr ? ModelCounts{} : read_counts(model->counts);
}

}  // namespace TENUTO_NS::pm

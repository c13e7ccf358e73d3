#include "crash/trace_recorder.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "pm/assert.h"

namespace TENUTO_NS::pm {

constinit thread_local TraceStack trace_stack;

namespace {

constexpr std::size_t kStoresMax = 4096;  // of one line above its floor
constexpr std::uint64_t kWords = kLineBytes / 8;

constinit std::atomic<bool> locked = false;
constinit thread_local unsigned lock_depth = 0;

std::uint64_t load_word(std::uintptr_t at) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_RELAXED);
}

}  // namespace

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder;  // outlives every thread
  return *recorder;
}

Recorder::Recorder() {
  void* p = ::mmap(nullptr, kTracedFencesMax * sizeof(FenceStats), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TENUTO_ASSERT(p != MAP_FAILED);
  fences_ = static_cast<FenceStats*>(p);
}

Recorder::Thread& Recorder::self() {
  // Never freed: an ended thread may have left a pending store, whose value is read later.
  constinit thread_local Thread* mine = nullptr;
  if (mine == nullptr) {
    mine = new Thread;
    const TraceLock lock;
    Recorder& r = instance();
    mine->barriers = r.next_thread_++ << kGroupShift;
    r.threads_.push_back(mine);
  }
  return *mine;
}

void Recorder::lock() {
  if (lock_depth++ != 0) return;
  while (locked.exchange(true, std::memory_order_acquire)) ::sched_yield();
}

void Recorder::unlock() {
  if (--lock_depth == 0) locked.store(false, std::memory_order_release);
}

bool Recorder::held_by_caller() { return lock_depth != 0; }
bool Recorder::held_by_any() { return locked.load(std::memory_order_relaxed); }

void Recorder::drain_mine() {
  if (self().pending.empty()) return;
  const TraceLock lock;
  drain(self(), true);
}

void Recorder::watch(std::span<const TraceFile> files, TraceObserver* observer, Settings settings) {
  TENUTO_ASSERT(files.size() <= kCrashFilesMax);
  const TraceLock lock;
  stop();
  files_.assign(files.begin(), files.end());
  observer_ = observer;
  settings_ = settings;
  locked_fences_.store(settings.locked_instructions_fence, std::memory_order_relaxed);
}

void Recorder::stop() {
  const TraceLock lock;
  for (std::size_t file = 0; file < files_.size(); ++file) trace_regions.set(file, 0, 0);
  files_.clear();
  observer_ = nullptr;
  locked_fences_.store(false, std::memory_order_relaxed);
  logs_.clear();
  unseen_.clear();
  forgotten_.clear();
  flush_sites_.clear();
  order_ = 0;
  for (Thread* t : threads_) {
    t->pending.clear();
    t->marks.clear();
    t->flush_calls = 0;
    t->flush_lines = 0;
    t->dirty.clear();
    t->published.clear();
    t->transactions = 0;
  }
}

void Recorder::after_fork() {
  lock_depth = 0;
  locked.store(false, std::memory_order_release);
  threads_.clear();
  stop();
}

std::vector<const LineLog*> Recorder::lines() const {
  std::vector<const LineLog*> all;
  all.reserve(logs_.size());
  for (const auto& [line, log] : logs_) {
    if (settings_.keep_clean_lines || !log->stores.empty()) all.push_back(log.get());
  }
  std::sort(all.begin(), all.end(),
            [](const LineLog* a, const LineLog* b) { return a->line < b->line; });
  return all;
}

const LineLog* Recorder::find(std::uint64_t line) const {
  const auto it = logs_.find(line);
  return it == logs_.end() ? nullptr : it->second.get();
}

// The content of a line without a log: the durable content, if that is known. Else what is in
// memory now, before the store that is about to be recorded.
LineWords Recorder::unlogged(std::uint64_t line) const {
  LineWords words;
  if (const std::byte* durable = files_[file_of(line)].durable) {
    std::memcpy(words.data(), durable + offset_of(line), kLineBytes);
    return words;
  }
  const std::uintptr_t at = address_of(line);
  for (std::size_t w = 0; w < words.size(); ++w) words[w] = load_word(at + w * 8);
  return words;
}

LineLog& Recorder::touch(std::uint64_t line) {
  std::unique_ptr<LineLog>& log = logs_[line];
  if (log == nullptr) {
    log = std::make_unique<LineLog>();
    log->line = line;
    log->now = log->floor = unlogged(line);
  }
  return *log;
}

void Recorder::note_word(Thread& t, std::uint64_t word, std::uint64_t mask, std::uint64_t group,
                         const TraceSite& site) {
  const std::uint64_t value = load_word(address_of(word / kWords) + word % kWords * 8);
  const LineLog* known = find(word / kWords);
  const LineWords words = known != nullptr ? known->now : unlogged(word / kWords);
  if (((words[word % kWords] ^ value) & mask) == 0) return;
  LineLog& log = touch(word / kWords);
  if (log.stores.size() == kStoresMax) {
    // Bound the memory: from now on the oldest half counts as durable and is never lost.
    constexpr std::size_t kHalf = kStoresMax / 2;
    const LineWords old_floor = log.floor;
    for (std::size_t i = 0; i < kHalf; ++i) log.stores[i].apply(log.floor);
    log.stores.erase(log.stores.begin(), log.stores.begin() + kHalf);
    if (observer_ != nullptr) observer_->floor_raised(log, old_floor);
  }
  log.stores.push_back(
      {value, mask, ++order_, group, static_cast<std::uint8_t>(word % kWords), site});
  log.stores.back().apply(log.now);
  if (settings_.lint) t.dirty.insert(log.line);
}

void Recorder::note(Thread& t, const void* p, std::size_t n, std::uint64_t group,
                    const TraceSite& site) {
  const std::size_t file = trace_regions.file_at(p, n);
  if (file == kCrashFilesMax) return;
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t base = trace_regions.of(file).begin();
  const std::uint64_t begin = std::max(at, base) - base;
  const std::uint64_t end = std::min(at + n - base, mapped_bytes(file));
  for (std::uint64_t w = begin / 8; w < (end + 7) / 8; ++w) {
    std::uint64_t mask = ~0ull;
    if (begin > w * 8) mask &= ~0ull << (begin - w * 8) * 8;
    if (end < w * 8 + 8) mask &= ~0ull >> (w * 8 + 8 - end) * 8;
    note_word(t, first_line(file) * kWords + w, mask, group, site);
  }
}

bool Recorder::stored_elsewhere(std::uint64_t line) const {
  const Thread& mine = self();
  if (mapped(file_of(line)) == nullptr) return false;
  const std::uintptr_t at = address_of(line);
  for (const Thread* t : threads_) {
    if (t == &mine) continue;
    for (const Pending& s : t->pending) {
      const auto p = reinterpret_cast<std::uintptr_t>(s.p);
      if (p < at + kLineBytes && at < p + s.n) return true;
    }
  }
  return false;
}

void Recorder::drain(Thread& t, bool forget) {
  for (const Pending& s : t.pending) note(t, s.p, s.n, s.group, s.site);
  if (forget) t.pending.clear();
}

void Recorder::drain_all() {
  // Another thread's pending store may not have happened yet. So what is in memory is recorded now,
  // and the store stays pending until that thread's next event.
  Thread& mine = self();
  drain(mine, true);
  for (Thread* t : threads_) {
    if (t != &mine) drain(*t, false);
  }
}

void Recorder::prepare_store(const void* p, std::size_t n) {
  drain(self(), true);
  const auto [begin, end] = lines_of(p, n);
  // With the durable content at hand, that before the store is known without the memory.
  if (begin == end || files_[file_of(begin)].durable != nullptr) return;
  for (std::uint64_t line = begin; line < end; ++line) touch(line);
}

void Recorder::before_store(const void* p, std::size_t n, const TraceSite& site) {
  const TraceLock lock;
  prepare_store(p, n);
  Thread& t = self();
  t.pending.push_back({p, n, t.barriers, site});
}

void Recorder::after_store(const void* p, std::size_t n, const TraceSite& site, bool ordered) {
  const TraceLock lock;
  Thread& t = self();
  drain(t, true);
  if (ordered) ++t.barriers;
  note(t, p, n, t.barriers, site);
  if (ordered) ++t.barriers;
}

TraceCounts Recorder::thread_counts() { return self().counts; }

}  // namespace TENUTO_NS::pm

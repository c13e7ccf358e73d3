#include "crash/trace_recorder.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "pm/assert.h"

namespace TENUTO_NS::pm {

constinit TraceRegion trace_region;
constinit thread_local TraceStack trace_stack;

namespace {

constexpr std::size_t kStoresMax = 4096;  // of one line above its floor

constinit std::atomic<bool> locked = false;
constinit thread_local unsigned lock_depth = 0;

std::uint64_t load_word(std::uintptr_t at) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_RELAXED);
}

std::uintptr_t base() { return trace_region.base.load(std::memory_order_relaxed); }

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

void Recorder::watch(std::uint64_t device, std::uint64_t inode, TraceObserver* observer,
                     const std::byte* durable, Settings settings) {
  const TraceLock lock;
  stop();
  device_ = device;
  inode_ = inode;
  observer_ = observer;
  durable_ = durable;
  settings_ = settings;
  locked_fences_.store(settings.locked_instructions_fence, std::memory_order_relaxed);
}

void Recorder::stop() {
  const TraceLock lock;
  trace_region.bytes.store(0, std::memory_order_relaxed);
  trace_region.base.store(0, std::memory_order_relaxed);
  inode_ = 0;
  observer_ = nullptr;
  durable_ = nullptr;
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
    t->in_transaction = false;
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

const std::byte* Recorder::mapped() const { return reinterpret_cast<const std::byte*>(base()); }
std::uint64_t Recorder::mapped_bytes() const {
  return trace_region.bytes.load(std::memory_order_relaxed);
}

const LineLog* Recorder::find(std::uint64_t line) const {
  const auto it = logs_.find(line);
  return it == logs_.end() ? nullptr : it->second.get();
}

void Recorder::map(void* base_of_map, std::uint64_t bytes, int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return;
  const TraceLock lock;
  if (inode_ == 0 || st.st_ino != inode_ || st.st_dev != device_) return;
  const auto at = reinterpret_cast<std::uintptr_t>(base_of_map);
  TENUTO_ASSERT(base() == 0 || base() == at);  // one mapping of the watched file at a time
  trace_region.base.store(at, std::memory_order_relaxed);
  trace_region.bytes.store(round_down(bytes, kLineBytes), std::memory_order_relaxed);
  if (observer_ != nullptr) durable_ = observer_->resized(static_cast<std::uint64_t>(st.st_size));
}

void Recorder::unmap(void* base_of_map) {
  const TraceLock lock;
  if (base() == 0 || base() != reinterpret_cast<std::uintptr_t>(base_of_map)) return;
  drain_all();
  for (Thread* t : threads_) t->pending.clear();
  trace_region.bytes.store(0, std::memory_order_relaxed);
  trace_region.base.store(0, std::memory_order_relaxed);
}

std::pair<std::uint64_t, std::uint64_t> Recorder::lines_of(const void* p, std::size_t n) const {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t end = std::min(at + n, base() + mapped_bytes());
  const std::uintptr_t begin = std::max(at, base());
  if (begin >= end) return {0, 0};
  return {(begin - base()) / kLineBytes, (end - base() + kLineBytes - 1) / kLineBytes};
}

// The content of a line without a log: the durable content, if that is known. Else what is in
// memory now, before the store that is about to be recorded.
LineWords Recorder::unlogged(std::uint64_t line) const {
  LineWords words;
  if (durable_ != nullptr) {
    std::memcpy(words.data(), durable_ + line * kLineBytes, kLineBytes);
    return words;
  }
  const std::uintptr_t at = base() + line * kLineBytes;
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
  constexpr std::uint64_t kWords = kLineBytes / 8;
  const std::uint64_t value = load_word(base() + word * 8);
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
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  if (at + n <= base() || at >= base() + mapped_bytes()) return;
  const std::uint64_t begin = std::max(at, base()) - base();
  const std::uint64_t end = std::min(at + n - base(), mapped_bytes());
  for (std::uint64_t w = begin / 8; w < (end + 7) / 8; ++w) {
    std::uint64_t mask = ~0ull;
    if (begin > w * 8) mask &= ~0ull << (begin - w * 8) * 8;
    if (end < w * 8 + 8) mask &= ~0ull >> (w * 8 + 8 - end) * 8;
    note_word(t, w, mask, group, site);
  }
}

bool Recorder::stored_elsewhere(std::uint64_t line) const {
  const Thread& mine = self();
  const std::uintptr_t at = base() + line * kLineBytes;
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
  if (durable_ != nullptr) return;  // the content before the store is known without the memory
  const auto [begin, end] = lines_of(p, n);
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

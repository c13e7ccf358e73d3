// The recorder's part for flushes and fences: what becomes durable, the mutations (a fence or a
// flush dropped by name), and the statistics of named fences.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "crash/trace_recorder.h"
#include "pm/assert.h"

namespace TENUTO_NS::pm {

namespace {
constexpr std::size_t kUnseenMax = 64;
}  // namespace

void Recorder::compare_flushed(std::uint64_t line, Thread& t, const TraceSite& site) {
  const auto* memory = reinterpret_cast<const void*>(address_of(line));
  const LineLog* log = find(line);
  const LineWords known = log != nullptr ? log->now : unlogged(line);
  if (std::memcmp(memory, known.data(), kLineBytes) == 0) return;
  if (stored_elsewhere(line)) return;
  if (unseen_.size() < kUnseenMax) unseen_.push_back(line);
  note(t, memory, kLineBytes, t.barriers, site);
}

void Recorder::flush(const void* p, std::size_t n, const TraceSite& site) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const TraceLock lock;
  Thread& t = self();
  const std::uint64_t lines = (at + n + kLineBytes - 1) / kLineBytes - at / kLineBytes;
  ++t.counts.flushes;
  t.counts.lines += n == 0 ? 0 : lines;
  if (!trace_regions.touches(p, n)) return;
  drain_all();
  const auto [begin, end] = lines_of(p, n);
  for (std::uint64_t line = begin; line < end; ++line) {
    compare_flushed(line, t, site);
    if (settings_.lint) lint_flush(t, line, site);
    const auto log = logs_.find(line);
    if (log == logs_.end()) continue;
    t.marks.push_back({t.flush_calls, line, order_});
    log->second->flushed = order_;
  }
  if (settings_.flush_sectors) mark_sectors(t, begin, end);
  ++t.flush_calls;
  t.flush_lines += end - begin;
  ++t.barriers;
}

// Marks the other lines of the sectors with the flushed lines [begin, end).
void Recorder::mark_sectors(Thread& t, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kLines = 512 / kLineBytes;
  for (std::uint64_t line = round_down(begin, kLines); line < round_up(end, kLines); ++line) {
    const bool marked = line >= begin && line < end;
    const auto log = logs_.find(line);
    if (marked || log == logs_.end()) continue;
    t.marks.push_back({t.flush_calls, line, order_});
    log->second->flushed = order_;
  }
}

bool Recorder::raises_anything(const Thread& t) const {
  return std::any_of(t.marks.begin(), t.marks.end(), [&](const Mark& m) {
    const LineLog* log = find(m.line);
    return log != nullptr && !log->stores.empty() && log->stores.front().order <= m.until;
  });
}

// Makes the line's stores up to the order `until` durable.
void Recorder::raise(LineLog& log, std::uint64_t until) {
  const LineWords old_floor = log.floor;
  auto rest = log.stores.begin();
  for (; rest != log.stores.end() && rest->order <= until; ++rest) rest->apply(log.floor);
  log.stores.erase(log.stores.begin(), rest);
  if (observer_ != nullptr && log.floor != old_floor) observer_->floor_raised(log, old_floor);
}

void Recorder::raise(Thread& t) {
  for (const Mark& m : t.marks) {
    const auto it = logs_.find(m.line);
    if (it == logs_.end()) continue;
    raise(*it->second, m.until);
    if (it->second->stores.empty() && !settings_.keep_clean_lines) logs_.erase(it);
  }
  t.marks.clear();
  t.flush_calls = 0;
  t.flush_lines = 0;
}

void Recorder::raise_all() {
  for (const auto& [line, log] : logs_) raise(*log, order_);
  if (!settings_.keep_clean_lines) logs_.clear();
}

void Recorder::fence(const char* first, const char* then) {
  const TraceLock lock;
  Thread& t = self();
  ++t.counts.fences;
  ++t.barriers;
  if (observer_ == nullptr) return;
  drain_all();
  if (mutation_.kind != Mutation::Kind::none && mutation_.first == first &&
      mutation_.then == then) {
    if (mutation_.kind == Mutation::Kind::drop_fence) return;
    std::erase_if(t.marks, [&](const Mark& m) { return m.call == mutation_.nth; });
  }
  FenceStats& s = stats_of(first, then);
  ++s.passed;
  s.empty += t.flush_calls == 0 ? 1 : 0;
  s.lines += t.flush_lines;
  s.flushes_max = std::max(s.flushes_max, t.flush_calls);
  observer_->before_fence(first, then);
  if (settings_.lint) lint_fence(t, first, then);
  raise(t);
}

void Recorder::locked_instruction() {
  if (!locked_fences_.load(std::memory_order_relaxed)) return;
  if (held_by_caller()) return;  // an instruction of the explorer itself
  const TraceLock lock;
  if (observer_ == nullptr) return;
  Thread& t = self();
  drain_all();
  if (!raises_anything(t)) return;
  observer_->before_fence("flushed lines", "locked instruction");
  // The flush calls stay counted: for mutations they belong to the next named fence.
  const std::uint32_t calls = t.flush_calls;
  const std::uint64_t lines = t.flush_lines;
  raise(t);
  t.flush_calls = calls;
  t.flush_lines = lines;
}

FenceStats& Recorder::stats_of(const char* first, const char* then) {
  const auto [it, fresh] = fence_index_.try_emplace({first, then}, 0);
  if (!fresh) return fences_[it->second];
  std::size_t i = 0;
  while (i < kTracedFencesMax && fences_[i].first[0] != 0 &&
         (std::strcmp(fences_[i].first, first) != 0 || std::strcmp(fences_[i].then, then) != 0)) {
    ++i;
  }
  TENUTO_ASSERT(i < kTracedFencesMax);
  std::snprintf(fences_[i].first, sizeof fences_[i].first, "%s", first);
  std::snprintf(fences_[i].then, sizeof fences_[i].then, "%s", then);
  it->second = i;
  return fences_[i];
}

std::vector<FenceStats> Recorder::fences() const {
  std::size_t n = 0;
  while (n < kTracedFencesMax && fences_[n].first[0] != 0) ++n;
  return {fences_, fences_ + n};
}

void Recorder::clear_fences() {
  const TraceLock lock;
  fence_index_.clear();
  std::memset(fences_, 0, kTracedFencesMax * sizeof(FenceStats));
}

void Recorder::mark_explored(const char* first, const char* then) {
  const TraceLock lock;
  ++stats_of(first, then).explored;
}

}  // namespace TENUTO_NS::pm

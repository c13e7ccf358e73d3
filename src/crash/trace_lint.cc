// Finds forgotten and needless flushes while the workload runs, without any crash.
//
// Forgotten: a thread stored to a line and did not flush it, and then something relied on the line:
// a fence made a word durable that the thread published after the store, a transaction committed,
// or an operation was acknowledged. Before that fence neither store nor word is durable, so a late
// flush is no mistake. The explorer tests whether their order matters within one fence. Lines that
// recovery does not need are declared with transient().
//
// Needless: a flush of a line without a store since its last flush. A store of the value that was
// there already does not count. A fence without a flush before it is needless too;
// FenceStats::empty counts these.
#include <algorithm>

#include "crash/trace_recorder.h"

namespace TENUTO_NS::pm {

void Recorder::publish(const void* word, const TraceSite& site) {
  const TraceLock lock;
  if (!settings_.lint) return;
  drain_all();
  const std::uint64_t line = lines_of(word, sizeof(std::uint64_t)).first;
  self().published.push_back({line, order_, site});
}

void Recorder::transient(const void* p, std::size_t n) {
  const TraceLock lock;
  drain_all();
  Thread& t = self();
  const auto [begin, end] = lines_of(p, n);
  for (std::uint64_t line = begin; line < end; ++line) t.dirty.erase(line);
}

void Recorder::checkpoint(const char* when) {
  const TraceLock lock;
  if (!settings_.lint) return;
  drain_all();
  lint(self(), order_, when, {});
}

void Recorder::transaction(TraceTx what) {
  const TraceLock lock;
  if (!settings_.lint) return;
  drain_all();
  Thread& t = self();
  t.published.clear();
  if (what == TraceTx::begun) {
    ++t.transactions;
    return;
  }
  // With transactions of several pools the lines of each are judged when all have ended.
  if (t.transactions != 0 && --t.transactions != 0) return;
  if (what == TraceTx::committed) {
    lint(t, order_, "a transaction's commit, not added to it", {});
  } else {
    t.dirty.clear();
  }
}

void Recorder::lint_fence(Thread& t, const char* first, const char* then) {
  if (t.published.empty() || t.transactions != 0) return;
  // Either the word's own line is flushed with it, or that flush is the forgotten one.
  const Published& last = t.published.back();
  lint(t, last.order, std::string("fence(\"") + first + "\", \"" + then + "\")", last.site);
  t.published.clear();
}

// Reports the thread's lines with stores up to `until` that were not flushed.
void Recorder::lint(Thread& t, std::uint64_t until, const std::string& when,
                    const TraceSite& publish) {
  const std::uint64_t me = t.barriers >> kGroupShift;
  for (auto it = t.dirty.begin(); it != t.dirty.end();) {
    const LineLog* log = find(*it);
    const StoreRecord* kept = nullptr;  // the first store that was not flushed
    for (std::size_t i = 0; log != nullptr && i < log->stores.size() && kept == nullptr; ++i) {
      const StoreRecord& s = log->stores[i];
      if (s.order > log->flushed && s.group >> kGroupShift == me) kept = &s;
    }
    if (kept != nullptr && kept->order > until) {
      ++it;
      continue;
    }
    if (kept != nullptr) {
      const auto same = std::find_if(forgotten_.begin(), forgotten_.end(), [&](const Forgotten& f) {
        return f.store[0] == kept->site[0] && f.when == when;
      });
      if (same != forgotten_.end()) {
        ++same->count;
      } else {
        forgotten_.push_back({when, publish, kept->site, *it, 1});
      }
    }
    it = t.dirty.erase(it);
  }
}

void Recorder::lint_flush(const Thread& t, std::uint64_t line, const TraceSite& site) {
  FlushSite& f = flush_sites_.try_emplace(site[0], FlushSite{site, 0, 0, 0}).first->second;
  ++f.lines;
  const LineLog* log = find(line);
  const bool changed =
      log != nullptr && !log->stores.empty() && log->stores.back().order > log->flushed;
  if (!changed) {
    ++f.clean;
  } else if (std::any_of(t.marks.begin(), t.marks.end(),
                         [line](const Mark& m) { return m.line == line; })) {
    ++f.reflush;
  }
}

std::vector<Recorder::FlushSite> Recorder::flush_sites() const {
  std::vector<FlushSite> all;
  for (const auto& [site, f] : flush_sites_) all.push_back(f);
  std::sort(all.begin(), all.end(),
            [](const FlushSite& a, const FlushSite& b) { return a.clean > b.clean; });
  return all;
}

}  // namespace TENUTO_NS::pm

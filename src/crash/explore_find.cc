// Findings of the explorer: minimises them until only the guilty lines are left, and makes their
// text.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "crash/explore_run.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kTrialsMax = 300;     // worker runs for one minimisation
constexpr std::size_t kKeptTrialsMax = 60;  // lines tested whether they had to survive
constexpr std::size_t kPlacesMax = 8;       // lost lines shown with their source places
constexpr std::size_t kWastedMax = 12;      // flushing places shown
constexpr std::uint64_t kRepeatsMax = 20;   // of findings already known

// The stores of the line that a variant lacks: how many. Appends the sites of the first and last.
LostLine lost_stores(const LineLog& log, const LineVariant& v, std::vector<TraceSite>& sites) {
  LostLine lost{offset_of(log.line), log.stores.size(), 0, true, {}, {}, file_of(log.line)};
  const StoreRecord* last = nullptr;
  for (std::size_t i = v.prefix; i < log.stores.size(); ++i) {
    const std::size_t bit = i - v.prefix;
    if (bit < 64 && (v.mask >> bit & 1) != 0) continue;
    last = &log.stores[i];
    if (lost.lost++ == 0) sites.push_back(last->site);
  }
  if (last == nullptr) return lost;
  sites.push_back(last->site);
  lost.flushed = last->order <= log.flushed;
  return lost;
}

}  // namespace

// The lines that survived in a minimised state and without which it would not fail.
std::vector<std::uint32_t> CrashExplorer::lines_that_matter(CrashPoint& m,
                                                            const CrashState& state) {
  std::vector<std::uint32_t> matter;
  Verdict ignored;
  for (std::uint32_t i = 0; i < std::min(m.lines.size(), kKeptTrialsMax); ++i) {
    if (m.lines[i].newest == 0 || variant_in(m.lines, state, i) != m.lines[i].newest) continue;
    CrashState s = state;
    set_variant(s, i, 0);
    if (!still_bad(m, s, ignored)) matter.push_back(i);
  }
  return matter;
}

void CrashExplorer::add_lint() {
  const Recorder& r = Recorder::instance();
  std::vector<TraceSite> sites;
  for (const Recorder::Forgotten& f : r.forgotten()) {
    sites.push_back(f.store);
    sites.push_back(f.publish);
  }
  std::vector<std::string> places = source_places(sites);
  for (std::size_t i = 0; i < r.forgotten().size(); ++i) {
    const Recorder::Forgotten& f = r.forgotten()[i];
    std::string when = f.when;
    if (f.publish[0] != nullptr) when += " behind publish in " + places[2 * i + 1];
    result_.forgotten.push_back(
        {when, places[2 * i], offset_of(f.line), f.count, file_of(f.line), options_.files});
  }
  std::vector<Recorder::FlushSite> flushes = r.flush_sites();
  std::erase_if(flushes, [](const auto& f) { return f.clean == 0 && f.reflush == 0; });
  flushes.resize(std::min(flushes.size(), kWastedMax));
  sites.clear();
  for (const Recorder::FlushSite& f : flushes) sites.push_back(f.site);
  places = source_places(sites);
  for (std::size_t i = 0; i < flushes.size(); ++i) {
    const Recorder::FlushSite& f = flushes[i];
    result_.wasted.push_back({places[i], f.lines, f.clean, f.reflush});
  }
}

bool CrashExplorer::still_bad(CrashPoint& m, const CrashState& state, Verdict& verdict) {
  const std::vector<CrashState> only = {state};
  WorkerJob job = job_for(m, {0});
  job.states = &only;
  job.know_seen = false;
  Verdict v = run_worker(job);
  if (!v.bad) return false;
  verdict = std::move(v);
  return true;
}

// Persists as many units as possible while the check still fails. Then it persists as many stores
// of each other line (mode adr).
void CrashExplorer::minimise(CrashPoint& m, CrashState& state, Verdict& verdict) {
  std::size_t trials = 0;
  const auto try_state = [&](const CrashState& s) {
    if (trials++ >= kTrialsMax || !still_bad(m, s, verdict)) return false;
    state = s;
    return true;
  };
  const CrashUnits units(m.lines, options_.mode);
  std::vector<std::size_t> old;
  const auto find_old = [&] {
    old.clear();
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (!units.all_new(state, u)) old.push_back(u);
    }
  };
  find_old();
  for (std::size_t chunk = old.size(); chunk != 0; chunk /= 2) {
    for (std::size_t i = 0; i < old.size(); i += chunk) {
      CrashState s = state;
      for (std::size_t k = i; k < std::min(i + chunk, old.size()); ++k) units.persist(s, old[k]);
      try_state(s);
    }
    find_old();
  }
  if (options_.mode != CrashMode::adr) return;
  for (const std::size_t i : old) {
    const auto line = static_cast<std::uint32_t>(i);
    const LineChoices& l = m.lines[line];
    for (std::size_t p = l.of_prefix.size() - 1; p-- > 0;) {
      const std::uint32_t v = l.of_prefix[p];
      if (v == variant_in(m.lines, state, line)) break;
      CrashState s = state;
      set_variant(s, line, v);
      if (v != l.newest && try_state(s)) break;
    }
  }
}

void CrashExplorer::add_finding(CrashPoint& m, std::uint64_t index, const Verdict& first_verdict) {
  CrashState state = m.states[index];
  Verdict v = first_verdict;
  if (options_.minimise && !replay_) minimise(m, state, v);
  CrashFinding f{m.where, v.recovery, v.what, {}, {}, point_, index, {}, options_.files};
  std::vector<TraceSite> sites;  // two a line
  for (std::uint32_t i = 0; i < m.lines.size(); ++i) {
    const std::uint32_t variant = variant_in(m.lines, state, i);
    if (variant == m.lines[i].newest) continue;
    sites.resize(2 * f.lost.size());
    f.lost.push_back(lost_stores(*m.logs[i], m.lines[i].variants[variant], sites));
  }
  sites.resize(2 * f.lost.size());
  std::string signature = f.recovery + (f.lost.empty() ? f.what : "");
  for (std::size_t i = 0; i < sites.size(); i += 2) {
    signature += ' ' + std::to_string(reinterpret_cast<std::uintptr_t>(sites[i][0]));
  }
  if (!signatures_.insert(signature).second) {
    stopped_ |= ++repeats_ >= kRepeatsMax;
    return;
  }
  if (options_.minimise) {
    sites.resize(std::min(sites.size(), 2 * kPlacesMax));
    const std::vector<std::string> places = source_places(sites);
    for (std::size_t i = 0; i < places.size(); i += 2) {
      f.lost[i / 2].first_lost = places[i];
      if (places[i + 1] != places[i]) f.lost[i / 2].last_lost = places[i + 1];
    }
    sites.clear();
    for (const std::uint32_t i :
         replay_ ? std::vector<std::uint32_t>{} : lines_that_matter(m, state)) {
      f.kept.push_back({offset_of(m.lines[i].line), {}, file_of(m.lines[i].line)});
      sites.push_back(m.logs[i]->stores.back().site);
    }
    f.kept.resize(std::min(f.kept.size(), kPlacesMax));
    sites.resize(f.kept.size());
    const std::vector<std::string> kept_places = source_places(sites);
    for (std::size_t i = 0; i < kept_places.size(); ++i) f.kept[i].last = kept_places[i];
  }
  if (!replay_) save(f, m, state, v);
  result_.findings.push_back(std::move(f));
  stopped_ |= result_.findings.size() >= options_.findings_max;
}

void CrashExplorer::save(CrashFinding& f, const CrashPoint& m, const CrashState& state,
                         const Verdict& v) {
  const char* folder = std::getenv("TENUTO_CRASH_SAVE");
  std::string to = options_.save_to;
  if (to.empty() && folder != nullptr) to = folder;
  if (to.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(to, error);
  to += "/crash-" + std::to_string(::getpid()) + "-" + std::to_string(run_) + "-" +
        std::to_string(result_.findings.size() + 1);
  CrashCase c{own_command(), run_, point_, {}, state.base_new, {}, v.chain};
  std::vector<std::pair<std::uint64_t, LineWords>> lines;
  for (std::uint32_t i = 0; i < m.lines.size(); ++i) {
    const std::uint32_t variant = variant_in(m.lines, state, i);
    c.picks.emplace_back(m.lines[i].line, variant);
    lines.emplace_back(m.lines[i].line, m.lines[i].variants[variant].words);
  }
  if (!c.write(to + ".case", f.text()) || !image_->save(to, lines)) {
    std::fprintf(stderr, "cannot save the finding as %s.*: %s\n", to.c_str(), std::strerror(errno));
    return;
  }
  f.saved = to + ".case";
}

}  // namespace TENUTO_NS::pm

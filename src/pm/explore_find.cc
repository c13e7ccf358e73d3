// Findings of the explorer: made smaller until only the culprits are left, and put into words.
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "pm/explore_run.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {

constexpr std::size_t kTrialsMax = 300;   // workers that one minimisation may cost
constexpr std::size_t kPlacesMax = 64;    // source places looked up at a time
constexpr std::uint64_t kRepeatsMax = 20;  // of findings already known

void set_pick(CrashState& s, std::uint32_t line, std::uint32_t variant) {
  for (auto& [at, v] : s.picks) {
    if (at == line) {
      v = variant;
      return;
    }
  }
  s.picks.emplace_back(line, variant);
}

// The stores of the line that a variant lacks, counted, and the first of them.
std::size_t lost_stores(const LineLog& log, const LineVariant& v, const void*& first) {
  std::size_t lost = 0;
  for (std::size_t i = v.prefix; i < log.stores.size(); ++i) {
    const std::size_t bit = i - v.prefix;
    if (bit < 64 && (v.mask >> bit & 1) != 0) continue;
    if (lost++ == 0) first = log.stores[i].site;
  }
  return lost;
}

std::uintptr_t load_address() {
  std::uintptr_t base = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program itself
      },
      &base);
  return base;
}

}  // namespace

std::vector<std::string> source_places(const std::vector<const void*>& sites) {
  char command[64 + kPlacesMax * 20];
  char exe[512] = {};
  if (::readlink("/proc/self/exe", exe, sizeof exe - 1) < 0) return {};
  const std::uintptr_t base = load_address();
  std::string line = std::string("addr2line -Cfspe '") + exe + "'";
  for (std::size_t i = 0; i < std::min(sites.size(), kPlacesMax); ++i) {
    std::snprintf(command, sizeof command, " 0x%lx",
                  reinterpret_cast<std::uintptr_t>(sites[i]) - base - 1);
    line += command;
  }
  std::vector<std::string> places;
  std::FILE* pipe = ::popen((line + " 2>/dev/null").c_str(), "r");
  char text[1024];
  while (pipe != nullptr && std::fgets(text, sizeof text, pipe) != nullptr) {
    text[std::strcspn(text, "\n")] = 0;
    places.emplace_back(text);
  }
  if (pipe != nullptr) ::pclose(pipe);
  places.resize(sites.size());
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (!places[i].empty() && places[i].find("??") == std::string::npos) continue;
    std::snprintf(command, sizeof command, "code at 0x%lx",
                  reinterpret_cast<std::uintptr_t>(sites[i]) - base - 1);
    places[i] = command;
  }
  return places;
}

bool CrashExplorer::still_bad(Moment& m, const CrashState& state) {
  const std::vector<CrashState> only = {state};
  WorkerJob job = job_for(m, {0});
  job.states = &only;
  job.know_seen = false;
  return run_worker(job).bad;
}

// Persists every line, and of the others every store, that can be while the check still fails.
void CrashExplorer::minimise(Moment& m, CrashState& state) {
  std::size_t trials = 0;
  const auto try_state = [&](const CrashState& s) {
    if (trials++ >= kTrialsMax || !still_bad(m, s)) return false;
    state = s;
    return true;
  };
  std::vector<std::uint32_t> old;
  const auto find_old = [&] {
    old.clear();
    for (std::uint32_t i = 0; i < m.lines.size(); ++i) {
      if (variant_in(m.lines, state, i) != m.lines[i].newest) old.push_back(i);
    }
  };
  find_old();
  for (std::size_t chunk = old.size(); chunk != 0; chunk /= 2) {
    for (std::size_t i = 0; i < old.size(); i += chunk) {
      CrashState s = state;
      for (std::size_t k = i; k < std::min(i + chunk, old.size()); ++k) {
        set_pick(s, old[k], m.lines[old[k]].newest);
      }
      try_state(s);
    }
    find_old();
  }
  for (const std::uint32_t i : old) {
    const LineChoices& l = m.lines[i];
    for (std::size_t p = l.of_prefix.size() - 1; p-- > 0;) {
      const std::uint32_t v = l.of_prefix[p];
      if (v == variant_in(m.lines, state, i)) break;
      CrashState s = state;
      set_pick(s, i, v);
      if (v != l.newest && try_state(s)) break;
    }
  }
}

void CrashExplorer::add_finding(Moment& m, std::uint64_t index, const Verdict& v) {
  CrashState state = m.states[index];
  if (options_.minimise && !replay_) minimise(m, state);
  CrashFinding f{m.where, v.recovery, v.what, {}, point_, index};
  std::vector<const void*> sites;
  for (std::uint32_t i = 0; i < m.lines.size(); ++i) {
    const std::uint32_t variant = variant_in(m.lines, state, i);
    if (variant == m.lines[i].newest) continue;
    const void* first = nullptr;
    const std::size_t lost = lost_stores(*m.logs[i], m.lines[i].variants[variant], first);
    f.lost.push_back({m.lines[i].line * kLineBytes, m.logs[i]->stores.size(), lost, {}});
    sites.push_back(first);
  }
  if (sites.size() > kPlacesMax) {
    sites.resize(kPlacesMax);
    f.lost.resize(kPlacesMax);
  }
  std::string signature = f.recovery;
  for (const void* site : sites) {
    signature += ' ' + std::to_string(reinterpret_cast<std::uintptr_t>(site));
  }
  if (!signatures_.insert(signature).second) {
    stopped_ |= ++repeats_ >= kRepeatsMax;
    return;
  }
  if (options_.minimise) {
    const std::vector<std::string> places = source_places(sites);
    for (std::size_t i = 0; i < places.size(); ++i) f.lost[i].first_lost = places[i];
  }
  result_.findings.push_back(std::move(f));
  stopped_ |= result_.findings.size() >= options_.findings_max;
}

}  // namespace tenuto::inline TENUTO_ABI::pm

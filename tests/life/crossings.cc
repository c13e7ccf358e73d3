#include "crossings.h"

#include <algorithm>
#include <cstdio>

namespace tenuto::life {
namespace {

// Some verbs are no calls of the library: they make calls fail, or end the process.
bool counts(Verb v) {
  switch (v) {
    case Verb::fill:  // puts
    case Verb::drain:
    case Verb::tx_fill:
    case Verb::hold_view:
    case Verb::drop_view:
    case Verb::forget:
    case Verb::fail_alloc:
    case Verb::fail_call:
    case Verb::thread_end:
    case Verb::copy:
    case Verb::restore:
    case Verb::other_opens:
    case Verb::fork_child:
    case Verb::kill_soon:
    case Verb::kill:
    case Verb::leave:
    case Verb::check_backup:
      return false;
    default:
      return true;
  }
}

}  // namespace

void Crossings::add(const std::vector<Op>& ops) {
  for (unsigned s = 0; s < kStores; ++s) {
    std::vector<const Op*> own;
    for (const Op& op : ops) {
      if (op.store == s) own.push_back(&op);
    }
    std::ranges::sort(own, {}, &Op::invoke);
    std::array<bool, kVerbs> standing{};  // begun, and perhaps still there
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto v = static_cast<std::size_t>(own[i]->verb);
      ++calls_[v];
      for (std::size_t j = i; j-- > 0;) {
        const bool overlaps = own[j]->pending() || own[j]->returned > own[i]->invoke;
        if (i - j > kNear && !overlaps) {
          if (i - j > 64) break;
          continue;
        }
        const auto u = static_cast<std::size_t>(own[j]->verb);
        ++met_[u][v];
        if (overlaps) ++met_[v][u];
      }
      for (std::size_t u = 0; u < kVerbs; ++u) {
        if (standing[u]) ++met_[u][v];
      }
      if (own[i]->verb == Verb::snapshot || own[i]->verb == Verb::begin ||
          own[i]->verb == Verb::cursor) {
        standing[v] = true;
      }
    }
  }
}

void Crossings::add(const Crossings& other) {
  for (std::size_t u = 0; u < kVerbs; ++u) {
    calls_[u] += other.calls_[u];
    for (std::size_t v = 0; v < kVerbs; ++v) met_[u][v] += other.met_[u][v];
  }
}

std::uint64_t Crossings::covered() const {
  std::uint64_t n = 0;
  for (std::size_t u = 0; u < kVerbs; ++u) {
    for (std::size_t v = 0; v < kVerbs; ++v) {
      n += counts(static_cast<Verb>(u)) && counts(static_cast<Verb>(v)) && met_[u][v] != 0;
    }
  }
  return n;
}
std::uint64_t Crossings::all() {
  std::uint64_t n = 0;
  for (std::size_t u = 0; u < kVerbs; ++u) n += counts(static_cast<Verb>(u));
  return n * n;
}

std::string Crossings::table() const {
  std::string text;
  for (std::size_t u = 0; u < kVerbs; ++u) {
    if (!counts(static_cast<Verb>(u))) continue;
    std::uint64_t met = 0;
    std::string never;
    for (std::size_t v = 0; v < kVerbs; ++v) {
      if (!counts(static_cast<Verb>(v))) continue;
      met += met_[u][v] != 0;
      if (met_[u][v] == 0) never += std::string(" ") + info_of(static_cast<Verb>(v)).name;
    }
    char line[64];
    std::snprintf(line, sizeof line, "%-16s %10llu calls, then %3llu others;",
                  info_of(static_cast<Verb>(u)).name, static_cast<unsigned long long>(calls_[u]),
                  static_cast<unsigned long long>(met));
    text += line + (never.empty() ? " all of them" : " never:" + never) + "\n";
  }
  return text + std::to_string(covered()) + " of " + std::to_string(all()) + " crossings\n";
}

}  // namespace tenuto::life

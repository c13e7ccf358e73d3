#include "crash/explore_states.h"

#include <algorithm>
#include <numeric>

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kGroupFull = 3;      // groups up to this size: all subsets
constexpr std::size_t kGroupMax = 64;      // bits of a mask
constexpr std::size_t kStoresTried = 128;  // latest stores of a line; older ones are one step
constexpr std::size_t kMomentsMax = 64;    // latest stores up to which everything survives
constexpr std::size_t kAloneMax = 4096;    // states with one unit unlike the others
constexpr std::uint64_t kSectorLines = 8;  // 512 bytes

class VariantMaker {
 public:
  VariantMaker(const LineLog& log, LineChoices& out) : log_(log), out_(out) {}

  std::uint32_t add(const LineWords& words, std::size_t prefix, std::uint64_t mask) {
    const std::uint64_t hash = line_hash(log_.line, words);
    for (std::uint32_t i = 0; i < out_.variants.size(); ++i) {
      if (out_.variants[i].hash == hash && out_.variants[i].words == words) return i;
    }
    out_.variants.push_back({words, hash, static_cast<std::uint32_t>(prefix), mask});
    return static_cast<std::uint32_t>(out_.variants.size() - 1);
  }

  // Any part of the stores [from, from + k) may survive on top of `base`.
  void add_group(const LineWords& base, std::size_t from, std::size_t k) {
    const std::uint64_t all = k >= kGroupMax ? ~0ull : (1ull << k) - 1;
    if (k <= kGroupFull) {
      for (std::uint64_t mask = 1; mask < all; ++mask) add_subset(base, from, k, mask);
      return;
    }
    for (std::size_t i = 0; i < k; ++i) {
      add_subset(base, from, k, 1ull << i);
      add_subset(base, from, k, all & ~(1ull << i));
      add_subset(base, from, k, all & ~((1ull << i) - 1));  // the last k - i
    }
  }

 private:
  void add_subset(const LineWords& base, std::size_t from, std::size_t k, std::uint64_t mask) {
    LineWords words = base;
    for (std::size_t i = 0; i < k; ++i) {
      if ((mask >> i & 1) != 0) log_.stores[from + i].apply(words);
    }
    add(words, from, mask);
  }

  const LineLog& log_;
  LineChoices& out_;
};

std::size_t product_of(const CrashUnits& units, bool recent_only, std::size_t max) {
  std::size_t product = 1;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (recent_only && !units.recent(u)) continue;
    product *= units.variants(u);
    if (product > max) return max + 1;
  }
  return product;
}

// Every combination of the chosen units' variants. The other units are all new (base_new) or all
// old.
void add_product(const CrashUnits& units, bool recent_only, bool base_new,
                 std::vector<CrashState>& out) {
  std::vector<std::size_t> free;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (!recent_only || units.recent(u)) free.push_back(u);
  }
  std::vector<std::uint32_t> digit(free.size(), 0);
  for (;;) {
    CrashState s{base_new, {}};
    for (std::size_t i = 0; i < free.size(); ++i) units.pick(s, free[i], digit[i]);
    out.push_back(std::move(s));
    std::size_t i = 0;
    while (i < free.size() && ++digit[i] == units.variants(free[i])) digit[i++] = 0;
    if (i == free.size()) return;
  }
}

// One unit unlike all the others. This finds most bugs.
void add_alone(const CrashUnits& units, std::vector<CrashState>& out, ExploreRng& rng) {
  std::vector<CrashState> alone;
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::uint32_t v = 0; v < units.variants(u); ++v) {
      for (const bool base_new : {false, true}) {
        CrashState s{base_new, {}};
        units.pick(s, u, v);
        if (!s.picks.empty()) alone.push_back(std::move(s));
      }
    }
  }
  for (std::size_t i = 0; alone.size() > kAloneMax && i < kAloneMax; ++i) {
    std::swap(alone[i], alone[i + rng.below(alone.size() - i)]);
  }
  if (alone.size() > kAloneMax) alone.resize(kAloneMax);
  std::move(alone.begin(), alone.end(), std::back_inserter(out));
}

// The variant of the line when everything up to the store `until` survives.
std::uint32_t variant_at(const LineChoices& line, std::uint64_t until) {
  const auto n = std::upper_bound(line.orders.begin(), line.orders.end(), until);
  return line.of_prefix[static_cast<std::size_t>(n - line.orders.begin())];
}

// The states of a machine that keeps all stores in order: everything up to one store, and nothing
// after it.
void add_moments(const std::vector<LineChoices>& lines, std::uint64_t order_before,
                 std::vector<CrashState>& out) {
  std::vector<std::uint64_t> orders;
  for (const LineChoices& l : lines) {
    std::copy_if(l.orders.begin(), l.orders.end(), std::back_inserter(orders),
                 [&](std::uint64_t o) { return o > order_before; });
  }
  std::sort(orders.begin(), orders.end());
  if (orders.size() > kMomentsMax) {
    orders.erase(orders.begin(), orders.end() - static_cast<std::ptrdiff_t>(kMomentsMax));
  }
  for (const std::uint64_t until : orders) {
    CrashState s;
    for (std::uint32_t i = 0; i < lines.size(); ++i) {
      const std::uint32_t v = variant_at(lines[i], until);
      if (v != 0) s.picks.emplace_back(i, v);
    }
    out.push_back(std::move(s));
  }
}

void add_random(const CrashUnits& units, std::size_t n, std::vector<CrashState>& out,
                ExploreRng& rng) {
  constexpr std::uint64_t kOddsOfOld[] = {5, 50, 95};  // percent, of a unit that is not torn
  for (std::size_t k = 0; k < n; ++k) {
    const std::uint64_t odds = kOddsOfOld[k % std::size(kOddsOfOld)];
    CrashState s;
    for (std::size_t u = 0; u < units.size(); ++u) {
      std::uint32_t v = rng.below(100) < odds ? 0 : units.newest(u);
      if (rng.below(4) == 0) v = static_cast<std::uint32_t>(rng.below(units.variants(u)));
      units.pick(s, u, v);
    }
    out.push_back(std::move(s));
  }
}

}  // namespace

std::uint64_t hash_mix(std::uint64_t x) {
  // splitmix64's finalizer (public domain, Sebastiano Vigna).
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

std::uint64_t ExploreRng::next() {
  state_ += 0x9e3779b97f4a7c15ull;
  return hash_mix(state_);
}

std::uint64_t line_hash(std::uint64_t line, const LineWords& words) {
  std::uint64_t h = hash_mix(line + 1);
  for (const std::uint64_t w : words) h = hash_mix(h ^ w) + 0x9e3779b97f4a7c15ull;
  return h;
}

LineChoices choices_of(const LineLog& log, bool reorder, std::uint64_t order_before) {
  LineChoices out;
  out.line = log.line;
  VariantMaker make(log, out);
  make.add(log.floor, 0, 0);
  const auto& stores = log.stores;
  const std::size_t n = stores.size();
  out.of_prefix.assign(n + 1, 0);
  LineWords base = log.floor;
  std::size_t i = 0;
  for (; i + kStoresTried < n; ++i) stores[i].apply(base);
  while (i < n) {
    std::size_t end = i + 1;
    while (reorder && end < n && end - i < kGroupMax && stores[end].group == stores[i].group) ++end;
    LineWords words = base;
    for (std::size_t k = i; k < end; ++k) {
      stores[k].apply(words);
      out.of_prefix[k + 1] = make.add(words, k + 1, 0);
    }
    if (end - i > 1) make.add_group(base, i, end - i);
    base = words;
    i = end;
  }
  out.newest = n == 0 ? 0 : out.of_prefix[n];
  for (const StoreRecord& s : stores) out.orders.push_back(s.order);
  out.recent = n != 0 && stores.back().order > order_before;
  return out;
}

CrashUnits::CrashUnits(const std::vector<LineChoices>& lines, CrashMode mode)
    : lines_(lines), by_line_(mode == CrashMode::adr) {
  if (by_line_) return;
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    if (i == 0 || (mode == CrashMode::page &&
                   lines[i].line / kSectorLines != lines[i - 1].line / kSectorLines)) {
      groups_.emplace_back();
    }
    Group& g = groups_.back();
    g.lines.push_back(i);
    g.recent |= lines[i].recent;
    g.orders.insert(g.orders.end(), lines[i].orders.begin(), lines[i].orders.end());
  }
  const std::size_t max = mode == CrashMode::page ? kMomentsMax : kAloneMax;
  for (Group& g : groups_) {
    std::sort(g.orders.begin(), g.orders.end());
    if (g.orders.size() > max) {
      g.orders.erase(g.orders.begin(), g.orders.end() - static_cast<std::ptrdiff_t>(max));
    }
  }
}

void CrashUnits::pick(CrashState& state, std::size_t unit, std::uint32_t variant) const {
  const auto set = [&](std::uint32_t line, std::uint32_t v) {
    if (v != (state.base_new ? lines_[line].newest : 0)) state.picks.emplace_back(line, v);
  };
  if (by_line_) {
    set(static_cast<std::uint32_t>(unit), variant);
    return;
  }
  const Group& g = groups_[unit];
  for (const std::uint32_t line : g.lines) {
    set(line, variant == 0 ? 0 : variant_at(lines_[line], g.orders[variant - 1]));
  }
}

void CrashUnits::persist(CrashState& state, std::size_t unit) const {
  if (by_line_) {
    set_variant(state, static_cast<std::uint32_t>(unit), lines_[unit].newest);
    return;
  }
  for (const std::uint32_t line : groups_[unit].lines) {
    set_variant(state, line, lines_[line].newest);
  }
}

bool CrashUnits::all_new(const CrashState& state, std::size_t unit) const {
  const auto is_new = [&](std::uint32_t line) {
    return variant_in(lines_, state, line) == lines_[line].newest;
  };
  if (by_line_) return is_new(static_cast<std::uint32_t>(unit));
  return std::all_of(groups_[unit].lines.begin(), groups_[unit].lines.end(), is_new);
}

std::vector<CrashState> crash_states(const std::vector<LineChoices>& lines,
                                     const StateLimits& limits, std::uint64_t order_before,
                                     ExploreRng& rng) {
  std::vector<CrashState> out;
  const CrashUnits units(lines, limits.mode);
  if (product_of(units, false, limits.product_max) <= limits.product_max) {
    add_product(units, false, false, out);
    return out;
  }
  out.push_back({true, {}});
  out.push_back({false, {}});
  add_moments(lines, order_before, out);
  if (product_of(units, true, limits.product_max / 2) <= limits.product_max / 2) {
    add_product(units, true, false, out);
    add_product(units, true, true, out);
  }
  add_alone(units, out, rng);
  add_random(units, limits.samples_max, out, rng);
  return out;
}

StateHashes::StateHashes(const std::vector<LineChoices>& lines) : lines_(lines) {
  for (std::uint32_t i = 0; i < lines.size(); ++i) all_new_ ^= change(i, lines[i].newest);
}

std::uint64_t StateHashes::operator()(const CrashState& state) const {
  std::uint64_t h = state.base_new ? all_new_ : 0;
  for (const auto& [line, variant] : state.picks) {
    if (state.base_new) h ^= change(line, lines_[line].newest);
    h ^= change(line, variant);
  }
  return h;
}

void set_variant(CrashState& state, std::uint32_t line, std::uint32_t variant) {
  for (auto& [at, v] : state.picks) {
    if (at == line) {
      v = variant;
      return;
    }
  }
  state.picks.emplace_back(line, variant);
}

std::uint32_t variant_in(const std::vector<LineChoices>& lines, const CrashState& state,
                         std::uint32_t line) {
  for (const auto& [at, variant] : state.picks) {
    if (at == line) return variant;
  }
  return state.base_new ? lines[line].newest : 0;
}

}  // namespace TENUTO_NS::pm

// Chooses who takes part; see contestants.h.
#include "bench/alloc/contestants.h"

#include <algorithm>

namespace bench {
namespace {

bool is_tenuto(const AllocatorKind& kind) { return std::string_view(kind.engine) == "tenuto"; }

std::string wrong_media(const ContestantOptions& o) {
  for (const std::string& medium : o.media) {
    const auto kinds = allocator_kinds();
    if (std::none_of(kinds.begin(), kinds.end(),
                     [&](const AllocatorKind& kind) { return has_medium(kind, medium); })) {
      return "no medium is called " + medium;
    }
  }
  const bool counted = std::find(o.media.begin(), o.media.end(), "model") != o.media.end();
  return o.delays && !counted ? "--delays are those of medium model" : "";
}

void add_on_medium(const ContestantOptions& o, const AllocatorKind& kind, const std::string& medium,
                   std::vector<AllocContestant>& to) {
  const std::string name = o.media.size() > 1 ? kind.name + ("/" + medium) : kind.name;
  if (!is_tenuto(kind)) {
    to.push_back({&kind, medium, name, {}});
    return;
  }
  for (Ablation& ablation : combinations(o.ablations)) {
    ablation.delays = o.delays && medium == "model";
    const std::string label = name + ablation.text();
    to.push_back({&kind, medium, label, std::move(ablation)});
  }
}

}  // namespace

std::string choose_contestants(const ContestantOptions& o, std::vector<AllocContestant>& to) {
  std::string wrong = wrong_media(o);
  if (wrong.empty()) wrong = wrong_values(o.ablations);
  if (!wrong.empty()) return wrong;
  for (const std::string& name : o.allocators) {
    const AllocatorKind* kind = find_allocator(name);
    if (kind == nullptr) return "no allocator is called " + name;
    if (kind->media[0] == '\0') to.push_back({kind, "", name, {}});
    for (const std::string& medium : o.media) {
      if (has_medium(*kind, medium)) add_on_medium(o, *kind, medium, to);
    }
  }
  return to.empty() ? "none of the allocators has one of the media" : "";
}

}  // namespace bench

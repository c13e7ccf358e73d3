// Checks heap_crash.cc: fences are dropped, and a script must find each loss. Every fence in the
// sources of the heap and the pool file must have been crashed at. planted_crash.cc plants other
// mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/heap_scripts.h"

namespace tenuto::test {
namespace {

struct FenceName {
  std::string first, then;
  auto operator<=>(const FenceName&) const = default;
  std::string text() const { return first + " | " + then; }
};

// Every fence("first", "then") and fence_lane(h, "first", "then") in the sources. The first name
// may be one of two.
std::set<FenceName> ledger() {
  std::set<FenceName> all;
  const std::regex call(
      "fence(?:_lane)?\\([^\"()]*\"([^\"]*)\"(?:\\s*:\\s*\"([^\"]*)\")?,\\s*\"([^\"]*)\"\\)");
  for (const char* folder : {"/src/heap", "/src/pm", "/src/file"}) {
    for (const auto& file :
         std::filesystem::directory_iterator(std::string(TENUTO_SOURCE_DIR) + folder)) {
      const std::string name = file.path().filename();
      // The heap never calls the first; heap_gc_crash.cc, heap_internal_crash.cc,
      // heap_canary_crash.cc and numa_crash.cc do the same for the others.
      const bool elsewhere = name == "times.cc" || name == "gc.cc" || name == "internal.cc" ||
                             name == "canary.cc" || name == "remote.cc" || name == "remote_free.cc";
      if (file.path().extension() != ".cc" || elsewhere) continue;
      std::stringstream text;
      text << std::ifstream(file.path()).rdbuf();
      const std::string t = text.str();
      for (std::sregex_iterator i(t.begin(), t.end(), call), end; i != end; ++i) {
        all.insert({(*i)[1], (*i)[3]});
        if ((*i)[2].matched) all.insert({(*i)[2], (*i)[3]});
      }
    }
  }
  return all;
}

// A quick look at a few crash points before each fence.
CrashOptions glance(const HeapScript& s) {
  CrashOptions o = crash_options(s);
  o.points_percent = 1;
  o.product_max = 40;
  o.samples_max = 20;
  o.recovery_states_max = 2;
  return o;
}

bool found_without(const FenceName& f, const HeapScript& s, unsigned points_percent,
                   std::string* finding) {
  CrashOptions o = crash_options(s);
  o.points_percent = std::min<std::uint32_t>(o.points_percent, points_percent);
  o.findings_max = 1;
  o.minimise = false;
  o.mutation = {Mutation::Kind::drop_fence, f.first, f.then, 0};
  const CrashResult r = run(s, o);
  if (!r.ok()) *finding = r.findings.front().where + ": " + r.findings.front().what;
  return !r.ok();
}

// Fences that every script can do without, each with the reason.
const std::set<FenceName> kNeedless = {
    // The next owner of the frame overwrites the header before its own record of the frame, and
    // recovery gives up a slab without blocks. The frame allocator's contract asks for this fence,
    // so it stays.
    {"slab header erased", "its frame is given back"},
};

// The scripts that show the loss of a fence which many pass: tried first, for they save minutes.
const std::map<FenceName, std::string> kShownBy = {
    {{"alt names it", "old chunks are reused"}, "compaction_reuse"},
    {{"empty stripes of the new part", "slab shape"}, "three_classes"},
    {{"retired intents", "their blocks are reused"}, "typed_again"},
    {{"flushed by an ending thread", "its lane is handed on"}, "last_malloc"},
    {{"lane segment published", "its lanes are used"}, "lane_growth"},
    {{"frames of a chunk", "extents are cut from it"}, "versioned_reuse"},
};

TEST(HeapMutants, every_named_fence_is_crashed_at_and_needed) {
  EXPECT_GE(ledger().size(), 35u);
  // The scripts that pass a fence, those with the fewest crash points first.
  std::map<FenceName, std::multimap<std::uint64_t, const HeapScript*>> passed;
  for (const HeapScript& s : heap_scripts()) {
    const CrashResult r = run(s, glance(s));
    EXPECT_TRUE(r.ok()) << s.name << "\n" << r.text();
    for (const FenceStats& f : r.fences) {
      if (f.explored == 0) continue;
      const auto shown = kShownBy.find({f.first, f.then});
      const bool first = shown != kShownBy.end() && shown->second == s.name;
      passed[{f.first, f.then}].emplace(first ? 0 : r.points, &s);
    }
  }
  for (const FenceName& f : ledger()) {
    if (passed[f].empty()) {
      ADD_FAILURE() << "never crashed at: " << f.text();
      continue;
    }
    std::string finding;
    bool any = false;
    // A tenth of the points shows most losses, in one script or another. For the needless fences
    // that is all: nothing would be found at the others either, at ten times the cost.
    for (const unsigned percent : {10u, 100u}) {
      if (percent == 100 && kNeedless.contains(f)) break;
      for (const auto& [points, s] : passed[f]) {
        if (!any) any = found_without(f, *s, percent, &finding);
      }
    }
    EXPECT_NE(any, kNeedless.contains(f)) << f.text() << (any ? " is needed" : " is not missed");
    std::printf("%s: %s\n", f.text().c_str(), any ? finding.c_str() : "not missed");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tenuto::test

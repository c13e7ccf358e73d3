// Power cuts at every fence of the heap and of the pool file under it, by scripts on a small world
// (support/heap_world.h): mallocs and frees of all sizes by one and two threads, containers used
// again, slabs and extents that come and go, the log's growth and compaction, zones, lanes, clean
// closes. Then mistakes are planted and fences dropped, each of which must be found.
//
// TENUTO_CRASH_SCALE multiplies the number of seeds and of sampled crash states (default 1).
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "heap/format.h"
#include "pm/assert.h"
#include "pm/explore.h"
#include "support/heap_world.h"

namespace tenuto::test {
namespace {

using Cells = HeapCells;
constexpr std::uint64_t kMiB = 1u << 20;

std::size_t scaled(std::size_t n) {
  static const char* const text = std::getenv("TENUTO_CRASH_SCALE");
  return static_cast<std::size_t>(static_cast<double>(n) * (text == nullptr ? 1 : std::atof(text)));
}

// A second thread that does what it is told and lives on between.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    run(nullptr);
    thread_.join();
  }
  void run(std::function<void()> job) {
    std::unique_lock lock(mu_);
    job_ = std::move(job);
    end_ = job_ == nullptr;
    busy_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !busy_; });
  }

 private:
  void work() {
    std::unique_lock lock(mu_);
    for (;;) {
      changed_.wait(lock, [this] { return busy_; });
      if (!end_) job_();
      busy_ = false;
      changed_.notify_all();
      if (end_) return;
    }
  }
  std::mutex mu_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool busy_ = false, end_ = false;
  std::thread thread_;
};

struct Script {
  const char* name;
  std::function<void(HeapSession&, pm::CrashContext&)> body;
  std::function<void(PoolParts&)> before = {};
  std::uint64_t size_max = kPoolBytesMin;
  // Threads that hand over unfenced lines under malloc_to's seal.
  bool locked_instructions_fence = false;
  std::uint64_t size = kPoolBytesMin;
};

PoolOptions options_of(const Script& s) {
  PoolOptions o = heap_world_options(std::max(s.size_max, s.size));
  o.size = s.size;
  return o;
}

pm::CrashOptions crash_options(const Script& s) {
  pm::CrashOptions o;
  o.product_max = scaled(100);
  o.samples_max = scaled(40);
  o.recovery_states_max = scaled(4);
  o.locked_instructions_fence = s.locked_instructions_fence;
  return o;
}

pm::CrashResult run(const Script& s, const pm::CrashOptions& crash) {
  static HeapModel model;
  const PoolOptions options = options_of(s);
  return pm::CrashRunner(crash).run(
      [&](const std::string& path) { make_heap_world(path, options, s.before); },
      [&](pm::CrashContext& c) {
        HeapSession session(c, model, options);
        s.body(session, c);
      },
      [&](const pm::CrashImage& image) { return check_heap_world(image, model, options); });
}

// Frees whatever waits: a pool of fixed size has no room for this, and looks everywhere.
void scavenge(HeapSession& s) {
  const std::uint64_t bytes = s.pool().file->bytes() - kMiB;
  EXPECT_EQ(s.pool().heap->reserve(bytes, heap::Kind::logged).error(), Status::full);
}

// --- scripts ---------------------------------------------------------------------------------------

void small_blocks(HeapSession& s, pm::CrashContext&) {
  s.put(0, 64);
  s.put_unfilled(1, 48);
  s.put(2, 104);
  s.take(0);
  s.take(1);
  s.put(0, 64);
  for (std::size_t i = 3; i < 9; ++i) s.put(i, 32);
  for (std::size_t i = 2; i < 9; ++i) s.take(i);  // the ring's first retirement
  s.put(Cells::inner(0), 200);
  s.take(Cells::inner(0));
  s.take(0);
  for (std::size_t i = 0; i < 3; ++i) s.put(i, 32);
  scavenge(s);
  s.put(4, 4096);
}

// A freed block is asked for again before its free is retired.
void no_reuse(HeapSession& s, pm::CrashContext&) {
  s.put(0, 64);
  s.put(1, 64);
  s.take(0);
  s.put(2, 64);
  s.take(1);
  s.put(0, 64);
}

// Every block of a class comes and goes, so that slabs do too.
void slabs(HeapSession& s, pm::CrashContext&) {
  for (std::size_t i = 0; i < 9; ++i) s.put(i, 16'000);  // four a slab
  for (std::size_t i = 0; i < 8; ++i) s.take(i);
  scavenge(s);
  s.put(0, 9'000);
  s.take(8);
  s.close();
  s.reopen();
  s.put(1, 16'000);
}

void extents(HeapSession& s, pm::CrashContext&) {
  s.put(0, 20'000);
  s.put(1, 40'000);
  s.put(2, 20'000);
  s.take(1);
  s.put(3, 30'000);  // into the gap
  s.take(0);
  s.take(3);
  s.put(4, 2 * kMiB);
  s.take(2);
  s.put(5, 3 * kMiB);
  s.take(4);
  s.take(5);
  scavenge(s);
  s.put(6, kMiB);
}

void derived(HeapSession& s, pm::CrashContext&) {
  s.put(Cells::derived(0), 64);
  s.put(Cells::derived(1), 64);
  s.put(Cells::derived(2), 20'000);
  s.take(Cells::derived(0));
  s.put(Cells::derived(3), 20'000);
  s.take(Cells::derived(2));
  s.put(0, 20'000);
  s.put(Cells::derived(4), 3 * kMiB);
  s.take(Cells::derived(4));
  s.close();
  s.reopen();
  s.put(Cells::derived(0), 64);
  s.take(Cells::derived(1));
  s.close();
}

// A container of another thread's pending free is freed and used again, and what is stored there
// looks just like the pointer that was.
void containers(HeapSession& s, pm::CrashContext&) {
  Worker other;
  s.put(0, 20'000);
  std::uint64_t raw = 0;
  other.run([&] {
    s.put(Cells::inner(0), 64, 1);
    raw = s.word(Cells::inner(0)).raw;
    s.take(Cells::inner(0), 1);
  });
  s.take(0);
  scavenge(s);
  s.put(1, 20'000, 0, raw);
  s.put(2, 20'000, 0, raw);
  s.put(3, 40'000, 0, raw);
}

void two_lanes(HeapSession& s, pm::CrashContext&) {
  Worker other;
  s.put(0, 64);
  other.run([&] { s.put(1, 64, 1); });
  s.take(1);
  other.run([&] { s.take(0, 1); });
  s.put(0, 64);
  other.run([&] { s.put_unfilled(1, 20'000, 1); });
  s.take(1);
  other.run([&] { s.put(2, 64, 1); });
  other.run([&] { s.take(2, 1); });
  // A close speaks for a thread that lives on.
  s.put_unfilled(1, 20'000);
  other.run([&] { s.take(1, 1); });
  other.run([&] { s.put_unfilled(4, 64, 1); });
  s.close();
  s.reopen();
  s.take(4);
  s.put(5, 64);
  s.put_unfilled(4, 64);
}

// A thread ends and its lane, with frees under way, goes to the next one.
void handed_on(HeapSession& s, pm::CrashContext&) {
  s.put(0, 64);
  for (std::size_t round = 0; round < 2; ++round) {
    std::thread([&] {
      for (std::size_t i = 1; i < 6; ++i) s.put(i, 64, 1);
      for (std::size_t i = 1; i < 6; ++i) s.take(i, 1);
    }).join();
  }
  std::thread([&] { s.put_unfilled(7, 64, 1); }).join();
  std::thread([&] {
    s.take(7, 1);
    s.put(8, 64, 1);
  }).join();
}

void interleaved(HeapSession& s, pm::CrashContext& c) {
  c.interleave({[&] {
                  s.put(0, 64, 0);
                  s.put_unfilled(1, 20'000, 0);
                  s.take(0, 0);
                  s.put(0, 16'000, 0);
                  s.take(1, 0);
                },
                [&] {
                  s.put(8, 64, 1);
                  s.put_unfilled(9, 20'000, 1);
                  s.take(8, 1);
                  s.put(8, 30'000, 1);
                  s.take(9, 1);
                }});
}

// --- what one thread makes and another uses first: the maker's own next fence does not help it -----

void use_extents(PoolParts& p, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    TENUTO_ASSERT(p.heap->malloc_to(20'000, p.root(1)) == Status::ok);
    TENUTO_ASSERT(p.heap->free_from(p.root(1)) == Status::ok);
  }
}

void log_segment(HeapSession& s, pm::CrashContext&) {
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::logged));
  Worker other;
  other.run([&] { s.put(0, 20'000, 1); });
  s.put(1, 20'000);
}

// The log's list goes on in another chunk, and an entry of the first is killed.
void log_chunks_before(PoolParts& p) { use_extents(p, 59); }
void log_chunks(HeapSession& s, pm::CrashContext&) {
  s.put(0, 20'000);
  s.put(1, 20'000);
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::derived));
  Worker other;
  other.run([&] { s.put(2, 20'000, 1); });
  s.take(1);
  s.take(0);
}

// The log is about to be compacted, for the second time, so that chunks are used again.
void compaction_before(PoolParts& p) {
  const auto& head = *reinterpret_cast<heap::BookHead*>(p.file->head().heap);
  const auto entries = [&] {
    std::size_t n = 0;
    for (PoolOffset o{head.list[head.alt]}; o;) {
      const auto& c = *p.file->at<heap::BookChunk>(o);
      for (const std::uint64_t e : c.entries) n += e != 0 ? 1 : 0;
      o = {c.next};
    }
    return n;
  };
  while (head.alt == 0) use_extents(p, 1);
  while (entries() < 4 * heap::kBookChunkEntries) use_extents(p, 1);
}
void compaction(HeapSession& s, pm::CrashContext&) {
  s.put(0, 20'000);
  EXPECT_TRUE(s.pool().heap->reserve(20'000, heap::Kind::logged));
  Worker other;
  other.run([&] { s.put(1, 20'000, 1); });
  s.take(0);
  s.put(2, 20'000);
  other.run([&] { s.take(1, 1); });
}

void zone_growth(HeapSession& s, pm::CrashContext&) {
  s.put(0, 64);
  EXPECT_TRUE(s.pool().heap->reserve(7 * kMiB, heap::Kind::logged));
  Worker other;
  other.run([&] { s.put(1, 6 * kMiB, 1); });
  s.put(2, 2 * kMiB);
  s.put(3, 64);
  s.take(1);
}

void lane_growth(HeapSession& s, pm::CrashContext&) {
  std::vector<std::unique_ptr<Worker>> threads;
  for (std::size_t i = 0; i < pm::kLanesPerSegment + 1; ++i) {
    threads.push_back(std::make_unique<Worker>());
    threads.back()->run([&] { static_cast<void>(s.pool().lanes->mine()); });
  }
  Worker last;
  last.run([&] {
    s.put(1, 64, 1);
    s.take(1, 1);
    s.put(2, 64, 1);
  });
  s.put(0, 64);
}

// Frames are used again as they are.
void dirty_frames(PoolParts& p) {
  std::vector<PoolOffset> frames;
  for (int i = 0; i < 40; ++i) {
    const auto f = p.heap->take_log_frame();
    TENUTO_ASSERT(f);
    std::memset(p.file->at<std::byte>(*f), 0xff, heap::kSlabBytes);
    flush_bytes(p.file->at<std::byte>(*f), heap::kSlabBytes);
    frames.push_back(*f);
  }
  for (const PoolOffset f : frames) p.heap->put_log_frame(f);
}

const std::vector<Script>& scripts() {
  static const std::vector<Script> all = {
      {"small_blocks", small_blocks},
      {"no_reuse", no_reuse},
      {"slabs", slabs, dirty_frames},
      {"extents", extents, {}, 0, false, 16 * kMiB},
      {"derived", derived, {}, 0, false, 16 * kMiB},
      {"containers", containers, {}, 0, true},
      {"two_lanes", two_lanes, {}, 0, true},
      {"handed_on", handed_on},
      {"interleaved", interleaved},
      {"log_segment", log_segment},
      {"log_chunks", log_chunks, log_chunks_before},
      {"compaction", compaction, compaction_before},
      {"zone_growth", zone_growth, {}, 64 * kMiB},
      {"lane_growth", lane_growth},
  };
  return all;
}

const Script& script(const std::string& name) {
  for (const Script& s : scripts()) {
    if (s.name == name) return s;
  }
  std::abort();
}

void expect_sound(const std::string& name, std::size_t seeds = 1) {
  const Script& s = script(name);
  for (std::uint64_t seed = 1; seed <= scaled(seeds); ++seed) {
    pm::CrashOptions o = crash_options(s);
    o.seed = seed;
    const pm::CrashResult r = run(s, o);
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    std::printf("%s, seed %llu: %llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
                s.name, static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(r.points),
                static_cast<unsigned long long>(r.unique),
                static_cast<unsigned long long>(r.recovery_states),
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

TEST(HeapCrash, small_blocks_are_attached_and_detached_whole) { expect_sound("small_blocks"); }
TEST(HeapCrash, freed_blocks_wait) { expect_sound("no_reuse"); }
TEST(HeapCrash, slabs_come_and_go) { expect_sound("slabs"); }
TEST(HeapCrash, extents_split_and_join) { expect_sound("extents"); }
TEST(HeapCrash, derived_blocks_follow_from_what_names_them) { expect_sound("derived"); }
TEST(HeapCrash, containers_used_again_keep_their_new_contents) { expect_sound("containers"); }
TEST(HeapCrash, two_lanes_free_each_others_blocks) { expect_sound("two_lanes"); }
TEST(HeapCrash, lanes_are_handed_on_with_frees_under_way) { expect_sound("handed_on"); }
TEST(HeapCrash, interleaved_threads_disturb_nobody) { expect_sound("interleaved", 3); }
TEST(HeapCrash, the_log_gets_its_first_segment) { expect_sound("log_segment"); }
TEST(HeapCrash, the_log_goes_on_in_another_chunk) { expect_sound("log_chunks"); }
TEST(HeapCrash, the_log_is_compacted) { expect_sound("compaction"); }
TEST(HeapCrash, zones_are_added) { expect_sound("zone_growth"); }
TEST(HeapCrash, lanes_are_added) { expect_sound("lane_growth"); }

// --- who checks the checker ------------------------------------------------------------------------

struct FenceName {
  std::string first, then;
  auto operator<=>(const FenceName&) const = default;
  std::string text() const { return first + " | " + then; }
};

// Every fence("first", "then") of the sources.
std::set<FenceName> ledger() {
  std::set<FenceName> all;
  const std::regex call("fence\\(\\s*\"([^\"]*)\",\\s*\"([^\"]*)\"\\)");
  for (const char* folder : {"/src/heap", "/src/pm"}) {
    for (const auto& file :
         std::filesystem::directory_iterator(std::string(TENUTO_SOURCE_DIR) + folder)) {
      const std::string name = file.path().filename();
      const bool tester = name.starts_with("explore") || name.starts_with("trace");
      if (file.path().extension() != ".cc" || tester) continue;
      std::stringstream text;
      text << std::ifstream(file.path()).rdbuf();
      const std::string t = text.str();
      for (std::sregex_iterator i(t.begin(), t.end(), call), end; i != end; ++i) {
        all.insert({(*i)[1], (*i)[2]});
      }
    }
  }
  return all;
}

// A quick look at a few moments before each fence.
pm::CrashOptions glance(const Script& s) {
  pm::CrashOptions o = crash_options(s);
  o.points_percent = 1;
  o.product_max = 40;
  o.samples_max = 20;
  o.recovery_states_max = 2;
  return o;
}

TEST(HeapCrash, every_named_fence_is_crashed_at) {
  std::set<FenceName> left = ledger();
  EXPECT_GE(left.size(), 23u);
  for (const Script& s : scripts()) {
    const pm::CrashResult r = run(s, glance(s));
    EXPECT_TRUE(r.ok()) << s.name << "\n" << r.text();
    std::erase_if(left, [&](const FenceName& f) { return r.explored(f.first, f.then); });
  }
  for (const FenceName& f : left) ADD_FAILURE() << "never crashed at: " << f.text();
}

bool found(const Script& s, const std::function<void(pm::CrashOptions&)>& mutate,
           std::string* finding) {
  pm::CrashOptions o = crash_options(s);
  o.findings_max = 1;
  o.minimise = false;
  mutate(o);
  const pm::CrashResult r = run(s, o);
  if (!r.ok()) *finding = r.findings.front().where + ": " + r.findings.front().what;
  return !r.ok();
}

struct Planted {
  const char* plant;
  const char* script;
};
constexpr Planted kPlanted[] = {
    {"malloc_intent_unfenced", "small_blocks"},
    {"free_intent_unfenced", "small_blocks"},
    {"free_without_limbo", "no_reuse"},
    {"retired_before_durable", "small_blocks"},
    {"quarantine_skipped", "containers"},
    {"recovery_trusts_the_bit", "small_blocks"},
    {"recovery_replays_retired_frees", "small_blocks"},
    {"lane_sequence_starts_anew", "two_lanes"},
    {"slab_stripes_not_zeroed", "slabs"},
    {"book_chunk_not_zeroed", "compaction"},
    {"close_forgets_living_threads", "two_lanes"},
    {"close_forgets_derived_bits", "derived"},
};

TEST(HeapCrash, every_planted_mistake_is_found) {
  for (const Planted& p : kPlanted) {
    std::string finding;
    EXPECT_TRUE(found(script(p.script), [&](auto& o) { o.plants = {p.plant}; }, &finding))
        << p.plant;
    std::printf("%s: %s\n", p.plant, finding.c_str());
    std::fflush(stdout);
  }
}

// Fences that may be dropped without harm in every script, and why.
const std::set<FenceName> kNeedless = {
    // Whoever takes the frame next overwrites the header before its own record of the frame, and a
    // slab without blocks is given up by recovery. It is the frame allocator's contract, kept.
    {"slab header erased", "its frame is given back"},
};

TEST(HeapCrash, every_fence_is_needed) {
  std::map<FenceName, std::vector<const Script*>> passed;
  for (const Script& s : scripts()) {
    const pm::CrashResult r = run(s, glance(s));
    for (const pm::FenceStats& f : r.fences) {
      if (f.explored != 0) passed[{f.first, f.then}].push_back(&s);
    }
  }
  for (const FenceName& f : ledger()) {
    std::string finding;
    bool any = false;
    for (const Script* s : passed[f]) {
      any = any || found(*s, [&](auto& o) {
              o.mutation = {pm::Mutation::Kind::drop_fence, f.first, f.then, 0};
            }, &finding);
      if (any) break;
    }
    EXPECT_NE(any, kNeedless.contains(f)) << f.text() << (any ? " is needed" : " is not missed");
    std::printf("%s: %s\n", f.text().c_str(), any ? finding.c_str() : "not missed");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tenuto::test

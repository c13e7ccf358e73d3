// Power cuts at every fence while frames change owners. The owner is the smallest there can be: a
// row of records, one line each, that follow the contract of frame/frames.h: a fence between get
// and the record, and between erasing the record and put. After each crash the records name their
// frames, and exactly these must be taken.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "frame/frames.h"
#include "pm/pool_file.h"
#include "tenuto/crash.h"
#include "tenuto/persist.h"

namespace {

using namespace tenuto;
using namespace tenuto::frame;

constexpr std::size_t kRecords = 12;
constexpr std::uint64_t kMiB = 1u << 20;

// frames | first << 24; 0: owns nothing.
struct Owned {
  std::uint64_t raw = 0;

  static Owned make(FrameId first, std::uint64_t frames) { return {first.value << 24 | frames}; }
  FrameId first() const { return {raw >> 24}; }
  std::uint64_t frames() const { return raw & 0xffffff; }
};

PoolOptions pool_options() {
  PoolOptions o;
  o.size = 8 * kMiB;
  o.size_max = 64 * kMiB;
  o.medium = Medium::line;
  return o;
}

struct Pool {
  std::unique_ptr<pm::PoolFile> file;
  std::unique_ptr<Frames> frames;

  // Records stand in the lanes' place, which nobody else uses here.
  std::uint64_t& record(std::size_t i) const {
    return *file->at<std::uint64_t>({pm::kLanesOffset + i * kLineBytes});
  }
  std::string open(const std::string& path) {
    Report report;
    auto opened = pm::PoolFile::open(path, pool_options(), &report);
    if (!opened) return report.text();
    file = std::move(*opened);
    auto f = Frames::open(*file, file->was_clean(), &report);
    if (!f) return report.text();
    frames = std::move(*f);
    return "";
  }
};

// What the records may say: their state when all was acknowledged, and the change under way.
struct Model {
  std::array<Owned, kRecords> before{};
  std::array<Owned, kRecords> after{};
};

// The first huge frame is filled up by an owner that never changes, so that everything else happens
// in three huge frames, in which frames of all orders follow each other.
void setup(const std::string& path) {
  auto made = pm::PoolFile::create(path, pool_options(), nullptr);
  ASSERT_TRUE(made);
  Pool pool{std::move(*made), nullptr};
  Frames::format_zone(*pool.file, pool.file->zone(0), pm::kHeadBytes);
  auto frames = Frames::open(*pool.file, true, nullptr);
  ASSERT_TRUE(frames);
  pool.frames = std::move(*frames);
  for (;;) {
    const auto f = pool.frames->get(0, 0);
    ASSERT_TRUE(f);
    if (f->value < 512) continue;
    ASSERT_EQ(pool.frames->put(*f, 0, 0), Status::ok);
    break;
  }
  pool.frames->close();
  ASSERT_EQ(pool.file->set_state(pm::PoolState::clean), Status::ok);
  ASSERT_EQ(pool.file->link_into_place(nullptr), Status::ok);
}

class Session {
 public:
  Session(CrashContext& context, Model& model) : context_(context), model_(model) {
    context_.update([&] { model_ = {}; });
    EXPECT_EQ(pool.open(context.path()), "");
    EXPECT_EQ(pool.file->set_state(pm::PoolState::running), Status::ok);
  }

  // By thread 0 (this one) or 1 (another one, so that its flushes are not fenced by ours).
  void get(std::size_t i, unsigned order, unsigned thread) {
    on(thread, [&] {
      const auto f = pool.frames->get(order, thread);
      ASSERT_TRUE(f) << "order " << order;
      record(i, Owned::make(*f, 1ull << order));
    });
  }
  void get_run(std::size_t i, std::uint64_t count, unsigned thread) {
    on(thread, [&] {
      const auto f = pool.frames->get_run(count, thread);
      ASSERT_TRUE(f);
      record(i, Owned::make(*f, count * 512));
    });
  }
  void put(std::size_t i, unsigned thread) {
    on(thread, [&] {
      const Owned o{pool.record(i)};
      erase(i);
      const bool run = o.frames() > 1024 || (o.frames() == 1024 && o.first().value % 1024 != 0);
      const auto order = static_cast<unsigned>(std::countr_zero(o.frames()));
      const Status s = run ? pool.frames->put_run(o.first(), o.frames() / 512, thread)
                           : pool.frames->put(o.first(), order, thread);
      ASSERT_EQ(s, Status::ok);
    });
  }
  bool owns(std::size_t i) const { return pool.record(i) != 0; }
  void close() {
    pool.frames->close();
    ASSERT_EQ(pool.file->set_state(pm::PoolState::clean), Status::ok);
  }

  Pool pool;

 private:
  static void on(unsigned thread, const std::function<void()>& body) {
    if (thread == 0) return body();
    std::thread(body).join();
  }
  void record(std::size_t i, Owned o) {
    fence("frame taken", "owner recorded");
    context_.update([&] { model_.after[i] = o; });
    context_.invoke();
    publish(pool.record(i), o.raw);
    fence("owner recorded", "get returns");
    context_.update([&] { model_.before = model_.after; });
    context_.ack();
  }
  void erase(std::size_t i) {
    context_.update([&] { model_.after[i] = {}; });
    context_.invoke();
    publish(pool.record(i), 0);
    fence("owner erased", "frame given back");
    context_.update([&] { model_.before = model_.after; });
    context_.ack();
  }

  CrashContext& context_;
  Model& model_;
};

std::string check(const CrashImage& image, const Model& model) {
  Pool pool;
  if (std::string wrong = pool.open(image.path()); !wrong.empty()) return wrong;
  std::vector<Owned> owned;
  for (std::size_t i = 0; i < kRecords; ++i) {
    const Owned o{pool.record(i)};
    if (o.raw != model.before[i].raw && o.raw != model.after[i].raw) {
      return "record " + std::to_string(i) + " is neither old nor new";
    }
    if (o.raw != 0) owned.push_back(o);
  }
  const std::uint64_t permanent = 512;  // the first huge frame
  Report report;
  if (!pool.file->was_clean()) {
    pool.frames->begin_recovery();
    for (std::uint64_t f = 0; f < permanent; ++f) {
      if (!pool.frames->taken({f}, 0)) continue;  // the zone's own
      if (pool.frames->keep({f}, 1, &report) != Status::ok) return report.text();
    }
    for (const Owned& o : owned) {
      if (pool.frames->keep(o.first(), o.frames(), &report) != Status::ok) return report.text();
    }
    (void)pool.frames->end_recovery();
  }
  if (pool.frames->validate(&report) != Status::ok) return report.text();
  std::uint64_t used = permanent;
  for (const Owned& o : owned) used += o.frames();
  for (std::size_t z = 1; z < pool.file->zone_count(); ++z) {
    used += ZoneGeometry::of(pool.file->zone(z), 0)->own;
  }
  const FrameStats stats = pool.frames->stats();
  if (stats.frames_free + used != stats.frames) {
    return std::to_string(stats.frames_free) + " frames are free, " + std::to_string(used) +
           " are owned, of " + std::to_string(stats.frames);
  }
  if (pool.file->set_state(pm::PoolState::running) != Status::ok) return "no state change";
  image.recovered();
  // What is handed out now is nobody's.
  for (const unsigned order : {0u, 3u, 8u}) {
    const auto f = pool.frames->get(order, 0);
    if (!f) continue;
    for (const Owned& o : owned) {
      const std::uint64_t end = f->value + (1ull << order);
      if (f->value < o.first().value + o.frames() && o.first().value < end) {
        return "frame " + std::to_string(f->value) + " was handed out twice";
      }
    }
  }
  return "";
}

// Every kind of frame follows every other one in the same huge frame, by two threads that do not
// fence for each other.
void hand_over(Session& s) {
  s.get(0, 8, 0);
  s.get(1, 0, 1);
  s.put(0, 0);
  s.put(1, 1);
  s.get(2, 9, 1);  // whole, over bits whose clearing thread 0 never fenced
  s.put(2, 1);
  s.get(3, 3, 0);  // a piece, under a whole whose clearing thread 1 never fenced
  s.get(4, 10, 0);
  s.put(4, 0);
  s.get(5, 7, 1);
  s.put(3, 0);
  s.put(5, 0);
  s.get_run(6, 3, 1);
  s.put(6, 1);
  s.get(7, 6, 0);
  s.get_run(8, 1, 0);
  s.close();
}

CrashResult explore(const CrashOptions& options, const std::function<void(Session&)>& work) {
  Model model;
  return CrashRunner(options).run(
      setup,
      [&](CrashContext& c) {
        Session session(c, model);
        work(session);
      },
      [&](const CrashImage& image) { return check(image, model); });
}

TEST(FrameCrash, owners_keep_their_frames_and_nobody_else_any) {
  const CrashResult r = explore({.seed = 1}, hand_over);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_TRUE(r.unexplored().empty()) << r.unexplored().front();
  EXPECT_TRUE(r.explored("frame taken", "owner recorded"));
  EXPECT_TRUE(r.explored("frames given back", "frames handed out again"));
  EXPECT_TRUE(r.explored("frame counters", "clean close"));
  std::printf("%s\n", r.text().c_str());
}

TEST(FrameCrash, random_histories_of_all_orders_on_two_threads) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CrashOptions options{.seed = seed};
    options.recovery_states_max = 4;
    const CrashResult r = explore(options, [&](Session& s) {
      std::uint64_t x = seed * 0x9e3779b97f4a7c15;
      for (int step = 0; step < 24; ++step) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        const std::uint64_t dice = x * 0x2545f4914f6cdd1d >> 33;
        const std::size_t i = dice % kRecords;
        const auto thread = static_cast<unsigned>(dice >> 8 & 1);
        if (s.owns(i)) {
          s.put(i, thread);
        } else if (s.pool.frames->stats().huge_free >= 2) {
          s.get(i, static_cast<unsigned>((dice >> 10) % 10), thread);
        } else {
          s.get(i, static_cast<unsigned>((dice >> 10) % 5), thread);
        }
      }
      s.close();
    });
    EXPECT_TRUE(r.ok()) << "seed " << seed << ": " << r.text();
  }
}

TEST(FrameCrash, a_zone_is_there_whole_or_not_at_all) {
  const CrashResult r = explore({.seed = 1}, [](Session& s) {
    s.get_run(0, 3, 0);
    const auto zone = s.pool.file->grow(Frames::zone_bytes_for(2),
                                        [&](const pm::ZoneEntry& z, std::uint64_t head) {
                                          Frames::format_zone(*s.pool.file, z, head);
                                        });
    ASSERT_TRUE(zone);
    ASSERT_EQ(s.pool.frames->add_zone(*zone), Status::ok);
    s.get(1, 4, 0);
    s.get(2, 10, 1);
    s.put(1, 0);
  });
  EXPECT_TRUE(r.ok()) << r.text();
}

// Losses that no crash state can show, because the owners decide: what put and end_recovery flush
// (a frame that still looks taken and has no owner is given back anyway), and hence the fence of
// end_recovery.
bool needless(const Mutation& m) { return m.first == "frames given back"; }

TEST(FrameCrash, every_flush_of_get_and_every_fence_is_needed) {
  Model model;
  CrashOptions options{.seed = 1};
  options.recovery_depth = 0;
  options.recover_twice = false;
  const auto outcomes = CrashRunner(options).mutants(
      setup,
      [&](CrashContext& c) {
        Session s(c, model);
        s.get(0, 8, 0);
        s.get(1, 9, 0);
        s.get_run(2, 1, 0);
        s.put(1, 0);
        s.get(3, 9, 1);
        s.put(0, 1);
        s.get(0, 8, 0);
        s.get(4, 0, 0);
        s.put(4, 1);  // not fenced by the thread that closes
        s.close();
      },
      [&](const CrashImage& image) { return check(image, model); });
  std::size_t found = 0;
  for (const MutantOutcome& o : outcomes) {
    EXPECT_TRUE(o.found || needless(o.mutation)) << o.mutation.text();
    found += o.found ? 1 : 0;
  }
  EXPECT_GE(found, 8u);
}

}  // namespace

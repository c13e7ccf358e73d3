#include "support/frame_world.h"

#include <gtest/gtest.h>

#include <bit>
#include <thread>
#include <vector>

#include "tenuto/persist.h"

namespace tenuto::test {

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

PoolOptions pool_options() {
  PoolOptions o;
  o.size = 8 * kMiB;
  o.size_max = 64 * kMiB;
  o.medium = Medium::line;
  return o;
}

void on(unsigned thread, const std::function<void()>& body) {
  if (thread == 0) return body();
  std::thread(body).join();
}

}  // namespace

std::string FramePoolParts::open(const std::string& path) {
  Report report;
  auto opened = pm::PoolFile::open(path, pool_options(), &report);
  if (!opened) return report.text();
  file = std::move(*opened);
  auto f = frame::Frames::open(*file, file->was_clean(), &report);
  if (!f) return report.text();
  frames = std::move(*f);
  return "";
}

void make_frame_world(const std::string& path) {
  auto made = pm::PoolFile::create(path, pool_options(), nullptr);
  ASSERT_TRUE(made);
  FramePoolParts pool{std::move(*made), nullptr};
  frame::Frames::format_zone(*pool.file, pool.file->zone(0), pm::kHeadBytes);
  auto frames = frame::Frames::open(*pool.file, true, nullptr);
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

FrameSession::FrameSession(CrashContext& context, FrameModel& model)
    : context_(context), model_(model) {
  context_.update([&] { model_ = {}; });
  EXPECT_EQ(pool.open(context.path()), "");
  EXPECT_EQ(pool.file->set_state(pm::PoolState::running), Status::ok);
}

void FrameSession::get(std::size_t i, unsigned order, unsigned thread) {
  on(thread, [&] {
    const auto f = pool.frames->get(order, thread);
    ASSERT_TRUE(f) << "order " << order;
    record(i, FrameOwner::make(*f, 1ull << order));
  });
}

void FrameSession::get_run(std::size_t i, std::uint64_t count, unsigned thread) {
  on(thread, [&] {
    const auto f = pool.frames->get_run(count, thread);
    ASSERT_TRUE(f);
    record(i, FrameOwner::make(*f, count * 512));
  });
}

void FrameSession::put(std::size_t i, unsigned thread) {
  on(thread, [&] {
    const FrameOwner o{pool.record(i)};
    erase(i);
    const bool run = o.frames() > 1024 || (o.frames() == 1024 && o.first().value % 1024 != 0);
    const auto order = static_cast<unsigned>(std::countr_zero(o.frames()));
    const Status s = run ? pool.frames->put_run(o.first(), o.frames() / 512, thread)
                         : pool.frames->put(o.first(), order, thread);
    ASSERT_EQ(s, Status::ok);
  });
}

void FrameSession::grow() {
  const auto zone = pool.file->grow(frame::Frames::zone_bytes_for(2),
                                    [&](const pm::ZoneEntry& z, std::uint64_t head) {
                                      frame::Frames::format_zone(*pool.file, z, head);
                                    });
  ASSERT_TRUE(zone);
  ASSERT_EQ(pool.frames->add_zone(*zone), Status::ok);
}

void FrameSession::close() {
  pool.frames->close();
  ASSERT_EQ(pool.file->set_state(pm::PoolState::clean), Status::ok);
}

void FrameSession::record(std::size_t i, FrameOwner o) {
  fence("frame taken", "owner recorded");
  context_.update([&] { model_.after[i] = o; });
  context_.invoke();
  publish(pool.record(i), o.raw);
  fence("owner recorded", "get returns");
  context_.update([&] { model_.before = model_.after; });
  context_.ack();
}

void FrameSession::erase(std::size_t i) {
  context_.update([&] { model_.after[i] = {}; });
  context_.invoke();
  publish(pool.record(i), 0);
  fence("owner erased", "frame given back");
  context_.update([&] { model_.before = model_.after; });
  context_.ack();
}

std::string check_frame_world(const CrashImage& image, const FrameModel& model) {
  FramePoolParts pool;
  if (std::string wrong = pool.open(image.path()); !wrong.empty()) return wrong;
  std::vector<FrameOwner> owned;
  for (std::size_t i = 0; i < kFrameRecords; ++i) {
    const FrameOwner o{pool.record(i)};
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
      if (!pool.frames->taken({f}, 0)) continue;  // the zone's own frames
      if (pool.frames->keep({f}, 1, &report) != Status::ok) return report.text();
    }
    for (const FrameOwner& o : owned) {
      if (pool.frames->keep(o.first(), o.frames(), &report) != Status::ok) return report.text();
    }
    (void)pool.frames->end_recovery();
  }
  if (pool.frames->validate(&report) != Status::ok) return report.text();
  std::uint64_t used = permanent;
  for (const FrameOwner& o : owned) used += o.frames();
  for (std::size_t z = 1; z < pool.file->zone_count(); ++z) {
    used += frame::ZoneGeometry::of(pool.file->zone(z), 0)->own;
  }
  const frame::FrameStats stats = pool.frames->stats();
  if (stats.frames_free + used != stats.frames) {
    return std::to_string(stats.frames_free) + " frames are free, " + std::to_string(used) +
           " are owned, of " + std::to_string(stats.frames);
  }
  if (pool.file->set_state(pm::PoolState::running) != Status::ok) return "no state change";
  image.recovered();
  // A frame that is handed out now must have no owner.
  for (const unsigned order : {0u, 3u, 8u}) {
    const auto f = pool.frames->get(order, 0);
    if (!f) continue;
    for (const FrameOwner& o : owned) {
      const std::uint64_t end = f->value + (1ull << order);
      if (f->value < o.first().value + o.frames() && o.first().value < end) {
        return "frame " + std::to_string(f->value) + " was handed out twice";
      }
    }
  }
  return "";
}

CrashResult explore_frames(const CrashOptions& options,
                           const std::function<void(FrameSession&)>& work) {
  FrameModel model;
  return CrashRunner(options).run(
      make_frame_world,
      [&](CrashContext& c) {
        FrameSession session(c, model);
        work(session);
      },
      [&](const CrashImage& image) { return check_frame_world(image, model); });
}

void frames_handed_over(FrameSession& s) {
  s.get(0, 8, 0);
  s.get(1, 0, 1);
  s.put(0, 0);
  s.put(1, 1);
  s.get(2, 9, 1);  // a whole huge frame, over bits whose clearing thread 0 did not fence
  s.put(2, 1);
  s.get(3, 3, 0);  // a part of a huge frame whose clearing as a whole thread 1 did not fence
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

void frames_of_a_new_zone(FrameSession& s) {
  s.get_run(0, 3, 0);
  s.grow();
  s.get(1, 4, 0);
  s.get(2, 10, 1);
  s.put(1, 0);
  s.get(3, 0, 0);
  s.close();
}

}  // namespace tenuto::test

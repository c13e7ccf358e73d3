// A pool of layout 4 is opened by this version, under the crash explorer: after every crash in that
// open, and in what follows, it opens again and holds what it held.
#include <gtest/gtest.h>

#include <string>

#include "pools/packed.h"
#include "support/explored.h"
#include "support/explored_medium.h"
#include "support/pool_parts.h"
#include "tenuto/crash.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr const char* kNew = "put after the upgrade";

StoreOptions options() {
  StoreOptions o;
  o.pool = on_explored_medium(o.pool);
  o.create_if_missing = false;
  return o;
}

std::string records_of(const Collection& c) {
  std::string out;
  Iterator it = c.iterator();
  for (it.seek_first(); it.valid(); it.next()) {
    if (it.key() == kNew) continue;
    out += std::string(it.key()) + "=" + std::string(it.value()) + "\n";
  }
  return it.status() == Status::ok ? out : "error: " + std::string(status_name(it.status()));
}

// All records but the one that the workload puts.
std::string records_of(Store& s) {
  std::string out = records_of(static_cast<const Collection&>(s));
  const auto infos = s.collections().value();
  for (const CollectionInfo& info : infos) {
    out += "collection " + info.name + "\n" + records_of(s.collection(info.name).value());
  }
  return out;
}

void unpack(const std::string& name, const std::string& to) {
  ASSERT_EQ(unpack_file(TENUTO_OLD_POOLS "/0.1/" + name + ".pool.lz4", to), "");
}

CrashResult explore(const std::string& name, CrashOptions how = {}) {
  std::string held;
  {
    const TempPath copy("upgrade");
    unpack(name, copy.str());
    Report report;
    Result<Store> s = Store::open(copy.str(), options(), &report);
    EXPECT_TRUE(s) << report.text();
    held = records_of(*s);
    EXPECT_GT(held.size(), 1000u);
  }
  how.counted_model = true;
  how.points_percent = 40;
  how.product_max = 60;
  how.samples_max = 20;
  how.recovery_states_max = 3;
  return CrashRunner(how).run(
      [&](const std::string& path) { unpack(name, path); },
      [](CrashContext& c) {
        Result<Store> s = Store::open(c.path(), options());
        ASSERT_TRUE(s);
        c.invoke();
        ASSERT_EQ(s->put_if_absent(kNew, "new"), Status::ok);
        c.ack();
        ASSERT_EQ(s->close(), Status::ok);
      },
      [&](const CrashImage& image) -> std::string {
        Report report;
        Result<Store> s = Store::open(image.path(), options(), &report);
        if (!s) return "open: " + report.text();
        const bool put = s->get(kNew).value_or("") == "new";
        if (put != (image.acknowledged() == 1) && image.invoked() == image.acknowledged()) {
          return "the new record";
        }
        if (records_of(*s) != held) return "the records are other ones";
        if (s->validate(&report) != Status::ok) return "validate: " + report.text();
        image.recovered();
        if (s->close() != Status::ok) return "close";
        return {};
      });
}

void expect_sound(const CrashResult& r) {
  expect_explored(r, {{"superblock copy", "pool state change"}});
}

TEST(UpgradeCrash, of_a_pool_that_was_closed) { expect_sound(explore("clean")); }
TEST(UpgradeCrash, of_a_pool_that_was_killed) { expect_sound(explore("killed")); }

TEST(UpgradeCrash, a_superblock_that_is_not_durable_is_found) {
  CrashOptions how;
  how.findings_max = 1;
  how.minimise = false;
  how.plants = {"pm_superblock_copies_not_in_turn"};
  EXPECT_FALSE(explore("clean", how).ok());
}

}  // namespace
}  // namespace tenuto::test

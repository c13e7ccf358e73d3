// Opens of a closed store, crashed and recovered again and again: what recovery writes must not
// come before a superblock that says so, whatever a crash has left of the two copies.
#include <gtest/gtest.h>

#include <string>

#include "file/pool_file.h"
#include "pm/crc32c.h"
#include "pm/plant.h"
#include "support/pool_image.h"
#include "support/pool_parts.h"
#include "tenuto/crash.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

StoreOptions small_store() {
  StoreOptions o;
  o.pool.size = kPoolBytesMin;
  o.pool.medium = Medium::cache;
  o.pool.recovery_threads = 1;
  return o;
}

void setup(const std::string& path) {
  auto store = Store::open(path, small_store());
  ASSERT_TRUE(store);
  ASSERT_EQ(store->put("key", "value"), Status::ok);
  ASSERT_EQ(store->close(), Status::ok);
}

std::string check(const CrashImage& image) {
  Report report;
  auto store = Store::open(image.path(), small_store(), &report);
  if (!store) return "open: " + report.text();
  std::string value;
  if (store->get("key", value) != Status::ok || value != "value") return "the record is lost";
  if (store->validate(&report) != Status::ok) return "validate: " + report.text();
  return {};
}

// Each crash of the open, and of each recovery after it.
CrashResult explore() {
  CrashOptions o;
  o.findings_max = 1;
  o.minimise = false;
  o.product_max = 30;
  o.recovery_states_max = 30;
  return CrashRunner(o).run(
      setup,
      [](CrashContext& c) {
        auto store = Store::open(c.path(), small_store());
        ASSERT_TRUE(store);
      },
      check);
}

TEST(open_crash, a_recovery_is_one_until_it_is_over) {
  const CrashResult r = explore();
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GT(r.checks, 100u);
}

// Two torn writes of a copy, the second by the recovery, may leave what it was before both. So the
// pool says that it is in use before recovery changes anything.
TEST(open_crash, a_torn_copy_beside_a_clean_one_is_no_sign_of_a_recovery) {
  const TempPath path{"torn"};
  setup(path.str());
  Bytes torn = read_image(path.str());
  const auto copy = [](Bytes& b, std::size_t i) {
    return reinterpret_cast<pm::Superblock*>(&b[i * kFrameBytes]);
  };
  const auto clean = static_cast<std::uint32_t>(pm::PoolState::clean);
  const std::size_t older = copy(torn, 0)->state == clean ? 1 : 0;
  ASSERT_EQ(copy(torn, 1 - older)->state, clean);
  copy(torn, older)->closed += 1;
  for (const bool planted : {false, true}) {
    write_image(path.str(), torn);
    if (planted) plant("pm_torn_copy_is_a_sign");
    Report report;
    auto file = pm::PoolFile::open(path.str(), small_store().pool, &report);
    ASSERT_TRUE(file) << report.text();
    EXPECT_EQ((*file)->begin_life(&report), Status::ok) << report.text();
    unplant_all();
    Bytes now = read_image(path.str());
    const pm::Superblock& s = *copy(now, older);
    const bool sound = s.crc == pm::crc32c(&s, offsetof(pm::Superblock, crc));
    EXPECT_EQ(sound && s.state == static_cast<std::uint32_t>(pm::PoolState::running), !planted);
  }
}

}  // namespace
}  // namespace tenuto::test

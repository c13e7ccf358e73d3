// Opens of a closed store, crashed and recovered again and again: what recovery writes must not
// come before a superblock that says so, whatever a crash has left of the two copies.
#include <gtest/gtest.h>

#include <string>

#include "pm/plant.h"
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
CrashResult explore(std::uint64_t seed) {
  CrashOptions o;
  o.findings_max = 1;
  o.minimise = false;
  o.seed = seed;
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
  const CrashResult r = explore(1);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GT(r.checks, 100u);
}

// Two torn writes of a copy, the second by the recovery, may leave what it was before both.
TEST(open_crash, a_torn_copy_beside_a_clean_one_is_no_sign_of_a_recovery) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 20 && found.empty(); ++seed) {
    plant("pm_torn_copy_is_a_sign");
    const CrashResult r = explore(seed);
    unplant_all();
    if (!r.ok()) found = r.text();
  }
  EXPECT_NE(found, "");
  std::printf("%s\n", found.c_str());
}

}  // namespace
}  // namespace tenuto::test

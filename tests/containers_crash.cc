// Vector, String and Queue under the crash explorer, by scripts (support/container_world.h).
// planted_crash.cc plants mistakes in them.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/container_world.h"

namespace tenuto::test {
namespace {

void expect_sound(const ContainerScript& script, bool collected = false) {
  for (std::uint64_t seed = 1; seed <= crash_scaled(1); ++seed) {
    const CrashResult r = ContainerCrash(script, seed, collected).run(container_crash_options());
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    std::printf("seed %llu: %llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(r.points),
                static_cast<unsigned long long>(r.unique),
                static_cast<unsigned long long>(r.recovery_states),
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

TEST(containers_crash, a_vector_has_what_was_committed) { expect_sound(kVectorChanges); }

TEST(containers_crash, a_text_has_what_was_committed) { expect_sound(kTextChanges); }

TEST(containers_crash, elements_own_what_was_committed) { expect_sound(kStringChanges); }

TEST(containers_crash, queues_have_what_was_committed) { expect_sound(kQueueChanges); }

// With Consistency::gc nothing is lost that they hold, and nothing else is kept.
TEST(containers_crash, collections_keep_what_was_committed) { expect_sound(kStringChanges, true); }

}  // namespace
}  // namespace tenuto::test

#include <gtest/gtest.h>

TEST(Layering, placeholder_until_checker) { EXPECT_TRUE(true); }

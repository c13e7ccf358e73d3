// Frames that the heap asks for while other threads take what the pool grows by.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "frame_pool.h"
#include "heap/frame_source.h"

namespace {

using namespace tenuto;
using tests::FramePool;

// Another thread takes each huge frame as soon as it is there, as threads do that come past the
// lock of growth. The pool may grow, so no get answers full.
TEST(FrameSourceTest, a_thread_that_grew_the_pool_gets_its_frame_also_when_others_were_faster) {
  FramePool pool(8u << 20);
  heap::FrameSource source(*pool.file, *pool.frames);
  constexpr int kEach = 50;  // together far from the limit of zones
  std::atomic<bool> stop = false;
  std::thread other([&] {
    for (int taken = 0; !stop && taken < kEach;) {
      if (pool.frames->get(frame::kOrderHuge, 1)) ++taken;
    }
  });
  for (int i = 0; i < kEach; ++i) {
    const auto got = source.get_unfilled(frame::kOrderHuge, 0);
    EXPECT_TRUE(got) << "get " << i << ": " << status_name(got.error());
  }
  stop = true;
  other.join();
  EXPECT_EQ(pool.disagreement(), "");
}

}  // namespace

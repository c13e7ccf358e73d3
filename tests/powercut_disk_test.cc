// The disk of the power-cut rig: what it must lose, and what it must not. With a disk that lost
// nothing every cut would pass.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "powercut/volatile_disk.h"

namespace tenuto::powercut {
namespace {

constexpr std::uint64_t kDiskSectors = 64;

class PowercutDisk : public testing::Test {
 protected:
  PowercutDisk() : image_(::memfd_create("image", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(image_, kDiskSectors * kSectorBytes), 0);
  }
  ~PowercutDisk() override { ::close(image_); }

  VolatileDisk disk() const { return {image_, kDiskSectors * kSectorBytes}; }
  static std::vector<char> filled(std::uint64_t sectors, char c) {
    return std::vector<char>(sectors * kSectorBytes, c);
  }
  // The image as one character a sector, or '?' if the sector has different bytes.
  std::string image() const {
    std::string all;
    for (std::uint64_t i = 0; i < kDiskSectors; ++i) {
      std::vector<char> sector(kSectorBytes);
      EXPECT_EQ(::pread(image_, sector.data(), sector.size(), static_cast<off_t>(i * kSectorBytes)),
                static_cast<ssize_t>(sector.size()));
      const bool uniform = std::set<char>(sector.begin(), sector.end()).size() == 1;
      all.push_back(!uniform ? '?' : sector[0] == 0 ? '.' : sector[0]);
    }
    return all;
  }
  static std::string starts(std::string s) { return s.append(kDiskSectors - s.size(), '.'); }

 private:
  int image_;
};

TEST_F(PowercutDisk, reads_what_was_written_before_it_is_durable) {
  VolatileDisk d = disk();
  ASSERT_TRUE(d.write(kSectorBytes, filled(2, 'a')));
  ASSERT_TRUE(d.write(2 * kSectorBytes, filled(1, 'b')));
  std::vector<char> read(4 * kSectorBytes);
  ASSERT_TRUE(d.read(0, read));
  EXPECT_EQ(read[0], 0);
  EXPECT_EQ(read[kSectorBytes], 'a');
  EXPECT_EQ(read[2 * kSectorBytes], 'b');
  EXPECT_EQ(read[3 * kSectorBytes], 0);
  EXPECT_EQ(image(), starts(""));
}

TEST_F(PowercutDisk, flush_keeps_and_a_cut_drops_the_rest) {
  VolatileDisk d = disk();
  ASSERT_TRUE(d.write(0, filled(3, 'a')));
  ASSERT_TRUE(d.flush());
  ASSERT_TRUE(d.write(kSectorBytes, filled(3, 'b')));
  ASSERT_TRUE(d.cut(Loss::drop, 1));
  EXPECT_EQ(image(), starts("aaa"));
  EXPECT_EQ(d.counts().unflushed, 3u);
  EXPECT_EQ(d.counts().lost, 3u);
}

TEST_F(PowercutDisk, keep_loses_nothing) {
  VolatileDisk d = disk();
  ASSERT_TRUE(d.write(0, filled(2, 'a')));
  ASSERT_TRUE(d.write(0, filled(1, 'b')));
  ASSERT_TRUE(d.cut(Loss::keep, 1));
  EXPECT_EQ(image(), starts("ba"));
  EXPECT_EQ(d.counts().lost, 0u);
}

TEST_F(PowercutDisk, sectors_keeps_any_version_of_each_and_never_a_mixture) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    VolatileDisk d = disk();
    ASSERT_TRUE(d.write(0, filled(2, 'a')));
    ASSERT_TRUE(d.flush());
    ASSERT_TRUE(d.write(0, filled(2, 'b')));
    ASSERT_TRUE(d.write(0, filled(2, 'c')));
    ASSERT_TRUE(d.cut(Loss::sectors, seed));
    seen.insert(image().substr(0, 2));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"aa", "ab", "ac", "ba", "bb", "bc", "ca", "cb", "cc"}));
}

TEST_F(PowercutDisk, requests_survive_whole_and_overtake_each_other) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    VolatileDisk d = disk();
    ASSERT_TRUE(d.write(0, filled(4, 'a')));
    ASSERT_TRUE(d.flush());
    ASSERT_TRUE(d.write(0, filled(2, 'b')));
    ASSERT_TRUE(d.write(kSectorBytes, filled(2, 'c')));
    ASSERT_TRUE(d.cut(Loss::requests, seed));
    seen.insert(image().substr(0, 4));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"aaaa", "bbaa", "acca", "bcca"}));
}

TEST_F(PowercutDisk, same_seed_same_cut) {
  std::set<std::string> seen;
  for (int i = 0; i < 5; ++i) {
    VolatileDisk d = disk();
    ASSERT_TRUE(d.write(0, filled(kDiskSectors, '.')));
    ASSERT_TRUE(d.flush());
    ASSERT_TRUE(d.write(0, filled(kDiskSectors, 'x')));
    ASSERT_TRUE(d.cut(Loss::sectors, 7));
    seen.insert(image());
  }
  EXPECT_EQ(seen.size(), 1u);
}

TEST_F(PowercutDisk, refuses_what_is_not_in_whole_sectors_of_it) {
  VolatileDisk d = disk();
  std::vector<char> two(2 * kSectorBytes);
  EXPECT_FALSE(d.write(1, filled(1, 'a')));
  EXPECT_FALSE(d.write(0, std::vector<char>(100)));
  EXPECT_FALSE(d.write((kDiskSectors - 1) * kSectorBytes, filled(2, 'a')));
  EXPECT_FALSE(d.read((kDiskSectors - 1) * kSectorBytes, two));
  EXPECT_FALSE(d.read(~std::uint64_t{0} - 511, two));
}

}  // namespace
}  // namespace tenuto::powercut

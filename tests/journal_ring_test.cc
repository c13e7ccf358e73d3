// A ring that is doubled while its blocks count: each block is found again, also when a header is
// damaged later, and a header that cannot be written is io.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>

#include "journal/file.h"
#include "pm/plant.h"
#include "support/failing_calls.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using pm::JournalFile;
using pm::LineImage;

constexpr std::uint64_t kRing = pm::kJournalBytesMin;
constexpr std::uint64_t kLife = 7;

class JournalRing : public testing::Test {
 protected:
  void SetUp() override {
    expected_.pool_id = 42;
    expected_.pool_path = "/pool";
    open();
    ASSERT_EQ(file_->begin(expected_, kLife, &report_), Status::ok) << report_.text();
    file_->keep();
  }
  void TearDown() override { unplant_all(); }

  void open() {
    report_ = {};
    auto opened = JournalFile::open(path_.str(), kRing, expected_, &report_);
    ASSERT_TRUE(opened) << report_.text();
    file_ = std::move(*opened);
  }
  // Blocks of one line each, whose line is its block's number.
  Status append(unsigned blocks) {
    for (unsigned i = 0; i < blocks; ++i) {
      const LineImage image{file_->end().block, bytes_.data()};
      TENUTO_TRY(file_->append({&image, 1}, &report_));
    }
    return Status::ok;
  }
  Status grow() {
    for (;;) {
      const Result<bool> whole = file_->prepare_double(&report_);
      if (!whole) return whole.error();
      if (*whole) break;
    }
    EXPECT_TRUE(file_->may_double());
    return file_->double_ring(&report_);
  }
  // After a kill: how many blocks a replay finds; they count up.
  std::size_t blocks_found() {
    expected_.journal_id = file_->journal_id();
    expected_.life = kLife;
    expected_.in_use = true;
    file_.reset();
    report_ = {};
    auto opened = JournalFile::open(path_.str(), kRing, expected_, &report_);
    if (!opened) return 0;
    file_ = std::move(*opened);
    std::set<std::uint64_t> lines;
    const auto take = [&](std::span<const LineImage> images) {
      for (const LineImage& i : images) lines.insert(i.line);
      return Status::ok;
    };
    pm::ReplayStats stats;
    const Status s = file_->replay({.threads = 1}, take, &stats, &report_);
    return s == Status::ok ? lines.size() : 0;
  }
  void damage_header(unsigned which) const {
    const int fd = ::open(path_.str().c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    const off_t at = which * static_cast<off_t>(pm::kJournalUnitBytes) + 40;
    ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 0x10);
    ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
    ::close(fd);
  }
  // Doubles a ring that is half full, fills it beyond its old end, and damages a header.
  std::size_t found_with_damaged(unsigned header) {
    const unsigned units = kRing / pm::kJournalUnitBytes;
    EXPECT_EQ(append(units / 2), Status::ok);
    EXPECT_EQ(grow(), Status::ok) << report_.text();
    EXPECT_EQ(append(units), Status::ok) << report_.text();
    damage_header(header);
    return blocks_found();
  }
  static constexpr std::size_t kBlocks = kRing / pm::kJournalUnitBytes * 3 / 2;

  test::TempPath path_{"journal-ring"};
  std::array<std::byte, kLineBytes> bytes_{};
  pm::JournalExpected expected_;
  Report report_;
  std::unique_ptr<JournalFile> file_;
};

class DamagedHeader : public JournalRing, public testing::WithParamInterface<unsigned> {};

TEST_P(DamagedHeader, leads_to_the_blocks_of_a_doubled_ring) {
  EXPECT_EQ(found_with_damaged(GetParam()), kBlocks) << report_.text();
}

INSTANTIATE_TEST_SUITE_P(both, DamagedHeader, testing::Values(0u, 1u));

TEST_F(JournalRing, that_only_one_header_knows_is_found) {
  plant("journal_doubled_ring_in_one_header");
  const std::uint64_t newest = 3 & 1;  // begin wrote the second header, the doubling the third
  EXPECT_LT(found_with_damaged(newest), kBlocks);
}

TEST_F(JournalRing, is_not_doubled_in_an_odd_lap) {
  const unsigned units = kRing / pm::kJournalUnitBytes;
  ASSERT_EQ(append(units), Status::ok);
  ASSERT_EQ(file_->set_start(file_->end(), &report_), Status::ok);
  ASSERT_EQ(append(3), Status::ok);
  EXPECT_FALSE(file_->may_double());
  ASSERT_EQ(append(units - 3), Status::ok);
  ASSERT_EQ(file_->set_start(file_->end(), &report_), Status::ok);
  EXPECT_TRUE(file_->may_double());
}

TEST_F(JournalRing, whose_headers_cannot_be_written_is_io) {
  ASSERT_EQ(append(3), Status::ok);
  for (Result<bool> whole = false; !*whole;) {
    whole = file_->prepare_double(&report_);
    ASSERT_TRUE(whole);
  }
  // The first header is new, the second one cannot be written: the pool fails for good.
  test::fail_call(2, EIO, false);
  EXPECT_EQ(file_->double_ring(&report_), Status::io);
  std::string name;
  EXPECT_TRUE(test::failed_call(&name));
  EXPECT_EQ(name, "pwrite");
  EXPECT_EQ(blocks_found(), 3u) << report_.text();
}

TEST_F(JournalRing, without_space_stays_as_it_is) {
  const std::uint64_t bytes = file_->ring_bytes();
  ASSERT_EQ(append(3), Status::ok);
  test::fail_call(1, ENOSPC, false);
  EXPECT_EQ(file_->prepare_double(&report_).error(), Status::full);
  std::string name;
  EXPECT_TRUE(test::failed_call(&name));
  EXPECT_EQ(file_->ring_bytes(), bytes);
  ASSERT_EQ(append(3), Status::ok);
  EXPECT_EQ(blocks_found(), 6u) << report_.text();
}

}  // namespace
}  // namespace tenuto

// Journals with right checksums and contents that no pool wrote: every field is checked before it
// is used. An open returns an error that tells what is wrong, and the pool file stays as it is.
// fuzz/fuzz_journal.cc tries random forgeries.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "pm/plant.h"
#include "support/journal_forge.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"

namespace tenuto::test {
namespace {

class JournalHostile : public testing::Test {
 protected:
  void SetUp() override {
    run_and_kill([&] {
      Store& s = *new Store(*Store::open(paths_.pool.str(), options()));
      for (int i = 0; i < 8; ++i) {
        if (s.put("key" + std::to_string(i), "v") != Status::ok) return false;
      }
      return true;
    });
    pool_ = read_image(paths_.pool.str());
    journal_ = read_image(paths_.journal.str());
  }
  void TearDown() override { unplant_all(); }

  StoreOptions options() const {
    StoreOptions o = journalled(paths_);
    o.pool.size = kPoolBytesMin;
    o.pool.journal.bytes = 256u << 10;
    return o;
  }

  // Opens the pool beside a forged journal, and returns the status. The pool file must not get
  // longer.
  Status open_with(const JournalForge& forged) {
    Status said = Status::ok;
    for (const Medium medium : {Medium::journal, Medium::cache}) {
      write_image(paths_.pool.str(), pool_);
      write_image(paths_.journal.str(), forged.bytes());
      StoreOptions o = options();
      o.pool.medium = medium;
      report_ = {};
      said = Store::open(paths_.pool.str(), o, &report_).error();
      struct stat st {};
      EXPECT_EQ(::stat(paths_.pool.str().c_str(), &st), 0);
      EXPECT_EQ(static_cast<std::size_t>(st.st_size), pool_.size()) << "it was extended";
      EXPECT_EQ(said == Status::ok, report_.what.empty());
      if (said != Status::ok) {
        EXPECT_TRUE(read_image(paths_.pool.str()) == pool_) << "written to";
      }
    }
    return said;
  }
  Status open_with_header(const std::function<void(pm::JournalHeader&)>& change) {
    JournalForge forge(journal_);
    pm::JournalHeader h = forge.header();
    change(h);
    forge.put_header(h);
    return open_with(forge);
  }
  Status open_with_block(const std::function<void(pm::JournalBlock&)>& change) {
    JournalForge forge(journal_);
    const std::size_t at = forge.blocks()[0];
    pm::JournalBlock b = forge.block(at);
    change(b);
    forge.put_block(at, b);
    return open_with(forge);
  }
  Status open_with_line(std::uint64_t line) {
    static const std::byte zeros[kLineBytes] = {};
    JournalForge forge(journal_);
    EXPECT_TRUE(forge.put_lines(forge.blocks()[0], {{line, zeros}}));
    return open_with(forge);
  }

  JournalPaths paths_{"journal-hostile"};
  Bytes pool_, journal_;
  Report report_;
};

TEST_F(JournalHostile, an_honest_one_opens) {
  const JournalForge forge(journal_);
  ASSERT_GE(forge.blocks().size(), 8u);
  EXPECT_EQ(open_with(forge), Status::ok) << report_.text();
}

TEST_F(JournalHostile, a_start_between_units_is_refused) {
  for (const std::uint64_t start :
       {std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{4095}, (std::uint64_t{256} << 10) - 32,
        ~std::uint64_t{0}, ~std::uint64_t{4095}, std::uint64_t{1} << 62}) {
    EXPECT_EQ(open_with_header([&](auto& h) { h.start = start; }), Status::corrupt) << start;
  }
}

TEST_F(JournalHostile, impossible_fields_of_the_header_are_refused) {
  const auto refused = [&](const std::function<void(pm::JournalHeader&)>& change) {
    EXPECT_EQ(open_with_header(change), Status::corrupt) << report_.text();
  };
  refused([](auto& h) { h.ring_bytes = 0; });
  refused([](auto& h) { h.ring_bytes = 4095; });
  refused([](auto& h) { h.ring_bytes += 4096; });
  refused([](auto& h) { h.ring_bytes = ~std::uint64_t{4095}; });
  refused([](auto& h) { h.start_block = 0; });
  refused([](auto& h) { h.start_block = ~std::uint64_t{0}; });
  refused([](auto& h) { h.state = 0; });
  refused([](auto& h) { h.state = 77; });
  refused([](auto& h) { h.sequence = (~std::uint64_t{0} & ~1ull) | (h.sequence & 1); });
}

TEST_F(JournalHostile, impossible_fields_of_a_block_are_refused) {
  const auto refused = [&](const std::function<void(pm::JournalBlock&)>& change) {
    EXPECT_EQ(open_with_block(change), Status::corrupt) << report_.text();
  };
  refused([](auto& b) { b.packed_bytes = ~0u; });
  refused([](auto& b) { b.raw_bytes = ~0u; });
  refused([](auto& b) { b.raw_bytes = 1u << 29; });
  refused([](auto& b) { b.lines = ~0u; });
  refused([](auto& b) { b.kind = 3; });
}

TEST_F(JournalHostile, lines_that_the_pool_does_not_have_are_refused) {
  const std::uint64_t last = pool_.size() / kLineBytes;
  for (const std::uint64_t line :
       {last, last + 1, std::uint64_t{1} << 32, std::uint64_t{1} << 56, std::uint64_t{1} << 58,
        (std::uint64_t{1} << 58) + 5, ~std::uint64_t{0}}) {
    EXPECT_EQ(open_with_line(line), Status::corrupt) << line;
    EXPECT_NE(report_.text().find("cut short"), std::string::npos) << report_.text();
  }
}

TEST_F(JournalHostile, a_payload_that_is_none_is_the_end_or_damage) {
  JournalForge forge(journal_);
  std::vector<std::byte> raw = forge.raw(forge.blocks()[0]);
  const std::uint32_t lines = forge.block(forge.blocks()[0]).lines;
  std::fill(raw.begin(), raw.begin() + std::min<std::ptrdiff_t>(12, std::ssize(raw)),
            std::byte{0xff});  // a number of more than 64 bits
  if (!forge.put_raw(forge.blocks()[0], raw, lines)) GTEST_SKIP() << "it does not fit";
  EXPECT_EQ(open_with(forge), Status::corrupt);
}

#ifdef TENUTO_DEBUG_CHECKS

TEST_F(JournalHostile, planted_mistakes_are_found) {
  plant("journal_lines_not_bounded");
  testing::TestPartResultArray found;
  write_image(paths_.pool.str(), pool_);
  JournalForge forge(journal_);
  static const std::byte zeros[kLineBytes] = {};
  const std::uint64_t beyond = pool_.size() / kLineBytes + 1000;
  ASSERT_TRUE(forge.put_lines(forge.blocks()[0], {{beyond, zeros}}));
  write_image(paths_.journal.str(), forge.bytes());
  static_cast<void>(Store::open(paths_.pool.str(), options()));
  struct stat st {};
  ASSERT_EQ(::stat(paths_.pool.str().c_str(), &st), 0);
  EXPECT_GT(static_cast<std::size_t>(st.st_size), pool_.size()) << "the mistake does not show";
}

TEST_F(JournalHostile, a_start_that_is_not_checked_shows) {
  plant("journal_start_not_checked");
  JournalForge forge(journal_);
  pm::JournalHeader h = forge.header();
  h.start_block = 0;
  forge.put_header(h);
  write_image(paths_.journal.str(), forge.bytes());
  Report report;
  EXPECT_FALSE(Store::open(paths_.pool.str(), options(), &report).error() == Status::corrupt &&
               report.text().find("impossible") != std::string::npos);
}

#endif

}  // namespace
}  // namespace tenuto::test

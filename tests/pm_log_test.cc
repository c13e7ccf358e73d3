// Checksums against published vectors, and log lines that are torn and damaged in every way.
#include "pm/log.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace tenuto {
namespace {

// RFC 3720, B.4.
TEST(Crc32c, published_vectors) {
  std::array<unsigned char, 32> bytes{};
  EXPECT_EQ(pm::crc32c(bytes.data(), 32), 0x8a9136aau);
  bytes.fill(0xff);
  EXPECT_EQ(pm::crc32c(bytes.data(), 32), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  EXPECT_EQ(pm::crc32c(bytes.data(), 32), 0x46dd794eu);
  std::reverse(bytes.begin(), bytes.end());
  EXPECT_EQ(pm::crc32c(bytes.data(), 32), 0x113fdb5cu);
  EXPECT_EQ(pm::crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(pm::crc32c("", 0), 0u);
}

// Many bytes are taken in three chains: beside the definition, bit by bit.
TEST(Crc32c, of_any_length_and_place_is_the_same) {
  std::vector<unsigned char> bytes(4000);
  std::mt19937_64 rng(4);
  for (auto& b : bytes) b = static_cast<unsigned char>(rng());
  std::uint32_t slow = ~0u;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(pm::crc32c(bytes.data(), n), ~slow) << n;
    const std::size_t from = rng() % (n + 1);
    EXPECT_EQ(pm::crc32c(bytes.data() + from, n - from, pm::crc32c(bytes.data(), from)), ~slow)
        << from << " of " << n;
    slow ^= bytes[n];
    for (int bit = 0; bit < 8; ++bit) slow = (slow & 1) != 0 ? slow >> 1 ^ 0x82f63b78u : slow >> 1;
  }
}

TEST(Crc32c, every_length_is_the_sum_of_its_bytes) {
  unsigned char bytes[80];
  for (std::size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<unsigned char>(37 * i + 5);
  for (std::size_t from = 0; from < 8; ++from) {
    std::uint32_t crc = ~0u;
    for (std::size_t n = 0; from + n <= sizeof bytes; ++n) {
      ASSERT_EQ(pm::crc32c(bytes + from, n), ~crc) << from << " " << n;
      if (from + n < sizeof bytes) crc = pm::crc32c_u8(crc, bytes[from + n]);
    }
  }
}

TEST(Crc32c, continues_and_takes_any_length_at_any_address) {
  std::mt19937_64 rng(1);
  std::array<unsigned char, 80> bytes{};
  for (auto& b : bytes) b = static_cast<unsigned char>(rng());
  const auto slow = [](const unsigned char* p, std::size_t n) {
    std::uint32_t crc = ~0u;
    for (; n > 0; --n, ++p) {
      crc ^= *p;
      for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
    return ~crc;
  };
  for (std::size_t at = 0; at < 9; ++at) {
    for (std::size_t n = 0; n < 64; ++n) {
      const std::uint32_t whole = pm::crc32c(bytes.data() + at, n);
      ASSERT_EQ(whole, slow(bytes.data() + at, n)) << at << "+" << n;
      const std::uint32_t half = pm::crc32c(bytes.data() + at, n / 2);
      ASSERT_EQ(pm::crc32c(bytes.data() + at + n / 2, n - n / 2, half), whole);
    }
  }
}

constexpr std::uint64_t kWords[7] = {1, 0x100000, 0x2000, 64, 0, 0, 7};

// A line becomes durable as a prefix of its stores, so these are all states that a crash can leave.
TEST(LogLine, torn_at_every_store_it_is_empty_or_whole) {
  pm::LogLine before{};
  const std::uint64_t old_words[7] = {2, 3, 4, 5, 6, 7, 8};
  pm::write_log_line(before, old_words, 41);
  ASSERT_EQ(pm::log_line_state(before), pm::LogLineState::sealed);
  for (int stores = 0; stores <= 9; ++stores) {
    pm::LogLine line = before;
    if (stores >= 1) line.seal = 0;
    for (int i = 0; i < 7 && stores >= i + 2; ++i) line.word[i] = kWords[i];
    if (stores == 9) line.seal = pm::log_seal(kWords, 42);
    const pm::LogLineState expected =
        stores == 0 || stores == 9 ? pm::LogLineState::sealed : pm::LogLineState::empty;
    EXPECT_EQ(pm::log_line_state(line), expected) << stores;
    if (stores == 9) {
      pm::LogLine written = before;
      pm::write_log_line(written, kWords, 42);
      EXPECT_EQ(std::memcmp(&line, &written, sizeof line), 0);
      EXPECT_EQ(pm::log_sequence(line), 42u);
    }
  }
}

// Without that order: a new seal over some old words is damage, never a record.
TEST(LogLine, a_mixture_of_two_records_is_damaged) {
  const std::uint64_t old_words[7] = {2, 3, 4, 5, 6, 7, 8};
  for (unsigned mask = 1; mask < 127; ++mask) {
    pm::LogLine line{};
    for (unsigned i = 0; i < 7; ++i) line.word[i] = (mask >> i & 1) != 0 ? kWords[i] : old_words[i];
    line.seal = pm::log_seal(kWords, 42);
    EXPECT_EQ(pm::log_line_state(line), pm::LogLineState::damaged) << mask;
  }
}

TEST(LogLine, every_flipped_bit_is_found) {
  pm::LogLine sound{};
  pm::write_log_line(sound, kWords, 1);
  for (std::size_t bit = 0; bit < sizeof sound * 8; ++bit) {
    pm::LogLine line = sound;
    reinterpret_cast<unsigned char*>(&line)[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    EXPECT_EQ(pm::log_line_state(line), pm::LogLineState::damaged) << bit;
  }
}

TEST(LogLine, sequences_up_to_the_last_are_kept) {
  for (const std::uint64_t s : {std::uint64_t{1}, std::uint64_t{65536}, pm::kLogSequenceMax}) {
    pm::LogLine line{};
    pm::write_log_line(line, kWords, s);
    EXPECT_EQ(pm::log_sequence(line), s);
    EXPECT_EQ(pm::log_line_state(line), pm::LogLineState::sealed);
    pm::clear_log_line(line);
    EXPECT_EQ(pm::log_line_state(line), pm::LogLineState::empty);
  }
}

}  // namespace
}  // namespace tenuto

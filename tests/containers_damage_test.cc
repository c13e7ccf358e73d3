// Flipped bits in containers: validate(pool) answers ok or corrupt, whatever the bytes are. It
// never reads outside the pool, and it ends. If it is ok, readers stay in the pool, too.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "pools/containers.h"
#include "support/pool_parts.h"
#include "support/seed.h"

namespace tenuto::test {
namespace {

struct Bytes {
  std::byte* at;
  std::size_t size;
};

class ContainersDamage : public ::testing::Test {
 protected:
  ContainersDamage() {
    PoolOptions o;
    o.medium = Medium::cache;
    Result<Pool> made = Pool::create(path_.str(), o);
    EXPECT_TRUE(made);
    pool_ = std::make_unique<Pool>(std::move(*made));
    EXPECT_EQ(fill_containers(*pool_), Status::ok);
    root_ = *pool_->root<Containers>(kContainersLayout);
    EXPECT_EQ(pool_->run([&](Transaction& tx) {  // a table with several segments, and a tree
      for (std::uint64_t n = 0; n < 900; ++n) TENUTO_TRY(root_->table.insert_or_assign(tx, n, n));
      return Status::ok;
    }),
              Status::ok);
    find_bytes();
  }

  void add(const void* block) {
    const std::uint64_t size = pool_->usable_size(block);
    if (size > 0) bytes_.push_back({static_cast<std::byte*>(const_cast<void*>(block)), size});
  }
  void add(const String& text) {
    if (text.size() > String::kInlineMax) add(text.data());
  }
  void find_bytes() {
    const Containers& c = *root_;
    bytes_.push_back({reinterpret_cast<std::byte*>(root_), offsetof(Containers, shared)});
    const auto block = [&](const void* b) { add(b); };
    c.tree.for_each_block(block);
    c.table.for_each_block(block);
    c.text_tree.for_each_block(block);
    c.text_table.for_each_block(block);
    c.shared.for_each_block(block);
    add(c.numbers.data());
    add(c.people.data());
    add(c.long_text);
    for (const Person& person : c.people) {
      add(person.name);
      add(person.points.data());
    }
    for (const String& t : c.texts) add(t);
    for (const auto& [key, value] : c.text_tree) add(key);
    add_segment(c.queue.front());
    add_segment(c.texts.front());
  }
  // The block that an element is in.
  void add_segment(const void* element) {
    const auto* at = static_cast<const std::byte*>(element);
    while (pool_->usable_size(at) == 0) at -= 8;
    add(at);
  }

  Status validate() {
    const Containers& c = *root_;
    const Pool& pool = *pool_;
    Report r;
    TENUTO_TRY(c.numbers.validate(pool, &r));
    TENUTO_TRY(c.people.validate(pool, &r));
    TENUTO_TRY(c.queue.validate(pool, &r));
    TENUTO_TRY(c.texts.validate(pool, &r));
    TENUTO_TRY(c.short_text.validate(pool, &r));
    TENUTO_TRY(c.long_text.validate(pool, &r));
    TENUTO_TRY(c.tree.validate(pool, &r));
    TENUTO_TRY(c.text_tree.validate(pool, &r));
    TENUTO_TRY(c.table.validate(pool, &r));
    TENUTO_TRY(c.text_table.validate(pool, &r));
    return c.shared.validate(pool, &r);
  }

  static std::uint64_t sum_of(std::string_view text) {
    std::uint64_t sum = 0;
    for (const char c : text) sum += static_cast<unsigned char>(c);
    return sum;
  }
  // Reads all that there is. The sum only keeps the compiler from leaving it out.
  std::uint64_t read() {
    const Containers& c = *root_;
    std::uint64_t sum = 0;
    for (const std::uint64_t n : c.numbers) sum += n;
    for (const Person& person : c.people) {
      sum += sum_of(person.name) + person.visits;
      for (const Point& point : person.points) sum += static_cast<std::uint64_t>(point.x);
    }
    for (const Point& point : c.queue) sum += static_cast<std::uint64_t>(point.y);
    for (const String& t : c.texts) sum += sum_of(t);
    sum += sum_of(c.short_text) + sum_of(c.long_text);
    for (const auto& [key, value] : c.tree) sum += key + value;
    for (auto at = c.tree.end(); at != c.tree.begin();) sum += (--at)->key;
    for (const auto& [key, value] : c.text_tree) {
      sum += sum_of(key);
      for (const std::uint32_t n : value) sum += n;
    }
    for (const auto& [key, value] : c.table) sum += key + value;
    for (const auto& [key, value] : c.text_table) sum += sum_of(key) + value;
    for (std::uint64_t n = 0; n < 1000; n += 7) {
      sum += c.tree.contains(n) + c.table.contains(n);
      sum += c.text_tree.contains("text " + std::to_string(n));
      sum += c.text_table.contains("text " + std::to_string(n));
    }
    return sum;
  }

  TempPath path_{"damage"};
  std::unique_ptr<Pool> pool_;
  Containers* root_ = nullptr;
  std::vector<Bytes> bytes_;
};

TEST_F(ContainersDamage, a_flipped_bit_is_found_or_stays_inside_the_pool) {
  ASSERT_EQ(validate(), Status::ok);
  ASSERT_GT(bytes_.size(), 150u);
  const std::uint64_t whole = read();
  std::mt19937_64 rng(test_seed());
  int corrupt = 0, ok = 0;
  const auto look = [&](std::byte& byte, std::byte mask) {
    byte ^= mask;
    const Status s = validate();
    if (s == Status::ok) static_cast<void>(read());
    byte ^= mask;
    ASSERT_TRUE(s == Status::ok || s == Status::corrupt) << status_name(s);
    (s == Status::ok ? ok : corrupt) += 1;
  };
  // All bits of the heads, and some of each block, more of its first bytes.
  for (const Bytes& b : bytes_) {
    const std::size_t head = &b == &bytes_.front() ? b.size : 0;
    for (std::size_t i = 0; i < head * 8; ++i) look(b.at[i / 8], std::byte{1} << i % 8);
    const auto some = static_cast<int>(fewer_if_sanitized(12, 4));
    for (int i = 0; i < some; ++i) {
      const std::size_t at = rng() % (i % 2 == 0 ? std::min<std::size_t>(b.size, 24) : b.size);
      look(b.at[at], std::byte{1} << rng() % 8);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(corrupt, 1000) << "heads, keys and pointers";
  EXPECT_GT(ok, 100) << "values";
  EXPECT_EQ(validate(), Status::ok);
  EXPECT_EQ(read(), whole);
}

// Words that name another place in the pool, or any.
TEST_F(ContainersDamage, a_word_that_is_another_is_found_or_stays_inside_the_pool) {
  std::mt19937_64 rng(test_seed());
  const auto any = [&](const auto& blocks) -> std::uint64_t* {
    const Bytes& b = blocks[rng() % blocks.size()];
    return reinterpret_cast<std::uint64_t*>(b.at) + rng() % (b.size / 8);
  };
  for (std::uint64_t i = 0; i < fewer_if_sanitized(3000, 500); ++i) {
    std::uint64_t* const word = any(bytes_);
    const std::uint64_t before = *word;
    const std::uint64_t kinds[] = {0,
                                   rng(),
                                   *any(bytes_),
                                   rng() >> rng() % 64,
                                   PtrWord::encode(word, any(bytes_)),
                                   PtrWord::encode(word, bytes_[rng() % bytes_.size()].at)};
    *word = kinds[rng() % std::size(kinds)];
    const Status s = validate();
    if (s == Status::ok) static_cast<void>(read());
    *word = before;
    ASSERT_TRUE(s == Status::ok || s == Status::corrupt) << status_name(s);
  }
  EXPECT_EQ(validate(), Status::ok);
}

}  // namespace
}  // namespace tenuto::test

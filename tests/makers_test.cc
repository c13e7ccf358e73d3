// Two that make a pool at one path, where one of them stops between any two steps of its own. The
// other one makes the pool, uses it and ends meanwhile. And one that is killed.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"

namespace {
std::function<void()> at_next_space;  // runs once, when the first space of a file is reserved
std::string killed_at_name;           // the process ends as soon as a file has this name
}  // namespace

// Replaces libc's.
extern "C" int fallocate(int fd, int mode, off_t at, off_t bytes) {
  if (at_next_space) std::exchange(at_next_space, nullptr)();
  static const auto real = reinterpret_cast<decltype(&fallocate)>(::dlsym(RTLD_NEXT, "fallocate"));
  return real(fd, mode, at, bytes);
}
extern "C" int linkat(int from_dir, const char* from, int to_dir, const char* to,
                      int flags) noexcept {
  static const auto real = reinterpret_cast<decltype(&linkat)>(::dlsym(RTLD_NEXT, "linkat"));
  const int result = real(from_dir, from, to_dir, to, flags);
  if (result == 0 && killed_at_name == to) ::_exit(0);
  return result;
}

namespace tenuto::test {
namespace {

class Makers : public testing::Test {
 protected:
  void TearDown() override {
    at_next_space = nullptr;
    unplant_all();
  }

  // Opens the pool, while another process makes it, puts a record, and closes it or is killed.
  Status open_beside(bool closes) {
    const StoreOptions options = journalled(paths_);
    at_next_space = [&] {
      run_and_kill([&] {
        Store& s = *new Store(*Store::open(paths_.pool.str(), options));
        return s.put("a", "1") == Status::ok && (!closes || s.close() == Status::ok);
      });
      journal_ = read_image(paths_.journal.str());
    };
    StoreOptions mine = options;
    mine.error_if_exists = true;
    return Store::open(paths_.pool.str(), mine, &report_).error();
  }

  // What a maker leaves that is killed as soon as the pool has its name. error: of an open of that
  // store.
  Status open_after_a_kill(Medium medium) {
    ::unlink(paths_.pool.str().c_str());
    ::unlink(paths_.journal.str().c_str());
    StoreOptions options = journalled(paths_);
    options.pool.medium = medium;
    options.order = KeyOrder::u64;
    run_and_kill([&] {
      killed_at_name = paths_.pool.str();
      static_cast<void>(Store::open(paths_.pool.str(), options));
      return false;
    });
    options.create_if_missing = false;
    options.check_order = true;
    Result<Store> s = Store::open(paths_.pool.str(), options, &report_);
    return s ? s->validate(&report_) : s.error();
  }

  JournalPaths paths_{"makers"};
  Bytes journal_;
  Report report_;
};

TEST_F(Makers, a_pool_that_was_made_meanwhile_keeps_its_journal) {
  for (const bool closes : {true, false}) {
    EXPECT_EQ(open_beside(closes), Status::exists) << report_.text();
    EXPECT_TRUE(read_image(paths_.journal.str()) == journal_) << closes;
    Result<Store> s = Store::open(paths_.pool.str(), journalled(paths_), &report_);
    ASSERT_TRUE(s) << report_.text();
    EXPECT_EQ(s->contains("a"), Status::ok);
    EXPECT_EQ(s->close(), Status::ok);
    ::unlink(paths_.pool.str().c_str());
    ::unlink(paths_.journal.str().c_str());
  }
}

TEST_F(Makers, a_journal_that_is_taken_from_it_is_found) {
  plant("journal_of_a_new_pool_taken");
  EXPECT_EQ(open_beside(true), Status::exists) << report_.text();
  EXPECT_FALSE(read_image(paths_.journal.str()) == journal_);
}

TEST_F(Makers, a_pool_that_has_its_name_has_its_store) {
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    EXPECT_EQ(open_after_a_kill(medium), Status::ok) << report_.text();
  }
}

// A journal that is kept is found by the next open, which keeps it, too.
TEST_F(Makers, a_journal_for_one_life_goes_also_after_a_kill) {
  for (const bool pool_is_there : {false, true}) {
    for (const bool keep : {false, true}) {
      ::unlink(paths_.journal.str().c_str());
      StoreOptions options = journalled(paths_);
      options.pool.journal.keep = keep;
      run_and_kill([&] {
        killed_at_name = paths_.journal.str();
        static_cast<void>(Store::open(paths_.pool.str(), options));
        return false;
      });
      EXPECT_EQ(::access(paths_.journal.str().c_str(), F_OK), 0);
      EXPECT_EQ(::access(paths_.pool.str().c_str(), F_OK) == 0, pool_is_there);
      options.pool.journal.keep = false;
      Result<Store> s = Store::open(paths_.pool.str(), options, &report_);
      ASSERT_TRUE(s) << report_.text();
      EXPECT_EQ(s->close(), Status::ok);
      EXPECT_EQ(::access(paths_.journal.str().c_str(), F_OK) == 0, keep);
      if (!pool_is_there) ::unlink(paths_.pool.str().c_str());
    }
    StoreOptions options = journalled(paths_);
    ASSERT_TRUE(Store::open(paths_.pool.str(), options, &report_)) << report_.text();
  }
}

TEST_F(Makers, a_pool_that_was_named_before_its_store_is_found) {
  plant("store_pool_named_before_its_store");
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    EXPECT_EQ(open_after_a_kill(medium), Status::not_found) << report_.text();
  }
}

}  // namespace
}  // namespace tenuto::test

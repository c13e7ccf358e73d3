// Pages of an open pool that cannot be read or written, because another process cuts the file
// short. There is no crash, no hang and no wrong value. Calls return Status::io and name the place,
// and no later call is acknowledged. Each pool is used in a child, so that a signal is seen.
// TENUTO_CUTS sets how many files are cut.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include "support/child.h"
#include "support/pool_image.h"
#include "support/seed.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 3000;

std::string key_of(int n) { return "key" + std::to_string(n); }
std::string value_of(int n) {
  return std::string(static_cast<std::size_t>(100 + n % 300), static_cast<char>('a' + n % 26));
}

struct Words {
  Ptr<char> word[4];
  std::uint64_t number[4];
};

StoreOptions options() {
  StoreOptions o;
  o.pool.size = 8u << 20;
  o.pool.size_max = 64u << 20;
  o.pool.medium = Medium::cache;
  o.pool.recovery_threads = 1;
  return o;
}

void fill(const std::string& path) {
  Result<Store> s = Store::open(path, options());
  MUST(s);
  for (int i = 0; i < kKeys; ++i) MUST(s->put(key_of(i), value_of(i)) == Status::ok);
  const auto root = s->pool().root<Words>("words");
  MUST(root);
  MUST(s->pool().malloc_to(100, (*root)->word[0]) == Status::ok);
  MUST(s->pool().malloc_to(50000, (*root)->word[1]) == Status::ok);
  MUST(s->close() == Status::ok);
}

// One operation of each kind. It may return an error, but never a wrong value.
Status operate(Store& s, Words* root, int kind, int n) {
  std::string value;
  Status status = Status::ok;
  switch (kind) {
    case 0:
    case 1:
      status = s.get(key_of(n), value);
      MUST(status != Status::ok || value == value_of(n));
      return status == Status::not_found ? Status::ok : status;
    case 2:
      return s.put(key_of(n), value_of(n));
    case 3:
      status = s.erase(key_of(n));
      return status == Status::not_found ? Status::ok : status;
    case 4: {
      WriteBatch batch;
      for (int i = n; i < n + 20; ++i) batch.put(key_of(i), value_of(i));
      batch.erase(key_of(n + 20));
      return s.write(batch);
    }
    case 5: {
      Iterator it = s.iterator();
      int seen = 0;
      for (it.seek(key_of(n)); it.valid() && seen < 200; it.next())
        seen += it.value().empty() ? 0 : 1;
      return it.status();
    }
    case 6: {
      const Result<View> v = s.view(key_of(n));
      return v || v.error() == Status::not_found ? Status::ok : v.error();
    }
    case 7:
      if (root->word[2].get() != nullptr) return s.pool().free_from(root->word[2]);
      return s.pool().malloc_to(static_cast<std::uint64_t>(n) * 10 + 1, root->word[2]);
    case 8:
      return s.pool().run([&](Transaction& tx) {
        TENUTO_TRY(tx.add(root->number));
        for (auto& number : root->number) number += 1;
        const Result<void*> block = tx.alloc(64);
        return block ? tx.free(*block) : block.error();
      });
    default:
      (void)s.stats();
      return s.pool().health();
  }
}
constexpr int kKinds = 10;

void cut(const std::string& path, std::uint64_t bytes) {
  MUST(::truncate(path.c_str(), static_cast<off_t>(bytes)) == 0);
}

// After the first Status::io no call is acknowledged, and the report names the place.
void expect_failed(Store& s, Words* root, const std::string& path) {
  Report report;
  MUST(s.pool().health(&report) == Status::io);
  MUST(report.where.find(path + ", offset ") != std::string::npos);
  for (int kind = 0; kind < kKinds; ++kind) MUST(operate(s, root, kind, 5) != Status::ok);
  MUST(s.validate() != Status::ok);
  MUST(s.sync() == Status::io);
  MUST(s.close() == Status::io);
}

TEST(BusError, a_file_cut_short_under_an_open_store_is_an_error) {
  TempPath path("cut");
  ASSERT_EQ(in_child([&] { fill(path.str()); }), 0);
  const Bytes sound = read_image(path.str());
  std::mt19937_64 random(test_seed());
  const int rounds = static_cast<int>(from_env("TENUTO_CUTS", fewer_if_sanitized(30, 5)));
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t keep =
        random() % (round % 2 == 0 ? sound.size() : 2 * pm::kHeadBytes) / kFrameBytes * kFrameBytes;
    const std::uint64_t seed = random();
    SCOPED_TRACE("round " + std::to_string(round) + ", cut to " + std::to_string(keep));
    write_image(path.str(), sound);
    ASSERT_EQ(in_child([&] {
                std::mt19937_64 order(seed);
                Result<Store> s = Store::open(path.str(), options());
                MUST(s);
                Words* root = *s->pool().root<Words>("words");
                for (int i = 0; i < 50; ++i) {
                  MUST(operate(*s, root, static_cast<int>(order() % kKinds), i * 7) == Status::ok);
                }
                cut(path.str(), keep);
                for (int i = 0; i < 20000; ++i) {
                  const int kind = static_cast<int>(order() % kKinds);
                  const int n = static_cast<int>(order() % kKeys);
                  if (operate(*s, root, kind, n) == Status::ok) continue;
                  return expect_failed(*s, root, path.str());
                }
                // These operations may use nothing that was cut off, unless all but the head was
                // cut.
                MUST(keep > pm::kHeadBytes);
              }),
              0);
    Report report;
    const Result<Store> again = Store::open(path.str(), options(), &report);
    EXPECT_FALSE(again);
    EXPECT_FALSE(report.what.empty());
  }
}

TEST(BusError, threads_at_work_all_learn_of_it) {
  TempPath path("cut-threads");
  ASSERT_EQ(in_child([&] { fill(path.str()); }), 0);
  const Bytes sound = read_image(path.str());
  for (int round = 0; round < 6; ++round) {
    write_image(path.str(), sound);
    ASSERT_EQ(in_child([&] {
                Result<Store> s = Store::open(path.str(), options());
                MUST(s);
                Words* root = *s->pool().root<Words>("words");
                std::vector<std::thread> threads;
                for (int t = 0; t < 3; ++t) {
                  threads.emplace_back([&, t] {
                    std::mt19937_64 order(static_cast<std::uint64_t>(t));
                    // The words of the root belong to one thread: only thread 0 draws kinds 7 and
                    // 8.
                    for (;;) {
                      const int kind = static_cast<int>(order() % (t == 0 ? 9u : 7u));
                      const int n = static_cast<int>(order() % kKeys);
                      const Status status = operate(*s, root, kind, n);
                      if (status == Status::io) return;
                      MUST(status == Status::ok || s->pool().health() == Status::io);
                    }
                  });
                }
                ::usleep(20000);
                cut(path.str(), pm::kHeadBytes);
                for (std::thread& t : threads) t.join();
                expect_failed(*s, root, path.str());
              }),
              0);
  }
}

// A mapped page of another file, which raises SIGBUS.
volatile char* bad_page() {
  const int fd = ::memfd_create("other", MFD_CLOEXEC);
  MUST(::ftruncate(fd, 4096) == 0);
  void* p = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  MUST(p != MAP_FAILED && ::ftruncate(fd, 0) == 0);
  return static_cast<volatile char*>(p);
}

void ends_well(int) { std::_Exit(42); }

TEST(BusError, other_addresses_are_other_peoples) {
  TempPath path("bus-other");
  ASSERT_EQ(in_child([&] { fill(path.str()); }), 0);
  const auto touch = [&](bool handler, bool option, bool of_the_pool) {
    return in_child([=, &path] {
      if (handler) std::signal(SIGBUS, ends_well);
      if (!handler) std::signal(SIGBUS, SIG_DFL);  // removes the handler of the sanitizer
      StoreOptions o = options();
      o.pool.catch_bus_errors = option;
      Result<Store> s = Store::open(path.str(), o);
      MUST(s);
      if (!of_the_pool) {
        (void)*bad_page();
      } else {
        const Bytes all = read_image(path.str());
        cut(path.str(), pm::kHeadBytes);
        for (int i = 0; i < kKeys; ++i) (void)s->get(key_of(i));
        write_image(path.str(), all);
      }
    });
  };
  EXPECT_EQ(touch(true, true, false), 42);
  EXPECT_EQ(touch(false, true, false), 1000 + SIGBUS);
  EXPECT_EQ(touch(true, true, true), 0);
  EXPECT_EQ(touch(true, false, true), 42);
  EXPECT_EQ(in_child([&] {
              std::signal(SIGBUS, SIG_DFL);
              Result<Store> s = Store::open(path.str(), options());
              ::raise(SIGBUS);
            }),
            1000 + SIGBUS);
}

TEST(BusError, a_pool_cut_short_while_it_is_opened_is_an_error) {
  // The superblock and the zones are read by pread. Recovery then reads the part that was cut off.
  TempPath path("cut-open");
  ASSERT_EQ(in_child([&] { fill(path.str()); }), 0);
  Bytes b = read_image(path.str());
  // The file is long enough for its zone table. While it is opened, all but its head is cut off.
  for (int round = 0; round < 20; ++round) {
    write_image(path.str(), b);
    ASSERT_EQ(in_child([&] {
                std::atomic<bool> go = false;
                std::thread other([&] {
                  while (!go) ::sched_yield();
                  ::usleep(static_cast<useconds_t>(round * 100));
                  cut(path.str(), pm::kHeadBytes);
                });
                go = true;
                Report report;
                Result<Store> s = Store::open(path.str(), options(), &report);
                other.join();
                if (!s) {
                  MUST(!report.what.empty());
                  return;
                }
                Words* root = nullptr;
                for (int i = 0; i < kKeys; ++i) {
                  if (operate(*s, root, 0, i) != Status::ok) return;
                }
                MUST(false);
              }),
              0);
  }
}

}  // namespace
}  // namespace tenuto::test

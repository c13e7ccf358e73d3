// Metadata under a protection key (PoolOptions::protect_metadata): a stray store of the program
// dies there, and everything else works as without. Most of it needs a processor with keys:
// tests/machine has one. Elsewhere the option is refused.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pm/format.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "support/heap_worker.h"
#include "support/object_graph.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"
#include "tenuto/ptr.h"
#include "tenuto/tx.h"

namespace tenuto::test {
namespace {

#ifndef SEGV_PKUERR
#define SEGV_PKUERR 4
#endif

// --- a store that may die ------------------------------------------------------------------------

sigjmp_buf after_death;
volatile int death_code = 0;

void on_death(int, siginfo_t* info, void*) {
  death_code = info->si_code;
  ::siglongjmp(after_death, 1);
}

// Stores the byte that is there. 0: it was stored; else the si_code of the SIGSEGV. After one the
// thread has the rights of a signal handler, as one that is older than the key.
int store_to(const void* at) {
  static std::mutex one;  // the handler is the process's
  const std::lock_guard lock(one);
  struct sigaction ours {};
  struct sigaction before {};
  ours.sa_sigaction = on_death;
  ours.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &ours, &before);
  death_code = 0;
  if (::sigsetjmp(after_death, 1) == 0) {
    auto* const byte = static_cast<volatile char*>(const_cast<void*>(at));
    *byte = *byte;
  }
  ::sigaction(SIGSEGV, &before, nullptr);
  return death_code;
}

struct MappedRange {
  const char* begin;
  const char* end;
};
// What has a key in this process, as the kernel says.
std::vector<MappedRange> ranges_with_key() {
  std::vector<MappedRange> all;
  std::ifstream smaps("/proc/self/smaps");
  MappedRange now{};
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    unsigned key = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      now = {reinterpret_cast<const char*>(begin), reinterpret_cast<const char*>(end)};
    } else if (std::sscanf(line.c_str(), "ProtectionKey: %u", &key) == 1 && key != 0) {
      all.push_back(now);
    }
  }
  return all;
}
std::uint64_t bytes_of(const std::vector<MappedRange>& ranges) {
  std::uint64_t n = 0;
  for (const MappedRange& r : ranges) n += static_cast<std::uint64_t>(r.end - r.begin);
  return n;
}

struct Node {
  Ptr<Node> next;
  std::uint64_t value = 0;
};
constexpr std::uint64_t kNode = 7;

class MetadataKey : public testing::Test {
 protected:
  void SetUp() override {
    if (!pm::has_keys()) {
      ASSERT_EQ(std::getenv("TENUTO_NEED_KEYS"), nullptr) << "the machine must have keys";
      GTEST_SKIP() << "this processor has no protection keys; tests/machine/run has some";
    }
    plant("pm_metadata_unreadable_outside");  // so that no read is forgotten either
  }
  void TearDown() override { unplant_all(); }
  static PoolOptions options(Medium medium = Medium::automatic) {
    PoolOptions o;
    o.size = 16u << 20;
    o.size_max = 1u << 30;
    o.medium = medium;
    o.protect_metadata = true;
    return o;
  }
  Pool make(const PoolOptions& o = options()) {
    Result<Pool> p = Pool::create(path_.str(), o, &report_);
    EXPECT_TRUE(p) << report_.text();
    return std::move(*p);
  }
  Pool open(const PoolOptions& o = options()) {
    Result<Pool> p = Pool::open(path_.str(), o, &report_);
    EXPECT_TRUE(p) << report_.text();
    return std::move(*p);
  }
  // In a process of its own, which must find nothing wrong.
  template <class F>
  static void expect_in_child(const F& f) {
    const pid_t child = ::fork();
    if (child == 0) {
      f();
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  static const char* base(const Pool& p) {
    return static_cast<const char*>(p.at({pm::kLanesOffset})) - pm::kLanesOffset;
  }
  // Every range with a key belongs to the pool, and a store to any of them dies.
  static void expect_protected(const Pool& p, const char* when) {
    const std::vector<MappedRange> ranges = ranges_with_key();
    EXPECT_EQ(bytes_of(ranges), p.stats().protected_bytes) << when;
    EXPECT_GE(ranges.size(), 1u) << when;
    for (const MappedRange& r : ranges) {
      EXPECT_TRUE(p.contains(r.begin)) << when;
      for (const char* at : {r.begin, r.end - 1}) EXPECT_EQ(store_to(at), SEGV_PKUERR) << when;
    }
  }

  TempPath path_{"metadata-key"};
  TempPath other_{"metadata-key-other"};
  Report report_;
};

TEST(MetadataKeyRefused, where_there_are_no_keys) {
  if (pm::has_keys()) GTEST_SKIP() << "the machine has keys";
  const TempPath path("metadata-key-none");
  PoolOptions o;
  o.protect_metadata = true;
  Report report;
  const Result<Pool> made = Pool::create(path.str(), o, &report);
  EXPECT_EQ(made.error(), Status::invalid_argument);
  EXPECT_NE(report.text().find("has no protection keys"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find(path.str()), std::string::npos);
  EXPECT_NE(::access(path.str().c_str(), F_OK), 0);  // nothing was made
  o.protect_metadata = false;
  ASSERT_TRUE(Pool::create(path.str(), o));
  o.protect_metadata = true;
  EXPECT_EQ(Pool::open(path.str(), o).error(), Status::invalid_argument);
  o.read_only = true;  // the mapping cannot be written, so no key is needed
  EXPECT_TRUE(Pool::open(path.str(), o, &report)) << report.text();
}

// --- what is protected ---------------------------------------------------------------------------

TEST_F(MetadataKey, a_stray_store_dies_at_the_head_the_lanes_and_the_zone) {
  Pool p = make();
  const char* const pool = base(p);
  for (const std::uint64_t at :
       {std::uint64_t{0}, std::uint64_t{kFrameBytes}, pm::kHeadPageOffset, pm::kZoneTableOffset,
        pm::kJournalPageOffset, pm::kLanesOffset, pm::kHeadBytes - 1, pm::kHeadBytes}) {
    EXPECT_EQ(store_to(pool + at), SEGV_PKUERR) << at;
  }
  expect_protected(p, "new");
  Ptr<Node>& root = **p.root<Ptr<Node>>("list");
  EXPECT_EQ(store_to(&root), 0);
  ASSERT_EQ(p.malloc_to(root), Status::ok);
  EXPECT_EQ(store_to(&*root), 0);
  ASSERT_EQ(p.close(), Status::ok);
  EXPECT_EQ(bytes_of(ranges_with_key()), 0u);
}

TEST_F(MetadataKey, a_thread_that_used_the_pool_may_read_metadata) {
  unplant_all();
  Pool p = make();
  ASSERT_TRUE(p.root<Ptr<Node>>("list"));
  EXPECT_EQ(std::memcmp(base(p) + kFrameBytes, "TENUTO1", 7), 0);
  EXPECT_EQ(store_to(base(p)), SEGV_PKUERR);
}

TEST_F(MetadataKey, without_the_option_nothing_has_a_key) {
  PoolOptions o = options();
  o.protect_metadata = false;
  Pool p = make(o);
  EXPECT_EQ(bytes_of(ranges_with_key()), 0u);
  EXPECT_EQ(p.stats().protected_bytes, 0u);
  EXPECT_EQ(store_to(base(p) + pm::kHeadPageOffset), 0);
}

// Growth, more lanes than the head has, extents (the bookkeeping log), a large undo log.
TEST_F(MetadataKey, what_the_pool_takes_later_is_protected_and_given_back) {
  for (const Medium medium : {Medium::line, Medium::journal}) {
    const char* const name = medium_name(medium);
    Pool p = make(options(medium));
    auto* const words = *p.root<std::array<Ptr<std::byte>, 1500>>("words");
    const std::uint64_t at_first = p.stats().protected_bytes;
    for (auto& w : *words) ASSERT_EQ(p.malloc_to(20'000, w), Status::ok);  // 30 MB
    const PoolStats grown = p.stats();
    EXPECT_GT(grown.zones, 1u);
    EXPECT_GT(grown.book_bytes, 0u);
    EXPECT_GT(grown.protected_bytes, at_first);
    expect_protected(p, name);
    {
      std::vector<std::unique_ptr<Worker>> threads;
      for (unsigned i = 0; i < 70; ++i) {
        threads.push_back(std::make_unique<Worker>());
        threads.back()->run([&] {
          EXPECT_EQ(p.run([&](Transaction& tx) { return tx.add((*words)[i]); }), Status::ok);
        });
      }
      EXPECT_GT(p.stats().protected_bytes, grown.protected_bytes + (500u << 10));
      expect_protected(p, "more lanes");
    }
    const std::uint64_t lanes = p.stats().protected_bytes;
    EXPECT_EQ(p.run([&](Transaction& tx) {
      for (auto& w : *words) {
        TENUTO_TRY(tx.add(&*w, 2000));
        std::memset(&*w, 3, 2000);
      }
      EXPECT_GT(p.stats().protected_bytes, lanes + (2u << 20));  // 3 MB of old bytes
      expect_protected(p, "undo log");
      return Status::ok;
    }),
              Status::ok);
    for (auto& w : *words) ASSERT_EQ(p.free_from(w), Status::ok);
    ASSERT_EQ(p.trim(), Status::ok);
    EXPECT_LE(p.stats().protected_bytes, lanes + (1u << 20));  // 16 frames stay
    // What was given back is the program's.
    std::size_t taken = 0;
    while (taken < words->size() && p.malloc_to(15'000, (*words)[taken]) == Status::ok) {
      std::memset(&*(*words)[taken++], 5, 15'000);
    }
    EXPECT_EQ(p.validate(&report_), Status::ok) << report_.text();
    expect_protected(p, name);
    ASSERT_EQ(p.close(), Status::ok);
    Pool again = open(options(medium));
    EXPECT_GT(again.stats().protected_bytes, at_first);
    expect_protected(again, "opened again");
    ASSERT_EQ(again.close(), Status::ok);
    ::unlink(path_.str().c_str());
    ::unlink((path_.str() + ".journal").c_str());
  }
}

TEST_F(MetadataKey, a_store_works_on_it_and_recovers) {
  const pid_t child = ::fork();
  if (child == 0) {
    StoreOptions o;
    o.pool = options();
    Result<Store> s = Store::open(path_.str(), o);
    for (unsigned i = 0; s && i < 5000; ++i) {
      if (s->put(std::to_string(i), std::string(100, 'v')) != Status::ok) ::_exit(3);
    }
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  StoreOptions o;
  o.pool = options();
  Result<Store> s = Store::open(path_.str(), o, &report_);
  ASSERT_TRUE(s) << report_.text();
  EXPECT_EQ(*s->get("4999"), std::string(100, 'v'));
  EXPECT_EQ(s->validate(&report_), Status::ok) << report_.text();
  for (const MappedRange& r : ranges_with_key()) EXPECT_EQ(store_to(r.begin), SEGV_PKUERR);
  EXPECT_EQ(s->erase("17"), Status::ok);
  EXPECT_EQ(s->close(), Status::ok);
}

// --- who may not write ---------------------------------------------------------------------------

TEST_F(MetadataKey, threads_that_are_older_than_the_key_use_the_pool) {
  // In a process where no pool had the option yet.
  expect_in_child([&] {
    pm::metadata_bits.store(0);  // as in a process where no pool had the option yet
    Worker old;
    old.run([] {});
    PoolOptions o = options();
    o.on_mistake = [](const Report&) {};  // reads all of the new pool
    Pool p = make(o);
    Ptr<Node>* root = nullptr;
    old.run([&] {
      root = *p.root<Ptr<Node>>("list");
      EXPECT_EQ(p.info().layout, "list");
      EXPECT_GT(p.stats().zones, 0u);
      EXPECT_GT(p.used_bytes(), 0u);
      EXPECT_EQ(p.malloc_to(*root), Status::ok);
      EXPECT_EQ(p.usable_size(&**root), 16u);
      EXPECT_EQ(store_to(base(p)), SEGV_PKUERR);
      EXPECT_EQ(p.free_from(*root), Status::ok);
    });
    EXPECT_EQ(p.validate(), Status::ok);
    EXPECT_EQ(p.close(), Status::ok);
  });
}

TEST_F(MetadataKey, functions_of_the_program_may_not_write_while_the_library_calls_them) {
  PoolOptions o = options();
  const char* pool = nullptr;
  std::atomic<unsigned> calls = 0;
  const auto look = [&] {
    calls += 1;
    if (pool == nullptr) return;
    EXPECT_EQ(store_to(pool + pm::kHeadPageOffset), SEGV_PKUERR) << calls;
  };
  o.heap.clock_ms = [&] {
    look();
    return std::int64_t{calls.load()};
  };
  o.heap.numa.nodes = 2;
  o.heap.numa.node_of_thread = [&] {
    look();
    return 0u;
  };
  o.on_mistake = [&](const Report&) { look(); };
  o.log = [&](std::string_view) { look(); };
  Pool p = make(o);
  pool = base(p);
  const auto called = [&] { return calls.exchange(0) != 0; };
  called();
  Ptr<Node>& root = **p.root<Ptr<Node>>("list");
  Worker().run([&] { EXPECT_EQ(p.malloc_to(sizeof(Node), root, {.type = kNode}), Status::ok); });
  EXPECT_TRUE(called()) << "node_of_thread";
  ASSERT_EQ(p.run([&](Transaction& tx) {
    TENUTO_TRY(tx.on_end([&](bool) {
      look();
      std::thread(look).join();
    }));
    return tx.add(root);
  }),
            Status::ok);
  EXPECT_TRUE(called()) << "on_end";
  GarbageOptions g;
  g.filters[kNode] = [&](const void*, std::uint64_t, const std::function<void(const void*)>&) {
    look();
  };
  for (const unsigned threads : {1u, 4u}) {
    g.threads = threads;
    ASSERT_TRUE(p.find_garbage(g));
    EXPECT_TRUE(called()) << "filter";
  }
  ASSERT_EQ(test::make_sparse_objects(p, sizeof(Node), kNode), Status::ok);
  const auto move = [&](void*, void*, std::uint64_t) { look(); };
  ASSERT_TRUE(p.compact({.types = {{kNode, {g.filters[kNode], move}}}}));
  EXPECT_TRUE(called()) << "a compaction";
  root->value = 5;  // a change that no transaction knows of
  EXPECT_EQ(p.run([&](Transaction& tx) { return tx.add(root); }), Status::ok);
  EXPECT_EQ(p.validate(), Status::ok);
}

// --- what it costs -------------------------------------------------------------------------------

// How often one of 1000 operations gets the rights, on average.
template <class F>
double openings_each(const char* what, const F& operation) {
  for (unsigned i = 0; i < 100; ++i) operation(i);  // warm
  const std::uint64_t before = pm::metadata_openings();
  for (unsigned i = 100; i < 1100; ++i) operation(i);
  const double each = static_cast<double>(pm::metadata_openings() - before) / 1000;
  std::printf("| %s | %.2f |\n", what, each);
  return each;
}

TEST_F(MetadataKey, a_call_gets_the_rights_once) {
  StoreOptions o;
  o.pool = options(Medium::line);
  Result<Store> s = Store::open(path_.str(), o, &report_);
  ASSERT_TRUE(s) << report_.text();
  Pool& p = s->pool();
  auto* const words = *p.root<std::array<Ptr<Node>, 1100>>("words");
  const auto word = [&](unsigned i) -> Ptr<Node>& { return (*words)[i]; };
  EXPECT_EQ(openings_each("malloc_to", [&](unsigned i) { (void)p.malloc_to(word(i)); }), 1);
  const auto add = [&](unsigned i) {
    (void)p.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(word(i)->value));
      word(i)->value = i;
      return Status::ok;
    });
  };
  EXPECT_LE(openings_each("transaction: one range", add), 4);
  EXPECT_EQ(openings_each("free_from", [&](unsigned i) { (void)p.free_from(word(i)); }), 1);
  const std::string value(100, 'v');
  const auto put = [&](unsigned i) { (void)s->put(std::to_string(i), value); };
  EXPECT_LE(openings_each("put of a new key", put), 2);
  EXPECT_LE(openings_each("put of a key that is there", put), 3);
  std::string got;
  EXPECT_EQ(openings_each("get", [&](unsigned i) { got = *s->get(std::to_string(i)); }), 0);
  EXPECT_EQ(got, value);
  EXPECT_LE(openings_each("erase", [&](unsigned i) { (void)s->erase(std::to_string(i)); }), 2);
}

// --- several -------------------------------------------------------------------------------------

TEST_F(MetadataKey, two_pools_share_one_key) {
  Pool p = make();
  {
    Result<Pool> q = Pool::create(other_.str(), options());
    ASSERT_TRUE(q);
    EXPECT_EQ(store_to(base(*q)), SEGV_PKUERR);
    EXPECT_EQ(store_to(base(p)), SEGV_PKUERR);
    Ptr<Node>& a = **p.root<Ptr<Node>>("list");
    Ptr<Node>& b = **q->root<Ptr<Node>>("list");
    Transaction first(p);
    Transaction second(*q, first);
    EXPECT_EQ(first.add(a), Status::ok);
    EXPECT_EQ(second.add(b), Status::ok);
    EXPECT_EQ(second.commit(), Status::ok);
    EXPECT_EQ(first.commit(), Status::ok);
  }
  EXPECT_EQ(store_to(base(p)), SEGV_PKUERR);
}

TEST_F(MetadataKey, a_child_opens_its_own_pool) {
  Pool p = make();
  expect_in_child([&] {
    EXPECT_EQ(p.sync(), Status::forked);
    EXPECT_NE(store_to(base(p)), 0);  // the parent's pool
    Result<Pool> q = Pool::create(other_.str(), options(), &report_);
    EXPECT_TRUE(q) << report_.text();
    EXPECT_TRUE(q->root<Ptr<Node>>("list"));
    EXPECT_EQ(store_to(base(*q)), SEGV_PKUERR);
    EXPECT_EQ(q->close(), Status::ok);
  });
  EXPECT_TRUE(p.root<Ptr<Node>>("list"));
}

TEST_F(MetadataKey, a_file_that_is_cut_short_is_an_error_all_the_same) {
  Pool p = make(options(Medium::cache));
  Ptr<Node>& root = **p.root<Ptr<Node>>("list");
  ASSERT_EQ(::truncate(path_.str().c_str(), 0), 0);
  EXPECT_EQ(p.malloc_to(root), Status::io);
  EXPECT_EQ(p.close(), Status::io);
}

TEST_F(MetadataKey, all_keys_in_use_is_an_error) {
  expect_in_child([&] {
    pm::metadata_bits.store(0);  // as in a process where no pool had the option yet
    std::vector<long> keys;
    for (long k; (k = ::syscall(SYS_pkey_alloc, 0, 0)) >= 0;) keys.push_back(k);
    Report report;
    EXPECT_EQ(Pool::create(path_.str(), options(), &report).error(), Status::full);
    EXPECT_NE(report.text().find("all 15 protection keys"), std::string::npos) << report.text();
    ::syscall(SYS_pkey_free, keys.back());
    EXPECT_TRUE(Pool::create(path_.str(), options(), &report)) << report.text();
  });
}

TEST_F(MetadataKey, a_pool_opened_to_read_is_not_written_anyway) {
  ASSERT_EQ(make().close(), Status::ok);
  PoolOptions o = options();
  o.read_only = true;
  Pool p = open(o);
  EXPECT_EQ(p.stats().protected_bytes, 0u);
  EXPECT_EQ(store_to(base(p)), SEGV_ACCERR);
}

// For test programs that know nothing of the option.
TEST_F(MetadataKey, planted_protection_of_every_pool) {
  plant("pm_metadata_always_protected");
  PoolOptions o = options();
  o.protect_metadata = false;
  Pool p = make(o);
  expect_protected(p, "planted");
}

TEST_F(MetadataKey, planted_rights_that_stay_open) {
  Pool p = make();
  plant("pm_metadata_left_open");
  ASSERT_TRUE(p.root<Ptr<Node>>("list"));
  EXPECT_EQ(store_to(base(p) + pm::kHeadPageOffset), 0);
}

}  // namespace
}  // namespace tenuto::test

// Pools with Consistency::gc, and some of `internal`: what survives a kill, a close and a change of
// the variant, beside transactions, a store and walks by type. heap_gc_crash.cc and
// heap_internal_crash.cc cut the power in the protocols.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Node {
  Ptr<Node> next;
  std::uint64_t number = 0;
};
constexpr std::size_t kSlots = 200;
struct Root {
  Ptr<Node> slot[kSlots];
  VPtr<Node> versioned[kSlots];
};

PoolOptions gc_options(Medium medium = Medium::cache) {
  PoolOptions o = test::PoolParts::small_options();
  o.medium = medium;
  o.consistency = Consistency::gc;
  return o;
}

class GcPool : public testing::TestWithParam<Medium> {
 protected:
  Pool make() {
    Result<Pool> p = Pool::create(path_.str(), gc_options(GetParam()), &report_);
    EXPECT_TRUE(p) << report_.text();
    return std::move(*p);
  }
  Pool open(Consistency c = Consistency::as_is) {
    PoolOptions o = gc_options(GetParam());
    o.consistency = c;
    Result<Pool> p = Pool::open(path_.str(), o, &report_);
    EXPECT_TRUE(p) << report_.text();
    return std::move(*p);
  }
  static Root& root(Pool& p) { return **p.root<Root>("root"); }
  static void put(Pool& p, std::size_t i, std::uint64_t bytes = sizeof(Node)) {
    Root& r = root(p);
    ASSERT_EQ(p.malloc_to(bytes, r.slot[i].word(), {.zero = true}), Status::ok);
    r.slot[i]->number = (std::uint64_t{1} << 38) + 2 * i;
    flush(*r.slot[i]);
  }
  // Runs work in a child process, which is killed after it.
  void killed(const std::function<void(Pool&)>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      {
        Pool p = open();
        work(p);
        ::raise(SIGKILL);
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  void expect_sound(Pool& p) { EXPECT_EQ(p.validate(&report_), Status::ok) << report_.text(); }

  TempPath path_{"consistency"};
  Report report_;
};
INSTANTIATE_TEST_SUITE_P(Consistency, GcPool,
                         testing::Values(Medium::cache, Medium::line, Medium::journal),
                         [](const auto& medium) { return medium_name(medium.param); });

TEST_P(GcPool, what_the_root_leads_to_survives_a_kill) {
  EXPECT_EQ(make().close(), Status::ok);
  killed([](Pool& p) {
    for (std::size_t i = 0; i < kSlots; ++i) put(p, i, i % 10 == 0 ? 30'000 : 64);
    for (std::size_t i = 0; i < kSlots; i += 2) {
      EXPECT_EQ(p.free_from(root(p).slot[i].word()), Status::ok);
    }
    for (std::size_t i = 0; i < kSlots; i += 3) {
      EXPECT_EQ(p.malloc_to(100, root(p).versioned[i].word()), Status::ok);
    }
    EXPECT_EQ(p.swap(root(p).versioned[0].word(), root(p).versioned[1].word()), Status::ok);
    EXPECT_EQ(p.sync(), Status::ok);
  });
  Pool p = open();
  EXPECT_EQ(p.info().consistency, Consistency::gc);
  EXPECT_FALSE(p.info().was_clean);
  expect_sound(p);
  std::set<const void*> seen;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const Node* const n = root(p).slot[i].get();
    EXPECT_EQ(n == nullptr, i % 2 == 0) << i;
    if (n == nullptr) continue;
    EXPECT_EQ(n->number, (std::uint64_t{1} << 38) + 2 * i);
    EXPECT_GE(p.usable_size(n), sizeof(Node));
    EXPECT_TRUE(seen.insert(n).second);
  }
  EXPECT_EQ(root(p).versioned[0].get(), nullptr);
  EXPECT_NE(root(p).versioned[1].get(), nullptr);
  // What survived can be freed, and what did not is free.
  for (std::size_t i = 1; i < kSlots; i += 2) {
    EXPECT_EQ(p.free_from(root(p).slot[i].word()), Status::ok);
  }
  EXPECT_EQ(p.free_from(root(p).slot[1].word()), Status::invalid_argument);
  expect_sound(p);
}

TEST_P(GcPool, what_nothing_leads_to_is_free_after_a_kill) {
  EXPECT_EQ(make().close(), Status::ok);
  killed([](Pool& p) {
    for (int i = 0; i < 5000; ++i) {
      EXPECT_EQ(p.malloc_to(1000, root(p).slot[0].word(), {.zero = true}), Status::ok);
      root(p).slot[0] = nullptr;  // lost
      flush(root(p).slot[0]);
    }
    put(p, 1);
    EXPECT_EQ(p.sync(), Status::ok);
  });
  Pool p = open();
  expect_sound(p);
  EXPECT_EQ(p.stats().objects, 2u);
  EXPECT_GT(p.info().collect_ms, 0);
}

TEST_P(GcPool, a_clean_close_keeps_all_blocks_as_they_are) {
  {
    Pool p = make();
    for (std::size_t i = 0; i < kSlots; ++i) put(p, i, 64 + 16 * (i % 20));
    for (std::size_t i = 0; i < kSlots; i += 4) {
      ASSERT_EQ(p.free_from(root(p).slot[i].word()), Status::ok);
    }
    Node* const lost = root(p).slot[1].get();
    ASSERT_TRUE(lost);
    root(p).slot[1] = nullptr;
    flush(root(p).slot[1]);
    ASSERT_TRUE(p.reserve(64));  // never published
    ASSERT_EQ(p.close(), Status::ok);
  }
  for (const Consistency c : {Consistency::as_is, Consistency::log, Consistency::gc}) {
    Pool p = open(c);
    EXPECT_EQ(p.info().consistency, c == Consistency::as_is ? Consistency::gc : c);
    expect_sound(p);
    EXPECT_EQ(p.stats().objects, 1 + kSlots * 3 / 4) << "lost ones are kept until a collection";
    const Result<Garbage> g = p.find_garbage({}, &report_);
    ASSERT_TRUE(g) << report_.text();
    EXPECT_EQ(g->reached_blocks, kSlots * 3 / 4);
    EXPECT_EQ(p.close(), Status::ok);
  }
}

TEST_P(GcPool, what_changes_between_two_clean_closes_is_there_after_them) {
  std::mt19937_64 rng(3);
  std::set<std::size_t> there;
  EXPECT_EQ(make().close(), Status::ok);
  for (int life = 0; life < 8; ++life) {
    Pool p = open(life == 5 ? Consistency::log : life == 6 ? Consistency::gc : Consistency::as_is);
    expect_sound(p);
    EXPECT_EQ(p.stats().objects, there.size() + (life == 0 ? 0 : 1));
    std::set<const void*> seen;
    for (const std::size_t i : there) {
      const Node* const n = root(p).slot[i].get();
      ASSERT_GE(p.usable_size(n), sizeof(Node)) << i << " in life " << life;
      EXPECT_TRUE(seen.insert(n).second);
    }
    for (int k = 0; k < 60; ++k) {
      const std::size_t i = rng() % kSlots;
      if (there.erase(i) != 0) {
        ASSERT_EQ(p.free_from(root(p).slot[i].word()), Status::ok);
      } else {
        put(p, i, 64);
        there.insert(i);
      }
    }
    ASSERT_EQ(p.close(), Status::ok);
  }
}

TEST_P(GcPool, transactions_are_atomic_and_their_objects_are_found_by_the_root) {
  EXPECT_EQ(make().close(), Status::ok);
  killed([](Pool& p) {
    for (std::size_t i = 0; i < 20; ++i) put(p, i);
    EXPECT_EQ(p.sync(), Status::ok);
    const auto add = [&](Transaction& tx) -> Status {
      Result<void*> n = tx.alloc(sizeof(Node));
      if (!n) return n.error();
      std::memset(*n, 0, sizeof(Node));
      TENUTO_TRY(tx.add(root(p).slot[50]));
      root(p).slot[50] = static_cast<Node*>(*n);
      TENUTO_TRY(tx.add(root(p).slot[3]));
      Node* const old = root(p).slot[3].get();
      root(p).slot[3] = nullptr;
      return tx.free(old);
    };
    EXPECT_EQ(p.run(add), Status::ok);
    Transaction open(p);
    Result<void*> n = open.alloc(sizeof(Node));
    EXPECT_TRUE(n);
    EXPECT_EQ(open.add(root(p).slot[51]), Status::ok);
    root(p).slot[51] = static_cast<Node*>(*n);
    EXPECT_EQ(open.add(root(p).slot[4]), Status::ok);
    Node* const old = root(p).slot[4].get();
    root(p).slot[4] = nullptr;
    EXPECT_EQ(open.free(old), Status::ok);
    ::raise(SIGKILL);
  });
  Pool p = open();
  expect_sound(p);
  EXPECT_EQ(root(p).slot[3].get(), nullptr);
  EXPECT_NE(root(p).slot[4].get(), nullptr);
  EXPECT_NE(root(p).slot[50].get(), nullptr);
  EXPECT_EQ(root(p).slot[51].get(), nullptr);
  EXPECT_EQ(p.stats().objects, 1 + 20u);
}

TEST_P(GcPool, types_are_durable_and_filters_are_used_after_a_kill) {
  EXPECT_EQ(make().close(), Status::ok);
  killed([](Pool& p) {
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(p.malloc_to(64, root(p).slot[i].word(), {.zero = true, .type = 7}), Status::ok);
      EXPECT_EQ(p.malloc_to(64, root(p).slot[i]->next.word(), {.zero = true}), Status::ok);
      // Not told by the filter, so it keeps nothing.
      auto& hidden = *reinterpret_cast<Ptr<Node>*>(&root(p).slot[i]->number);
      hidden = nullptr;
      EXPECT_EQ(p.malloc_to(128, hidden.word(), {.zero = true}), Status::ok);
    }
    EXPECT_EQ(p.malloc_to(20'000, root(p).slot[20].word(), {.zero = true, .type = 7}), Status::ok);
    EXPECT_EQ(p.sync(), Status::ok);
  });
  PoolOptions o = gc_options(GetParam());
  o.consistency = Consistency::as_is;
  o.filters[7] = [](const void* object, std::uint64_t, const auto& visit) {
    visit(static_cast<const Node*>(object)->next.get());
  };
  Result<Pool> p = Pool::open(path_.str(), o, &report_);
  ASSERT_TRUE(p) << report_.text();
  expect_sound(*p);
  EXPECT_EQ(p->stats().objects, 1 + 10 + 10 + 1u);
  std::size_t walked = 0;
  for (const void* at = *p->first(7); at != nullptr; at = *p->next(at, 7)) walked += 1;
  EXPECT_EQ(walked, 11u);
}

TEST_P(GcPool, a_store_beside_objects_keeps_its_records) {
  StoreOptions so;
  so.pool = gc_options(GetParam());
  {
    Result<Store> s = Store::open(path_.str(), so, &report_);
    ASSERT_TRUE(s) << report_.text();
    ASSERT_EQ(s->close(), Status::ok);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    so.pool.consistency = Consistency::as_is;
    Result<Store> s = Store::open(path_.str(), so);
    for (int i = 0; i < 2000; ++i) {
      static_cast<void>(s->put("key" + std::to_string(i), std::string(200, 'x')));
    }
    put(s->pool(), 5);
    static_cast<void>(s->pool().sync());
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  so.pool.consistency = Consistency::as_is;
  Result<Store> s = Store::open(path_.str(), so, &report_);
  ASSERT_TRUE(s) << report_.text();
  EXPECT_EQ(s->validate(&report_), Status::ok) << report_.text();
  EXPECT_EQ(s->get("key1999").value_or(""), std::string(200, 'x'));
  EXPECT_NE(root(s->pool()).slot[5].get(), nullptr);
}

TEST_P(GcPool, threads_allocate_and_free_each_others_blocks_until_they_are_killed) {
  EXPECT_EQ(make().close(), Status::ok);
  for (unsigned round = 0; round < 3; ++round) {
    killed([&](Pool& p) {
      const auto work = [&](unsigned t) {
        std::mt19937_64 rng(10 * round + t);
        Root& r = root(p);
        for (int i = 0; i < 20'000; ++i) {
          // Each thread has every second slot; the blocks come from both threads' slabs.
          const std::size_t at = 2 * (rng() % (kSlots / 2)) + t;
          if (r.slot[at]) {
            EXPECT_EQ(p.free_from(r.slot[at].word()), Status::ok);
          } else {
            EXPECT_EQ(p.malloc_to(32 + 16 * (rng() % 30), r.slot[at].word()), Status::ok);
            std::memset(static_cast<void*>(r.slot[at].get()), 0, sizeof(Node));
          }
          if (i == 15'000 && t == 1) ::raise(SIGKILL);
        }
      };
      std::thread other([&] { work(1); });
      work(0);
      other.join();
    });
    Pool p = open();
    expect_sound(p);
    std::set<const void*> seen;
    for (const Ptr<Node>& slot : root(p).slot) {
      if (!slot) continue;
      EXPECT_TRUE(seen.insert(slot.get()).second) << "named twice";
      EXPECT_GT(p.usable_size(slot.get()), 0u) << "named and not allocated";
    }
    EXPECT_GE(p.stats().objects, 1 + seen.size());
    EXPECT_EQ(p.close(), Status::ok);
  }
}

TEST_P(GcPool, batches_and_full_pools) {
  PoolOptions o = gc_options(GetParam());
  o.size_max = o.size;
  Result<Pool> p = Pool::create(path_.str(), o, &report_);
  ASSERT_TRUE(p) << report_.text();
  Root& r = root(*p);
  for (int round = 0; round < 20; ++round) {
    const std::span<Ptr<Node>> some(&r.slot[0], 64);
    ASSERT_EQ(p->malloc_to(64, some), Status::ok);
    ASSERT_EQ(p->free_from(some), Status::ok);
  }
  std::size_t n = 0;
  while (n < kSlots && p->malloc_to(200'000, r.slot[n].word()) == Status::ok) ++n;
  ASSERT_LT(n, kSlots);
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(p->free_from(r.slot[i].word()), Status::ok);
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_EQ(p->malloc_to(200'000, r.slot[i].word()), Status::ok) << i;
  }
  expect_sound(*p);
}

// --- which variant -------------------------------------------------------------------------------

// On Consistency::internal.
TEST_P(GcPool, a_walk_shows_all_that_returned_before_a_kill) {
  constexpr std::uint64_t kType = 5;
  {
    Pool p = make();
    (void)root(p);
    ASSERT_EQ(p.close(), Status::ok);
  }
  {
    Pool p = open(Consistency::internal);
    EXPECT_EQ(p.info().consistency, Consistency::internal);
    ASSERT_EQ(p.close(), Status::ok);
  }
  killed([](Pool& p) {
    Root& r = root(p);
    for (std::size_t i = 0; i < 20; ++i) {
      (void)p.malloc_to(i == 7 ? 40'000 : sizeof(Node), r.slot[i].word(),
                        {.zero = true, .type = kType});
      (void)p.malloc_to(sizeof(Node), r.versioned[i].word());
    }
    for (std::size_t i = 0; i < 10; ++i) {
      (void)p.free_from(r.slot[i].word());
      (void)p.free_from(r.versioned[i].word());
    }
    (void)p.swap(r.versioned[0].word(), r.versioned[15].word());
    (void)p.sync();
  });
  Pool p = open();
  EXPECT_EQ(p.info().consistency, Consistency::internal);
  Root& r = root(p);
  std::set<const void*> shown;
  for (void* at = *p.first(kType); at != nullptr; at = *p.next(at, kType)) shown.insert(at);
  std::set<const void*> named;
  for (const auto& slot : r.slot) {
    if (slot) named.insert(slot.get());
  }
  EXPECT_EQ(shown, named);
  EXPECT_EQ(shown.size(), 10u);
  std::size_t versioned = 0;
  for (const auto& v : r.versioned) versioned += v.get() != nullptr && p.usable_size(v.get()) != 0;
  EXPECT_EQ(versioned, 10u);
  EXPECT_NE(r.versioned[0].get(), nullptr);
  EXPECT_EQ(p.validate(&report_), Status::ok) << report_.text();
  ASSERT_EQ(p.close(), Status::ok);
}

TEST(Consistency, changes_only_after_a_clean_close) {
  const TempPath path("variant");
  Report report;
  PoolOptions o = test::PoolParts::small_options();
  ASSERT_TRUE(Pool::create(path.str(), o, &report)) << report.text();
  const pid_t child = ::fork();
  if (child == 0) {
    Result<Pool> p = Pool::open(path.str(), o);
    static_cast<void>(p->root<Root>("root"));
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  o.consistency = Consistency::gc;
  EXPECT_EQ(Pool::open(path.str(), o, &report).error(), Status::invalid_argument);
  EXPECT_NE(report.what.find("not closed cleanly"), std::string::npos);
  o.consistency = Consistency::as_is;
  { ASSERT_TRUE(Pool::open(path.str(), o, &report)) << report.text(); }
  o.consistency = Consistency::gc;
  {
    Result<Pool> p = Pool::open(path.str(), o, &report);
    ASSERT_TRUE(p) << report.text();
    EXPECT_EQ(p->info().consistency, Consistency::gc);
  }
  o.consistency = Consistency::log;
  o.read_only = true;
  Result<Pool> p = Pool::open(path.str(), o, &report);
  ASSERT_TRUE(p) << report.text();
  EXPECT_EQ(p->info().consistency, Consistency::gc) << "an open to read changes nothing";
}

TEST(Consistency, slabs_with_blocks_of_two_sizes_stay_with_the_log) {
  const TempPath path("variant-morphed");
  Report report;
  PoolOptions o = test::PoolParts::small_options();
  {
    Result<Pool> p = Pool::create(path.str(), o, &report);
    ASSERT_TRUE(p) << report.text();
    struct Many {
      Ptr<char> slot[2000];
    };
    Many& r = **p->root<Many>("many");
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(p->malloc_to(112, r.slot[i].word()), Status::ok);
    for (int i = 0; i < 1000; ++i) {
      if (i % 100 == 0) continue;
      ASSERT_EQ(p->free_from(r.slot[i].word()), Status::ok);
    }
    ASSERT_EQ(p->trim(), Status::ok);
    for (int i = 1000; i < 1700; ++i) ASSERT_EQ(p->malloc_to(208, r.slot[i].word()), Status::ok);
    ASSERT_GT(p->stats().morphed_slabs, 0u);
  }
  o.consistency = Consistency::gc;
  EXPECT_EQ(Pool::open(path.str(), o, &report).error(), Status::invalid_argument);
  EXPECT_NE(report.what.find("second size"), std::string::npos) << report.text();
  o.consistency = Consistency::as_is;
  Result<Pool> p = Pool::open(path.str(), o, &report);
  ASSERT_TRUE(p) << report.text();
  EXPECT_EQ(p->info().consistency, Consistency::log);
  EXPECT_EQ(p->validate(&report), Status::ok) << report.text();
}

}  // namespace
}  // namespace tenuto

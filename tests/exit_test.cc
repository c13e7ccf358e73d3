// The ways a process may end while a pool is open. Pools are in static objects, made before and
// after the library's own statics, and thread_locals of the program use a pool while they are
// destroyed. The pool is closed cleanly on every medium, and nothing crashes or hangs. The program
// starts itself again for each way to end, because static objects live as long as the process.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

constexpr unsigned kAlarmSeconds = 60;
constexpr int kBlocks = 40;

// Whether the child is to end in this way. The environment carries the way, so that static objects
// can read it.
bool way_is(const char* way) {
  const char* const w = std::getenv("TENUTO_TEST_EXIT");
  return w != nullptr && std::string_view(w) == way;
}

bool way_begins(const char* begin) {
  const char* const w = std::getenv("TENUTO_TEST_EXIT");
  return w != nullptr && std::string_view(w).starts_with(begin);
}
void end_here(const char* where);

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(3);
}
void must(Status s, const char* what) {
  if (s != Status::ok) give_up((std::string(what) + ": " + status_name(s)).c_str());
}

StoreOptions options() {
  StoreOptions o;
  o.pool.size = 8u << 20;
  o.pool.size_max = 64u << 20;
  o.pool.recovery_threads = 1;
  o.pool.journal.bytes = 1u << 20;
  o.pool.medium = static_cast<Medium>(std::atoi(std::getenv("TENUTO_TEST_MEDIUM")));
  KeyCodec ends;
  ends.name = "ends";
  ends.encode = ends.decode = [](std::string_view from, std::string& to) {
    end_here("exit inside a codec");
    to = from;
    return true;
  };
  o.codecs = {ends};
  o.clock_ms = [] {
    end_here("exit inside the clock");
    return std::uint64_t{1'800'000'000'000};
  };
  return o;
}

struct Words {
  Ptr<char> word[kBlocks];
};

// A store with records and blocks. Some blocks are freed, in a transaction and without one, which
// leaves flushes without a fence.
struct Opened {
  std::optional<Store> store;

  void open_and_work() {
    Result<Store> s = Store::open(std::getenv("TENUTO_TEST_POOL"), options());
    if (!s) give_up("open");
    store.emplace(std::move(*s));
    work("first");
  }
  void work(const std::string& key) {
    for (int i = 0; i < 200; ++i) must(store->put(key + std::to_string(i), "value"), "put");
    const Result<Words*> words = store->pool().root<Words>("words");
    if (!words) give_up("root");
    for (auto& w : (*words)->word) {
      if (!w) must(store->pool().malloc_to(100, w), "malloc_to");
    }
    must(store->pool().run([&](Transaction& tx) {
      TENUTO_TRY(tx.add((*words)->word[0]));
      TENUTO_TRY(tx.free((*words)->word[0].get()));
      (*words)->word[0] = nullptr;
      return Status::ok;
    }),
         "transaction");
    must(store->pool().free_from((*words)->word[1]), "free_from");
  }
};

struct StaticPool : Opened {
  explicit StaticPool(const char* way) {
    if (way_is(way)) open_and_work();
  }
};

// Made before and after all other statics of the program, and those of the library.
__attribute__((init_priority(101))) StaticPool first_static("static made first");
__attribute__((init_priority(65535))) StaticPool last_static("static made last");
Opened* the_pool = nullptr;

// Made before the library was used, so it is destroyed after all that the library made.
struct OpensAgain {
  ~OpensAgain() {
    if (pool == nullptr) return;
    must(pool->store->close(), "close");
    pool->open_and_work();
  }
  Opened* pool = nullptr;
};

// Made before the thread's first use of a pool, so it is destroyed after the library's
// thread-locals.
struct Outliving {
  ~Outliving() {
    if (the_pool != nullptr) the_pool->work("outliving");
  }
  int touched = 0;
};
thread_local Outliving outliving;

// The close must also make durable what a resting thread did.
void rest_forever() {
  static std::atomic<bool> worked = false;
  std::thread([] {
    the_pool->work("resting");
    worked = true;
    for (;;) ::pause();
  }).detach();
  while (!worked) std::this_thread::yield();
}

// They go on until the pool is closed.
void write_forever() {
  static std::atomic<int> writing = 0;
  for (int i = 0; i < 2; ++i) {
    std::thread([i, in = Collection(*the_pool->store)]() mutable {
      const std::string key = "thread" + std::to_string(i);
      for (int n = 0;
           in.put(key + std::to_string(n % 1000), std::string(n % 200, 'v')) == Status::ok; ++n) {
        if (n == 100) writing += 1;
      }
      for (;;) ::pause();
    }).detach();
  }
  while (writing < 2) std::this_thread::yield();
}

void stay_in_a_call() {
  static std::atomic<bool> inside = false;
  std::thread([in = Collection(*the_pool->store)]() mutable {
    static_cast<void>(in.merge("first3", [](auto) -> std::optional<std::string> {
      inside = true;
      for (;;) ::pause();
    }));
  }).detach();
  while (!inside) std::this_thread::yield();
}

// Whether callbacks of the program end the process.
std::atomic<bool> ends_inside = false;

void end_here(const char* where) {
  if (ends_inside && way_is(where)) std::exit(0);
}

void exit_inside(Store& s) {
  the_pool = nullptr;
  ends_inside = true;
  must(s.merge("first1",
               [](std::optional<std::string_view>) {
                 end_here("exit inside a merge");
                 return std::optional<std::string>("merged");
               }),
       "merge");
  static_cast<void>(s.pool().run([&](Transaction& tx) {
    TENUTO_TRY(tx.on_commit([] { end_here("exit inside on_commit"); }));
    const Result<Words*> words = s.pool().root<Words>("words");
    TENUTO_TRY(tx.add((*words)->word[2]));
    end_here("exit inside a transaction on objects");
    return Status::ok;
  }));
  static_cast<void>(s.run([&](StoreTransaction& tx) {
    TENUTO_TRY(tx.put("first2", "of a transaction"));
    end_here("exit inside a transaction");
    return Status::ok;
  }));
  CollectionOptions how;
  how.expires = true;
  Result<Collection> c = s.collection("sessions", how);
  if (!c) give_up("collection");
  must(c->put("k", "v", {.ttl_ms = 1000}), "put with a lifetime");
  how.expires = false;
  how.order = KeyOrder::registered;
  how.codec = "ends";
  Result<Collection> ordered = s.collection("ordered", how);
  if (!ordered) give_up("collection with a codec");
  must(ordered->put("k", "v"), "put with a codec");
  give_up("nothing ended the process");
}

int live() {
  ::alarm(kAlarmSeconds);
  static Opened late;  // made after main began
  static OpensAgain again;
  if (way_is("static made first")) the_pool = &first_static;
  if (way_is("static made last")) the_pool = &last_static;
  if (the_pool != nullptr) {
    the_pool->work("main");
    the_pool = nullptr;
    return 0;
  }
  if (!way_is("a thread_local outlives the pool's in a thread")) outliving.touched = 1;
  late.open_and_work();
  the_pool = &late;
  if (way_is("a destructor opens it again")) again.pool = std::exchange(the_pool, nullptr);
  if (again.pool != nullptr) return 0;
  if (way_is("a thread_local outlives the pool's")) return 0;
  if (way_is("a thread_local outlives the pool's in a thread")) {
    std::thread([] {
      outliving.touched = 1;
      the_pool->work("thread");
    }).join();
    the_pool = nullptr;
    return 0;
  }
  if (way_begins("a thread rests")) rest_forever();
  if (way_begins("threads write")) write_forever();
  if (way_begins("a thread is in a call")) stay_in_a_call();
  if (way_begins("a thread rests") || way_begins("threads write") ||
      way_begins("a thread is in a call"))
    the_pool = nullptr;
  if (way_begins("exit inside")) exit_inside(*late.store);
  if (way_is("another thread calls exit")) {
    std::thread([] {
      outliving.touched = 1;
      the_pool->work("thread");
      std::exit(0);
    }).detach();
    for (;;) ::pause();
  }
  return 0;
}

struct End {
  int code = 0;  // the exit status, or 1000 + signal
};

End run_child(const char* way, Medium medium, const std::string& path, const char* plant) {
  ::setenv("TENUTO_TEST_EXIT", way, 1);
  ::setenv("TENUTO_TEST_MEDIUM", std::to_string(static_cast<int>(medium)).c_str(), 1);
  ::setenv("TENUTO_TEST_POOL", path.c_str(), 1);
  if (plant != nullptr) ::setenv("TENUTO_PLANT", plant, 1);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl("/proc/self/exe", "exit_test", "--live", nullptr);
    std::_Exit(99);
  }
  ::unsetenv("TENUTO_TEST_EXIT");
  ::unsetenv("TENUTO_PLANT");
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status)};
}

// Returns what is wrong with what the child left, or an empty string.
std::string judge(const std::string& path, bool may_be_unclean) {
  Report report;
  StoreOptions o = options();
  o.create_if_missing = false;
  Result<Store> s = Store::open(path, o, &report);
  if (!s) return "open: " + report.text();
  if (!may_be_unclean && !s->pool().info().was_clean) return "not closed cleanly";
  for (int i = 0; i < 200; ++i) {
    if (s->contains("first" + std::to_string(i)) != Status::ok) return "a record is gone";
  }
  if (s->validate(&report) != Status::ok) return "validate: " + report.text();
  return s->close() == Status::ok ? "" : "close";
}

const char* const kWays[] = {"static made first",
                             "static made last",
                             "a static of a function",
                             "a destructor opens it again",
                             "a thread_local outlives the pool's",
                             "a thread_local outlives the pool's in a thread",
                             "a thread rests",
                             "threads write",
                             "another thread calls exit"};

const char* const kWaysInside[] = {"exit inside a merge",
                                   "exit inside a transaction on objects",
                                   "exit inside on_commit",
                                   "exit inside a transaction",
                                   "exit inside the clock",
                                   "exit inside a codec",
                                   "a thread is in a call that does not return"};

std::string end_of(const char* way, Medium medium, const char* plant = nullptr,
                   bool may_be_unclean = false) {
  const TempPath path("exit");
  const std::string journal = path.str() + ".journal";
  const End end = run_child(way, medium, path.str(), plant);
  std::string wrong =
      end.code == 0 ? judge(path.str(), may_be_unclean) : "ended " + std::to_string(end.code);
  ::unlink(journal.c_str());
  return wrong;
}

TEST(exit_test, a_pool_in_a_static_object_is_closed_cleanly_on_every_medium) {
  for (const Medium m : {Medium::cache, Medium::line, Medium::model, Medium::journal}) {
    for (const char* way : kWays) {
      EXPECT_EQ(end_of(way, m), "") << way << ", medium " << medium_name(m);
    }
  }
}

// The process ends as in a crash, or cleanly. It does not hang, and nothing acknowledged is lost.
TEST(exit_test, a_process_may_end_inside_a_call) {
  for (const Medium m : {Medium::cache, Medium::journal}) {
    for (const char* way : kWaysInside) {
      EXPECT_EQ(end_of(way, m, nullptr, true), "") << way << ", medium " << medium_name(m);
    }
  }
}

#ifdef TENUTO_DEBUG_CHECKS
TEST(exit_test, parts_that_end_with_the_thread_locals_are_found) {
  bool found = false;
  for (const char* way : kWays) {
    found =
        found || !end_of(way, Medium::journal, "pm_thread_parts_end_with_thread_locals").empty();
  }
  EXPECT_TRUE(found);
}
#endif

}  // namespace
}  // namespace tenuto::test

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--live") return tenuto::test::live();
  ::setenv("TENUTO_TEST_MEDIUM", "0", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

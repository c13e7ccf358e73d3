// A process forks while a pool is open. The child cannot change the pool, and its calls return
// Status::forked. The parent loses nothing, and it alone holds the lock. The parents are children
// of the test, so that they can be killed.
#include <gtest/gtest.h>

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pm/sanitizer.h"
#include "support/open_handles.h"
#include "support/pool_parts.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/tenuto.h"
#include "tenuto/transaction.h"

namespace {
// Set in a child of fork that has no main thread. LeakSanitizer would report what that thread held,
// so it must not look there. It calls __lsan_is_turned_off at the end of a process.
bool without_main_thread = false;
}  // namespace
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return without_main_thread ? 1 : 0; }

namespace tenuto::test {
namespace {

constexpr unsigned kAlarmSeconds = 60;
#if TENUTO_ASAN
// No journal: its thread may hold a lock of the sanitizer's allocator, for which a child then
// waits.
constexpr Medium kMedia[] = {Medium::cache, Medium::line, Medium::model};
#else
constexpr Medium kMedia[] = {Medium::cache, Medium::line, Medium::model, Medium::journal};
#endif

pid_t start(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(kAlarmSeconds);
  body();
  std::_Exit(0);
}
// The exit code, or 1000 + signal.
int end_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Returns what is missing, or an empty string.
std::string missing(const std::string& path, Medium medium, int records, bool clean) {
  Report report;
  Result<Store> s = Store::open(path, options(medium), &report);
  if (!s) return "open: " + report.text();
  if (clean && !s->pool().info().was_clean) return "not closed cleanly";
  for (int i = 0; i < records; ++i) {
    if (s->contains(key(i)) != Status::ok) return key(i) + " is gone";
  }
  if (s->validate(&report) != Status::ok) return "validate: " + report.text();
  return s->close() == Status::ok ? "" : "close";
}

// What children do with the handles that they inherit.
enum class Way { exec, end_at_once, exit, leave_scope, use_all, thread_ends };
constexpr Way kWays[] = {Way::exec,        Way::end_at_once, Way::exit,
                         Way::leave_scope, Way::use_all,     Way::thread_ends};

Handles* static_handles = nullptr;
struct AtExit {
  ~AtExit() { delete static_handles; }
} at_exit;

void be_child(Handles* h, Way way) {
  ::alarm(kAlarmSeconds);
  switch (way) {
    case Way::exec:
      ::execl("/bin/true", "true", nullptr);
      std::_Exit(9);
    case Way::end_at_once:
      std::_Exit(0);
    case Way::exit:
      static_handles = h;
      std::exit(0);
    case Way::leave_scope:
      delete h;
      std::_Exit(0);
    case Way::use_all:
      every_call_refuses(*h);
      delete h;
      std::_Exit(0);
    case Way::thread_ends:
      without_main_thread = true;
      return;  // ends the only thread, and so the process
  }
}

TEST(fork_test, children_are_harmless_and_the_parent_closes_cleanly) {
  for (const Medium medium : kMedia) {
    const TempPath path("fork");
    const int code = in_child([&] {
      auto* const h = new Handles;
      h->open(path.str(), medium);
      for (const Way way : kWays) {
        pid_t child = -1;
        const auto fork_here = [&] {
          child = ::fork();
          if (child == 0) be_child(h, way);
        };
        if (way == Way::thread_ends) {
          std::thread([&] {
            put_all(*h->store, 0, 3);  // gives the thread a lane
            fork_here();
          }).join();
        } else {
          fork_here();
        }
        const int end = end_of(child);
        if (end != 0) std::fprintf(stderr, "way %d: %d\n", static_cast<int>(way), end);
        MUST(end == 0);
        put_all(*h->store, 100, 150 + 10 * static_cast<int>(way));
      }
      h->close();
      delete h;
    });
    ASSERT_EQ(code, 0) << medium_name(medium);
    EXPECT_EQ(missing(path.str(), medium, 200, true), "") << medium_name(medium);
  }
}

// A child closes the store. The parent's later syncs must survive the parent's death.
std::string lost_after_a_child_closed(Medium medium) {
  const TempPath path("fork-killed");
  const int code = in_child([&] {
    Result<Store> s = Store::open(path.str(), options(medium));
    MUST(s);
    put_all(*s, 0, 10);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(2);  // with the mistake it waits for a thread that does not exist here
      static_cast<void>(s->close());
      std::_Exit(0);
    }
    static_cast<void>(end_of(child));
    for (int i = 10; i < 200; ++i) static_cast<void>(s->put(key(i), "value"));
    static_cast<void>(s->sync());
    ::raise(SIGKILL);
  });
  EXPECT_EQ(code, 1000 + SIGKILL);
  return missing(path.str(), medium, 200, false);
}

TEST(fork_test, what_the_parent_syncs_after_a_child_has_ended_is_there) {
  for (const Medium medium : kMedia) EXPECT_EQ(lost_after_a_child_closed(medium), "");
}

#ifdef TENUTO_DEBUG_CHECKS
TEST(fork_test, a_child_that_closes_the_pool_of_its_parent_is_found) {
  ::setenv("TENUTO_PLANT", "pm_fork_not_noticed", 1);
  bool found = false;
  const TempPath path("fork-planted");
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    // A new process, which reads TENUTO_PLANT at its start.
    const pid_t pid = ::fork();
    if (pid == 0) {
      const std::string arg = std::to_string(static_cast<int>(medium));
      ::execl("/proc/self/exe", "fork_test", "--lost", arg.c_str(), nullptr);
      std::_Exit(9);
    }
    found = found || end_of(pid) == 1;
  }
  ::unsetenv("TENUTO_PLANT");
  EXPECT_TRUE(found);
}
#endif

// The parent dies, and a child that inherited the pool stays alive.
TEST(fork_test, the_lock_does_not_outlive_the_parent_in_a_child) {
  for (const Medium medium : kMedia) {
    const TempPath path("fork-lock");
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t parent = start([&] {
      Result<Store> s = Store::open(path.str(), options(medium));
      MUST(s);
      put_all(*s, 0, 10);
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(kAlarmSeconds);
        const pid_t self = ::getpid();
        MUST(::write(told[1], &self, sizeof self) == sizeof self);
        for (;;) ::pause();
      }
      for (;;) ::pause();
    });
    pid_t child = 0;
    ASSERT_EQ(::read(told[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
    EXPECT_EQ(Store::open(path.str(), options(medium)).error(), Status::busy);
    ::kill(parent, SIGKILL);
    EXPECT_EQ(end_of(parent), 1000 + SIGKILL);
    EXPECT_EQ(missing(path.str(), medium, 10, false), "") << medium_name(medium);
    ::kill(child, SIGKILL);
    ::close(told[0]);
    ::close(told[1]);
  }
}

TEST(fork_test, a_child_opens_the_pool_anew_once_the_parent_has_closed_it) {
  for (const Medium medium : kMedia) {
    const TempPath path("fork-anew");
    const int code = in_child([&] {
      int go[2];
      int tried[2];
      MUST(::pipe(go) == 0 && ::pipe(tried) == 0);
      Result<Store> s = Store::open(path.str(), options(medium));
      MUST(s);
      put_all(*s, 0, 100);
      Snapshot snapshot = *s->snapshot();
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(kAlarmSeconds);
        const Status first = Store::open(path.str(), options(medium)).error();
        MUST(first == Status::busy && ::write(tried[1], "x", 1) == 1);
        char c = 0;
        MUST(::read(go[0], &c, 1) == 1);
        Result<Store> mine = Store::open(path.str(), options(medium));
        MUST(mine && mine->pool().info().was_clean);
        std::string value;
        MUST(s->get(key(1), value) == Status::forked);
        put_all(*mine, 100, 200);
        std::thread([&] { put_all(*mine, 200, 300); }).join();
        MUST(snapshot.get(key(1), value) == Status::forked);
        MUST(s->close() == Status::forked);
        MUST(mine->get(key(1), value) == Status::ok && mine->close() == Status::ok);
        std::_Exit(0);
      }
      char c = 0;
      MUST(::read(tried[0], &c, 1) == 1);
      snapshot.release();
      MUST(s->close() == Status::ok);
      MUST(::write(go[1], "x", 1) == 1);
      MUST(end_of(child) == 0);
    });
    ASSERT_EQ(code, 0) << medium_name(medium);
    EXPECT_EQ(missing(path.str(), medium, 300, true), "") << medium_name(medium);
  }
}

// Other threads of the parent may hold any lock when it forks.
TEST(fork_test, a_child_does_not_wait_for_locks_of_threads_that_are_not_there) {
#if TENUTO_ASAN
  GTEST_SKIP() << "a child may wait for a lock of the sanitizer's allocator";
#endif
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    const TempPath path("fork-threads");
    const int code = in_child([&] {
      auto* const h = new Handles;
      h->open(path.str(), medium);
      std::atomic<bool> stop = false;
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
          std::string value;
          for (int i = 0; !stop; ++i) {
            MUST(h->store->put(key(t * 1000 + i % 300), "value") == Status::ok);
            MUST(h->named->put(key(i % 300), "value") == Status::ok);
            if (i % 16 == 0) static_cast<void>(h->store->snapshot());
            if (i % 64 == 0) {
              static_cast<void>(h->store->iterator());
              std::thread([&] { static_cast<void>(h->store->get(key(1), value)); }).join();
            }
          }
        });
      }
      for (int i = 0; i < 60; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(20);
          every_call_refuses(*h);
          delete h;
          std::_Exit(0);
        }
        MUST(end_of(child) == 0);
      }
      stop = true;
      for (std::thread& t : threads) t.join();
      h->close();
      delete h;
    });
    ASSERT_EQ(code, 0) << medium_name(medium);
    EXPECT_EQ(missing(path.str(), medium, 100, true), "") << medium_name(medium);
  }
}

// These calls take a snapshot of their own, whose list other threads may have locked. What a child
// linked there would stay when its memory is freed.
TEST(fork_test, a_child_takes_no_snapshot_for_calls_on_duplicates) {
#if TENUTO_ASAN
  constexpr int kThreads = 0;  // a child may wait for a lock of the sanitizer's allocator
#else
  constexpr int kThreads = 2;
#endif
  const TempPath path("fork-duplicates");
  const int code = in_child([&] {
    Result<Store> s = Store::open(path.str(), options(Medium::cache));
    MUST(s);
    Result<Collection> d = s->collection("d", {.duplicates = true, .expires = true});
    MUST(d && d->put("k", "1") == Status::ok && d->put("k", "2") == Status::ok);
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        while (!stop) static_cast<void>(s->snapshot());
      });
    }
    for (int i = 0; i < 200; ++i) {
      MUST(in_child([&] {
             for (int again = 0; again < 2; ++again) {
               MUST(d->erase("k") == Status::forked);
               MUST(d->touch("k", {.ttl_ms = 5}) == Status::forked);
             }
           }) == 0);
    }
    stop = true;
    for (std::thread& t : threads) t.join();
    MUST(d->count("k").value_or(0) == 2 && s->close() == Status::ok);
  });
  EXPECT_EQ(code, 0);
}

// No fork handler runs in a bare clone. The pool's own check notices the new process all the same.
TEST(fork_test, a_bare_clone_is_noticed_too) {
  for (const Medium medium : kMedia) {
    const TempPath path("fork-clone");
    const int code = in_child([&] {
      auto* const h = new Handles;
      h->open(path.str(), medium);
      const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
      if (child == 0) {
        ::alarm(kAlarmSeconds);
        every_call_refuses(*h);
        delete h;
        std::_Exit(0);
      }
      MUST(end_of(static_cast<pid_t>(child)) == 0);
      h->close();
      delete h;
    });
    ASSERT_EQ(code, 0) << medium_name(medium);
    EXPECT_EQ(missing(path.str(), medium, 100, true), "") << medium_name(medium);
  }
}

// A bare clone keeps all descriptors of its parent. The parent's close must not leave the lock with
// it. A child of fork is the same until its handler has run.
TEST(fork_test, a_child_in_which_no_handler_ran_does_not_keep_the_lock_of_a_closed_pool) {
  for (const Medium medium : kMedia) {
    const TempPath path("fork-clone-lock");
    const int code = in_child([&] {
      Result<Store> s = Store::open(path.str(), options(medium));
      MUST(s);
      put_all(*s, 0, 10);
      const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
      if (child == 0) {
        ::alarm(kAlarmSeconds);
        for (;;) ::pause();
      }
      MUST(s->close() == Status::ok);
      Report report;
      Result<Store> again = Store::open(path.str(), options(medium), &report);
      if (!again) std::fprintf(stderr, "%s\n", report.text().c_str());
      MUST(again && again->close() == Status::ok);
      ::kill(static_cast<pid_t>(child), SIGKILL);
    });
    EXPECT_EQ(code, 0) << medium_name(medium);
  }
}

// Whether this process has the file open, or a file whose path begins with that path.
bool has_open(const std::string& path) {
  char to[4096];
  for (int fd = 0; fd < 256; ++fd) {
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), to, sizeof to);
    if (n > 0 && std::string(to, static_cast<std::size_t>(n)).starts_with(path)) return true;
  }
  return false;
}

// The fork may come at any point of the open and the close. The child ends well and has no file of
// the pool open. The pool is free once it is closed.
TEST(fork_test, a_thread_forks_while_another_opens_and_closes_the_pool) {
#if TENUTO_ASAN
  GTEST_SKIP() << "a child may wait for a lock of the sanitizer's allocator";
#endif
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    const TempPath path("fork-beside");
    const int code = in_child([&] {
      std::atomic<bool> stop = false;
      std::thread opens([&] {
        while (!stop) {
          Report report;
          Result<Store> s = Store::open(path.str(), options(medium), &report);
          if (!s) std::fprintf(stderr, "%s\n", report.text().c_str());
          MUST(s && s->close() == Status::ok);
        }
      });
      std::vector<pid_t> children;
      for (int i = 0; i < 200; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(kAlarmSeconds);
          if (has_open(path.str())) std::_Exit(2);
          ::usleep(3000);
          std::_Exit(0);
        }
        children.push_back(child);
      }
      stop = true;
      opens.join();
      for (const pid_t child : children) MUST(end_of(child) == 0);
    });
    EXPECT_EQ(code, 0) << medium_name(medium);
  }
}

// A store through a pointer kills the child. It may read in place.
TEST(fork_test, a_child_cannot_store_into_the_pool_of_its_parent) {
  const TempPath path("fork-store");
  const int code = in_child([&] {
    auto* const h = new Handles;
    h->open(path.str(), Medium::cache);
    const pid_t child = ::fork();
    if (child == 0) {
      if (h->view->value() != "value" || *h->word != 7) std::_Exit(2);
      std::signal(SIGSEGV, SIG_DFL);  // removes the handler of the sanitizer
      *h->word = 8;
      std::_Exit(0);
    }
    MUST(end_of(child) == 1000 + SIGSEGV);
    MUST(*h->word == 7);
    h->close();
    delete h;
  });
  EXPECT_EQ(code, 0);
}

TEST(fork_test, the_c_calls_say_so_too) {
  const TempPath path("fork-c");
  const int code = in_child([&] {
    tenuto_store* store = nullptr;
    MUST(tenuto_store_open(path.str().c_str(), nullptr, &store, nullptr) == TENUTO_OK);
    tenuto_collection* const all = tenuto_default_collection(store);
    MUST(tenuto_put(all, "a", 1, "b", 1, TENUTO_SYNC) == TENUTO_OK);
    const pid_t child = ::fork();
    if (child == 0) {
      MUST(tenuto_put(all, "a", 1, "c", 1, TENUTO_SYNC) == TENUTO_FORKED);
      MUST(std::string(tenuto_status_name(TENUTO_FORKED)) == "forked");
      MUST(tenuto_store_close(store) == TENUTO_FORKED);
      std::_Exit(0);
    }
    MUST(end_of(child) == 0);
    MUST(tenuto_store_close(store) == TENUTO_OK);
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace tenuto::test

int main(int argc, char** argv) {
  using namespace tenuto::test;
  if (argc > 2 && std::string_view(argv[1]) == "--lost") {
    const auto medium = static_cast<tenuto::Medium>(std::atoi(argv[2]));
    return lost_after_a_child_closed(medium).empty() ? 0 : 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

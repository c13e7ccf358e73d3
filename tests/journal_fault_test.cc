// Medium journal on a disk that fails. Each call of a store's life fails, once or from then on, in
// each possible way. Once the disk works again, what was acknowledged as synced is there, and the
// rest is a prefix. After the failure no call returns ok.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <set>

#include "pm/plant.h"
#include "support/failing_calls.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"

namespace tenuto::test {
namespace {

constexpr int kCallsMax = 2000;
constexpr int kOps = 90;

bool is_large(int i) { return i % 6 == 5; }
std::string key_of(int i) { return "key" + std::to_string(i); }
// Random bytes, so that the ring fills. Large values make the pool grow.
std::string value_of(int i) {
  std::string v(is_large(i) ? 350'000 : 700, ' ');
  std::uint64_t x = static_cast<std::uint64_t>(i) + 1;
  for (std::size_t k = 0; k < v.size(); k += 8) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(&v[k], &x, std::min<std::size_t>(8, v.size() - k));
  }
  return v;
}

struct Life {
  JournalPaths paths{"journal-fault"};
  StoreOptions options = journalled(paths);
  std::string log;
  int attempted = 0;     // puts that were begun
  int acknowledged = 0;  // of them, up to the last one that returned as synced
  std::string step;      // the first that failed
  Status status = Status::ok;
  Report report;

  explicit Life(unsigned sync_every_ms) {
    options.pool.journal.sync_every_ms = sync_every_ms;
    options.pool.journal.bytes = 512u << 10;
    options.pool.size = kPoolBytesMin;
    options.pool.recovery_threads = 1;
    options.pool.log = [this](std::string_view text) { (log += text) += "\n"; };
  }

  bool went(const char* what, Status s) {
    if (s == Status::ok) return true;
    step = what;
    status = s;
    return false;
  }

  bool put(Store& s, int i) {
    attempted = i + 1;
    const bool sync = i % 3 == 2;
    const WriteOptions how{sync ? Durability::sync : Durability::buffered};
    if (!went("put", s.put(key_of(i), value_of(i), how))) {
      if (status != Status::full) expect_final(s);
      return false;
    }
    if (sync) acknowledged = i + 1;
    return true;
  }

  // All calls return Status::io, and the report tells what failed, where, and what to do.
  void expect_final(Store& s) {
    EXPECT_EQ(status, Status::io);
    EXPECT_EQ(s.put("other", "x", {Durability::buffered}), Status::io);
    EXPECT_EQ(s.put("other", "x"), Status::io);
    EXPECT_EQ(s.erase(key_of(0), {Durability::buffered}), Status::io);
    EXPECT_EQ(s.sync(), Status::io);
    Report why;
    EXPECT_EQ(s.pool().health(&why), Status::io);
    EXPECT_NE(why.text().find(paths.pool.str()), std::string::npos) << why.text();
    EXPECT_NE(why.text().find("open it again"), std::string::npos) << why.text();
    if (attempted > 3) {
      EXPECT_EQ(s.get(key_of(1)).value_or(""), value_of(1));
    }
  }

  void live() {
    for (const int begin : {0, kOps}) {
      Result<Store> s = Store::open(paths.pool.str(), options, &report);
      if (!s) return static_cast<void>(went("open", s.error()));
      for (int i = begin; i < begin + (begin == 0 ? kOps : 9); ++i) {
        if (!put(*s, i)) {
          if (status == Status::full) {  // the put changed nothing, and all else works
            EXPECT_EQ(s->sync(), Status::ok);
            acknowledged = i;
          }
          return;  // the destructor closes what can be closed
        }
      }
      const Status closed = s->close();
      if (closed == Status::ok) acknowledged = attempted;
      if (!went("close", closed)) return;
    }
  }

  // Judges the files once the disk works again.
  void judge() {
    if (::access(paths.pool.str().c_str(), F_OK) != 0) {
      EXPECT_EQ(attempted, 0);
      EXPECT_NE(::access(paths.journal.str().c_str(), F_OK), 0) << "a journal without a pool";
      return;
    }
    Result<Store> s = Store::open(paths.pool.str(), options, &report);
    ASSERT_TRUE(s) << report.text();
    EXPECT_EQ(s->validate(&report), Status::ok) << report.text();
    int n = 0;
    while (n < attempted && s->contains(key_of(n)) == Status::ok) ++n;
    EXPECT_GE(n, acknowledged) << "of " << attempted;
    for (int i = 0; i < attempted; ++i) {
      EXPECT_EQ(s->get(key_of(i)).value_or(""), i < n ? value_of(i) : "") << i << " of " << n;
    }
    EXPECT_EQ(s->put("after", "1"), Status::ok);
    EXPECT_EQ(s->close(), Status::ok);
  }
};

bool is_short(int error) { return error == kHalfWrite || error == kShortWrite; }
bool is_retried(const std::string& name, int error) {
  const std::set<std::string> retried = {"pwrite", "fdatasync", "fsync", "pread", "fallocate"};
  return is_short(error) || (error == EINTR && retried.contains(name));
}

// `step`: every step-th call fails. TENUTO_JOURNAL_FAULTS=all tries every call.
struct Fault {
  const char* name;
  int error;
  bool lasting;
  unsigned sync_every_ms;
  int step;
};

// Runs a life in which the n-th call fails. Returns the call's name, or an empty string if there
// were fewer calls.
std::string live_with(const Fault& f, int n) {
  Life life(f.sync_every_ms);
  fail_call_anywhere(n, f.error, f.lasting);
  life.live();
  std::string name;
  const bool any = failed_call_anywhere(&name);
  SCOPED_TRACE("call " + std::to_string(n) + ", " + name + ", step " + life.step + ", " +
               life.report.text() + ", log " + life.log);
  const bool strange = is_short(f.error) && name != "pwrite";  // an errno that no caller expects
  const bool retried = !strange && is_retried(name, f.error) && !(f.error == EINTR && f.lasting);
  if (!any || retried) {
    EXPECT_EQ(life.step, "");
  }
  if (life.step == "open") {
    EXPECT_NE(life.report.text().find(life.paths.pool.str().substr(0, 9)), std::string::npos);
  }
  life.judge();
  return any ? name : std::string();
}

class JournalFault : public testing::TestWithParam<Fault> {};

TEST_P(JournalFault, loses_nothing_that_was_synced) {
  const Fault f = GetParam();
  const bool all = std::getenv("TENUTO_JOURNAL_FAULTS") != nullptr;
  std::set<std::string> names;
  int n = 1;
  for (; n < kCallsMax && !HasFailure(); n += all ? 1 : f.step) {
    const std::string name = live_with(f, n);
    if (name.empty()) break;
    names.insert(name);
  }
  EXPECT_LT(n, kCallsMax);
  std::printf("%s: %d calls\n", f.name, n - 1);
  EXPECT_TRUE(names.contains("pwrite"));
  EXPECT_TRUE(f.step > 5 || names.contains("fdatasync"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, JournalFault,
                         testing::Values(Fault{"io_once", EIO, false, 0, 4},
                                         Fault{"io_for_good", EIO, true, 0, 7},
                                         Fault{"io_with_a_timer", EIO, false, 1, 16},
                                         Fault{"no_space_once", ENOSPC, false, 0, 9},
                                         Fault{"no_space_for_good", ENOSPC, true, 0, 9},
                                         Fault{"half_once", kHalfWrite, false, 0, 13},
                                         Fault{"short_always", kShortWrite, true, 0, 40},
                                         Fault{"interrupted_once", EINTR, false, 0, 13},
                                         Fault{"interrupted_for_ever", EINTR, true, 0, 40}),
                         [](const auto& fault) { return std::string(fault.param.name); });

// A pool that a kill left, and up to three opens of it with failing calls: an open does not undo
// what an earlier one did.
class KilledLife {
 public:
  KilledLife() {
    run_and_kill([&] {
      Store& s = *new Store(*Store::open(life_.paths.pool.str(), life_.options));
      for (int i = 0; i < 30; ++i) {
        if (!life_.put(s, i)) return false;
      }
      return s.sync() == Status::ok;
    });
    life_.attempted = life_.acknowledged = 30;
    pool_ = read_image(life_.paths.pool.str());
    journal_ = read_image(life_.paths.journal.str());
  }

  // Returns the call's name, or an empty string if there were fewer calls.
  std::string open_with(const Fault& f, int n) {
    write_image(life_.paths.pool.str(), pool_);
    write_image(life_.paths.journal.str(), journal_);
    std::string name;
    bool any = false;
    for (int again = 0; again < 3; ++again) {
      // In later opens the second pwrite fails, which is that of the superblock.
      if (again == 0) fail_call_anywhere(n, f.error, f.lasting);
      if (again != 0) fail_call_anywhere(2, f.error, f.lasting, "pwrite");
      const auto s = Store::open(life_.paths.pool.str(), life_.options, &life_.report);
      any |= failed_call_anywhere(again == 0 ? &name : nullptr);
      if (s) break;  // the store turned read-only, or did not need the call
      EXPECT_NE(life_.report.text(), "");
    }
    SCOPED_TRACE("call " + std::to_string(n) + ", " + name + ", " + life_.report.text());
    life_.judge();
    return any ? name : std::string();
  }

 private:
  Life life_{0};
  Bytes pool_;
  Bytes journal_;
};

class JournalReplayFault : public testing::TestWithParam<Fault> {};

TEST_P(JournalReplayFault, is_made_good_by_the_next_open) {
  const Fault f = GetParam();
  KilledLife killed;
  std::set<std::string> names;
  int n = 1;
  for (; n < kCallsMax && !HasFailure(); n += f.step) {
    const std::string name = killed.open_with(f, n);
    if (name.empty()) break;
    names.insert(name);
  }
  EXPECT_LT(n, kCallsMax);
  std::printf("%s: %d calls\n", f.name, n - 1);
  for (const char* call : {"pwrite", "fdatasync", "pread", "open"}) {
    EXPECT_TRUE(f.step != 1 || names.contains(call)) << call;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, JournalReplayFault,
                         testing::Values(Fault{"io_once", EIO, false, 0, 1},
                                         Fault{"io_for_good", EIO, true, 0, 3},
                                         Fault{"no_space", ENOSPC, true, 0, 3}),
                         [](const auto& fault) { return std::string(fault.param.name); });

// The value is larger than an epoch, so the put itself commits.
void expect_dropped_images_told() {
  Life life(0);
  Result<Store> s = Store::open(life.paths.pool.str(), life.options);
  ASSERT_TRUE(s);
  ASSERT_EQ(s->put("a", "1"), Status::ok);
  fail_call_anywhere(1, EIO, false);
  life.status = s->put("b", value_of(5), {Durability::buffered});
  EXPECT_TRUE(failed_call_anywhere(nullptr));
  life.expect_final(*s);
}

TEST(JournalFaults, a_buffered_write_whose_images_were_dropped_says_so) {
  expect_dropped_images_told();
}

// The failure must be final, because the next checkpoint would not hear of it again.
void expect_failed_growth_is_final() {
  Life life(0);
  Result<Store> s = Store::open(life.paths.pool.str(), life.options);
  ASSERT_TRUE(s);
  fail_call_anywhere(1, EIO, false, "fsync");
  for (int i = 0; i < 30 && life.status == Status::ok; ++i) {
    life.status = s->put(key_of(i), value_of(5), {Durability::buffered});
  }
  EXPECT_TRUE(failed_call_anywhere(nullptr));
  life.expect_final(*s);
}

TEST(JournalFaults, a_longer_file_that_cannot_be_synced_is_final) {
  expect_failed_growth_is_final();
}

// An open under another medium punched holes. They are filled before any write is acknowledged that
// a checkpoint has to put there.
void expect_holes_filled() {
  Life life(0);
  StoreOptions o = life.options;
  o.pool.size = o.pool.size_max = 16u << 20;
  o.pool.heap.decay_ms = 0;
  o.pool.medium = Medium::cache;
  {
    Result<Store> s = Store::open(life.paths.pool.str(), o);
    ASSERT_TRUE(s);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(s->put(key_of(i), value_of(5)), Status::ok);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(s->erase(key_of(i)), Status::ok);
    ASSERT_EQ(s->pool().trim(), Status::ok);
    ASSERT_LT(s->stats().pool.disk_bytes, 12u << 20);
    ASSERT_EQ(s->close(), Status::ok);
  }
  o.pool.medium = Medium::journal;
  Result<Store> s = Store::open(life.paths.pool.str(), o);
  ASSERT_TRUE(s);
  fail_call_anywhere(1, ENOSPC, true, "fallocate");
  for (int i = 0; i < 30 && life.status == Status::ok; ++i) {
    life.status = s->put(key_of(i), value_of(5));
  }
  EXPECT_TRUE(failed_call_anywhere(nullptr));
  EXPECT_EQ(life.status, Status::full);
  EXPECT_EQ(s->put("small", "1"), Status::ok);
  EXPECT_EQ(s->close(), Status::ok);
}

TEST(JournalFaults, no_space_for_a_hole_is_met_before_acknowledging) { expect_holes_filled(); }

// Growth that runs out of space gives back the space that the file system had already found.
void expect_no_space_kept() {
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    Life life(0);
    StoreOptions o = life.options;
    o.pool.medium = medium;
    Result<Store> s = Store::open(life.paths.pool.str(), o);
    ASSERT_TRUE(s);
    const auto file = [&] {
      struct stat st {};
      EXPECT_EQ(::stat(life.paths.pool.str().c_str(), &st), 0);
      return std::pair(st.st_size, st.st_blocks);
    };
    const auto before = file();
    fail_call_anywhere(1, kHalfSpace, true, "fallocate");
    for (int i = 0; i < 60 && life.status == Status::ok; ++i) {
      life.status = s->put(key_of(i), value_of(5));
    }
    EXPECT_TRUE(failed_call_anywhere(nullptr));
    EXPECT_EQ(life.status, Status::full);
    EXPECT_EQ(file().first, before.first);
    EXPECT_LE(file().second, before.second + 8);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(s->put(key_of(100 + i), value_of(5)), Status::ok);
    EXPECT_EQ(s->close(), Status::ok);
  }
}

TEST(JournalFaults, growth_that_fails_keeps_no_space) { expect_no_space_kept(); }

TEST(JournalFaults, a_pool_without_room_for_its_journal_is_not_made) {
  // About fifty calls, and more of the journal's thread when the machine is slow.
  for (int n = 1; n < 500; ++n) {
    Life life(0);
    fail_call_anywhere(n, ENOSPC, true);
    const bool made = static_cast<bool>(Store::open(life.paths.pool.str(), life.options));
    if (!failed_call_anywhere(nullptr)) {
      EXPECT_TRUE(made);
      return;
    }
    if (made || ::access(life.paths.pool.str().c_str(), F_OK) == 0) continue;
    EXPECT_NE(::access(life.paths.journal.str().c_str(), F_OK), 0) << n;
  }
  FAIL() << "it never went through";
}

#ifdef TENUTO_DEBUG_CHECKS

// Each mistake in handling a failure must show.
class JournalFaultPlanted : public testing::TestWithParam<const char*> {};

TEST_P(JournalFaultPlanted, is_found) {
  testing::TestPartResultArray found;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &found);
    const Fault once{"", EIO, false, 0, 1};
    unplant_all();
    KilledLife killed;
    plant(GetParam());
    expect_dropped_images_told();
    expect_failed_growth_is_final();
    expect_holes_filled();
    expect_no_space_kept();
    for (int n = 1; n < 100 && found.size() == 0; ++n) killed.open_with(once, n);
    for (int n = 1; n < kCallsMax && found.size() == 0; n += 3) {
      if (live_with(once, n).empty()) break;
    }
    unplant_all();
  }
  ASSERT_GT(found.size(), 0) << GetParam();
  std::printf("%s: %s\n", GetParam(), found.GetTestPartResult(0).message());
}

INSTANTIATE_TEST_SUITE_P(Plants, JournalFaultPlanted,
                         testing::Values("journal_failed_write_forgotten",
                                         "journal_failed_checkpoint_forgotten",
                                         "journal_failed_sync_of_the_pool_forgotten",
                                         "journal_stores_into_holes", "pm_grow_keeps_failed_space",
                                         "journal_buffered_write_of_a_failed_one_said_ok",
                                         "journal_begun_before_its_pool_names_it",
                                         "journal_unreadable_taken_for_its_end"),
                         [](const auto& plant) { return std::string(plant.param); });

#endif

// In the child the checkpoint waits for ever, in its first sync of the pool file.
TEST(JournalFault, buffered_writes_are_committed_while_a_checkpoint_waits_for_the_device) {
  Life life(20);
  const std::string pool = life.paths.pool.str();
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = Store::open(pool, life.options);
    if (!store) ::_exit(1);
    const auto stats = [&] { return store->stats().pool; };
    fail_call_anywhere(1, kStuckCall, true, "fdatasync");
    for (int i = 0; stats().journal_used_bytes <= stats().journal_bytes / 2; ++i) {
      if (store->put(key_of(i), value_of(1), {Durability::buffered}) != Status::ok) ::_exit(2);
      ::usleep(500);
    }
    const std::uint64_t before = stats().journal_commits;
    if (store->put("last", "value", {Durability::buffered}) != Status::ok) ::_exit(3);
    for (int i = 0; i < 2000 && stats().journal_commits == before; ++i) ::usleep(10'000);
    ::_exit(stats().journal_commits == before || stats().journal_checkpoints != 0 ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  auto store = Store::open(pool, life.options, &life.report);
  ASSERT_TRUE(store) << life.report.text();
  EXPECT_EQ(store->contains("last"), Status::ok);
}

}  // namespace
}  // namespace tenuto::test

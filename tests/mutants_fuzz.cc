// Thousands of damaged pool files. Bits are flipped; bytes, words, lines and pages are overwritten;
// pages are swapped, copied, torn between two states of the pool, or older than the rest; leaves
// and superblock copies are exchanged; the file is cut short. Each pool is opened, read, scanned,
// validated, written to and closed, in the default collection and in named ones of several
// encodings. It must end in an error or in a working store, never in a crash, a hang, or a value
// that was never written. After a flip in a cleanly closed store, a store that validates must still
// hold every record.
//
// TENUTO_MUTANTS sets how many, TENUTO_SEED the seed. TENUTO_MUTANT=N runs one in this process, for
// a debugger.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "support/kill_records.h"
#include "support/named_records.h"
#include "support/pool_image.h"
#include "support/pool_parts.h"
#include "support/seed.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/rescue.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::kill_key;
using test::kill_value;
using test::NamedRecords;
using test::TempPath;

using Bytes = std::vector<unsigned char>;
using Records = std::map<std::string, std::string>;

constexpr std::size_t kSectorBytes = 512;  // as large as a leaf
constexpr std::size_t kLeafPhase = 448;    // offset of the first leaf in its slab, modulo 512
constexpr std::uint64_t kMutants = test::fewer_if_sanitized(2'500, 4);
constexpr std::uint64_t kMutantsPerCollision = 10'000;
constexpr std::uint64_t kRescueEvery = 8;      // one mutant in so many is also rescued
constexpr unsigned kAlarmSeconds = 60;         // for one mutant, with sanitizers
constexpr const char* kReplacement = "short";  // the new value of some records in the unclean pool
constexpr int kRecords = 400;
constexpr int kNamedRecords = 120;  // in each named collection
constexpr int kOlderAt = 300;       // number of records in the older copy
constexpr int kNamedOlderAt = 90;

// A pool after a clean close, and the same pool after a kill in the middle of a batch and a
// transaction.
struct Originals {
  Bytes clean;
  Bytes unclean;
  Bytes older;      // the same pool some writes earlier
  Records records;  // of the clean pool
  std::vector<NamedRecords> named = test::named_records();
  std::vector<std::size_t> used;  // lines that are not all zero in either pool
};

struct Words {
  Ptr<char> word[8];
  std::uint64_t number[8];
};

void fill(Store& store, Originals& o) {
  Records& records = o.records;
  ASSERT_EQ(test::write_named(&store, o.named, 0, kNamedOlderAt), Status::ok);
  for (int i = 0; i < kRecords; ++i) {
    if (i == kOlderAt) o.older = test::read_image(store.pool().info().path);
    const std::string key = kill_key(1, i);
    const std::string value = kill_value(1, i, static_cast<std::uint32_t>(i + 1));
    ASSERT_EQ(store.put(key, value), Status::ok);
    records[key] = value;
    if (i % 7 == 3) {
      ASSERT_EQ(store.erase(key), Status::ok);
      records.erase(key);
    }
  }
  ASSERT_EQ(test::write_named(&store, o.named, kNamedOlderAt, kNamedRecords), Status::ok);
  auto root = store.pool().root<Words>("words");
  ASSERT_TRUE(root);
  ASSERT_EQ(store.pool().malloc_to(100, (*root)->word[0]), Status::ok);
  ASSERT_EQ(store.pool().malloc_to(30000, (*root)->word[1]), Status::ok);
  ASSERT_EQ(store.pool().malloc_to(100, (*root)->word[2]), Status::ok);
}

void make_originals(Originals& o) {
  TempPath path("mutants-base");
  {
    auto store = Store::open(path.str(), test::damaged_pool_options(test::kWrittenMs));
    ASSERT_TRUE(store);
    fill(*store, o);
    ASSERT_EQ(store->close(), Status::ok);
  }
  o.clean = test::read_image(path.str());
  // The unclean pool: a child stops in the middle of a transaction, with frees in limbo.
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto store = Store::open(path.str(), test::damaged_pool_options(test::kWrittenMs));
    if (!store) std::_Exit(1);
    auto root = store->pool().root<Words>("words");
    (void)store->pool().free_from((*root)->word[2]);
    for (int i = 0; i < 200; ++i) (void)store->put(kill_key(1, i), kReplacement);
    test::disturb_named(&*store, o.named, kNamedRecords);
    Transaction tx(store->pool());
    (void)tx.add((*root)->number);
    for (auto& n : (*root)->number) n = 7;
    (void)tx.alloc(64);
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_EQ(status, 0);
  test::disturb_named(nullptr, o.named, kNamedRecords);
  o.unclean = test::read_image(path.str());
  for (std::size_t at = 0; at + kLineBytes <= o.clean.size(); at += kLineBytes) {
    const auto zero = [&](const Bytes& b) {
      return std::all_of(b.begin() + static_cast<std::ptrdiff_t>(at),
                         b.begin() + static_cast<std::ptrdiff_t>(at + kLineBytes),
                         [](unsigned char c) { return c == 0; });
    };
    if (!zero(o.clean) || !zero(o.unclean)) o.used.push_back(at);
  }
}

struct Mutation {
  bool clean = false;
  bool flip = false;  // only bits were flipped
  std::string what;
};

// Changes the image as mutant number `n` of this seed.
Mutation mutate(Bytes& image, const Originals& o, std::uint64_t seed, std::uint64_t n) {
  std::mt19937_64 rng(seed * 0x9e3779b97f4a7c15ull + n);
  Mutation m;
  m.clean = rng() % 2 == 0;
  image = m.clean ? o.clean : o.unclean;
  // Half of the lines are near the head, where most structures are.
  const auto line = [&] {
    const std::size_t few = std::min<std::size_t>(o.used.size(), 40);
    return o.used[rng() % 2 == 0 ? rng() % few : rng() % o.used.size()];
  };
  const std::size_t at = line();
  const auto page = [](std::size_t a) { return a / kFrameBytes * kFrameBytes; };
  unsigned char* p = image.data();
  const auto kind = rng() % 16;
  m.what = "kind " + std::to_string(kind) + " at " + std::to_string(at) +
           (m.clean ? " of the clean pool" : " of the unclean pool");
  switch (kind) {
    case 0:
    case 1:
    case 2:
    case 3: {
      m.flip = true;
      for (std::uint64_t k = 1 + rng() % 3; k > 0; --k) {
        p[line() + rng() % kLineBytes] ^= static_cast<unsigned char>(1u << rng() % 8);
      }
      break;
    }
    case 4:
      p[at + rng() % kLineBytes] = static_cast<unsigned char>(rng());
      break;
    case 5: {
      const std::uint64_t words[] = {
          0, ~0ull, 1, 1ull << 63, rng(), test::kDamagedPoolBytes, test::kDamagedPoolBytes - 64};
      const std::uint64_t w = words[rng() % std::size(words)];
      std::memcpy(p + at + rng() % 8 * 8, &w, 8);
      break;
    }
    case 6:
      std::memset(p + at, rng() % 2 == 0 ? 0 : 0xff, kLineBytes);
      break;
    case 7:
      std::generate_n(p + at, kLineBytes, [&] { return static_cast<unsigned char>(rng()); });
      break;
    case 8:
      std::memset(p + page(at), rng() % 2 == 0 ? 0 : 0xff, kFrameBytes);
      break;
    case 9:
      std::memcpy(p + page(at), p + page(line()), kFrameBytes);
      break;
    case 10:
      std::swap_ranges(p, p + kFrameBytes, p + kFrameBytes);
      break;
    case 11:  // an older copy of one page
      std::memcpy(p + page(at), o.older.data() + page(at), kFrameBytes);
      break;
    case 12:  // a page with some sectors that were not written
      for (std::size_t sector = page(at); sector < page(at) + kFrameBytes; sector += kSectorBytes) {
        if (rng() % 2 == 0) std::memcpy(p + sector, o.older.data() + sector, kSectorBytes);
      }
      break;
    case 13: {
      const std::size_t other = page(line());
      if (other != page(at)) std::swap_ranges(p + page(at), p + page(at) + kFrameBytes, p + other);
      break;
    }
    case 14: {  // two leaves, or other blocks of that size
      const auto block = [&] { return line() / kSectorBytes * kSectorBytes + kLeafPhase; };
      const std::size_t a = block();
      const std::size_t b = block();
      if (std::max(a, b) + kSectorBytes <= image.size() && a != b) {
        std::swap_ranges(p + a, p + a + kSectorBytes, p + b);
      }
      break;
    }
    default:
      image.resize(rng() % 2 == 0 ? rng() % image.size() : page(rng() % image.size()));
  }
  return m;
}

void write_file(const std::string& path, const Bytes& b) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ::pwrite(fd, b.data(), b.size(), 0) != static_cast<ssize_t>(b.size())) {
    std::abort();
  }
  ::close(fd);
}

// The number of records in all collections, also in lost+found.
std::uint64_t all_records(Store& store) {
  std::uint64_t n = store.stats().records;
  const auto named = store.collections();
  for (const CollectionInfo& c : named ? *named : std::vector<CollectionInfo>()) {
    const auto collection = store.collection(c.name);
    if (collection) n += collection->stats().records;
  }
  return n;
}

// Rescues the image. The rescue must leave the file as it is and make a sound pool. Returns what is
// wrong.
std::string rescue_it(const std::string& path, const Bytes& image, bool scavenge) {
  const std::string fresh = path + "-rescued";
  ::unlink(fresh.c_str());
  RescueOptions o;
  o.pool = test::damaged_pool_options().pool;
  o.scavenge = scavenge;
  RescueResult result;
  Report report;
  const Status s = rescue(path, fresh, o, result, &report);
  if (test::read_image(path) != image) return "the rescue changed the damaged file";
  if (s != Status::ok && report.what.empty()) return "a rescue that failed without a report";
  std::string wrong;
  auto made = Store::open(fresh, test::damaged_pool_options(), &report);
  if (made && made->validate(&report) != Status::ok) wrong = "the rescued pool is not sound";
  if (made && all_records(*made) != result.records) wrong = "miscounted";
  ::unlink(fresh.c_str());
  return wrong;
}

// Writes to the named collections, alone and together with the default one. Makes one collection
// and drops another.
void use_named(Store& store, const Originals& o) {
  std::vector<NamedRecords> named = o.named;
  test::disturb_named(&store, named, kNamedRecords / 2);
  (void)store.run([&](StoreTransaction& tx) {
    std::string value;
    for (const NamedRecords& c : named) {
      CollectionOptions options;
      options.create_if_missing = false;
      const auto collection = store.collection(c.name, options);
      if (!collection) continue;
      const std::string& key = c.now.begin()->first;
      const Status s = tx.get({*collection, key}, value);
      if (s != Status::ok && s != Status::not_found) return s;
      TENUTO_TRY(tx.put({*collection, key}, "transaction"));
      TENUTO_TRY(tx.put(kill_key(2, 1), value));
    }
    const auto made = tx.create("made", {});
    return made ? tx.put({*made, "key"}, "value") : made.error();
  });
  (void)store.reclaim();
  CompactOptions compact;
  compact.moves_max = 100;
  (void)store.compact(compact);
  (void)store.drop(named[1].name);
}

// Uses the pool as a program would. Returns what is wrong, or an empty string.
std::string use(const std::string& path, const Originals& o, const Mutation& m) {
  Report report;
  auto store = Store::open(path, test::damaged_pool_options(), &report);
  if (!store) {
    if (report.what.empty()) return "an error without a report: " + m.what;
    return "";
  }
  const bool exact = store->validate(&report) == Status::ok && m.clean && m.flip;
  std::string value;
  for (const auto& [key, expected] : o.records) {
    const Status s = store->get(key, value);
    const bool same = s == Status::ok && value == expected;
    if (s == Status::ok && !same && value != kReplacement) return test::kWrongValue + key;
    if (exact && !same) return "validate() says ok, but lost " + key;
  }
  test::ReadNamed how;
  how.exact = exact;
  if (std::string wrong = test::read_named(*store, o.named, how); !wrong.empty()) return wrong;
  std::size_t seen = 0;
  Iterator it = store->iterator();
  for (it.seek_first(); it.valid() && seen < 5000; it.next()) seen += it.value().size() > 3 ? 1 : 0;
  for (it.seek_last(); it.valid() && seen < 10000; it.prev()) seen += it.key().empty() ? 0 : 1;
  it = store->iterator();
  auto root = store->pool().root<Words>("words");
  for (int i = 0; i < 60; ++i) (void)store->put(kill_key(2, i), kill_value(2, i, 3));
  for (int i = 0; i < 400; i += 3) (void)store->erase(kill_key(1, i));
  WriteBatch batch;
  for (int i = 100; i < 130; ++i) batch.put(kill_key(2, i), "batch");
  (void)store->write(batch);
  use_named(*store, o);
  if (root) {
    for (auto& w : (*root)->word) (void)store->pool().free_from(w.word());
    (void)store->pool().malloc_to(5000, (*root)->word[5]);
    (void)store->pool().run([&](Transaction& tx) {
      TENUTO_TRY(tx.add((*root)->number));
      (*root)->number[0] += 1;
      return Status::ok;
    });
  }
  (void)store->close();
  auto again = Store::open(path, test::damaged_pool_options(), &report);
  if (again) (void)again->validate(&report);
  return "";
}

struct Shared {
  std::uint64_t mutant;
  std::uint64_t collisions;
  char wrong[1000];
};

TEST(MutantsFuzz, a_damaged_file_is_an_error_or_a_working_store) {
  const std::uint64_t count = test::from_env("TENUTO_MUTANTS", kMutants);
  const std::uint64_t seed = test::from_env("TENUTO_SEED", 1);
  Originals originals;
  make_originals(originals);
  ASSERT_FALSE(HasFatalFailure());
  TempPath path("mutant");
  Bytes image;
  if (const std::uint64_t one = test::from_env("TENUTO_MUTANT", ~0ull); one != ~0ull) {
    const Mutation m = mutate(image, originals, seed, one);
    write_file(path.str(), image);
    std::printf("mutant %lu: %s\n", one, m.what.c_str());
    ASSERT_EQ(rescue_it(path.str(), image, one % 3 == 0), "");
    ASSERT_EQ(use(path.str(), originals, m), "");
    return;
  }
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  // Mutants run in children, so that a crash names its mutant.
  std::uint64_t failures = 0;
  for (std::uint64_t next = 0; next < count && failures < 10;) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (; next < count; ++next) {
        shared->mutant = next;
        const Mutation m = mutate(image, originals, seed, next);
        write_file(path.str(), image);
        ::alarm(kAlarmSeconds);
        std::string wrong;
        if (next % kRescueEvery == 0) wrong = rescue_it(path.str(), image, next % 3 == 0);
        if (wrong.empty()) wrong = use(path.str(), originals, m);
        if (!m.flip && wrong.starts_with(test::kWrongValue)) {
          std::printf("mutant %lu: %s (%s)\n", next, wrong.c_str(), m.what.c_str());
          shared->collisions += 1;
          continue;
        }
        if (wrong.empty()) continue;
        std::snprintf(shared->wrong, sizeof shared->wrong, "%s", wrong.c_str());
        std::_Exit(1);
      }
      std::_Exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (status == 0) break;
    failures += 1;
    const Mutation m = mutate(image, originals, seed, shared->mutant);
    ADD_FAILURE() << "TENUTO_SEED=" << seed << " TENUTO_MUTANT=" << shared->mutant << ": "
                  << (WIFSIGNALED(status)
                          ? std::string("signal ") + ::strsignal(WTERMSIG(status))
                          : (shared->wrong[0] != '\0' ? shared->wrong : "ended by itself"))
                  << " (" << m.what << ")";
    shared->wrong[0] = '\0';
    next = shared->mutant + 1;
  }
  // One torn record in 65536 has the right checksum by chance.
  EXPECT_LE(shared->collisions, 1 + count / kMutantsPerCollision);
}

}  // namespace
}  // namespace tenuto
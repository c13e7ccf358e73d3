// Pool files that cannot be made, opened or extended, and damaged pool files: the result is always
// an error that tells what and where.
#include "file/pool_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pm/crc32c.h"
#include "support/pool_parts.h"
#include "support/seed.h"

namespace tenuto {
namespace {

using test::kSanitized;
using test::PoolParts;
using test::TempPath;

constexpr std::uint64_t kMiB = 1u << 20;

PoolOptions small(std::uint64_t size = kPoolBytesMin, std::uint64_t size_max = 256 * kMiB) {
  PoolOptions o = PoolParts::small_options();
  o.size = size;
  o.size_max = size_max;
  return o;
}

Status create(const std::string& path, const PoolOptions& o, Report* report = nullptr) {
  PoolParts p;
  const Status s = p.create(path, o);
  if (report != nullptr) *report = p.report;
  return s;
}

// Runs in a child, so that its limits and its user id do not last. Its exit code is the result.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// --- making and extending ------------------------------------------------------------------------

TEST(PoolFile, impossible_options_are_refused_before_anything_is_made) {
  TempPath path("pf1");
  const auto refused = [&](PoolOptions o) {
    Report r;
    const Status s = create(path.str(), o, &r);
    EXPECT_FALSE(r.what.empty());
    EXPECT_NE(::access(path.str().c_str(), F_OK), 0);
    return s == Status::invalid_argument;
  };
  EXPECT_TRUE(refused(small(kPoolBytesMin - 1)));
  EXPECT_TRUE(refused(small(16 * kMiB, 15 * kMiB)));
  EXPECT_TRUE(refused(small(16 * kMiB, 1ull << 50)));
  EXPECT_TRUE(refused(small(~0ull, 0)));
  PoolOptions o = small();
  o.stripes = 0;
  EXPECT_TRUE(refused(o));
  o.stripes = 33;
  EXPECT_TRUE(refused(o));
  EXPECT_EQ(create("", small()), Status::invalid_argument);
}

TEST(PoolFile, places_where_no_file_can_be_say_so) {
  TempPath path("pf2");
  Report r;
  EXPECT_EQ(create(path.str() + "/no/pool", small(), &r), Status::not_found) << r.text();
  EXPECT_NE(r.text().find("pf2"), std::string::npos) << "names the file: " << r.text();
  PoolParts p;
  EXPECT_EQ(p.open(path.str()), Status::not_found);
  EXPECT_EQ(p.open("/dev/shm"), Status::not_a_pool) << "a directory";
  EXPECT_EQ(p.open("/dev/null"), Status::not_a_pool) << "a device";
  EXPECT_EQ(create(path.str() + std::string(5000, 'x'), small()), Status::invalid_argument);
  ASSERT_EQ(create(path.str(), small()), Status::ok);
  EXPECT_EQ(create(path.str(), small()), Status::exists);
}

TEST(PoolFile, a_name_taken_meanwhile_is_not_overwritten) {
  TempPath path("pf3");
  auto made = pm::PoolFile::create(path.str(), small(), nullptr);
  ASSERT_TRUE(made);
  EXPECT_NE(::access(path.str().c_str(), F_OK), 0) << "has a name before it is a pool";
  const int fd = ::open(path.str().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_EQ(::write(fd, "mine", 4), 4);
  ::close(fd);
  Report r;
  EXPECT_EQ((*made)->link_into_place(&r), Status::exists) << r.text();
  (*made).reset();
  struct stat st {};
  ASSERT_EQ(::stat(path.str().c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 4);
}

TEST(PoolFile, permission_is_refused_to_others) {
  if (::getuid() != 0) GTEST_SKIP() << "needs another user to be";
  TempPath path("pf4");
  const std::string directory = path.str() + "-d";
  ASSERT_EQ(::mkdir(directory.c_str(), 0755), 0);
  ASSERT_EQ(create(path.str(), small()), Status::ok);
  ASSERT_EQ(::chmod(path.str().c_str(), 0644), 0);
  EXPECT_EQ(in_child([&] {
              if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 50;
              if (create(directory + "/pool", small()) != Status::permission) return 1;
              PoolParts p;
              if (p.open(path.str()) != Status::permission) return 2;
              PoolOptions o = small();
              o.read_only = true;
              return p.open(path.str(), o) == Status::read_only ? 0 : 3;  // not closed cleanly
            }),
            0);
  ASSERT_EQ(::chmod(path.str().c_str(), 0600), 0);
  EXPECT_EQ(in_child([&] {
              if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 50;
              PoolOptions o = small();
              o.read_only = true;
              PoolParts p;
              return p.open(path.str(), o) == Status::permission ? 0 : 1;
            }),
            0);
  ::rmdir(directory.c_str());
}

// The limit stops a file's growth, as a full file system does.
TEST(PoolFile, a_file_size_limit_is_a_full_pool) {
  // By default the signal for it would end the process.
  for (const auto handler : {SIG_DFL, SIG_IGN}) {
    TempPath path("pf5");
    EXPECT_EQ(in_child([&] {
                ::signal(SIGXFSZ, handler);
                const rlimit limit{12 * kMiB, 12 * kMiB};
                if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 50;
                if (create(path.str(), small(16 * kMiB)) != Status::full) return 1;
                PoolParts p;
                if (p.create(path.str(), small()) != Status::ok) return 2;
                int n = 0;
                while (n < 7 && p.heap->malloc_to(kMiB, p.root(n)) == Status::ok) ++n;
                if (n == 7 || p.heap->malloc_to(kMiB, p.root(n)) != Status::full) return 3;
                if (p.heap->malloc_to(64, p.root(n)) != Status::ok) return 4;
                if (p.file->poisoned() != Status::ok) return 5;
                if (p.close() != Status::ok || p.open(path.str()) != Status::ok) return 6;
                return p.heap->validate(nullptr) == Status::ok ? 0 : 7;
              }),
              0);
  }
}

TEST(PoolFile, a_full_file_system_is_a_full_pool) {
  TempPath path("pf6");
  const std::string directory = path.str() + "-m";
  ASSERT_EQ(::mkdir(directory.c_str(), 0755), 0);
  if (::mount("tenuto", directory.c_str(), "tmpfs", 0, "size=20m") != 0) {
    ::rmdir(directory.c_str());
    GTEST_SKIP() << "may not mount";
  }
  {
    Report r;
    EXPECT_EQ(create(directory + "/large", small(32 * kMiB), &r), Status::full);
    EXPECT_NE(r.text().find("No space"), std::string::npos) << r.text();
    EXPECT_NE(::access((directory + "/large").c_str(), F_OK), 0);
    PoolParts p;
    ASSERT_EQ(p.create(directory + "/pool", small()), Status::ok) << p.report.text();
    std::vector<PtrWord*> made;
    // The pool would grow by 32 MiB, but gets only what it needs, which is all that is left.
    EXPECT_EQ(p.heap->malloc_to(7 * kMiB, p.root(0)), Status::ok);
    EXPECT_EQ(p.file->zone_count(), 2u);
    EXPECT_EQ(p.heap->malloc_to(7 * kMiB, p.root(1)), Status::full);
    EXPECT_EQ(p.heap->malloc_to(64, p.root(1)), Status::ok);
    EXPECT_EQ(p.heap->free_from(p.root(0)), Status::ok);
    EXPECT_EQ(p.heap->malloc_to(7 * kMiB, p.root(2)), Status::ok);
    p.crash();
    EXPECT_EQ(p.open(directory + "/pool"), Status::ok) << p.report.text();
    EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  }
  EXPECT_EQ(::umount(directory.c_str()), 0);
  ::rmdir(directory.c_str());
}

TEST(PoolFile, growth_goes_up_to_size_max_and_no_further) {
  TempPath path("pf7");
  const PoolOptions o = small(kPoolBytesMin, 21 * kMiB);  // rounded up to whole huge frames
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  EXPECT_EQ(p.heap->malloc_to(8 * kMiB, p.root(0)), Status::ok);
  EXPECT_GE(p.file->bytes(), 16 * kMiB);
  EXPECT_LE(p.file->bytes(), 22 * kMiB);
  EXPECT_EQ(p.heap->malloc_to(8 * kMiB, p.root(1)), Status::full);
  p.crash();
  // A size_max below the file's size only stops growth.
  ASSERT_EQ(p.open(path.str(), small(kPoolBytesMin, kPoolBytesMin)), Status::ok);
  EXPECT_EQ(p.heap->malloc_to(8 * kMiB, p.root(1)), Status::full);
  p.crash();
  ASSERT_EQ(p.open(path.str(), small(kPoolBytesMin, 64 * kMiB)), Status::ok);
  EXPECT_EQ(p.heap->malloc_to(8 * kMiB, p.root(1)), Status::ok);
}

TEST(PoolFile, the_limit_of_growth_that_nobody_chose_fits_the_process) {
  TempPath path("pf7a");
  const PoolOptions o = small(kPoolBytesMin, 0);
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  EXPECT_LE(p.file->bytes_max(), kAutomaticSizeMax);
  if (kSanitized) return;
  EXPECT_EQ(p.file->bytes_max(), kAutomaticSizeMax);
  p.crash();
  const auto opened_with = [&](std::uint64_t addresses, const PoolOptions& options) {
    return in_child([&] {
      const rlimit limit{addresses, RLIM_INFINITY};
      if (::setrlimit(RLIMIT_AS, &limit) != 0) return 10;
      PoolParts opened;
      if (opened.open(path.str(), options) != Status::ok) return 11;
      return opened.file->bytes_max() >= addresses / 8 && opened.file->bytes_max() < addresses ? 0
                                                                                               : 12;
    });
  };
  EXPECT_EQ(opened_with(8ull << 30, o), 0);
  EXPECT_EQ(opened_with(1ull << 40, o), 0);
  EXPECT_EQ(opened_with(8ull << 30, small(kPoolBytesMin, 8ull << 30)), 11);
}

// A crash between the file's growth and the new zone count leaves a longer file with any contents.
TEST(PoolFile, what_lies_behind_the_last_zone_is_nothing) {
  TempPath path("pf8");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), small()), Status::ok);
  p.crash();
  {
    const int fd = ::open(path.str().c_str(), O_WRONLY | O_CLOEXEC);
    const std::string junk(40 * kMiB, '\xff');
    ASSERT_EQ(::pwrite(fd, junk.data(), junk.size(), kPoolBytesMin),
              static_cast<ssize_t>(junk.size()));
    ::close(fd);
  }
  ASSERT_EQ(p.open(path.str(), small()), Status::ok) << p.report.text();
  EXPECT_EQ(p.file->bytes(), kPoolBytesMin);
  ASSERT_EQ(p.heap->malloc_to(12 * kMiB, p.root(0)), Status::ok);
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  p.crash();
  ASSERT_EQ(p.open(path.str(), small()), Status::ok) << p.report.text();
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST(PoolFile, readers_share_and_a_writer_is_alone) {
  TempPath path("pf9");
  PoolParts a, b, c;
  PoolOptions reader = small();
  reader.read_only = true;
  ASSERT_EQ(a.create(path.str(), small()), Status::ok);
  EXPECT_EQ(b.open(path.str(), small()), Status::busy);
  EXPECT_EQ(b.open(path.str(), reader), Status::busy);
  b.crash();
  ASSERT_EQ(a.close(), Status::ok);
  ASSERT_EQ(a.open(path.str(), reader), Status::ok);
  EXPECT_EQ(b.open(path.str(), reader), Status::ok);
  EXPECT_EQ(c.open(path.str(), small()), Status::busy);
  c.crash();
  a.crash();
  b.crash();
  ASSERT_EQ(a.open(path.str(), small()), Status::ok);
  EXPECT_TRUE(a.file->was_clean()) << "readers change nothing";
  a.crash();
  EXPECT_EQ(b.open(path.str(), reader), Status::read_only) << "needs recovery";
}

// --- damage --------------------------------------------------------------------------------------

// The file of a closed pool, to be changed and opened.
class Damaged {
 public:
  Damaged() : path_("pf-damaged") {
    PoolParts p;
    EXPECT_EQ(p.create(path_.str(), small()), Status::ok);
    EXPECT_EQ(p.heap->malloc_to(64, p.root(0)), Status::ok);
    EXPECT_EQ(p.close(), Status::ok);
    fd_ = ::open(path_.str().c_str(), O_RDWR | O_CLOEXEC);
  }
  ~Damaged() { ::close(fd_); }
  template <class T>
  T read(std::uint64_t at) const {
    T t;
    EXPECT_EQ(::pread(fd_, &t, sizeof t, static_cast<off_t>(at)), static_cast<ssize_t>(sizeof t));
    return t;
  }
  template <class T>
  void write(std::uint64_t at, const T& t) const {
    EXPECT_EQ(::pwrite(fd_, &t, sizeof t, static_cast<off_t>(at)), static_cast<ssize_t>(sizeof t));
  }
  void truncate(std::uint64_t bytes) const {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes)), 0);
  }
  pm::Superblock copy(std::uint64_t i) const { return read<pm::Superblock>(i * kFrameBytes); }
  void set_copy(std::uint64_t i, pm::Superblock s, bool seal = true) const {
    if (seal) s.crc = pm::crc32c(&s, offsetof(pm::Superblock, crc));
    write(i * kFrameBytes, s);
  }
  // Opens it for reading, which works for a clean pool and changes nothing.
  Status open(Report* report = nullptr) const { return open(true, report); }
  Status open(bool read_only, Report* report = nullptr) const {
    PoolParts p;
    PoolOptions o = small();
    o.read_only = read_only;
    const Status s = p.open(path_.str(), o);
    if (report != nullptr) *report = p.report;
    EXPECT_EQ(s == Status::ok, p.report.what.empty());
    return s;
  }

 private:
  TempPath path_;
  int fd_ = -1;
};

TEST(PoolFileDamage, every_truncation_is_noticed) {
  const Damaged d;
  ASSERT_EQ(d.open(), Status::ok);
  for (const std::uint64_t bytes :
       {std::uint64_t{kPoolBytesMin} - 1, std::uint64_t{kPoolBytesMin} - 4096, 4 * kMiB, kMiB,
        std::uint64_t{65536}, std::uint64_t{12288}, std::uint64_t{8192}, std::uint64_t{4096},
        std::uint64_t{4095}, std::uint64_t{64}, std::uint64_t{1}, std::uint64_t{0}}) {
    d.truncate(bytes);
    EXPECT_EQ(d.open(), Status::not_a_pool) << bytes;
  }
  // Zeros take the place of what was cut off.
  d.truncate(kPoolBytesMin);
  EXPECT_EQ(d.open(), Status::not_a_pool);
}

TEST(PoolFileDamage, a_pool_that_grew_is_missed_at_its_end) {
  TempPath path("pf-grown");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), small()), Status::ok);
  ASSERT_EQ(p.heap->malloc_to(20 * kMiB, p.root(0)), Status::ok);
  ASSERT_EQ(p.close(), Status::ok);
  ASSERT_EQ(::truncate(path.str().c_str(), 16 * kMiB), 0);
  EXPECT_EQ(p.open(path.str(), small()), Status::corrupt);
  EXPECT_NE(p.report.text().find("truncated"), std::string::npos) << p.report.text();
}

// Each copy alone opens the pool. The copy may be out of date, so recovery runs. Tries every byte.
TEST(PoolFileDamage, one_copy_of_the_superblock_is_enough) {
  for (std::uint64_t i = 0; i < 2; ++i) {
    const Damaged d;
    const pm::Superblock sound = d.copy(i);
    for (std::size_t byte = 0; byte < sizeof sound; ++byte) {
      pm::Superblock s = sound;
      reinterpret_cast<unsigned char*>(&s)[byte] ^= 0x10;
      d.set_copy(i, s, false);
      ASSERT_EQ(d.open(), Status::read_only) << "copy " << i << ", byte " << byte;
    }
    pm::Superblock zero{};
    d.set_copy(i, zero, false);
    EXPECT_EQ(d.open(), Status::read_only) << "copy " << i;
    EXPECT_EQ(d.open(false), Status::ok) << "copy " << i;
  }
}

// A crash may tear the copy of a clean close. If it tears the next write to that copy, too, some
// words are of the one and some of the other. They must not make the close that never was.
TEST(PoolFileDamage, words_of_two_torn_writes_make_no_clean_close) {
  const Damaged d;
  const std::uint64_t i = d.copy(0).sequence > d.copy(1).sequence ? 0 : 1;
  pm::Superblock torn = d.copy(i);
  ASSERT_EQ(torn.state, static_cast<std::uint32_t>(pm::PoolState::clean));
  torn.sequence -= 2;  // still the word of the write before
  d.set_copy(i, torn, false);
  ASSERT_EQ(d.open(false), Status::ok);
  const pm::Superblock next = d.copy(i);
  ASSERT_EQ(next.state, static_cast<std::uint32_t>(pm::PoolState::running));
  constexpr unsigned kWords = sizeof(pm::Superblock) / sizeof(std::uint64_t);
  for (std::uint64_t mix = 0; mix < 1u << kWords; ++mix) {
    pm::Superblock s = torn;
    for (unsigned w = 0; w < kWords; ++w) {
      const std::size_t at = w * sizeof(std::uint64_t);
      if ((mix >> w & 1) == 0) continue;
      std::memcpy(reinterpret_cast<char*>(&s) + at, reinterpret_cast<const char*>(&next) + at,
                  sizeof(std::uint64_t));
    }
    const bool sound = s.crc == pm::crc32c(&s, offsetof(pm::Superblock, crc));
    ASSERT_FALSE(sound && s.state != next.state) << mix;
  }
}

TEST(PoolFileDamage, two_bad_copies_are_no_pool) {
  const Damaged d;
  for (std::size_t byte = 0; byte < sizeof(pm::Superblock); ++byte) {
    for (std::uint64_t i = 0; i < 2; ++i) {
      pm::Superblock s = d.copy(i);
      reinterpret_cast<unsigned char*>(&s)[byte] ^= 1;
      d.set_copy(i, s, false);
    }
    const Status s = d.open(false);
    EXPECT_TRUE(s == Status::corrupt || s == Status::not_a_pool || s == Status::wrong_version)
        << byte << ": " << status_name(s);
    for (std::uint64_t i = 0; i < 2; ++i) {
      pm::Superblock back = d.copy(i);
      reinterpret_cast<unsigned char*>(&back)[byte] ^= 1;
      d.set_copy(i, back, false);
    }
  }
  EXPECT_EQ(d.open(), Status::ok);
}

TEST(PoolFileDamage, swapped_and_foreign_copies_are_noticed) {
  const Damaged d;
  const pm::Superblock first = d.copy(0), second = d.copy(1);
  d.set_copy(0, second);
  d.set_copy(1, first);
  EXPECT_EQ(d.open(), Status::corrupt);
  d.set_copy(1, second);
  EXPECT_EQ(d.open(), Status::read_only) << "one in both places: the other is missed";
  d.set_copy(0, first);
  pm::Superblock other = second;
  other.pool_id ^= 2;
  d.set_copy(1, other);
  EXPECT_EQ(d.open(), Status::corrupt);
}

TEST(PoolFileDamage, pools_of_other_builds_are_named) {
  const auto refused = [](const std::function<void(pm::Superblock&)>& change, bool seal = true) {
    const Damaged d;
    for (std::uint64_t i = 0; i < 2; ++i) {
      pm::Superblock s = d.copy(i);
      change(s);
      d.set_copy(i, s, seal);
    }
    Report r;
    const Status s = d.open(false, &r);
    EXPECT_FALSE(r.where.empty()) << r.text();
    return s;
  };
  EXPECT_EQ(refused([](auto& s) { s.version += 1; }), Status::wrong_version);
  EXPECT_EQ(refused([](auto& s) { s.line_bytes = 128; }), Status::wrong_version);
  EXPECT_EQ(refused([](auto& s) { s.byte_order = 0x04030201; }), Status::wrong_version);
  EXPECT_EQ(refused([](auto& s) { s.magic = __builtin_bswap64(s.magic); }, false),
            Status::wrong_version);
  EXPECT_EQ(refused([](auto& s) { s.magic += 1; }), Status::not_a_pool);
  EXPECT_EQ(refused([](auto& s) { s.state = 3; }), Status::corrupt);
  EXPECT_EQ(refused([](auto& s) { s.stripes = 0; }), Status::corrupt);
  EXPECT_EQ(refused([](auto& s) { s.stripes = 40; }), Status::corrupt);
  EXPECT_EQ(refused([](auto& s) { s.pool_id = 0; }), Status::corrupt);
}

TEST(PoolFileDamage, impossible_zones_and_lanes_are_refused) {
  constexpr std::uint64_t kCount = pm::kHeadPageOffset + offsetof(pm::HeadPage, zone_count);
  constexpr std::uint64_t kLanes = pm::kHeadPageOffset + offsetof(pm::HeadPage, lane_segments);
  const Damaged d;
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{3},
                                    std::uint64_t{pm::kZonesMax} + 1, ~std::uint64_t{0}}) {
    d.write(kCount, count);
    EXPECT_EQ(d.open(), Status::corrupt) << count;
  }
  d.write(kCount, std::uint64_t{1});
  for (const pm::ZoneEntry zone :
       {pm::ZoneEntry{0, 0}, pm::ZoneEntry{0, kPoolBytesMin - 4096},
        pm::ZoneEntry{0, kPoolBytesMin + kHugeBytes}, pm::ZoneEntry{kHugeBytes, kPoolBytesMin},
        pm::ZoneEntry{~0ull - kHugeBytes + 1, kPoolBytesMin + kHugeBytes},
        pm::ZoneEntry{kHugeBytes, ~0ull}, pm::ZoneEntry{~0ull, 1}}) {
    d.write(pm::kZoneTableOffset, zone);
    EXPECT_EQ(d.open(), Status::corrupt) << zone.offset << "+" << zone.bytes;
  }
  // Two zones, of which the second one's end wraps around.
  d.write(pm::kZoneTableOffset, pm::ZoneEntry{0, kPoolBytesMin});
  d.write(pm::kZoneTableOffset + 16, pm::ZoneEntry{kPoolBytesMin, ~0ull - 2 * kHugeBytes + 1});
  d.write(kCount, std::uint64_t{2});
  EXPECT_EQ(d.open(), Status::corrupt);
  d.write(kCount, std::uint64_t{1});
  EXPECT_EQ(d.open(), Status::ok);

  d.write(kLanes, std::uint64_t{0});
  EXPECT_EQ(d.open(), Status::corrupt);
  d.write(kLanes, pm::kLanesOffset);
  for (const std::uint64_t segment :
       {std::uint64_t{4096}, pm::kLanesOffset, std::uint64_t{kPoolBytesMin}, 5 * kMiB + 4096,
        ~std::uint64_t{0} - pm::kLaneSegmentBytes + 1}) {
    d.write(kLanes + 8, segment);
    EXPECT_EQ(d.open(), Status::corrupt) << segment;
  }
  d.write(kLanes + 8, 5 * kMiB);
  d.write(kLanes + 16, 5 * kMiB);
  EXPECT_EQ(d.open(), Status::corrupt) << "one segment twice";
}

}  // namespace
}  // namespace tenuto

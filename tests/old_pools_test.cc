// Pools that earlier versions left (tests/pools): each opens and holds what its text says, or is
// refused with advice. The table below states the promise for each pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "pools/contents.h"
#include "pools/packed.h"
#include "record_format.h"
#include "tenuto/rescue.h"
#include "tool_run.h"

namespace tenuto::test {
namespace {

namespace fs = std::filesystem;

enum class Fate : std::uint8_t {
  opens,     // without a change
  upgraded,  // by the first open that may write; a read-only open is refused
  refused,   // with these words, and stays unchanged
};

struct OldPool {
  const char* version;
  const char* name;
  Fate fate = Fate::opens;
  Status status = Status::ok;  // of the refusal
  const char* words = "";      // text in the report of the refusal
  bool clean = true;           // it was closed cleanly
  bool store = true;           // it has a store, not only objects
};

void PrintTo(const OldPool& p, std::ostream* out) { *out << p.version << "/" << p.name; }

constexpr OldPool one_fence(const char* name, bool clean = true) {
  return {.version = "0.1",
          .name = name,
          .fate = Fate::refused,
          .status = Status::wrong_version,
          .words =
              "protocol of one fence, which this version does not read: dump it with version "
              "0.1.0, the last that does",
          .clean = clean};
}

constexpr OldPool kPools[] = {
    {.version = "0.1", .name = "clean"},
    {.version = "0.1", .name = "killed", .clean = false},
    {.version = "0.1", .name = "integers"},
    {.version = "0.1",
     .name = "journal",
     .fate = Fate::refused,
     .status = Status::wrong_version,
     .words = "0.1.0",
     .clean = false},
    {.version = "0.1", .name = "journal_closed"},
    {.version = "0.1", .name = "forms"},
    {.version = "0.1", .name = "forms_killed", .clean = false},
    {.version = "0.1", .name = "history"},
    {.version = "0.1", .name = "history_killed", .clean = false},
    {.version = "0.1", .name = "objects", .store = false},
    {.version = "0.1", .name = "objects_killed", .clean = false, .store = false},
    one_fence("one_fence"),
    one_fence("one_fence_killed", false),
    one_fence("one_fence_collection"),
    {.version = "0.2", .name = "clean"},
    {.version = "0.2", .name = "killed", .clean = false},
    {.version = "0.2", .name = "integers"},
    {.version = "0.2", .name = "journal", .clean = false},
    {.version = "0.2", .name = "journal_closed"},
    {.version = "0.2", .name = "forms"},
    {.version = "0.2", .name = "forms_killed", .clean = false},
    {.version = "0.2", .name = "history"},
    {.version = "0.2", .name = "history_killed", .clean = false},
    {.version = "0.2", .name = "objects", .store = false},
    {.version = "0.2", .name = "objects_killed", .clean = false, .store = false},
    {.version = "0.2", .name = "containers", .store = false},
    {.version = "0.2", .name = "containers_killed", .clean = false, .store = false},
};

// The layout version in its superblock.
std::uint32_t layout_of(const OldPool& p) { return p.version == std::string_view("0.1") ? 4 : 5; }

class OldPools : public ToolTest, public testing::WithParamInterface<OldPool> {
 protected:
  static std::string stored(const std::string& ending) {
    return std::string(TENUTO_OLD_POOLS "/") + GetParam().version + "/" + GetParam().name + ending;
  }
  void SetUp() override {
    ToolTest::SetUp();
    text_ = read_file(stored(".txt"));
    ASSERT_FALSE(text_.empty());
    put_back();
  }
  // Restores the files as they were left, at pool().
  void put_back() {
    ASSERT_EQ(unpack_file(stored(".pool.lz4"), pool()), "");
    const std::string journal = pool() + ".journal";
    fs::remove(journal);
    if (!fs::exists(stored(".journal.lz4"))) return;
    ASSERT_EQ(unpack_file(stored(".journal.lz4"), journal), "");
  }
  std::string pool() const { return path(GetParam().name); }
  static bool refused() { return GetParam().fate == Fate::refused; }
  static StoreOptions options(bool read_only = false) {
    StoreOptions o = old_pool_options();
    o.pool.read_only = read_only;
    return o;
  }
  void expect_contents(const StoreOptions& how) {
    Report report;
    auto open = open_old(pool(), how, &report);
    ASSERT_TRUE(open) << report.text();
    EXPECT_EQ(contents(*open), text_);
    EXPECT_EQ(open->validate(&report), Status::ok) << report.text();
    EXPECT_EQ(open->close(), Status::ok);
  }

  std::string text_;
};

TEST_P(OldPools, hold_what_was_written_to_them) {
  if (refused()) return;
  expect_contents(options());
  expect_contents(options());  // after the first life
  expect_contents(options(true));
}

TEST_P(OldPools, hold_it_on_medium_journal_too) {
  if (refused()) return;
  StoreOptions o = options();
  o.pool.medium = Medium::journal;
  expect_contents(o);
  expect_contents(o);
}

// Wear levelling needs no format: an open with it, without, with it, to read.
TEST_P(OldPools, hold_it_with_wear_levelling_too) {
  if (refused()) return;
  StoreOptions on = options();
  on.pool.heap.wear_levelling = true;
  expect_contents(on);
  expect_contents(options());
  expect_contents(on);
  expect_contents(options(true));
}

TEST_P(OldPools, that_need_their_journals_are_refused_without_them_too) {
  if (!refused() || GetParam().name != std::string_view("journal")) return;
  fs::remove(pool() + ".journal");
  Report report;
  EXPECT_EQ(open_old(pool(), options(), &report).error(), Status::wrong_version) << "half a pool";
}

TEST_P(OldPools, that_need_their_journals_are_given_them) {
  if (refused() || GetParam().name != std::string_view("journal")) return;
  Report report;
  StoreOptions journalled = options();
  journalled.pool.medium = Medium::journal;
  auto open = open_old(pool(), journalled, &report);
  ASSERT_TRUE(open) << report.text();
  EXPECT_GT(open->store->stats().pool.journal_replayed_lines, 100u);
  ASSERT_EQ(open->close(), Status::ok);
  put_back();
  fs::remove(pool() + ".journal");
  EXPECT_FALSE(open_old(pool(), options(), &report)) << "half a pool";
}

// An open that writes raises the layout version. Later read-only opens see the new one.
TEST_P(OldPools, are_of_this_layout_afterwards) {
  if (refused()) return;
  const auto version = [&](bool read_only) {
    Report report;
    auto open = open_old(pool(), options(read_only), &report);
    EXPECT_TRUE(open) << report.text();
    const std::uint32_t v = open ? open->objects().info().version : 0;
    if (open) {
      EXPECT_EQ(open->close(), Status::ok);
    }
    return v;
  };
  if (GetParam().clean) {
    EXPECT_EQ(version(true), layout_of(GetParam()));
  }
  EXPECT_EQ(version(false), 5u);
  EXPECT_EQ(version(true), 5u);
  // Both copies of the superblock have the new version, so an older library finds no copy that it
  // would read.
  const std::string file = read_file(pool());
  for (const std::size_t copy : {0, 4096}) EXPECT_EQ(file[copy + 8], 5) << copy;
}

// What tools/examples/operating.md says of versions.
TEST_P(OldPools, show_their_layout_and_are_upgraded_by_a_command_that_writes) {
  if (refused() || !GetParam().store) return;
  const auto layout = [&] {
    const Outcome o = run({"info", pool(), "--json"});
    EXPECT_EQ(o.code, 0) << o.err;
    const std::string name = "\"layout_version\":";
    const std::size_t at = o.out.find(name);
    return at == std::string::npos ? 0u : static_cast<unsigned>(o.out[at + name.size()] - '0');
  };
  const std::string before = read_file(pool());
  if (GetParam().clean) {
    EXPECT_EQ(layout(), layout_of(GetParam()));
    EXPECT_TRUE(read_file(pool()) == before) << "info writes";
  } else {
    EXPECT_EQ(layout(), 5u) << "info recovers the pool, which is a write";
  }
  const Outcome o = run({"compact", pool(), "--quiet"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(layout(), 5u);
}

TEST_P(OldPools, that_were_closed_are_read_without_a_write) {
  if (GetParam().fate != Fate::opens || !GetParam().clean) return;
  const std::string before = read_file(pool());
  expect_contents(options(true));
  EXPECT_TRUE(read_file(pool()) == before);
}

TEST_P(OldPools, are_written_to_like_new_ones) {
  if (refused() || !GetParam().store) return;
  Report report;
  for (int life = 0; life < 2; ++life) {
    auto open = open_old(pool(), options(), &report);
    ASSERT_TRUE(open) << report.text();
    Store& store = *open->store;
    for (std::uint64_t i = 0; i < 500; ++i) {
      const std::string value = std::to_string(life);
      ASSERT_EQ(store.put(u64_key(i * 0x100000001b3ull), value), Status::ok);
    }
    auto c = store.collection("of a later version");
    ASSERT_TRUE(c);
    ASSERT_EQ(c->put("life", std::to_string(life)), Status::ok);
    EXPECT_EQ(store.validate(&report), Status::ok) << report.text();
    ASSERT_EQ(store.drop("of a later version"), Status::ok);
    for (std::uint64_t i = 0; i < 500; ++i) {
      ASSERT_EQ(store.erase(u64_key(i * 0x100000001b3ull)), Status::ok);
    }
    const CompactOptions how = {.in_key_order = life % 2 == 0};
    EXPECT_TRUE(store.compact(how, &report)) << report.text();
    ASSERT_EQ(open->close(), Status::ok);
    if (GetParam().name == std::string_view("integers")) break;  // the key 0 is one of its own
    expect_contents(options());
  }
}

TEST_P(OldPools, that_are_refused_say_why_and_stay_as_they_are) {
  if (!refused()) return;
  const std::string before = read_file(pool());
  for (const bool read_only : {true, false}) {
    if (read_only && !GetParam().clean) continue;  // its report asks for an open that may write
    Report report;
    const auto open = open_old(pool(), options(read_only), &report);
    ASSERT_FALSE(open);
    EXPECT_EQ(open.error(), GetParam().status) << report.text();
    EXPECT_NE(report.text().find(GetParam().words), std::string::npos) << report.text();
  }
  for (const char* command : {"info", "check", "dump"}) {
    std::vector<std::string> words = {command, pool()};
    if (command == std::string_view("dump")) words.insert(words.end(), {"--format", "tsv"});
    const Outcome o = run(words);
    EXPECT_EQ(o.code, static_cast<int>(GetParam().status)) << o.err;
    EXPECT_NE(o.err.find(GetParam().words), std::string::npos) << o.err;
  }
  EXPECT_TRUE(read_file(pool()) == before);
}

// A rescue of an undamaged pool brings back every record.
TEST_P(OldPools, are_rescued_whole) {
  if (GetParam().fate != Fate::opens || !GetParam().store) return;
  RescueOptions how;
  how.pool = options().pool;
  RescueResult result;
  Report report;
  const std::string fresh = path("rescued");
  ASSERT_EQ(rescue(pool(), fresh, how, result, &report), Status::ok) << report.text();
  auto open = open_old(fresh, options(), &report);
  ASSERT_TRUE(open) << report.text();
  // Compared without the objects, which a rescue does not bring back.
  EXPECT_EQ(contents(*open), text_.substr(0, text_.find("# root ")));
}

TEST_P(OldPools, are_sound_to_check) {
  if (refused()) return;
  const Outcome o = run({"check", pool(), "--json"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("\"sound\":true"), std::string::npos) << o.out;
  const bool was_clean = o.out.find("\"was_clean\":true") != std::string::npos;
  // In a pool with objects only, the tool looked for a store first, which recovered the pool.
  EXPECT_TRUE(was_clean == GetParam().clean || !GetParam().store) << o.out;
}

// The lines of the default collection in the text.
std::vector<std::string> default_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);  // the collection's header line
  while (std::getline(in, line) && !line.starts_with("# ")) lines.push_back(line);
  return lines;
}

TEST_P(OldPools, are_dumped_as_their_text_says) {
  if (refused() || !GetParam().store) return;
  const Outcome o = run({"dump", pool(), "--format", "tsv", "--collection", ""});
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream dump(o.out);
  std::string line;
  for (const std::string& expected : default_lines(text_)) {
    ASSERT_TRUE(std::getline(dump, line));
    const bool in_short = expected.find("\t<") != std::string::npos;
    if (in_short) line.resize(line.find('\t') + 1);
    EXPECT_EQ(line, in_short ? expected.substr(0, expected.find('\t') + 1) : expected);
  }
  EXPECT_FALSE(std::getline(dump, line));
}

std::string test_name(const testing::TestParamInfo<OldPool>& info) {
  std::string version = info.param.version;
  std::replace(version.begin(), version.end(), '.', '_');
  return "of_" + version + "_" + info.param.name;
}
INSTANTIATE_TEST_SUITE_P(All, OldPools, testing::ValuesIn(kPools), test_name);

class LaterPools : public ToolTest {};

TEST_F(LaterPools, are_refused_with_both_layouts_and_stay_as_they_are) {
  const std::string pool = path("later");
  ASSERT_EQ(run({"create", pool, "--quiet"}).code, 0);
  {
    std::fstream file(pool, std::ios::in | std::ios::out | std::ios::binary);
    for (const int copy : {0, 4096}) file.seekp(copy + 8).put(6);
  }
  const std::string before = read_file(pool);
  for (const char* command : {"info", "check", "compact"}) {
    const Outcome o = run({command, pool});
    EXPECT_EQ(o.code, static_cast<int>(Status::wrong_version)) << o.err;
    EXPECT_NE(o.err.find("expected 4 or 5, found 6"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("open it with the version that wrote it"), std::string::npos) << o.err;
  }
  EXPECT_TRUE(read_file(pool) == before);
}

TEST(OldPoolsTable, has_a_row_for_each_pool_and_a_pool_for_each_row) {
  std::set<std::string> rows;
  for (const OldPool& p : kPools) rows.insert(std::string(p.version) + "/" + p.name);
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(TENUTO_OLD_POOLS)) {
    const std::string path = entry.path().lexically_relative(TENUTO_OLD_POOLS).string();
    if (path.ends_with(".pool.lz4")) files.insert(path.substr(0, path.size() - 9));
  }
  EXPECT_EQ(rows, files);
}

}  // namespace
}  // namespace tenuto::test

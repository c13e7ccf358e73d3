// Files of other programs in the places where tools/tenuto makes files: a new pool, its journal, a
// backup, a rescue. Each stays as it is, and the command reports it. (A dump replaces a file, as
// documented.)
#include "tool_run.h"

#include "support/obstacles.h"

namespace tenuto::test {
namespace {

struct Maker {
  const char* name;
  std::vector<std::string> words;  // "p.tnt", and words that begin with @, are files of the folder
  const char* file;                // the file that it makes
};

const Maker kMakers[] = {
    {"create", {"create", "@new", "--size", "8M"}, "new"},
    {"create_force", {"create", "@new", "--size", "8M", "--force"}, "new"},
    {"journal_of_a_new_pool",
     {"create", "@new", "--size", "8M", "--medium", "journal"},
     "new.journal"},
    {"load_create", {"load", "@new", "@in.tsv", "--create", "--size", "8M"}, "new"},
    {"journal", {"put", "@p.tnt", "k", "v", "--medium", "journal"}, "p.tnt.journal"},
    {"journal_of_compact", {"compact", "@p.tnt", "--medium", "journal"}, "p.tnt.journal"},
    {"journal_elsewhere",
     {"put", "@p.tnt", "k", "v", "--medium", "journal", "--journal", "@j"},
     "j"},
    {"force_beside_a_journal",
     {"create", "@p.tnt", "--size", "8M", "--force", "--medium", "journal"},
     "p.tnt.journal"},
    {"backup", {"backup", "@p.tnt", "@b.tnt"}, "b.tnt"},
    {"repair", {"check", "@p.tnt", "--repair", "@r.tnt"}, "r.tnt"},
};

void PrintTo(const Maker& m, std::ostream* out) { *out << m.name; }

class ToolForeign : public ToolTest, public testing::WithParamInterface<Maker> {};

TEST_P(ToolForeign, what_stands_in_the_way_stays) {
  const Maker& maker = GetParam();
  for (const Obstacle& obstacle : kObstacles) {
    SCOPED_TRACE(obstacle.name);
    // A journal's path may be a link. `--force` may replace an empty file, since it is no pool.
    const std::string made = maker.name;
    const std::string what = obstacle.name;
    if (made == "journal_elsewhere" && what == "dangling") continue;
    if (made == "create_force" && (what == "empty" || what == "dangling")) continue;
    TearDown();
    SetUp();
    const std::string pool = new_pool("p.tnt", {"--medium", "cache"});
    put(pool, "a", "1");
    write_text(path("in.tsv"), "k\tv\n");
    write_text(path("victim"), kText);
    obstacle.put(path(maker.file), path("victim"));
    const Standing before(path(maker.file));
    std::vector<std::string> words;
    for (const std::string& w : maker.words) {
      words.push_back(w[0] == '@' ? path(w.substr(1)) : w);
    }
    const Outcome o = run(words, {}, [] { alarm(60); });
    EXPECT_NE(o.code, 0);
    EXPECT_LT(o.code, 1000) << "a signal ended it";
    EXPECT_EQ(o.err.rfind("tenuto: ", 0), 0u) << o.err;
    before.expect_still();
    EXPECT_EQ(text_of(path("victim")), kText);
    EXPECT_FALSE(std::filesystem::exists(path(maker.file) + ".nowhere"));
    for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
      const std::string name = entry.path().filename();
      const bool known = name == "p.tnt" || name == "victim" || name == "in.tsv" ||
                         name == maker.file || name == ".in" || name == ".out" || name == ".err";
      EXPECT_TRUE(known) << name;
    }
    EXPECT_EQ(run({"get", pool, "a", "--read-only"}).out, "1");
  }
}

INSTANTIATE_TEST_SUITE_P(makers, ToolForeign, testing::ValuesIn(kMakers),
                         [](const auto& m) { return std::string(m.param.name); });

}  // namespace
}  // namespace tenuto::test

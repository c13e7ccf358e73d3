// Explores the protocols of medium `journal`. For its epochs (model/journal_epochs.h) it tries
// every order of all steps of short programs. For its files (model/journal_file_model.h) it tries
// lives that end in a kill or a power cut at any write. Then it plants mistakes, each of which must
// be found.
//
// TENUTO_MODEL_SCALE multiplies the number of random programs, of states and of lives (default 1).
#include <random>
#include <string_view>

#include "model/cases.h"
#include "model/journal_epochs.h"
#include "model/journal_file_model.h"

namespace tenuto_model {
namespace {

// --- epochs --------------------------------------------------------------------------------------

constexpr Instruction store(Byte line, Byte word, Byte value) {
  return {Verb::store, line, word, value};
}
constexpr Instruction when(Byte line, Byte word, Byte value) {
  return {Verb::when, line, word, value};
}
constexpr Instruction flush(Byte line) { return {Verb::flush, static_cast<Byte>(1 << line), 0, 0}; }
constexpr Instruction kFlushBoth{Verb::flush, 3, 0, 0};
constexpr Instruction kFence{Verb::fence, 0, 0, 0};
constexpr Instruction kLeave{Verb::leave, 0, 0, 0};
constexpr Instruction sync(Byte pool) { return {Verb::sync, pool, 0, 0}; }

struct Threads {
  const char* name;
  std::vector<Program> programs;
};

Threads threads(const char* name, std::vector<Program> programs) {
  for (Program& p : programs) p.push_back({});
  return {name, std::move(programs)};
}

std::vector<Threads> written() {
  const Program writes_in_order = {store(0, 0, 1), flush(0), kFence,
                                   store(1, 0, 1), flush(1), kFence};
  const Program says_so = {store(0, 0, 1), flush(0), kFence, store(1, 0, 1)};
  return {
      threads("two on a line", {writes_in_order, {store(0, 1, 2), flush(0), kFence}}),
      threads("message", {says_so, {when(1, 0, 1), store(1, 1, 2), flush(1), kFence}}),
      threads("flushed by another",
              {{store(0, 0, 1), store(0, 1, 1)}, {flush(0), kFence, flush(0), kFence}}),
      threads("reader syncs", {says_so, {when(1, 0, 1), sync(0)}}),
      threads("flushed twice", {{store(0, 0, 1), flush(0), store(0, 0, 2), flush(0), kFence},
                                {store(0, 1, 3), flush(0), kFence}}),
      threads("both lines at once", {{store(0, 0, 1), store(1, 0, 1), kFlushBoth, kFence},
                                     {when(1, 0, 1), store(1, 1, 2), kFlushBoth, kFence}}),
      threads("rewritten", {{store(0, 0, 1), flush(0), kFence, store(0, 0, 2), store(0, 1, 2),
                             flush(0), kFence, sync(0)},
                            {flush(1), kFence}}),
      threads("a thread ends", {{store(0, 0, 1), flush(0), kFence, kLeave, store(1, 1, 1)},
                                {when(1, 1, 1), store(1, 0, 2), flush(1), kFence, sync(0)}}),
      threads("three, message",
              {says_so, {when(1, 0, 1), store(1, 1, 2), flush(1), kFence}, {flush(1), kFence}}),
      threads("three on a line", {{store(0, 0, 1), flush(0), kFence},
                                  {store(0, 1, 2), flush(0), kFence},
                                  {flush(0), kFence}}),
  };
}

// A line changes and changes back between two readings, with or without a flush before each change
// back.
Threads back_and_forth(bool flushed) {
  const Program set = {store(0, 0, 1), store(0, 1, 1)}, back = {store(0, 1, 0), store(0, 0, 0)};
  Program p;
  for (const Program& part : {set, back, set}) {
    p.insert(p.end(), part.begin(), part.end());
    if (flushed) p.push_back(flush(0));
  }
  if (flushed) p.pop_back();
  return threads("back and forth", {p, {flush(0), kFence}});
}

Program random_program(std::mt19937& rng, int length, Byte& value) {
  Program p;
  int stores = 0, flushes = 0;
  const auto line = [&] { return static_cast<Byte>(rng() % kLines); };
  for (int i = 0; i < length; ++i) {
    const auto kind = rng() % 11;
    if (kind < 4 && stores++ < 3) {
      p.push_back(store(line(), static_cast<Byte>(rng() % 2), ++value));
    } else if (kind < 7 && flushes++ < 2) {
      p.push_back(rng() % 3 == 0 ? kFlushBoth : flush(line()));
    } else if (kind < 8) {
      p.push_back(when(line(), static_cast<Byte>(rng() % 2), static_cast<Byte>(1 + rng() % 3)));
    } else if (kind < 10) {
      p.push_back(kFence);
    } else {
      p.push_back(rng() % 2 == 0 ? sync(0) : kLeave);
      if (p.back().verb == Verb::leave) break;  // a thread fences before it ends
    }
  }
  return p;
}

std::vector<Threads> random(std::size_t n) {
  std::mt19937 rng(7);
  std::vector<Threads> all;
  for (std::size_t i = 0; i < n; ++i) {
    Byte value = 0;
    const Program first = random_program(rng, 5, value);
    all.push_back(threads("random", {first, random_program(rng, 5, value)}));
  }
  return all;
}

struct Total {
  std::size_t programs = 0, states = 0, cut_short = 0;
  std::string violation;  // the first one, and the steps that led to it
};

Total explore(const EpochConfig& config, const std::vector<Threads>& all) {
  Total total;
  for (const Threads& t : all) {
    EpochModel model(config, t.programs);
    const Searched r = search(model, config.states_max);
    total.programs += 1;
    total.states += r.states;
    total.cut_short += r.whole ? 0 : 1;
    if (model.violation.empty()) continue;
    total.violation = std::string(t.name) + ": " + model.violation + "\n   " + r.trace;
    break;
  }
  return total;
}

Total explore_and_say(const char* name, const EpochConfig& config,
                      const std::vector<Threads>& all) {
  const Total t = explore(config, all);
  std::printf("%-24s programs %4zu  states %9zu  cut short %3zu%s%s\n", name, t.programs, t.states,
              t.cut_short, t.violation.empty() ? "" : "  found: ", t.violation.c_str());
  std::fflush(stdout);
  return t;
}

EpochConfig with_checkpoint() {
  EpochConfig c;
  c.checkpoint = true;
  c.states_max = scaled(150'000);
  return c;
}

TEST(JournalModel, what_the_blocks_hold_is_a_state_that_a_crash_leaves) {
  EpochConfig c;
  c.states_max = scaled(300'000);
  EXPECT_EQ(explore_and_say("epochs", c, written()).violation, "");
  c.states_max = scaled(80'000);
  EXPECT_EQ(explore_and_say("epochs, random", c, random(scaled(30))).violation, "");
}

TEST(JournalModel, images_of_two_readings_that_agree_are_of_one_moment) {
  EpochConfig c;
  c.agreed_images = true;
  c.states_max = scaled(300'000);
  std::vector<Threads> all = written();
  all.push_back(back_and_forth(true));
  EXPECT_EQ(explore_and_say("agreed images", c, all).violation, "");
  c.states_max = scaled(80'000);
  EXPECT_EQ(explore_and_say("agreed images, random", c, random(scaled(30))).violation, "");
  // This is the limit that the head of src/journal/capture.h describes.
  c.cuts = 1;
  c.states_max = scaled(3'000'000);
  EXPECT_NE(explore_and_say("back without a flush", c, {back_and_forth(false)}).violation, "");
}

TEST(JournalModel, a_checkpoint_leaves_what_the_blocks_held) {
  EXPECT_EQ(explore_and_say("checkpoint", with_checkpoint(), written()).violation, "");
}

// Most mistakes show in few states. A mistake that one program does not show, another one does.
Total find(const char* plant, std::size_t states_max) {
  EpochConfig c = with_checkpoint();
  c.plant = plant;
  c.checkpoint = std::string_view(plant).starts_with("checkpoint");
  c.states_max = states_max;
  std::vector<Threads> all = written();
  if (plant == std::string_view("image_read_twice")) {
    c.cuts = 1;
    all = {back_and_forth(true)};
  }
  return explore(c, all);
}

class JournalModelEpochs : public testing::TestWithParam<const char*> {};

TEST_P(JournalModelEpochs, a_planted_mistake_is_found) {
  Total t = find(GetParam(), 20'000);
  if (t.violation.empty()) t = find(GetParam(), scaled(3'000'000));
  std::printf("%s: states %7zu  %s\n", GetParam(), t.states, t.violation.c_str());
  EXPECT_NE(t.violation, "");
}
INSTANTIATE_TEST_SUITE_P(every, JournalModelEpochs, every_mistake<EpochModel>(), name_of_mistake);

// --- two pools -----------------------------------------------------------------------------------

EpochConfig two_pools() {
  EpochConfig c;
  c.pools = 2;
  c.cuts = 1;
  c.states_max = scaled(150'000);
  return c;
}

const Program kFirst = {store(0, 0, 1), flush(0), kFence};
const Program kSecond = {store(1, 0, 1), flush(1), kFence};

Program joined(std::initializer_list<Program> parts) {
  Program all;
  for (const Program& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

TEST(JournalModel, each_of_two_pools_is_a_state_that_a_crash_leaves) {
  const std::vector<Threads> all = {
      threads("both, both", {joined({kFirst, kSecond}),
                             {store(1, 1, 1), flush(1), store(0, 1, 1), flush(0), kFence}}),
      threads("one fence",
              {{store(0, 0, 1), flush(0), store(1, 0, 1), flush(1), kFence, sync(0), sync(1)},
               {flush(0), kFence}}),
  };
  EXPECT_EQ(explore_and_say("two pools", two_pools(), all).violation, "");
}

TEST(JournalModel, order_across_pools_takes_a_sync) {
  EpochConfig c = two_pools();
  c.second_implies_first = true;
  const std::vector<Threads> fenced = {threads("fenced", {joined({kFirst, kSecond})})};
  const std::vector<Threads> synced = {
      threads("synced", {joined({kFirst, {sync(0)}, kSecond})}),
      threads("synced, and others",
              {joined({kFirst, {sync(0)}, kSecond}), {flush(0), flush(1), kFence}})};
  EXPECT_NE(explore_and_say("order by fence", c, fenced).violation, "");
  EXPECT_EQ(explore_and_say("order by sync", c, synced).violation, "");
  // Within one pool a fence is enough.
  c.pools = 1;
  c.cuts = 2;
  EXPECT_EQ(explore_and_say("order in one pool", c, fenced).violation, "");
}

// --- files ---------------------------------------------------------------------------------------

struct Files {
  const char* name;
  FileConfig config;
};

std::vector<Files> files() {
  FileConfig usual;
  FileConfig small = usual;  // three units: each checkpoint makes room for one block
  small.units = 3;
  FileConfig often = usual;
  often.crash_every = 8;
  often.lives = 6;
  FileConfig longer = usual;
  longer.units = 7;
  longer.lines = 4;
  longer.operations = 30;
  longer.crash_every = 80;
  longer.lives = 4;
  return {
      {"usual", usual}, {"small ring", small}, {"crashes often", often}, {"long lives", longer}};
}

// Returns the first failure in `runs` runs, or an empty string.
std::string run_files(const char* name, const FileConfig& config, std::size_t runs) {
  FileModel model(config);
  std::size_t run = 0;
  while (run < runs && model.failure.empty()) model.run(++run);
  std::printf(
      "%-14s runs %6zu  opens %7llu  crashes %7llu  replayed %7llu  laps %6llu  damage reported "
      "%llu  at the end %llu %s\n",
      name, run, static_cast<unsigned long long>(model.opens),
      static_cast<unsigned long long>(model.crashes),
      static_cast<unsigned long long>(model.replayed), static_cast<unsigned long long>(model.laps),
      static_cast<unsigned long long>(model.reported),
      static_cast<unsigned long long>(model.unnoticed), model.failure.c_str());
  std::fflush(stdout);
  if (model.failure.empty()) {
    EXPECT_GT(model.replayed, run / 4);
    EXPECT_GT(model.laps, run / 50);
  }
  return model.failure;
}

TEST(JournalModel, a_file_holds_what_was_acknowledged) {
  for (const Files& f : files()) EXPECT_EQ(run_files(f.name, f.config, scaled(20'000)), "");
}

TEST(JournalModel, damage_before_the_end_is_reported) {
  for (Files f : files()) {
    f.config.damages = true;
    EXPECT_EQ(run_files(f.name, f.config, scaled(10'000)), "");
  }
}

// A crash between begin and announcement: the journal is of a life that the pool does not know.
TEST(JournalModel, a_life_that_no_superblock_announced_is_refused) {
  FileConfig c;
  c.announced_first = false;
  EXPECT_NE(run_files("named late", c, 20'000), "");
}

// A kill comes between a write and its sync. The next life reads the written bytes and acts on
// them, and a power cut then loses them. This concerns the journal, where file systems allow it.
// The pool's own writes are made durable by the next life's announcement, before anything relies on
// them.
TEST(JournalModel, what_a_kill_left_is_synced_before_it_is_believed) {
  FileConfig c;
  c.units = 3;
  c.kills_leave_journal_unsynced = true;
  EXPECT_EQ(run_files("synced", c, scaled(40'000)), "");
  c.synced_when_opened = false;
  EXPECT_NE(run_files("not synced", c, 20'000), "");
  c.kills_leave_journal_unsynced = false;
  EXPECT_EQ(run_files("pool not synced", c, scaled(40'000)), "");
}

class JournalModelFiles : public testing::TestWithParam<const char*> {};

TEST_P(JournalModelFiles, a_planted_mistake_is_found) {
  std::string found;
  for (Files f : files()) {
    f.config.plant = GetParam();
    f.config.damages = f.config.plant == std::string_view("damage_taken_for_the_end");
    found = run_files(f.name, f.config, scaled(20'000));
    if (!found.empty()) break;
  }
  EXPECT_NE(found, "");
}
INSTANTIATE_TEST_SUITE_P(every, JournalModelFiles, every_mistake<FileModel>(), name_of_mistake);

TEST(JournalModel, mistakes_are_planted) {
  EXPECT_EQ(EpochModel::mistakes().size(), 19u);
  EXPECT_EQ(FileModel::mistakes().size(), 14u);
}

}  // namespace
}  // namespace tenuto_model

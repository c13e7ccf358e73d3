// tenuto settle, on pools that were left with a transaction in doubt.
#include <unistd.h>

#include "tenuto/pool.h"
#include "tenuto/tx.h"
#include "tool_run.h"

namespace tenuto::test {
namespace {

class ToolSettle : public ToolTest {
 protected:
  // Changes both pools in one transaction and ends the process. Under a journal that only syncs
  // when asked to, the decision is durable, and the part's own record is not.
  void SetUp() override {
    ToolTest::SetUp();
    const ::pid_t child = ::fork();
    if (child == 0) std::_Exit(change_and_stop() == Status::ok ? 0 : 1);
    int how = 0;
    ASSERT_EQ(::waitpid(child, &how, 0), child);
    ASSERT_EQ(exit_code(how), 0);
    for (std::string* p : {&decides_, &waits_}) *p = path(p == &decides_ ? "a.tnt" : "b.tnt");
    if (run({"info", decides_, "-q"}).code == static_cast<int>(Status::in_doubt)) {
      std::swap(decides_, waits_);
    }
  }
  Status change_and_stop() {
    PoolOptions o;
    o.medium = Medium::journal;
    o.journal.sync_every_ms = 0;
    o.durability = Durability::buffered;
    Result<Pool> a = Pool::create(path("a.tnt"), o);
    Result<Pool> b = Pool::create(path("b.tnt"), o);
    if (!a || !b) return Status::io;
    std::uint64_t* const in_a = *a->root<std::uint64_t>("n");
    std::uint64_t* const in_b = *b->root<std::uint64_t>("n");
    Transaction first(*a);
    Transaction part(*b, first);
    TENUTO_TRY(first.add(*in_a));
    TENUTO_TRY(part.add(*in_b));
    *in_a = *in_b = 7;
    TENUTO_TRY(part.commit());
    TENUTO_TRY(first.commit());
    std::_Exit(0);
  }
  std::uint64_t number_in(const std::string& path) {
    Result<Pool> pool = Pool::open(path);
    return pool ? **pool->root<std::uint64_t>("n") : ~0ull;
  }

  std::string decides_, waits_;
};

TEST_F(ToolSettle, a_pool_in_doubt_names_the_pool_that_decides) {
  const Outcome o = run({"info", waits_, "-q"});
  EXPECT_EQ(o.code, static_cast<int>(Status::in_doubt));
  const std::string id = run_json({"info", decides_, "-q"})["pool_id"];
  EXPECT_NE(o.err.find(id), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("tenuto settle"), std::string::npos) << o.err;
  EXPECT_EQ(run_json({"info", decides_})["decisions_waiting"], 1);
}

TEST_F(ToolSettle, it_ends_the_transaction_in_all_pools) {
  const nlohmann::json done = run_json({"settle", waits_, decides_, "-q"});
  EXPECT_EQ(done["pools"][0]["path"], waits_);
  EXPECT_EQ(done["pools"][1]["path"], decides_);
  EXPECT_EQ(number_in(waits_), 7u);
  EXPECT_EQ(number_in(decides_), 7u);
  EXPECT_FALSE(run_json({"info", decides_}).contains("decisions_waiting"));
}

TEST_F(ToolSettle, without_the_pool_that_decides_it_does_what_it_is_told) {
  const Outcome o = run({"settle", waits_});
  EXPECT_EQ(o.code, static_cast<int>(Status::in_doubt));
  EXPECT_NE(o.err.find("--as abort"), std::string::npos) << o.err;
  const Outcome done = run({"settle", waits_, "--as", "abort"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("1 rolled back"), std::string::npos) << done.out;
  EXPECT_EQ(number_in(waits_), 0u);
  EXPECT_EQ(run({"settle", waits_, decides_, "--journal", "x"}).code, 2);
  EXPECT_EQ(run({"settle", waits_, path("none.tnt")}).code, static_cast<int>(Status::not_found));
}

TEST_F(ToolSettle, a_pool_that_is_named_twice_is_no_pool_of_another_process) {
  expect_error(run({"settle", waits_, waits_, "--wait", "100"}), Status::invalid_argument,
               "named twice; name it once");
}

TEST_F(ToolSettle, a_pool_in_doubt_is_not_replaced) {
  for (const bool with_journal : {true, false}) {
    if (!with_journal) {
      ASSERT_EQ(::rename((waits_ + ".journal").c_str(), path("journal").c_str()), 0);
    }
    std::vector<std::string> words{"create", waits_, "--force"};
    if (!with_journal) words.insert(words.end(), {"--journal", path("journal")});
    expect_error(run(words), Status::in_doubt, "a transaction over several pools");
  }
  ASSERT_EQ(::rename(path("journal").c_str(), (waits_ + ".journal").c_str()), 0);
  EXPECT_EQ(run({"settle", waits_, decides_, "-q"}).code, 0);
  EXPECT_EQ(number_in(waits_), 7u);
}

TEST_F(ToolSettle, it_names_a_pool_that_may_still_ask_and_forgets_it) {
  const nlohmann::json waits = run_json({"settle", decides_, "-q"})["pools"][0]["waits_for"];
  ASSERT_EQ(waits.size(), 1u);
  const std::string lost = waits[0];
  EXPECT_EQ(run({"settle", decides_, "--forget", "12"}).code, 2);
  expect_error(run({"settle", decides_, "--forget", "0123456789abcdef"}), Status::not_found,
               "nothing to forget");
  const nlohmann::json done = run_json({"settle", decides_, "--forget", lost, "-q"})["pools"][0];
  EXPECT_EQ(done["waits_for"].size(), 0u);
  EXPECT_EQ(done["decisions_waiting"], 0);
  EXPECT_FALSE(run_json({"info", decides_}).contains("decisions_waiting"));
  expect_error(run({"settle", decides_, "--forget", lost}), Status::not_found, "nothing to forget");
  expect_error(run({"settle", decides_, waits_, "--forget", lost}), Status::invalid_argument,
               "a pool that is to be opened");
  EXPECT_EQ(number_in(waits_), 0u);  // the decision is forgotten
}

}  // namespace
}  // namespace tenuto::test

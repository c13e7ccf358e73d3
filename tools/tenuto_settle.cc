// settle: ends transactions over several pools that a crash left open (tenuto/tx.h).
#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "process.h"
#include "session.h"
#include "tenuto_commands.h"

namespace tenuto::tool {

Error run_settle(const SettleArgs& args) {
  if (!args.journal.empty() && !args.others.empty()) {
    return failed(Status::invalid_argument, "one journal cannot be that of several pools",
                  "--journal", "leave it out: each pool's journal is found beside it");
  }
  std::vector<std::string> paths{args.path};
  paths.insert(paths.end(), args.others.begin(), args.others.end());
  PoolOptions options = pool_options(args, true);
  options.in_doubt = args.in_doubt;
  catch_stop_signals();
  Result<std::vector<Pool>> pools = Status::busy;
  TENUTO_TOOL_TRY(patiently(args, [&] {
    Report report;
    pools = Pool::open_all(paths, options, &report);
    if (pools) return no_error();
    Error error =
        store_failed(pools.error(), "cannot open the pools", args.path, std::move(report));
    if (error.status == Status::not_found && access(error.report.where.c_str(), F_OK) != 0) {
      error.hint = kNoPoolHint;
    }
    if (error.status == Status::in_doubt) {
      error.hint =
          "name that pool, too; if it is lost, --as commit or --as abort ends the transaction "
          "without it";
    }
    return error;
  }));
  std::vector<std::uint64_t> opened;
  for (const Pool& pool : *pools) opened.push_back(pool.info().pool_id);
  if (args.lost && std::count(opened.begin(), opened.end(), *args.lost) != 0) {
    return failed(Status::invalid_argument, "cannot forget a pool that is to be opened", "--forget",
                  "leave out its path, or --forget");
  }
  const auto may_be_asked = [&args](const Pool& pool) {
    const std::vector<std::uint64_t> by = pool.info().pools_waited_for;
    return std::count(by.begin(), by.end(), *args.lost) != 0;
  };
  if (args.lost && std::none_of(pools->begin(), pools->end(), may_be_asked)) {
    return failed(Status::not_found, "nothing to forget: that pool has nothing to ask these pools",
                  fmt::format("--forget {:016x}", *args.lost),
                  "settle without --forget prints the ids of pools that may still ask");
  }
  std::string json;
  Facts facts;
  for (Pool& pool : *pools) {
    if (const Status s = args.lost ? pool.forget_pool(*args.lost) : Status::ok; s != Status::ok) {
      return store_failed(s, "cannot forget a pool", pool.info().path);
    }
    const PoolInfo info = pool.info();
    std::vector<std::string> waits;  // ids of pools that were not opened
    for (const std::uint64_t id : info.pools_waited_for) {
      if (std::count(opened.begin(), opened.end(), id) != 0) continue;
      waits.push_back(fmt::format("{:016x}", id));
    }
    Facts of_pool;
    of_pool.text("path", "", info.path);
    of_pool.flag("was_clean", "", info.was_clean, {});
    of_pool.count("rolled_back", "", info.rolled_back);
    of_pool.count("decisions_waiting", "", info.decisions_waiting);
    const char* const quote = waits.empty() ? "" : "\"";
    of_pool.member(fmt::format("\"waits_for\":[{0}{1}{0}]", quote, fmt::join(waits, "\",\"")));
    json += (json.empty() ? "" : ",") + of_pool.json();
    std::string words = info.was_clean ? "was closed cleanly"
                                       : fmt::format("recovered, {} rolled back", info.rolled_back);
    if (!waits.empty()) words += fmt::format("; may still ask: {}", fmt::join(waits, ", "));
    facts.row(info.path, words);
  }
  // A pool that decided closes before the others, and finds that they have ended.
  std::sort(pools->begin(), pools->end(),
            [](const Pool& a, const Pool& b) { return a.info().pool_id < b.info().pool_id; });
  for (Pool& pool : *pools) {
    const std::string path = pool.info().path;
    if (const Status s = pool.close(); s != Status::ok) {
      return store_failed(s, "cannot close a pool", path);
    }
  }
  if (args.quiet && !args.json) return no_error();
  facts.member("\"pools\":[" + json + "]");
  return print_facts(args, "settled", facts);
}

}  // namespace tenuto::tool

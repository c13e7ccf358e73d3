// settle: ends transactions over several pools that a crash left open (tenuto/tx.h).
#include <algorithm>

#include <fmt/format.h>

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
  Report report;
  Result<std::vector<Pool>> pools = Pool::open_all(paths, options, &report);
  if (!pools) {
    Error error =
        store_failed(pools.error(), "cannot open the pools", args.path, std::move(report));
    if (error.status == Status::in_doubt) {
      error.hint =
          "name that pool, too; if it is lost, --as commit or --as abort ends the transaction "
          "without it";
    }
    return error;
  }
  std::string json;
  Facts facts;
  for (Pool& pool : *pools) {
    const PoolInfo info = pool.info();
    Facts of_pool;
    of_pool.text("path", "", info.path);
    of_pool.flag("was_clean", "", info.was_clean, {});
    of_pool.count("rolled_back", "", info.rolled_back);
    of_pool.count("decisions_waiting", "", info.decisions_waiting);
    json += (json.empty() ? "" : ",") + of_pool.json();
    facts.row(info.path, info.was_clean
                             ? "was closed cleanly"
                             : fmt::format("recovered, {} rolled back", info.rolled_back));
  }
  // A pool that decided closes before the others, and finds that they have ended.
  std::sort(pools->begin(), pools->end(),
            [](const Pool& a, const Pool& b) { return a.info().pool_id < b.info().pool_id; });
  for (Pool& pool : *pools) {
    if (const Status s = pool.close(); s != Status::ok) {
      return store_failed(s, "cannot close a pool", args.path);
    }
  }
  if (args.quiet && !args.json) return no_error();
  facts.member("\"pools\":[" + json + "]");
  return print_facts(args, "settled", facts);
}

}  // namespace tenuto::tool

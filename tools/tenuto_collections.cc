// Commands on all collections: collections, backup, compact.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "facts.h"
#include "form_line.h"
#include "numbers.h"
#include "process.h"
#include "session.h"
#include "tenuto_commands.h"
#include "text_format.h"

namespace tenuto::tool {
namespace {

struct Row {
  CollectionInfo info;
  std::optional<CollectionStats> stats;  // nullopt: its keys need a codec, which the tool lacks
};

Error list(Session& session, const CommonArgs& args, std::vector<Row>& rows) {
  Report report;
  const auto all = session.store().collections(&report);
  if (!all) return store_failed(all.error(), "cannot read the catalog", args.path, report);
  for (const CollectionInfo& info : *all) {
    if (info.order == KeyOrder::registered) {
      rows.push_back({info, std::nullopt});
      continue;
    }
    const auto c = session.store().collection(
        info.name, CollectionOptions{.create_if_missing = false}, &report);
    if (!c) return store_failed(c.error(), "cannot open a collection", args.path, report);
    rows.push_back({info, c->stats()});
  }
  return no_error();
}

std::string as_json(const std::vector<Row>& rows) {
  std::string json = "{\"collections\":[";
  for (const Row& r : rows) {
    if (json.back() != '[') json += ',';
    json += '{';
    append_json_member(json, "name", r.info.name);
    json += fmt::format(",\"id\":{},", r.info.id);
    append_json_member(json, "key_order", form_words(r.info.order, r.info.codec, false, false));
    json += fmt::format(",\"duplicates\":{},\"expires\":{}", r.info.duplicates, r.info.expires);
    if (r.stats) {
      json += fmt::format(",\"records\":{},\"record_bytes\":{},\"leaves\":{}", r.stats->records,
                          r.stats->record_bytes, r.stats->leaves);
    }
    json += '}';
  }
  return json + "]}";
}

// A change of the collections failed. Whether `name` is there tells whether it was made.
Error change_failed(Session& session, const CollectionsArgs& args, Status status, std::string what,
                    const std::string& name, const Report& report) {
  Error error = store_failed(status, std::move(what), args.path, report);
  if (status != Status::corrupt && status != Status::io) return error;
  const auto all = session.store().collections();
  if (!all) return error;
  const bool there = std::any_of(all->begin(), all->end(),
                                 [&](const CollectionInfo& info) { return info.name == name; });
  error.report.what = fmt::format("{} (the collection {} is {})", error.report.what,
                                  in_quotes(name), there ? "there" : "not there");
  return error;
}

// Makes, drops and renames, as far as it is asked to. `done`: what was changed.
Error change(Session& session, const CollectionsArgs& args, std::string& done) {
  Report report;
  const auto was = [&](std::string_view what, const std::string& name) {
    done += fmt::format("{}{} was {}", done.empty() ? "" : ", ", in_quotes(name), what);
  };
  if (args.make) {
    CollectionOptions options;
    options.error_if_exists = true;
    options.order = args.order;
    options.duplicates = args.duplicates;
    options.expires = args.expires;
    const auto made = session.store().collection(*args.make, options, &report);
    if (!made)
      return change_failed(session, args, made.error(), "cannot make it", *args.make, report);
    was("made", *args.make);
  }
  if (args.drop) {
    const Status status = session.store().drop(*args.drop, &report);
    if (status != Status::ok) {
      return change_failed(session, args, status, "cannot drop it", *args.drop, report);
    }
    was("dropped", *args.drop);
  }
  if (args.rename) {
    const Status status = session.store().rename(*args.rename, *args.to, &report);
    if (status != Status::ok) {
      return change_failed(session, args, status, "cannot rename it", *args.rename, report);
    }
    was("renamed", *args.rename);
  }
  return no_error();
}

}  // namespace

Error run_collections(const CollectionsArgs& args) {
  const bool writes = args.make || args.drop || args.rename;
  if (!args.rename != !args.to) {
    return failed(Status::invalid_argument, "--rename and --to go together", args.path);
  }
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, writes ? Access::write : Access::read));
  std::string done;
  if (Error error = change(session, args, done)) {
    if (!done.empty()) error.report.what = done + "; " + error.report.what;
    return error;
  }
  std::vector<Row> rows;
  if (!writes) TENUTO_TOOL_TRY(list(session, args, rows));
  TENUTO_TOOL_TRY(session.close(done));
  if (writes) return no_error();
  if (args.json) return print_line(as_json(rows));
  Output out(STDOUT_FILENO, "standard output");
  for (const Row& r : rows) {
    std::string line;
    append_escaped(line, r.info.name);
    out.write(
        fmt::format("{}\t{} records\t{}\n", line, r.stats ? format_count(r.stats->records) : "?",
                    form_words(r.info.order, r.info.codec, r.info.duplicates, r.info.expires)));
  }
  return out.finish();
}

Error run_backup(const BackupArgs& args) {
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::read));
  Report report;
  PoolOptions options = pool_options(args, false);
  options.read_only = false;
  const Status status = session.store().backup(args.to, options, &report);
  if (status != Status::ok) return store_failed(status, "cannot write the backup", args.to, report);
  return session.close("the backup is complete");
}

Error run_compact(const CompactArgs& args) {
  if (args.occupancy == 0 || args.occupancy > 100) {
    return failed(Status::invalid_argument, "--occupancy is 1 to 100", "--occupancy");
  }
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::write));
  Report report;
  const auto done = session.store().compact({.moves_max = args.moves_max,
                                             .occupancy = static_cast<double>(args.occupancy) / 100,
                                             .stop = stop_requested,
                                             .in_key_order = args.in_key_order},
                                            &report);
  if (!done) return store_failed(done.error(), "cannot compact the pool", args.path, report);
  const bool ended_early = stop_requested() && !done->complete;
  TENUTO_TOOL_TRY(session.close("the pool was compacted"));
  if (ended_early) return stopped(args.path, "what was done stays; run it again for the rest");
  if (args.quiet && !args.json) return no_error();
  Facts facts;
  facts.text("path", "", args.path);
  facts.bytes("bytes_before", "on disk before", done->bytes_before);
  facts.bytes("bytes_after", "on disk now", done->bytes_after);
  facts.count("records_moved", "records moved", done->records_moved);
  facts.count("leaves_moved", "leaves moved", done->leaves_moved);
  facts.count("leaves_merged", "leaves merged", done->leaves_merged);
  facts.count("slabs_emptied", "slabs emptied", done->slabs_emptied);
  facts.flag("complete", "complete", done->complete, done->complete ? "yes" : "no, run it again");
  return print_facts(args, args.path + ": compacted", facts);
}

}  // namespace tenuto::tool

// dump: writes records in key order, so that load reads the same records.
#include <chrono>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk.h"
#include "field_record.h"
#include "form_line.h"
#include "process.h"
#include "progress.h"
#include "session.h"
#include "tenuto_commands.h"
#include "text_format.h"

namespace tenuto::tool {
namespace {

// Nothing is dumped that a load would refuse or change.
Error append_fields(const Session& session, const Iterator& it, FieldWriter& writer,
                    std::string& line) {
  std::optional<std::string> wrong;
  if (session.expires_ms(it) != 0) {
    wrong = "the record has a lifetime, which CSV and JSON cannot hold";
  } else {
    wrong = writer.append(session.order(), it.key(), it.value(), line);
  }
  if (!wrong) return no_error();
  return failed(Status::invalid_argument, *wrong, session.where(it.key()),
                "no dump was written; tsv and jsonl hold every record");
}

Error write_records(const DumpArgs& args, RecordFormat format, Session& session, Output& out,
                    std::uint64_t& records) {
  const std::uint64_t before = records;
  IteratorOptions options;
  TENUTO_TOOL_TRY(parse_range(args, session.order(), options));
  const bool whole = !args.prefix && !args.from && !args.to;
  // Escapes make the output somewhat larger than the records, so the bar's end is an estimate.
  const bool bar = is_terminal(STDERR_FILENO) && args.file != "-" && !args.quiet && !args.json;
  Progress progress(bar, bar && whole ? session.records().stats().record_bytes : 0);
  Iterator it = session.records().iterator(options);
  std::string line;
  const bool fields = has_key_field(format);
  FieldWriter writer(format, args.key_field);
  if (!fields && !args.collection.empty() && !is_plain_form(session.form())) {
    append_form_line(format, session.form(), line);
    out.write(line += '\n');
  }
  for (it.seek_first(); it.valid() && out.ok(); it.next()) {
    line.clear();
    if (fields) {
      TENUTO_TOOL_TRY(append_fields(session, it, writer, line));
    } else {
      append_record(format, session.order(), it.key(), it.value(), line, session.expires_ms(it));
      line += '\n';
    }
    out.write(line);
    ++records;
    progress.update(records, out.bytes());
    if (stop_requested()) {
      return stopped(args.path, "no dump was written");
    }
  }
  if (it.status() != Status::ok) {
    return call_failed(session.pool(), it.status(), "the dump found damage", args.path);
  }
  line.clear();
  if (fields) writer.end(line);
  out.write(line);
  // Expired records are counted but not dumped.
  if (!whole || !out.ok() || session.records().expires()) return no_error();
  const std::uint64_t counted = session.records().stats().records;  // no other thread writes
  const std::uint64_t dumped = records - before;
  if (dumped == counted) return no_error();
  return failed(Status::corrupt,
                fmt::format("the dump has {} records, and the pool counts {}", dumped, counted),
                args.path, "see what check says of the pool");
}

// The default collection, and with --collection or a range that is all. Else every one with a name
// follows, behind a line that names it.
Error write_collections(const DumpArgs& args, RecordFormat format, Session& session, Output& out,
                        std::uint64_t& records) {
  TENUTO_TOOL_TRY(write_records(args, format, session, out, records));
  if (args.one_collection || args.prefix || args.from || args.to) return no_error();
  Report report;
  const auto all = session.store().collections(&report);
  if (!all) return store_failed(all.error(), "cannot read the catalog", args.path, report);
  if (has_key_field(format)) {
    if (!all->empty() && !args.quiet) {
      print_note("CSV and JSON hold one collection: dump the others with --collection NAME");
    }
    return no_error();
  }
  for (const CollectionInfo& info : *all) {
    if (info.order == KeyOrder::registered) {
      return failed(Status::invalid_argument,
                    "a collection's order is a program's own: " + in_quotes(info.name), args.path,
                    "dump the others one by one: --collection NAME, and '' for the default one");
    }
    TENUTO_TOOL_TRY(session.select(info.name, {.create_if_missing = false}));
    std::string line;
    append_collection_line(format, {info.name, session.form()}, line);
    out.write(line += '\n');
    TENUTO_TOOL_TRY(write_records(args, format, session, out, records));
  }
  return no_error();
}

bool are_one_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// A pipe or a device, which may wait for ever.
bool is_special(const std::string& file) {
  struct stat st {};
  return stat(file.c_str(), &st) == 0 && !S_ISREG(st.st_mode);
}

// The dump must not replace the pool it is read from, or its journal.
Error check_not_the_pool(const DumpArgs& args) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(args.path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return no_error();  // the open says why
  const std::string pool = real.get();
  const std::string journal = args.journal.empty() ? pool + ".journal" : args.journal;
  const bool is_pool = are_one_file(pool, args.file);
  if (!is_pool && !are_one_file(journal, args.file)) return no_error();
  return failed(Status::invalid_argument,
                is_pool ? "the dump would replace the pool itself"
                        : "the dump would replace the pool's journal",
                args.file, "give another file");
}

}  // namespace

Error choose_format(const std::optional<RecordFormat>& asked, const std::string& file,
                    const std::string& key_field, RecordFormat& format) {
  if (asked) {
    format = *asked;
  } else if (file.ends_with(".tsv")) {
    format = RecordFormat::tsv;
  } else if (file.ends_with(".jsonl") || file.ends_with(".ndjson")) {
    format = RecordFormat::jsonl;
  } else if (file.ends_with(".csv")) {
    format = RecordFormat::csv;
  } else if (file.ends_with(".json")) {
    format = RecordFormat::json;
  } else {
    return failed(Status::invalid_argument, "the name of the file does not tell its format", file,
                  "the pool comes before it; pass --format tsv, jsonl, csv or json");
  }
  if (has_key_field(format) == !key_field.empty()) return no_error();
  return has_key_field(format)
             ? failed(Status::invalid_argument, "CSV and JSON need the name of the key's field",
                      file, "--key-field NAME; the tool's own formats are tsv and jsonl")
             : failed(Status::invalid_argument, "only CSV and JSON have a key field",
                      "--key-field " + in_quotes(key_field), "pass --format csv or --format json");
}

Error run_dump(const DumpArgs& args) {
  RecordFormat format{};
  TENUTO_TOOL_TRY(choose_format(args.format, args.file, args.key_field, format));
  const bool to_stdout = args.file == "-";
  if (!to_stdout) TENUTO_TOOL_TRY(check_not_the_pool(args));
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::read));
  std::unique_ptr<Output> out;
  if (to_stdout) {
    out = std::make_unique<Output>(STDOUT_FILENO, "standard output");
  } else {
    TENUTO_TOOL_TRY(open_file_output(args.file, out));
    if (!is_special(args.file)) catch_stop_signals();  // there may be a temporary file
  }
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t records = 0;
  TENUTO_TOOL_TRY(write_collections(args, format, session, *out, records));
  TENUTO_TOOL_TRY(session.close());
  TENUTO_TOOL_TRY(out->finish());
  Facts facts;
  facts.text("path", "", args.path);
  facts.text("output", "to", to_stdout ? "standard output" : args.file);
  facts.count("records", "records", records);
  facts.bytes("output_bytes", "bytes", out->bytes());
  facts.seconds("seconds", "time",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (!to_stdout) {
    if (args.quiet && !args.json) return no_error();
    return print_facts(args, "dumped " + args.path, facts);
  }
  // Standard output holds the dump, so the summary goes to standard error, only if requested.
  Output err(STDERR_FILENO, "standard error");
  if (args.json) err.write(facts.json() + "\n");
  if (args.verbose && !args.json) err.write(facts.rows("dumped " + args.path));
  return err.finish();
}

}  // namespace tenuto::tool

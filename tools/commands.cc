// The commands of tools/tenuto, with their options, help and examples.
#include "commands.h"

#include <array>
#include <charconv>
#include <memory>

#include "command_line.h"
#include "tenuto_commands.h"
#include "tenuto_crash.h"

namespace tenuto::tool {
namespace {

Run add_create(CommandLine& line) {
  const auto args = std::make_shared<CreateArgs>();
  line.add_common(*args, false);
  line.add_new_pool(*args, "");
  line.add_flag("--force", args->force, "Replace the pool, or the empty file, that is there");
  static const std::map<std::string, Consistency> kVariants = {
      {"log", Consistency::log}, {"gc", Consistency::gc}, {"internal", Consistency::internal}};
  line.add_choice<Consistency>(
      "--consistency", kVariants, [&a = *args](Consistency c) { a.consistency = c; },
      "Objects after a crash: each call whole, found from the root, or found by walks [log]");
  line.add_flag("--canaries", args->canaries,
                "Objects have 8 bytes behind them, by which an overflow is found");
  return [args] { return run_create(*args); };
}

Run add_info(CommandLine& line) {
  const auto args = std::make_shared<CommonArgs>();
  line.add_common(*args, true);
  return [args] { return run_info(*args); };
}

Run add_check(CommandLine& line) {
  const auto args = std::make_shared<CheckArgs>();
  line.add_common(*args, true);
  line.add_text(
      "--repair", [&a = *args](std::string t) { a.repair = std::move(t); },
      "Write what is intact to this new pool, and say what is lost; PATH is not changed",
      "NEWPOOL");
  line.add_flag("--scavenge", args->scavenge,
                "With --repair: also records that may have been erased or replaced long ago");
  line.add_order(args->order, false, "With --repair: the order of keys if the pool does not say");
  return [args] { return run_check(*args); };
}

Run add_stats(CommandLine& line) {
  const auto args = std::make_shared<CommonArgs>();
  line.add_common(*args, true);
  return [args] { return run_stats(*args); };
}

Run add_put(CommandLine& line) {
  const auto args = std::make_shared<PutArgs>();
  line.add_common(*args, false);
  line.add_collection(*args);
  line.add_text(
          "KEY", [&a = *args](std::string t) { a.key = std::move(t); }, "The key")
      ->required();
  line.add_text(
      "VALUE", [&a = *args](std::string t) { a.value = std::move(t); }, "The value");
  line.add_text(
      "--value-file", [&a = *args](std::string t) { a.value_file = std::move(t); },
      "The value is the contents of this file; - is standard input", "FILE");
  line.add_size("--max-value", args->value_bytes_max, "With --value-file: the longest value");
  line.add_flag("--hex", args->hex, "KEY and VALUE are hexadecimal");
  line.add_count(
      "--ttl", [&a = *args](std::uint64_t n) { a.ttl_seconds = n; },
      "The record expires after so many seconds (in a collection made with --expires)");
  line.add_size_max(*args);
  return [args] { return run_put(*args); };
}

Run add_touch(CommandLine& line) {
  const auto args = std::make_shared<TouchArgs>();
  line.add_common(*args, false);
  line.add_collection(*args);
  line.add_texts("KEY", args->keys,
                 "The keys; one that is not there makes the exit code 1, the others are touched");
  line.add_flag("--hex", args->hex, "The keys are hexadecimal");
  line.add_count(
      "--ttl", [&a = *args](std::uint64_t n) { a.ttl_seconds = n; },
      "The records expire after so many seconds from now; 0: they do not expire");
  line.add_size_max(*args);
  return [args] { return run_touch(*args); };
}

Run add_get(CommandLine& line) {
  const auto args = std::make_shared<GetArgs>();
  line.add_common(*args, true);
  line.add_collection(*args);
  line.add_text(
          "KEY", [&a = *args](std::string t) { a.key = std::move(t); }, "The key")
      ->required();
  line.add_flag("--hex", args->hex, "KEY and the printed value are hexadecimal");
  line.add_flag("-n,--newline", args->newline, "End with a newline; a terminal always gets one");
  return [args] { return run_get(*args); };
}

Run add_del(CommandLine& line) {
  const auto args = std::make_shared<DelArgs>();
  line.add_common(*args, false);
  line.add_collection(*args);
  line.add_texts("KEY", args->keys,
                 "The keys; one that is not there makes the exit code 1, the others are deleted");
  line.add_flag("--hex", args->hex, "The keys are hexadecimal");
  return [args] { return run_del(*args); };
}

Run add_scan(CommandLine& line) {
  const auto args = std::make_shared<ScanArgs>();
  line.add_common(*args, true);
  line.add_collection(*args);
  line.add_range(*args);
  line.add_count(
      "--limit", [&a = *args](std::uint64_t n) { a.limit = n; }, "At most N records");
  line.add_flag("--reverse", args->reverse, "From the last key to the first");
  line.add_flag("--keys-only", args->keys_only, "No values");
  line.add_flag("--hex", args->hex, "Keys and values are hexadecimal, also in the options");
  return [args] { return run_scan(*args); };
}

Run add_load(CommandLine& line) {
  const auto args = std::make_shared<LoadArgs>();
  line.add_common(*args, false);
  line.add_collection(*args);
  line.add_text(
      "FILE", [&a = *args](std::string t) { a.file = std::move(t); },
      "The input; - or nothing is standard input");
  line.add_format(args->format, args->key_field, "Format of the input");
  line.add_flag("--create", args->create, "Make the pool when it is missing");
  line.add_new_pool(*args, ", with --create");
  line.add_size_max(*args);
  line.add_count(
      "--batch", [&a = *args](std::uint64_t n) { a.batch = n; },
      "Records that are written together or not at all [1000]");
  line.add_size("--max-line", args->line_bytes_max, "Longest record, with all its lines");
  line.add_flag("--skip-bad", args->skip_bad, "Leave malformed lines out and count them");
  line.add_flag("--large-pages", args->large_pages,
                "Ask for 2-MiB pages meanwhile, if the pool is in memory (tmpfs)");
  line.add_flag("--wear-levelling", args->wear_levelling,
                "Spread the writes over the pool, and count them");
  return [args] { return run_load(*args); };
}

Run add_dump(CommandLine& line) {
  const auto args = std::make_shared<DumpArgs>();
  line.add_common(*args, true);
  line.add_collection(*args);
  line.add_text(
      "FILE", [&a = *args](std::string t) { a.file = std::move(t); },
      "The output, replaced in one step; - or nothing is standard output");
  line.add_format(args->format, args->key_field, "Format of the output");
  line.add_range(*args);
  line.add_flag("--hex", args->hex, "The keys in the options are hexadecimal");
  return [args] { return run_dump(*args); };
}

Run add_collections(CommandLine& line) {
  const auto args = std::make_shared<CollectionsArgs>();
  line.add_common(*args, true);
  line.add_text(
      "--make", [&a = *args](std::string t) { a.make = std::move(t); }, "Make an empty one",
      "NAME");
  line.add_text(
      "--drop", [&a = *args](std::string t) { a.drop = std::move(t); },
      "Drop one with all its records", "NAME");
  line.add_text(
      "--rename", [&a = *args](std::string t) { a.rename = std::move(t); },
      "Give one the name of --to", "NAME");
  line.add_text(
      "--to", [&a = *args](std::string t) { a.to = std::move(t); }, "With --rename: the new name",
      "NAME");
  line.add_order(args->order, true, "With --make: the order of its keys");
  line.add_flag("--duplicates", args->duplicates, "With --make: a key has many values");
  line.add_flag("--expires", args->expires, "With --make: records may have a lifetime");
  return [args] { return run_collections(*args); };
}

Run add_backup(CommandLine& line) {
  const auto args = std::make_shared<BackupArgs>();
  line.add_common(*args, true);
  line.add_text(
          "NEWPOOL", [&a = *args](std::string t) { a.to = std::move(t); }, "The copy")
      ->required();
  return [args] { return run_backup(*args); };
}

Run add_compact(CommandLine& line) {
  const auto args = std::make_shared<CompactArgs>();
  line.add_common(*args, false);
  line.add_count(
      "--moves", [&a = *args](std::uint64_t n) { a.moves_max = n; },
      "Stop after about N records and leaves [no bound]");
  line.add_count(
      "--occupancy", [&a = *args](std::uint64_t n) { a.occupancy = n; },
      "Empty slabs of which less than N per cent is in use [70]");
  line.add_flag("--in-key-order", args->in_key_order,
                "Write all records anew, in the order of their keys; needs their room once more");
  return [args] { return run_compact(*args); };
}

Run add_gc(CommandLine& line) {
  const auto args = std::make_shared<GcArgs>();
  line.add_common(*args, false);
  line.add_flag("--free", args->free, "Free the objects that nothing leads to");
  return [args] { return run_gc(*args); };
}

Run add_settle(CommandLine& line) {
  const auto args = std::make_shared<SettleArgs>();
  line.add_common(*args, false);
  line.add_texts("POOL", args->others, "More pools; those that decide are opened first", false);
  static const std::map<std::string, InDoubt> kEnds = {{"commit", InDoubt::commit},
                                                       {"abort", InDoubt::abort}};
  line.add_choice<InDoubt>(
      "--as", kEnds, [&a = *args](InDoubt how) { a.in_doubt = how; },
      "End what is in doubt so, without the pool that decides; others may have ended otherwise");
  line.add_checked(
      "--forget",
      [&a = *args](const std::string& text) {
        std::uint64_t id = 0;
        const char* const end = text.data() + text.size();
        const bool whole = std::from_chars(text.data(), end, id, 16).ptr == end;
        if (!whole || text.size() != 16) return std::string("a pool id (16 hexadecimal digits)");
        a.lost = id;
        return std::string();
      },
      "That pool is lost: drop what it may still ask", "POOL_ID");
  return [args] { return run_settle(*args); };
}

Run add_crash_kill(CommandLine& line) {
  const auto args = std::make_shared<CrashKillArgs>();
  args->options.kills = 0;
  KillOptions& o = args->options;
  line.add_count(
      "--kills", [&o](std::uint64_t n) { o.kills = n; }, "Stop after N kills [1000]");
  line.add_checked(
      "--hours", [&o](const std::string& t) { return parse_hours(t, o.seconds); },
      "Stop after H hours; fractions count", "H");
  line.add_checked(
      "--threads", [&o](const std::string& t) { return parse_kill_threads(t, o.threads); },
      "Threads of the process that is killed; one of these is drawn each time [1,2,4]", "N,...");
  line.add_checked(
      "--engine",
      [&o](const std::string& t) {
        o.engines = parse_kill_engines(t);
        return std::string(o.engines == 0 ? "some of kv,batch,objects,heap" : "");
      },
      "What they work with [kv,batch,objects,heap]", "NAME,...");
  line.add_checked(
      "--mix", [&o](const std::string& t) { return parse_kill_mixes(t, o.mixes); },
      "How; one of these is drawn each time [uniform,hot,fill,long]", "NAME,...");
  line.add_text(
      "--pool", [&o](std::string t) { o.directory = std::move(t); },
      "Where the pools are made and removed [/dev/shm]", "DIR");
  line.add_text(
      "--findings", [&o](std::string t) { o.findings = std::move(t); },
      "Where findings are saved [.]", "DIR");
  line.add_size("--size-max", o.pool_bytes_max, "A pool may grow up to this");
  line.add_medium([&o](Medium m) { o.medium = m; });
  line.add_count(
      "--seed",
      [&a = *args](std::uint64_t n) {
        a.options.seed = n;
        a.has_seed = true;
      },
      "Of all that is drawn [random]");
  line.add_text(
      "--json", [&a = *args](std::string t) { a.json_file = std::move(t); },
      "Also write the summary as one JSON object; - is standard output", "FILE");
  line.add_flag("-q,--quiet", args->quiet, "No progress, no summary");
  return [args] {
    if (args->options.kills == 0 && args->options.seconds == 0) args->options.kills = 1000;
    return run_crash_kill(*args);
  };
}

constexpr std::array kCommands = {
    Command{"create", "Make a new pool with an empty store",
            "  tenuto create books.tnt --size 64M\n"
            "  tenuto create counters.tnt --order u64",
            add_create},
    Command{"info", "What a pool is, what it survives, how it was closed",
            "  tenuto info books.tnt --json", add_info},
    Command{"check",
            "Recover a pool, then check every record and all of its heap; rescue a damaged one",
            "  tenuto check books.tnt && echo sound\n"
            "  tenuto check books.tnt --read-only\n"
            "  tenuto check books.tnt --repair rescued.tnt",
            add_check},
    Command{"stats", "Sizes and counts of heap and index",
            "  tenuto stats books.tnt\n"
            "  tenuto stats books.tnt --medium model --json",
            add_stats},
    Command{"put", "Write one record",
            "  tenuto put books.tnt dune 'Frank Herbert'\n"
            "  tenuto put books.tnt cover --value-file cover.jpg\n"
            "  date | tenuto put books.tnt today --value-file -\n"
            "  tenuto put books.tnt --hex 00ff 6869\n"
            "  tenuto put books.tnt -- -key -value",
            add_put},
    Command{"touch", "Give records a new lifetime; their values stay",
            "  tenuto touch books.tnt --collection sessions ann bob --ttl 3600", add_touch},
    Command{"get", "Print the value of a key, byte by byte",
            "  tenuto get books.tnt dune\n"
            "  tenuto get books.tnt cover > cover.jpg",
            add_get},
    Command{"del", "Delete records", "  tenuto del books.tnt dune emma", add_del},
    Command{"scan", "Print records in the order of their keys",
            "  tenuto scan books.tnt --prefix d --limit 10\n"
            "  tenuto scan books.tnt --from a --to n --reverse --keys-only\n"
            "  tenuto scan books.tnt --json | jq .key",
            add_scan},
    Command{"load", "Write the records of a TSV, JSON lines, CSV or JSON file",
            "  tenuto load books.tnt books.tsv\n"
            "  tenuto load books.tnt books.jsonl --create --batch 10000\n"
            "  zcat big.tsv.gz | tenuto load books.tnt --format tsv\n"
            "  tenuto load books.tnt books.csv --key-field isbn",
            add_load},
    Command{"dump", "Write records to a TSV, JSON lines, CSV or JSON file",
            "  tenuto dump books.tnt books.tsv\n"
            "  tenuto dump books.tnt --format jsonl --prefix d | gzip > d.gz",
            add_dump},
    Command{"collections", "List the collections of a pool; make, rename or drop one",
            "  tenuto collections books.tnt\n"
            "  tenuto collections books.tnt --make authors\n"
            "  tenuto put books.tnt --collection authors herbert Frank",
            add_collections},
    Command{"backup", "Write all of a pool's records, in all collections, to a new pool",
            "  tenuto backup books.tnt books-today.tnt", add_backup},
    Command{"gc", "List the objects that no pointer leads to, and free them if asked to",
            "  tenuto gc app.tnt\n"
            "  tenuto gc app.tnt --free --json",
            add_gc},
    Command{"settle", "End transactions over several pools that a crash left open",
            "  tenuto settle accounts.tnt orders.tnt\n"
            "  tenuto settle orders.tnt --as abort\n"
            "  tenuto settle accounts.tnt --forget 00c0ffee00c0ffee",
            add_settle},
    Command{"compact", "Give space back that erased and replaced records left behind",
            "  tenuto compact books.tnt\n"
            "  tenuto compact books.tnt --moves 100000 --json\n"
            "  tenuto compact books.tnt --in-key-order",
            add_compact},
    Command{"import-pmemobj", "Copy a pool of libpmemobj for the drop-in (its own --help)", "",
            nullptr, run_import_pmemobj},
    Command{"crash kill", "Kill a working process again and again; check all it acknowledged",
            "  tenuto crash kill --kills 2000\n"
            "  tenuto crash kill --hours 8 --findings /var/tmp --json night.json\n"
            "  tenuto crash kill --engine kv,batch --mix hot --threads 4 --seed 7",
            add_crash_kill},
    Command{"crash run", "Explore every crash of the product's own structures (its own --help)", "",
            nullptr, run_crash_explorer},
    Command{"crash replay", "Run a finding again that the explorer saved", "", nullptr,
            run_crash_replay},
    Command{"crash life", "Run random whole lives of a store beside a model (its own --help)", "",
            nullptr, run_crash_life},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tenuto::tool

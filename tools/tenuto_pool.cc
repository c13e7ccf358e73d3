// Commands on a whole pool: info, check, stats.
#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "numbers.h"
#include "session.h"
#include "tenuto_commands.h"
#include "text_format.h"

namespace tenuto::tool {
namespace {

constexpr const char* kSafeWords = "safe: what was acknowledged survives a power cut";
constexpr const char* kUnsafeWords =
    "NOT safe: a power cut may damage this pool (a crash or kill of the process does not)";

std::string close_words(const PoolInfo& info) {
  if (info.was_clean) return "clean";
  return fmt::format(
      "not clean; recovered in {:.1f} ms, {} transactions rolled back, {} frames "
      "given back",
      info.recovery_ms, format_count(info.rolled_back), format_count(info.leaked_frames));
}

void add_last_close(const PoolInfo& info, Facts& facts) {
  facts.flag("was_clean", "last close", info.was_clean, close_words(info));
  facts.ms("recovery_ms", "", info.recovery_ms);
  if (info.collect_ms != 0) facts.ms("collect_ms", "  collection", info.collect_ms);
  facts.count("rolled_back", "", info.rolled_back);
  facts.count("leaked_frames", "", info.leaked_frames);
}

// The medium, and whether the pool survives a power cut on it.
void add_medium(const PoolInfo& info, Facts& facts) {
  facts.text("medium", "medium", medium_name(info.medium));
  facts.flag("power_cut_safe", "power cut", info.power_cut_safe,
             info.power_cut_safe ? kSafeWords : kUnsafeWords);
}

// Medium journal: the journal's id, its place, and whether it is the pool's own.
void add_journal(const PoolInfo& info, Facts& facts) {
  facts.text("journal", "", journal_found_name(info.journal_found));
  if (info.journal_found == JournalFound::none) return facts.row("journal", "it never had one");
  facts.text("journal_id", "journal id", fmt::format("{:016x}", info.journal_id));
  facts.text("journal_path", "", info.journal_path);
  facts.text("journal_last_place", "", info.journal_last_place);
  std::string words;
  append_escaped(words, info.journal_path);
  switch (info.journal_found) {
    case JournalFound::in_use:
    case JournalFound::fits:
      words += ": the pool's own";
      break;
    case JournalFound::gone:
      words += ": not there, and not needed; one is made for who opens the pool with a journal";
      break;
    default:
      words += ": NOT the pool's own, which is left alone, or open elsewhere";
  }
  facts.row("journal", words);
  if (info.journal_last_place.empty() || info.journal_last_place == info.journal_path) return;
  std::string place;
  append_escaped(place, info.journal_last_place);
  facts.row("journal was", place);
}

void add_store(Session& session, Facts& facts) {
  facts.flag("has_store", "", session.has_store(), "");
  if (!session.has_store()) {
    facts.text("", "store", "none");
    return;
  }
  const StoreStats stats = session.store().stats();
  const std::string order = form_words(session.store().order(), {}, false, false);
  facts.text("key_order", "", order);
  facts.count("records", "", stats.records);
  facts.text("", "store",
             fmt::format("{} records, keys are {}", format_count(stats.records), order));
  facts.bytes("index_dram_bytes", "index in DRAM", stats.index_dram_bytes);
}

// What the tool's own process has of the pool.
void add_memory(const PoolStats& s, Facts& facts) {
  facts.bytes("resident_bytes", "in memory", s.resident_bytes);
  facts.bytes("dirty_bytes", "  dirty", s.dirty_bytes);
  facts.bytes("private_bytes", "  private", s.private_bytes);
  facts.bytes("large_bytes", "  large pages", s.large_bytes);
}

// Only of a pool that was open with wear levelling.
void add_wear(const PoolStats& s, Facts& facts) {
  if (s.wear_lines == 0) return;
  const double mean = static_cast<double>(s.wear_lines) / static_cast<double>(s.wear_frames);
  facts.count("wear_lines", "lines written", s.wear_lines);
  facts.count("wear_frames", "  in frames", s.wear_frames);
  facts.count("wear_max", "  most in one", s.wear_max);
  const std::string spread = fmt::format("{:.2f}", static_cast<double>(s.wear_max) / mean);
  facts.row("  most / mean", spread);
  facts.member("\"wear_spread\":" + spread);
  facts.count("wear_bits_lines", "  bits", s.wear_bits_lines);
  facts.count("wear_bits_max", "  bits, most in one", s.wear_bits_max);
}

void add_stats(const PoolStats& s, const CommonArgs& args, Facts& facts) {
  facts.bytes("file_bytes", "file size", s.file_bytes);
  facts.bytes("disk_bytes", "on disk", s.disk_bytes);
  add_memory(s, facts);
  facts.bytes("used_bytes", "used frames", s.used_bytes);
  facts.bytes("allocated_bytes", "allocated", s.allocated_bytes);
  facts.bytes("cached_bytes", "in caches", s.cached_bytes);
  facts.count("slabs", "slabs", s.slabs);
  facts.count("extents", "extents", s.extents);
  facts.bytes("reclaimed_bytes", "free extents", s.reclaimed_bytes);
  facts.bytes("retained_bytes", "free extents, holes", s.retained_bytes);
  facts.bytes("book_bytes", "bookkeeping log", s.book_bytes);
  facts.bytes("book_list_bytes", "  in use", s.book_list_bytes);
  facts.count("book_live_entries", "  live entries", s.book_live_entries);
  facts.count("book_fast_gcs", "  pieces dropped", s.book_fast_gcs);
  facts.count("book_slow_gcs", "  written anew", s.book_slow_gcs);
  add_wear(s, facts);
  facts.count("zones", "zones", s.zones);
  facts.count("lanes", "lanes", s.lanes);
  if (s.numa.nodes > 1) {
    facts.count("numa_nodes", "NUMA nodes", s.numa.nodes);
    for (unsigned n = 0; n < s.numa.nodes; ++n) {
      const std::string node = std::to_string(n);
      facts.count(("numa_zones_" + node).c_str(), ("  zones of node " + node).c_str(),
                  s.numa.zones[n]);
    }
  }
  if (s.journal_bytes != 0) {
    facts.bytes("journal_bytes", "journal", s.journal_bytes);
    facts.bytes("journal_used_bytes", "journal, in use", s.journal_used_bytes);
    facts.count("journal_commits", "journal commits", s.journal_commits);
    facts.bytes("journal_payload_bytes", "journal content", s.journal_payload_bytes);
    facts.bytes("journal_written_bytes", "journal written", s.journal_written_bytes);
    facts.count("journal_device_flushes", "device flushes", s.journal_device_flushes);
    facts.count("journal_checkpoints", "checkpoints", s.journal_checkpoints);
    facts.bytes("journal_checkpoint_bytes", "checkpoints wrote", s.journal_checkpoint_bytes);
    facts.ms("journal_recovery_ms", "replay would take", s.journal_recovery_ms);
    facts.bytes("journal_replayed_bytes", "replayed", s.journal_replayed_bytes);
    facts.count("journal_replayed_lines", "  lines", s.journal_replayed_lines);
    facts.ms("journal_replay_ms", "  in", s.journal_replay_ms);
  }
  if (args.medium != Medium::model) return;
  // Counted on this medium only: the cost of this open.
  facts.count("lines_flushed", "lines flushed", s.lines_flushed);
  facts.count("fences", "fences", s.fences);
  facts.count("reflushes", "reflushes", s.reflushes);
  facts.count("writes_sequential", "writes, sequential", s.writes_sequential);
  facts.count("writes_random", "writes, random", s.writes_random);
}

}  // namespace

Error run_info(const CommonArgs& args) {
  Session session;
  TENUTO_TOOL_TRY(session.open(args, Access::read));
  const PoolInfo info = session.pool().info();
  const PoolStats stats = session.pool().stats();
  Facts facts;
  facts.text("path", "", args.path);
  facts.count("layout_version", "layout version", info.version);
  const std::string id = fmt::format("{:016x}", info.pool_id);
  facts.text("pool_id", "pool id", id);
  add_medium(info, facts);
  facts.text("consistency", "consistency", consistency_name(info.consistency));
  facts.flag("canaries", "canaries", info.canaries, info.canaries ? "behind objects" : "none");
  facts.flag("protection_keys", "protection keys", info.has_protection_keys,
             info.has_protection_keys ? "this machine has some" : "this machine has none");
  if (info.decisions_waiting != 0) {
    facts.count("decisions_waiting", "other pools may ask for", info.decisions_waiting);
  }
  add_journal(info, facts);
  add_last_close(info, facts);
  facts.ms("open_ms", "opened in", session.open_ms());
  facts.bytes("file_bytes", "file size", stats.file_bytes);
  add_memory(stats, facts);
  facts.bytes("used_bytes", "used frames", stats.used_bytes);
  facts.bytes("allocated_bytes", "allocated", stats.allocated_bytes);
  add_wear(stats, facts);
  add_store(session, facts);
  facts.text("root_layout", "", info.layout);
  facts.text("", "root object", info.layout.empty() ? "none" : info.layout);
  TENUTO_TOOL_TRY(session.close());
  return print_facts(args, args.path, facts);
}

Error run_stats(const CommonArgs& args) {
  Session session;
  TENUTO_TOOL_TRY(session.open(args, Access::read));
  Facts facts;
  facts.text("path", "", args.path);
  add_stats(session.pool().stats(), args, facts);
  add_store(session, facts);
  if (session.has_store()) {
    const StoreStats s = session.store().stats();
    facts.bytes("record_bytes", "keys and values", s.record_bytes);
    facts.count("leaves", "leaves", s.leaves);
    facts.count("shadow_leaves", "leaves in DRAM", s.shadow_leaves);
    facts.count("inner_nodes", "inner nodes", s.inner_nodes);
    facts.count("height", "height", s.height);
    facts.ms("rebuild_ms", "index rebuilt in", s.rebuild_ms);
  }
  TENUTO_TOOL_TRY(session.close());
  return print_facts(args, args.path, facts);
}

namespace {

// Prints the object of a failed check. The error is also printed on standard error.
Error report_unsound(const CommonArgs& args, Error error) {
  if (!args.json) return error;
  Facts facts;
  facts.text("path", "", args.path);
  facts.flag("sound", "", false, "");
  facts.text("status", "", status_name(error.status));
  facts.text("what", "", error.report.what);
  facts.text("where", "", error.report.where);
  facts.text("expected", "", error.report.expected);
  facts.text("found", "", error.report.found);
  if (Error print_error = print_facts(args, "", facts)) return print_error;
  return error;
}

}  // namespace

Error run_check(const CheckArgs& args) {
  if (!args.repair.empty()) return run_repair(args);
  if (args.scavenge) {
    return failed(Status::invalid_argument, "--scavenge needs --repair NEWPOOL", "--scavenge");
  }
  Session session;
  if (Error error = session.open(args, Access::read)) return report_unsound(args, error);
  const PoolInfo info = session.pool().info();
  const auto start = std::chrono::steady_clock::now();
  Report report;
  const Status status =
      session.has_store() ? session.store().validate(&report) : session.pool().validate(&report);
  const double check_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (status != Status::ok) {
    return report_unsound(args, store_failed(status, "the pool is not sound", args.path, report));
  }
  Facts facts;
  facts.text("path", "", args.path);
  facts.flag("sound", "", true, "");
  facts.text("status", "", status_name(Status::ok));
  add_last_close(info, facts);
  facts.ms("open_ms", "opened in", session.open_ms());
  facts.ms("check_ms", "checked in", check_ms);
  add_store(session, facts);
  if (Error error = session.close()) return report_unsound(args, error);
  if (args.quiet && !args.json) return no_error();
  return print_facts(args, args.path + ": sound", facts);
}

}  // namespace tenuto::tool

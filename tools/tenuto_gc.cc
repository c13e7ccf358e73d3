// gc: what a program has lost in a pool (tenuto/garbage.h).
#include <fmt/format.h>

#include "numbers.h"
#include "session.h"
#include "tenuto/garbage.h"
#include "tenuto_commands.h"

namespace tenuto::tool {
namespace {

std::string rows_json(const char* name, const std::vector<GarbageRow>& rows) {
  std::string json = fmt::format("\"{}\":[", name);
  for (const GarbageRow& r : rows) {
    if (json.back() != '[') json += ',';
    json += fmt::format("{{\"type\":{},\"block_bytes\":{},\"blocks\":{}}}", r.type, r.block_bytes,
                        r.blocks);
  }
  return json + "]";
}

void add_rows(const std::vector<GarbageRow>& rows, const char* member, const char* label, bool json,
              Facts& facts) {
  if (json) facts.member(rows_json(member, rows));
  for (const GarbageRow& r : rows) {
    const std::string type = r.type == 0 ? "" : fmt::format(" of type {}", r.type);
    facts.row(label, fmt::format("{} blocks of {} bytes{}", format_count(r.blocks),
                                 format_count(r.block_bytes), type));
  }
}

std::uint64_t blocks_of(const std::vector<GarbageRow>& rows) {
  std::uint64_t n = 0;
  for (const GarbageRow& r : rows) n += r.blocks;
  return n;
}
std::uint64_t bytes_of(const std::vector<GarbageRow>& rows) {
  std::uint64_t n = 0;
  for (const GarbageRow& r : rows) n += r.bytes();
  return n;
}

}  // namespace

Error run_gc(const GcArgs& args) {
  Session session;
  TENUTO_TOOL_TRY(session.open(args, args.free ? Access::write : Access::read));
  Report report;
  const Result<Garbage> found = session.pool().find_garbage({.free = args.free}, &report);
  if (!found) {
    return store_failed(found.error(), "cannot look for garbage", args.path, std::move(report));
  }
  const std::string done =
      args.free ? fmt::format("{} blocks were freed", format_count(found->freed_blocks)) : "";
  TENUTO_TOOL_TRY(session.close(done));
  if (args.quiet && !args.json) return no_error();
  Facts facts;
  facts.text("path", "", args.path);
  facts.count("reached_blocks", "reached by the root", found->reached_blocks);
  facts.bytes("reached_bytes", "", found->reached_bytes);
  add_rows(found->walked, "walked", "reached by a walk", args.json, facts);
  facts.count("lost_blocks", "lost", blocks_of(found->lost));
  facts.bytes("lost_bytes", "  bytes", bytes_of(found->lost));
  add_rows(found->lost, "lost", "  of these", args.json, facts);
  facts.count("freed_blocks", "freed", found->freed_blocks);
  facts.bytes("freed_bytes", "  bytes", found->freed_bytes);
  facts.ms("mark_ms", "marked in", found->mark_ms);
  return print_facts(args, args.path, facts);
}

}  // namespace tenuto::tool

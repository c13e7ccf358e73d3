// check --repair: writes the intact records of a damaged pool to a new pool and reports the losses.
// The library does the rescue (tenuto/rescue.h).
#include <fmt/format.h>
#include <unistd.h>

#include "numbers.h"
#include "session.h"
#include "tenuto/rescue.h"
#include "tenuto_commands.h"
#include "text_format.h"

namespace tenuto::tool {
namespace {

std::string key_text(KeyOrder order, std::string_view key) {
  if (const auto n = u64_of_key(key); n && is_of_integers(order)) return fmt::format("{}", *n);
  return in_quotes(key);
}

// " in collection "c": from key "a" to before key "m"". In a u64 pool, a separator need not be a
// whole key.
std::string range_words(KeyOrder order, const RescueLoss& loss) {
  const std::string in =
      loss.collection.empty() ? "" : " in collection " + in_quotes(loss.collection);
  if (!loss.about_keys) return in;
  const std::string from =
      loss.from.empty() ? "the first key" : "key " + key_text(order, loss.from);
  if (!loss.to) return fmt::format("{}: from {} to the last", in, from);
  return fmt::format("{}: from {} to before {}", in, from, key_text(order, *loss.to));
}

std::string losses_json(const RescueResult& r) {
  std::string json = "\"losses\":[";
  for (const RescueLoss& loss : r.losses) {
    if (json.back() != '[') json += ',';
    json += "{\"what\":";
    append_json_string(json, loss.report.what);
    json += ",\"where\":";
    append_json_string(json, loss.report.where);
    if (!loss.collection.empty()) {
      json += ',';
      append_json_member(json, "collection", loss.collection);
    }
    if (loss.about_keys) {
      json += ",\"from_hex\":\"";
      append_hex(json, loss.from);
      json += '"';
      if (loss.to) {
        json += ",\"to_hex\":\"";
        append_hex(json, *loss.to);
        json += '"';
      }
    }
    json += '}';
  }
  return json + "]";
}

void add_rescue(const CheckArgs& args, const RescueResult& r, Status status, Facts& facts) {
  facts.text("path", "", args.path);
  facts.text("new_path", "", args.repair);
  facts.flag("complete", "", status == Status::ok, "");
  facts.text("status", "", status_name(status));
  facts.flag("was_clean", "last close", r.was_clean,
             r.was_clean ? "clean" : "not clean, or unknown");
  facts.count("records", "rescued", r.records);
  if (r.expected) facts.count("expected", "at the last close", *r.expected);
  facts.bytes("record_bytes", "keys and values", r.record_bytes);
  facts.count("damaged", "damaged entries", r.damaged);
  facts.count("unproven", "left out, may be old", r.unproven);
  facts.count("scavenged", "taken, may be old", r.scavenged);
  facts.count("without_leaf", "found without a leaf", r.without_leaf);
  facts.count("leaves", "leaves read", r.leaves);
  facts.count("rolled_back", "rolled back", r.rolled_back);
  facts.count("losses_count", "places of loss", r.losses_count);
  if (args.json) facts.member(losses_json(r));
  for (const RescueLoss& loss : r.losses) {
    std::string words;
    append_escaped(words, loss.report.text());
    facts.row("lost", words + range_words(r.order, loss));
  }
  if (r.losses.size() < r.losses_count) {
    facts.text("", "lost", fmt::format("and {} more places", r.losses_count - r.losses.size()));
  }
  for (const Report& note : r.notes) facts.text("", "damaged", note.text());
}

}  // namespace

Error run_repair(const CheckArgs& args) {
  if (access(args.repair.c_str(), F_OK) == 0) {
    return failed(Status::exists, "there is a file already where the new pool should be",
                  args.repair, "choose another name; nothing is ever overwritten");
  }
  RescueOptions options;
  options.pool = pool_options(args, true);
  options.pool.read_only = false;
  options.scavenge = args.scavenge;
  options.journal = args.journal;
  options.order_otherwise = args.order;
  RescueResult result;
  Report report;
  Status status = Status::ok;
  const Error busy = patiently(args, [&] {
    status = rescue(args.path, args.repair, options, result, &report);
    return status == Status::busy ? store_failed(status, "", args.path, report) : no_error();
  });
  if (busy) return busy;
  const bool made = status == Status::ok || status == Status::corrupt;
  if (!made || access(args.repair.c_str(), F_OK) != 0) {
    Error error = store_failed(status, "the pool cannot be rescued", args.path, std::move(report));
    if (status == Status::not_found && access(args.path.c_str(), F_OK) != 0) {
      error.hint = kNoPoolHint;
    } else if (status == Status::not_found) {
      error.hint = args.scavenge ? "restore a backup" : "try --scavenge, or restore a backup";
    }
    // Not the default hint, which suggests this command.
    if (status == Status::corrupt || status == Status::invalid_argument) {
      error.hint = "no new pool was made";
    }
    return error;
  }
  Facts facts;
  add_rescue(args, result, status, facts);
  if (!args.quiet || args.json) {
    TENUTO_TOOL_TRY(print_facts(args, fmt::format("{} from {}", args.repair, args.path), facts));
  }
  if (status == Status::ok) return no_error();
  const char* hint = result.unproven > 0
                         ? "the new pool holds the rest; --scavenge adds what may be old"
                         : "the new pool holds the rest";
  return failed(status, fmt::format("{} records were rescued, and some are lost", result.records),
                args.path, hint);
}

}  // namespace tenuto::tool

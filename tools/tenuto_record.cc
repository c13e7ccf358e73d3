// Commands on records: put, touch, get, del, scan.
#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "numbers.h"
#include "process.h"
#include "session.h"
#include "tenuto_commands.h"

namespace tenuto::tool {
namespace {

constexpr std::uint64_t kTtlSecondsMax = 1ull << 40;

constexpr std::size_t kReadBytes = 1u << 20;

Error too_long(const PutArgs& args, const std::string& name) {
  return failed(Status::too_large, "the value is above " + format_size(args.value_bytes_max), name,
                "raise --max-value, or split the value over several keys");
}

// An endless input uses at most the memory of the longest value.
Error read_all(const PutArgs& args, int fd, const std::string& name, std::string& bytes) {
  struct stat info {};
  const bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (is_file && static_cast<std::uint64_t>(info.st_size) > args.value_bytes_max) {
    return too_long(args, name);
  }
  std::uint64_t end = 0;
  while (true) {
    // Reads one byte more than allowed, to detect an input that continues.
    const std::uint64_t want = std::min<std::uint64_t>(kReadBytes, args.value_bytes_max + 1 - end);
    if (bytes.size() - end < want) bytes.resize(end + std::max<std::uint64_t>(want, end / 2));
    const ssize_t n = read(fd, bytes.data() + end, want);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_failed(errno, "cannot read the value", name);
    if (n == 0) break;
    end += static_cast<std::uint64_t>(n);
    if (end > args.value_bytes_max) return too_long(args, name);
  }
  bytes.resize(end);
  return no_error();
}

Error value_of(const PutArgs& args, std::string& value) {
  if (args.value_file == "-") return read_all(args, STDIN_FILENO, "standard input", value);
  if (!args.value_file.empty()) {
    const int fd = open(args.value_file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return os_failed(errno, "cannot open the value file", args.value_file);
    Error error = read_all(args, fd, args.value_file, value);
    close(fd);
    return error;
  }
  if (args.hex) return parse_key(KeyOrder::bytes, true, *args.value, "VALUE", value);
  value = *args.value;
  return no_error();
}

// Whether a record of the collection can have this lifetime.
Error check_ttl(const CommonArgs& args, Session& session, std::uint64_t seconds) {
  if (!session.records().expires()) {
    return failed(Status::invalid_argument, "no record of this collection expires",
                  args.path + ", --ttl",
                  "'tenuto collections PATH --make NAME --expires' makes one whose records do");
  }
  if (seconds > kTtlSecondsMax) {
    return failed(Status::invalid_argument, "the lifetime is too long", "--ttl",
                  fmt::format("at most {} seconds", kTtlSecondsMax));
  }
  return no_error();
}

Error no_such_key(const Session& session, std::string_view key) {
  return failed(Status::not_found, "no such key", session.where(key));
}

void append_scan_line(const ScanArgs& args, const Session& session, const Iterator& it,
                      std::string& line) {
  const KeyOrder order = session.order();
  if (args.json && args.keys_only) {
    line += '{';
    append_key_member(order, it.key(), line);
    line += '}';
  } else if (args.json) {
    append_record(RecordFormat::jsonl, order, it.key(), it.value(), line, session.expires_ms(it));
  } else if (args.hex) {
    append_hex(line, it.key());
    if (!args.keys_only) append_hex(line += '\t', it.value());
  } else if (args.keys_only) {
    append_key_text(order, it.key(), line);
  } else {
    append_record(RecordFormat::tsv, order, it.key(), it.value(), line, session.expires_ms(it));
  }
  line += '\n';
}

}  // namespace

Error run_put(const PutArgs& args) {
  if (args.value.has_value() == !args.value_file.empty()) {
    return failed(Status::invalid_argument, "put takes a VALUE or --value-file, one of them");
  }
  std::string value;
  TENUTO_TOOL_TRY(value_of(args, value));
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::write));
  const KeyOrder order = session.order();
  std::string key;
  TENUTO_TOOL_TRY(parse_key(order, args.hex, args.key, "KEY", key));
  if (args.ttl_seconds != 0) TENUTO_TOOL_TRY(check_ttl(args, session, args.ttl_seconds));
  const Status status = session.records().put(key, value, {.ttl_ms = args.ttl_seconds * 1000});
  if (status != Status::ok)
    return call_failed(session.pool(), status, "cannot put", session.where(key));
  TENUTO_TOOL_TRY(session.close("the record was written"));
  if (!args.json) return no_error();
  std::string object = "{";
  append_key_member(order, key, object);
  return print_line(object + fmt::format(",\"value_bytes\":{}}}", value.size()));
}

Error run_get(const GetArgs& args) {
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::read));
  const KeyOrder order = session.order();
  std::string key;
  TENUTO_TOOL_TRY(parse_key(order, args.hex, args.key, "KEY", key));
  std::string value;
  const Status status = session.records().get(key, value);
  if (status == Status::not_found) return no_such_key(session, key);
  if (status != Status::ok)
    return call_failed(session.pool(), status, "cannot get", session.where(key));
  TENUTO_TOOL_TRY(session.close());
  std::string text;
  if (args.json) {
    append_record(RecordFormat::jsonl, order, key, value, text);
  } else if (args.hex) {
    append_hex(text, value);
  } else {
    text = std::move(value);
  }
  if (args.json || args.newline || is_terminal(STDOUT_FILENO)) text += '\n';
  Output out(STDOUT_FILENO, "standard output");
  out.write(text);
  return out.finish();
}

namespace {

// Does `change` to each of the keys. `what`: the command; `done`: the JSON member for the number of
// keys that were there.
template <class Args, class Change>
Error for_each_key(const Args& args, Session& session, std::string_view what, std::string_view done,
                   const Change& change) {
  const KeyOrder order = session.order();
  // Parses the whole command line before changing anything.
  std::vector<std::string> keys(args.keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    TENUTO_TOOL_TRY(parse_key(order, args.hex, args.keys[i], "KEY", keys[i]));
  }
  std::uint64_t changed = 0;
  std::string missing_json;
  Error missing;
  for (const std::string& key : keys) {
    const Status status = change(key);
    if (status == Status::ok) {
      ++changed;
      continue;
    }
    if (status != Status::not_found) {
      Error error =
          call_failed(session.pool(), status, fmt::format("cannot {}", what), session.where(key));
      if (changed > 0) error.report.what += fmt::format("; {} before it: {}", done, changed);
      return error;
    }
    missing_json += missing_json.empty() ? "{" : ",{";
    append_key_member(order, key, missing_json);
    missing_json += '}';
    if (missing) {
      missing.report.where += ", " + session.where(key).substr(args.path.size() + 2);
    } else {
      missing = no_such_key(session, key);
    }
  }
  TENUTO_TOOL_TRY(session.close(fmt::format("{}: {}", done, changed)));
  if (args.json) {
    TENUTO_TOOL_TRY(
        print_line(fmt::format("{{\"{}\":{},\"missing\":[{}]}}", done, changed, missing_json)));
  }
  return missing;
}

}  // namespace

Error run_del(const DelArgs& args) {
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::write));
  return for_each_key(args, session, "del", "deleted",
                      [&](const std::string& key) { return session.records().erase(key); });
}

Error run_touch(const TouchArgs& args) {
  if (!args.ttl_seconds) {
    return failed(Status::invalid_argument, "touch needs --ttl", args.path,
                  "--ttl SECONDS, or --ttl 0 for records that are not to expire any more");
  }
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::write));
  TENUTO_TOOL_TRY(check_ttl(args, session, *args.ttl_seconds));
  const WriteOptions how{.ttl_ms = *args.ttl_seconds * 1000};
  return for_each_key(args, session, "touch", "touched",
                      [&](const std::string& key) { return session.records().touch(key, how); });
}

Error run_scan(const ScanArgs& args) {
  Session session;
  TENUTO_TOOL_TRY(session.open_store(args, Access::read));
  const KeyOrder order = session.order();
  IteratorOptions options;
  TENUTO_TOOL_TRY(parse_range(args, order, options));
  Output out(STDOUT_FILENO, "standard output");
  Status status = Status::ok;
  {
    Iterator it = session.records().iterator(options);
    std::uint64_t left = args.limit.value_or(UINT64_MAX);
    std::string line;
    if (left > 0) args.reverse ? it.seek_last() : it.seek_first();
    while (left > 0 && it.valid() && out.ok()) {
      line.clear();
      append_scan_line(args, session, it, line);
      out.write(line);
      if (--left > 0) args.reverse ? it.prev() : it.next();
    }
    status = it.status();
  }
  Error error = out.finish();
  if (status != Status::ok)
    return call_failed(session.pool(), status, "the scan found damage", args.path);
  TENUTO_TOOL_TRY(session.close());
  return error;
}

}  // namespace tenuto::tool

// See session.h.
#include "session.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "numbers.h"
#include "process.h"

namespace tenuto::tool {

namespace {
// A command's journal exists only during the command. It is small because making it writes it all.
constexpr std::uint64_t kJournalBytes = 8u << 20;

// Tells a user who only wants to read that the pool will also be written.
std::string recovery_note(const CommonArgs& args) {
  const std::string& path = args.path;
  const std::string journal = args.journal.empty() ? path + ".journal" : args.journal;
  const bool beside = ::access(journal.c_str(), F_OK) == 0;
  return fmt::format(
      "{} was not closed cleanly and is recovered before it is read, which writes to it{}; "
      "--read-only leaves it as it is",
      path, beside ? " and uses up " + journal : "");
}
}  // namespace

PoolOptions pool_options(const CommonArgs& args, bool notes) {
  PoolOptions options;
  options.medium = args.medium;
  options.journal.path = args.journal;
  options.journal.bytes = kJournalBytes;
  options.journal.keep = false;
  options.read_only = args.read_only;
  options.size_max = args.size_max;
  options.large_pages = args.large_pages;  // else not worth it for one command
  options.heap.wear_levelling = args.wear_levelling;
  if ((notes || args.verbose) && !args.quiet) options.log = print_note;
  return options;
}

Session::Session()
    : clock_ms_(static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                               std::chrono::system_clock::now().time_since_epoch())
                                               .count())) {}

Error Session::open(const CommonArgs& args, Access access) {
  if (args.read_only) return try_open(args, true);
  if (access == Access::read) {
    Error error = try_open(args, true);
    // read_only: the pool was not closed cleanly and must be recovered, which is a write.
    if (error.status != Status::read_only) return error;
    if (!args.quiet) print_note(recovery_note(args));
  } else {
    catch_stop_signals();
  }
  return try_open(args, false);
}

namespace {

// Says who has the pool open.
void add_holders(const CommonArgs& args, Error& error) {
  std::string who;
  for (const int pid : holders_of(args.path)) {
    who += (who.empty() ? "process " : ", ") + std::to_string(pid);
  }
  if (who.empty()) who = "another process";
  error.hint = who + " has it open; close it there, or wait for that with --wait SECONDS";
}

bool is_pool(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return false;
  const Result<Pool> pool = Pool::open(path, {.read_only = true});
  const Status s = pool ? Status::ok : pool.error();
  return s == Status::ok || s == Status::read_only || s == Status::busy;
}

// PATH is no pool. If another word of the command is one, the two were exchanged.
void add_path_hint(const CommonArgs& args, Error& error) {
  if (is_pool(args.path)) return;  // something else is missing
  const auto pool = std::find_if(args.words.begin(), args.words.end(), is_pool);
  if (pool != args.words.end()) {
    error.hint = "the pool comes before the other words: " + *pool;
  } else if (error.status == Status::not_found && access(args.path.c_str(), F_OK) != 0) {
    error.hint = kNoPoolHint;
  }
}

}  // namespace

Error patiently(const CommonArgs& args, const std::function<Error()>& open) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(args.wait_seconds);
  for (;;) {
    Error error = open();
    if (error.status != Status::busy) return error;
    if (stop_requested()) return stopped(args.path, "nothing was done");
    if (std::chrono::steady_clock::now() >= end) {
      add_holders(args, error);
      return error;
    }
    std::this_thread::sleep_for(kPause);
  }
}

Error Session::try_open(const CommonArgs& args, bool read_only) {
  return patiently(args, [&] { return open_once(args, read_only); });
}

Error Session::open_once(const CommonArgs& args, bool read_only) {
  path_ = args.path;
  StoreOptions options;
  options.pool = pool_options(args, false);
  options.pool.read_only = read_only;
  options.create_if_missing = false;
  options.clock_ms = [now = clock_ms_] { return now; };
  Report report;
  const auto start = std::chrono::steady_clock::now();
  // Opens the pool first. Otherwise, for a pool with objects only, the search for a store would
  // recover and close it, and the pool would then appear to have been clean.
  Result<Pool> pool = Pool::open(args.path, options.pool, &report);
  Status status = pool ? Status::ok : pool.error();
  if (pool) {
    Result<Store> store = Store::open(std::move(*pool), options, &report);
    if (store) {
      store_.emplace(std::move(*store));
    } else if (store.error() == Status::not_found) {
      pool_.emplace(std::move(*pool));
    } else {
      status = store.error();
    }
  }
  open_ms_ =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (status == Status::ok) return no_error();
  Error error = store_failed(status, "cannot open the pool", args.path, std::move(report));
  if (status == Status::not_found || status == Status::not_a_pool) add_path_hint(args, error);
  if (status == Status::in_doubt) {
    error.hint = "'tenuto settle " + args.path + " OTHER_POOL' opens both and ends it";
  }
  return error;
}

Error Session::open_store(const CommonArgs& args, Access access) {
  TENUTO_TOOL_TRY(open(args, access));
  if (has_store()) return find_collection(args, {.create_if_missing = false});
  return failed(Status::not_found, "the pool holds objects but no key-value store", args.path,
                "'tenuto info' says what is in it");
}

Error Session::open_or_create_store(const CommonArgs& args, const NewPoolArgs& new_pool,
                                    const CollectionOptions& form) {
  catch_stop_signals();
  path_ = args.path;
  StoreOptions options;
  options.pool = pool_options(args, true);
  options.pool.size = new_pool.size;
  if (args.size_max != 0) options.pool.size_max = std::max(args.size_max, new_pool.size);
  options.order = new_pool.order;
  options.clock_ms = [now = clock_ms_] { return now; };
  const auto open = [&]() -> Error {
    Report report;
    Result<Store> store = Store::open(args.path, options, &report);
    if (!store) {
      return store_failed(store.error(), "cannot open or create the pool", args.path,
                          std::move(report));
    }
    store_.emplace(std::move(*store));
    return no_error();
  };
  TENUTO_TOOL_TRY(patiently(args, open));
  return find_collection(args, form);
}

Error Session::find_collection(const CommonArgs& args, const CollectionOptions& options) {
  records_ = *store_;
  return args.collection.empty() ? no_error() : select(args.collection, options);
}

Error Session::select(const std::string& name, const CollectionOptions& options) {
  Report report;
  Result<Collection> there = store_->collection(name, options, &report);
  if (!there) {
    Error error = store_failed(there.error(), "cannot open the collection", path_, report);
    if (there.error() == Status::not_found) error.hint = "'tenuto collections PATH' lists them";
    return error;
  }
  records_ = std::move(*there);
  return no_error();
}

Error call_failed(const Pool& pool, Status status, std::string what, std::string where) {
  Report why;
  if (pool.health(&why) != status || status == Status::ok) why = {};
  if (!why.what.empty()) why.what = what + ": " + why.what;
  return store_failed(status, std::move(what), std::move(where), std::move(why));
}

Error Session::close(std::string_view done) {
  const std::string what = done.empty() ? "cannot close the pool"
                                        : fmt::format("{}, but the pool cannot be closed", done);
  Status status = Status::ok;
  Error damage;
  if (store_ || pool_) {
    // What the open of a killed pool has left is done now. A closed pool cannot say what was found.
    static_cast<void>(pool().info());
    damage = call_failed(pool(), pool().health(), what, path_);
  }
  if (store_) {
    status = store_->close();
  } else if (pool_) {
    status = pool_->close();
  }
  store_.reset();
  pool_.reset();
  if (status == Status::ok) return no_error();
  if (status == damage.status) return damage;
  return store_failed(status, what, path_);
}

std::string Session::where(std::string_view key) const {
  std::string shown = in_quotes(key);
  if (has_store() && is_of_integers(order()) && key.size() == 8) {
    shown = fmt::format("{}", u64_of_key(key).value_or(0));
  }
  return fmt::format("{}, key {}", path_, shown);
}

Error parse_key(KeyOrder order, bool hex, const std::string& text, std::string_view what,
                std::string& key) {
  MaybeError error;
  if (hex) {
    error = parse_hex(text, 1, key);
    if (!error && is_of_integers(order) && key.size() != 8) {
      error = FormatError{1, "the keys of this pool have 8 bytes (u64), so 16 digits"};
    }
  } else if (is_of_integers(order)) {
    std::uint64_t number = 0;
    error = parse_u64(text, 1, number);
    if (error) error->what += "; the keys of this pool are numbers (u64)";
    key = std::string_view(u64_key(number));
  } else {
    key = text;
  }
  if (!error) return no_error();
  return failed(Status::invalid_argument, error->what,
                fmt::format("{} {}, column {}", what, in_quotes(text), error->column));
}

Error parse_range(const RangeArgs& args, KeyOrder order, IteratorOptions& options) {
  if (args.prefix) {
    if (is_of_integers(order)) {
      return failed(Status::invalid_argument, "a pool with u64 keys has no prefixes", "--prefix",
                    "use --from and --to");
    }
    TENUTO_TOOL_TRY(parse_key(order, args.hex, *args.prefix, "--prefix", options.prefix));
  }
  if (args.from) {
    TENUTO_TOOL_TRY(parse_key(order, args.hex, *args.from, "--from", options.lower.emplace()));
  }
  if (args.to) {
    TENUTO_TOOL_TRY(parse_key(order, args.hex, *args.to, "--to", options.upper.emplace()));
  }
  return no_error();
}

Error print_facts(const CommonArgs& args, std::string_view title, const Facts& facts) {
  Output out(STDOUT_FILENO, "standard output");
  out.write(args.json ? facts.json() + "\n" : facts.rows(title));
  return out.finish();
}

Error print_line(std::string_view line) {
  Output out(STDOUT_FILENO, "standard output");
  out.write(line);
  out.write("\n");
  return out.finish();
}

void print_note(std::string_view text) {
  // Writes to the descriptor directly: a closed standard error must not stop the work.
  const std::string line = fmt::format("tenuto: note: {}\n", text);
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tenuto::tool

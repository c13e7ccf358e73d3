// create. --force may replace a pool, or an empty file, but never another file and never a pool in
// use. The old pool stays until the new one is complete. Its journal is removed with it.
//
// The journal must also provably belong to the old pool; otherwise the command refuses. The journal
// is emptied into the old pool before the replacement. From then on the old pool is held open, so
// that no other process writes to it, or needs its journal. The journal goes first: once the new
// pool has the name, it may be that pool's. So if this process ends early, it leaves the old pool,
// closed, with or without its journal, or the new pool.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "numbers.h"
#include "process.h"
#include "session.h"
#include "tenuto_commands.h"

namespace tenuto::tool {
namespace {

// Opens the pool for writing and closes it. After that it is clean and its journal is empty.
Status close_cleanly(const CreateArgs& args, Report& report) {
  PoolOptions options = pool_options(args, false);
  Result<Pool> pool = Pool::open(args.path, options, &report);
  return pool ? pool->close() : pool.error();
}

// Does not follow links: their targets belong to others.
bool is_there(const std::string& path) {
  struct stat st {};
  return lstat(path.c_str(), &st) == 0;
}

// What is replaced.
struct OldPool {
  std::optional<Pool> held;  // nullopt: it does not open
  std::string journal;       // its own, to be removed with it; empty: it has none
};

Error check_replaceable(const CreateArgs& args, OldPool& replaced) {
  struct stat old {};
  if (stat(args.path.c_str(), &old) != 0) return no_error();
  if (S_ISREG(old.st_mode) && old.st_size == 0) return no_error();
  Report report;
  PoolOptions options = pool_options(args, false);
  options.read_only = true;
  Result<Pool> pool = Pool::open(args.path, options, &report);
  if (pool.error() == Status::read_only) {
    const Status s = close_cleanly(args, report);
    if (s == Status::ok) pool = Pool::open(args.path, options, &report);
    // Another process opens it at this moment; or another pool decides what is in it.
    if (s == Status::busy || s == Status::in_doubt) pool = s;
  }
  switch (pool.error()) {
    case Status::busy:
    case Status::in_doubt:
    case Status::permission:
    case Status::io:
      return store_failed(pool.error(), "cannot replace the pool", args.path, std::move(report));
    case Status::not_a_pool:
      return failed(Status::not_a_pool,
                    "--force replaces pools and empty files only, and this is neither", args.path,
                    "remove the file yourself if it is not needed");
    default:
      break;  // sound, damaged, of another version, or lacking a journal that it needs
  }
  const std::string beside = args.journal.empty() ? args.path + ".journal" : args.journal;
  if (pool) {
    const PoolInfo info = pool->info();
    if (info.journal_found == JournalFound::fits) replaced.journal = info.journal_path;
    replaced.held.emplace(std::move(*pool));
    if (info.journal_found == JournalFound::fits || !is_there(beside)) {
      return no_error();
    }
  } else if (!is_there(beside)) {
    return no_error();
  }
  return failed(Status::exists,
                "something stands where the journal goes that is not provably this pool's own",
                beside, "move it away; --force removes a journal only with its pool");
}

// Removes what a killed `create --force` left: a pool with a temporary name that no process has
// open.
void remove_left_over(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (!is_temporary_name(entry->d_name, path)) continue;
    const std::string found = folder + "/" + entry->d_name;
    PoolOptions options;
    options.medium = Medium::cache;  // to write: its maker holds it until it has its name
    const Result<Pool> left = Pool::open(found, options);
    if (left) unlink(found.c_str());
  }
  closedir(dir);
}

// `mode`: of the new file; 0: the library's.
Error create_at(const CreateArgs& args, const std::string& path, unsigned mode) {
  StoreOptions options;
  options.pool = pool_options(args, true);
  options.pool.size = args.size;
  options.pool.consistency = args.consistency;
  options.pool.canaries = args.canaries;
  options.pool.mode = mode;
  if (args.size_max != 0) options.pool.size_max = std::max(args.size_max, args.size);
  options.error_if_exists = true;
  options.order = args.order;
  Report report;
  Result<Store> store = Store::open(path, options, &report);
  if (!store) {
    Error error =
        store_failed(store.error(), "cannot create the pool", args.path, std::move(report));
    if (error.status == Status::full) error.hint = "free space there, or give a smaller --size";
    if (error.report.where == path) error.report.where = args.path;  // not the temporary name
    return error;
  }
  const Status status = store->close();
  if (status != Status::ok) return store_failed(status, "cannot close the new pool", args.path);
  return no_error();
}

Error replace(CreateArgs args) {
  // A link stays, and the pool that it leads to is replaced.
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(args.path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return os_failed(errno, "cannot find the pool", args.path);
  args.path = real.get();
  OldPool old;
  TENUTO_TOOL_TRY(check_replaceable(args, old));
  remove_left_over(args.path);
  const std::string fresh = temporary_name(args.path);
  // It is closed before it replaces the old pool, so it needs no journal.
  CreateArgs how = args;
  if (args.medium == Medium::automatic || args.medium == Medium::journal) {
    how.medium = Medium::cache;
    how.quiet = true;  // the note about power cuts does not apply to it
  }
  struct stat st {};
  const unsigned mode = stat(args.path.c_str(), &st) == 0 ? st.st_mode & 0666 : 0;
  TENUTO_TOOL_TRY(create_at(how, fresh, mode));
  PoolOptions to_read;
  to_read.read_only = true;
  const Result<Pool> held = Pool::open(fresh, to_read);
  const auto put_in_place = [&]() -> Error {
    // It may be on a medium that writes nothing to the device.
    TENUTO_TOOL_TRY(write_to_device(fresh));
    if (!old.journal.empty() && unlink(old.journal.c_str()) != 0 && errno != ENOENT) {
      return os_failed(errno, "cannot remove the old pool's journal", old.journal);
    }
    return rename_durably(fresh, args.path);
  };
  Error error = put_in_place();
  if (error) unlink(fresh.c_str());
  return error;
}

}  // namespace

Error run_create(const CreateArgs& args) {
  catch_stop_signals();  // it is short, so it is done whole
  if (args.force && access(args.path.c_str(), F_OK) == 0) {
    TENUTO_TOOL_TRY(patiently(args, [&] { return replace(args); }));
  } else if (access(args.path.c_str(), F_OK) == 0) {
    // Checked first: the library would open an existing pool, and recover it.
    return failed(Status::exists, "there is a file already", args.path,
                  "--force replaces a pool or an empty file");
  } else {
    TENUTO_TOOL_TRY(patiently(args, [&] { return create_at(args, args.path, 0); }));
  }
  Facts facts;
  facts.text("path", "", args.path);
  facts.bytes("size", "size", args.size);
  facts.text("key_order", "keys", form_words(args.order, {}, false, false));
  if (args.quiet && !args.json) return no_error();
  return print_facts(args, "created " + args.path, facts);
}

}  // namespace tenuto::tool

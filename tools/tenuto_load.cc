// load: reads records from TSV or JSON lines and writes them in atomic batches.
#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk.h"
#include "line_reader.h"
#include "numbers.h"
#include "process.h"
#include "progress.h"
#include "session.h"
#include "tenuto_commands.h"

namespace tenuto::tool {
namespace {

// Large records make small batches, or a batch would hold the whole input in memory.
constexpr std::uint64_t kBatchBytesMax = 16ull << 20;
constexpr std::uint64_t kBadLinesShown = 10;

class Loader {
 public:
  Loader(const LoadArgs& args, RecordFormat format, int fd, std::string name,
         std::uint64_t input_bytes)
      : args_(args),
        format_(format),
        name_(std::move(name)),
        reader_(fd, args.line_bytes_max),
        progress_(is_terminal(STDERR_FILENO) && !args.quiet && !args.json, input_bytes) {}

  Error run(Session& session) {
    const KeyKind kind = session.key_kind();
    Store& store = session.store();
    into_ = session.records();
    std::string_view line;
    while (true) {
      Status status = reader_.next(line);
      if (status == Status::ok) {
        if (MaybeError bad = parse_record(format_, kind, line, record_)) {
          TENUTO_TOOL_TRY(bad_line(store, *bad));
          continue;
        }
        TENUTO_TOOL_TRY(add(store));
        // A program that writes slowly into the pipe should still see a Ctrl-C obeyed.
        if (!stop_requested()) continue;
        status = Status::aborted;
      }
      if (status == Status::too_large) {
        TENUTO_TOOL_TRY(bad_line(store, {1, fmt::format("a line above {}, see --max-line",
                                                        format_size(args_.line_bytes_max))}));
        continue;
      }
      TENUTO_TOOL_TRY(write_batch(store));
      progress_.clear();
      if (status == Status::not_found) return no_error();
      if (status == Status::aborted) {
        return failed(Status::aborted, "stopped by a signal", after_line(), loaded_words());
      }
      return os_failed(reader_.error_number(), "cannot read", name_);
    }
  }

  std::uint64_t records() const { return records_; }
  std::uint64_t record_bytes() const { return record_bytes_; }
  std::uint64_t bad_lines() const { return bad_lines_; }
  std::uint64_t batches() const { return batches_; }

 private:
  Error add(Store& store) {
    if (batch_.empty()) first_line_ = reader_.line_number();
    batch_.put(into_, record_.key, record_.value);
    batch_bytes_ += record_.key.size() + record_.value.size();
    progress_.update(records_ + batch_.count(), reader_.bytes_read());
    if (batch_.count() < args_.batch && batch_bytes_ < kBatchBytesMax) return no_error();
    return write_batch(store);
  }

  Error write_batch(Store& store) {
    if (batch_.empty()) return no_error();
    const Status status = store.write(batch_);
    if (status != Status::ok) {
      progress_.clear();
      Error error = store_failed(status,
                                 fmt::format("cannot write the records of lines {} to {}",
                                             first_line_, reader_.line_number()),
                                 fmt::format("{}, from {}", args_.path, name_));
      error.hint = loaded_words();
      if (status == Status::full) {
        error.hint += "; raise --size-max, or free space on the file system";
      }
      return error;
    }
    ++batches_;
    records_ += batch_.count();
    record_bytes_ += batch_bytes_;
    batch_.clear();
    batch_bytes_ = 0;
    return no_error();
  }

  Error bad_line(Store& store, const FormatError& bad) {
    ++bad_lines_;
    const std::string where =
        fmt::format("{}, line {}, column {}", name_, reader_.line_number(), bad.column);
    if (args_.skip_bad) {
      if (bad_lines_ <= kBadLinesShown && !args_.quiet) {
        progress_.clear();
        print_note(fmt::format("skipped: {} [{}]", bad.what, where));
      }
      return no_error();
    }
    // What stands before the bad line is good and is kept.
    TENUTO_TOOL_TRY(write_batch(store));
    progress_.clear();
    return failed(Status::invalid_argument, bad.what, where,
                  "correct the line, or leave such lines out with --skip-bad; " + loaded_words());
  }

  std::string after_line() const {
    return fmt::format("{}, line {}", name_, reader_.line_number());
  }
  std::string loaded_words() const {
    if (records_ == 0) return "nothing was loaded";
    return fmt::format("what stands before is loaded (records: {})", format_count(records_));
  }

  const LoadArgs& args_;
  RecordFormat format_;
  std::string name_;
  LineReader reader_;
  Progress progress_;
  Record record_;
  Collection into_;
  WriteBatch batch_;
  std::uint64_t batch_bytes_ = 0;
  std::uint64_t first_line_ = 0;  // of the batch
  std::uint64_t records_ = 0;
  std::uint64_t record_bytes_ = 0;
  std::uint64_t bad_lines_ = 0;
  std::uint64_t batches_ = 0;
};

class Input {
 public:
  ~Input() {
    if (fd_ > STDERR_FILENO) close(fd_);
  }
  Error open_file(const std::string& file) {
    fd_ = file == "-" ? STDIN_FILENO : open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) return os_failed(errno, "cannot open the input", file);
    // Before a pool is made for it.
    if (!is_readable(fd_)) return os_failed(EBADF, "cannot read", "standard input");
    struct stat info {};
    if (fstat(fd_, &info) != 0) return no_error();
    if (S_ISREG(info.st_mode)) bytes_ = static_cast<std::uint64_t>(info.st_size);
    if (S_ISDIR(info.st_mode)) return os_failed(EISDIR, "cannot read the input", file);
    return no_error();
  }
  int fd() const { return fd_; }
  std::uint64_t bytes() const { return bytes_; }  // 0: not known

 private:
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
};

Error report_load(const LoadArgs& args, const Loader& loader, const std::string& name,
                  double seconds) {
  Facts facts;
  facts.text("path", "", args.path);
  facts.text("input", "from", name);
  facts.count("records", "records", loader.records());
  facts.bytes("record_bytes", "keys and values", loader.record_bytes());
  facts.count("bad_lines", "bad lines skipped", loader.bad_lines());
  facts.count("batches", "batches", loader.batches());
  facts.seconds("seconds", "time", seconds);
  if (args.quiet && !args.json) return no_error();
  return print_facts(args, "loaded into " + args.path, facts);
}

}  // namespace

Error run_load(const LoadArgs& args) {
  if (args.batch == 0) {
    return failed(Status::invalid_argument, "a batch has at least one record", "--batch 0");
  }
  RecordFormat format{};
  TENUTO_TOOL_TRY(choose_format(args.format, args.file, format));
  Input input;
  TENUTO_TOOL_TRY(input.open_file(args.file));
  const std::string name = args.file == "-" ? "standard input" : args.file;
  Session session;
  if (args.create) {
    TENUTO_TOOL_TRY(session.open_or_create_store(args, args));
  } else {
    Error error = session.open_store(args, Access::write);
    if (error.status == Status::not_found) error.hint = "--create makes it";
    TENUTO_TOOL_TRY(error);
  }
  catch_stop_signals();
  const auto start = std::chrono::steady_clock::now();
  Loader loader(args, format, input.fd(), name, input.bytes());
  Error error = loader.run(session);
  const Status synced = session.store().sync();
  if (!error && synced != Status::ok) {
    error = store_failed(synced, "cannot make the records durable", args.path);
  }
  // After a failure a clean close still matters, but the first error is the one to tell.
  Error close_error = session.close();
  if (error) return error;
  TENUTO_TOOL_TRY(close_error);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report_load(args, loader, name, seconds);
}

}  // namespace tenuto::tool

// load: reads the records of a file and writes them in atomic batches.
#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk.h"
#include "field_record.h"
#include "numbers.h"
#include "process.h"
#include "progress.h"
#include "record_reader.h"
#include "session.h"
#include "tenuto_commands.h"

namespace tenuto::tool {
namespace {

// Limits a batch of large records; otherwise one batch could hold the whole input in memory.
constexpr std::uint64_t kBatchBytesMax = 16ull << 20;
constexpr std::uint64_t kBadLinesShown = 10;

class Loader {
 public:
  Loader(const LoadArgs& args, RecordFormat format, int fd, std::string name,
         std::uint64_t input_bytes)
      : args_(args),
        format_(format),
        name_(std::move(name)),
        reader_(format, fd, args.line_bytes_max),
        fields_(format, args.key_field),
        progress_(is_terminal(STDERR_FILENO) && !args.quiet && !args.json, input_bytes) {}

  // Reads the first line, and the second if the first describes the form of the dumped collection.
  // run() calls this unless the caller did before.
  Error begin() {
    begun_ = true;
    first_status_ = reader_.next(first_);
    if (has_key_field(format_)) return begin_fields();
    if (first_status_ != Status::ok || !parse_form_line(format_, first_, form_)) return no_error();
    has_form_ = true;
    if (!options_of_form(form_, form_options_)) {
      return failed(Status::invalid_argument, "the first line says no form that a load can make",
                    name_ + ", line 1", "leave the line out to load the records all the same");
    }
    first_status_ = reader_.next(first_);
    return no_error();
  }
  // What is wrong with the first record. For a caller that makes a pool only if it has something to
  // put into it. REQUIRES: begin().
  Error check_first(RecordShape shape) {
    if (first_status_ == Status::invalid_argument) return no_later_record();
    if (args_.skip_bad) return no_error();
    if (first_status_ == Status::too_large) return bad_line_error(reader_.error());
    if (first_status_ != Status::ok) return no_error();
    if (names_collection(first_)) return no_error();
    text_ = first_;
    const MaybeError bad = parse(shape);
    return bad ? bad_line_error(*bad) : no_error();
  }
  bool has_form() const { return has_form_; }
  const CollectionOptions& form() const { return form_options_; }

  Error run(Session& session) {
    if (!begun_) TENUTO_TOOL_TRY(begin());
    TENUTO_TOOL_TRY(check_form(session));
    Store& store = session.store();
    now_ms_ = session.now_ms();
    into_ = session.records();
    Status status = first_status_;
    text_ = first_;
    for (;; status = reader_.next(text_)) {
      if (status == Status::ok) {
        if (names_collection(text_)) {
          TENUTO_TOOL_TRY(go_on_in_collection(session));
          continue;
        }
        if (MaybeError bad = parse(session.shape())) {
          if (!has_key_field(format_) && begins_collection_line(format_, text_))
            return bad_collection_line(store, *bad);
          TENUTO_TOOL_TRY(bad_line(store, *bad));
          continue;
        }
        TENUTO_TOOL_TRY(add(store));
        // Also stops on Ctrl-C when the input arrives slowly through a pipe.
        if (!stop_requested()) continue;
        status = Status::aborted;
      }
      if (status == Status::too_large) {
        text_ = {};
        TENUTO_TOOL_TRY(bad_line(store, reader_.error()));
        continue;
      }
      TENUTO_TOOL_TRY(write_batch(store));
      progress_.clear();
      if (status == Status::invalid_argument) return no_later_record();
      if (status == Status::not_found) return no_error();
      if (status == Status::aborted) {
        return stopped(after_line(), loaded_words());
      }
      return os_failed(reader_.error_number(), "cannot read", name_);
    }
  }

  std::uint64_t records() const { return records_; }
  std::uint64_t record_bytes() const { return record_bytes_; }
  std::uint64_t bad_lines() const { return bad_lines_; }
  std::uint64_t batches() const { return batches_; }
  std::uint64_t expired() const { return expired_; }

 private:
  // Reads the header of a CSV file, and the first record.
  Error begin_fields() {
    if (!fields_.wants_header() || first_status_ == Status::invalid_argument) return no_error();
    if (first_status_ == Status::not_found) {
      return failed(Status::invalid_argument, "the input has no header line", name_);
    }
    if (first_status_ == Status::too_large) return no_later_record();
    if (first_status_ != Status::ok) return no_error();
    text_ = first_;
    if (const MaybeError bad = fields_.header(text_)) return bad_line_error(*bad);
    first_status_ = reader_.next(first_);
    return no_error();
  }
  bool names_collection(std::string_view line) {
    return !has_key_field(format_) && parse_collection_line(format_, line, collection_);
  }
  // The record in text_.
  MaybeError parse(RecordShape shape) {
    return has_key_field(format_) ? fields_.parse(shape, text_, record_)
                                  : parse_record(format_, shape, text_, record_);
  }

  // Refuses to lose lifetimes, duplicates or an order silently.
  Error check_form(const Session& session) {
    if (!has_form_ || form_ == session.form()) return no_error();
    return {Status::invalid_argument,
            Report{"the records come from a collection of another form", args_.path, form_,
                   session.form()},
            "'tenuto collections PATH --make NAME' makes one, or load --create --collection NAME; "
            "without the first line the records are loaded as they are"};
  }

  // The records that follow are of a collection that the line names. It is made if it is missing.
  Error go_on_in_collection(Session& session) {
    TENUTO_TOOL_TRY(write_batch(session.store()));
    const std::string where = after_line();
    if (!args_.collection.empty()) {
      return failed(Status::invalid_argument, "the input is of several collections", where,
                    "leave --collection out; " + loaded_words());
    }
    CollectionOptions options;
    if (!options_of_form(collection_.form, options)) {
      return failed(Status::invalid_argument, "the line says no form that a load can make", where,
                    loaded_words());
    }
    TENUTO_TOOL_TRY(session.select(collection_.name, options));
    has_form_ = true;
    form_ = collection_.form;
    into_ = session.records();
    return check_form(session);
  }

  Error add(Store& store) {
    if (batch_.empty()) first_line_ = reader_.line_number();
    if (record_.expires_ms != 0 && record_.expires_ms <= now_ms_) {
      forget();
    } else {
      const std::uint64_t left = record_.expires_ms == 0 ? 0 : record_.expires_ms - now_ms_;
      batch_.put({into_, record_.key}, record_.value, left);
      ++batch_puts_;
    }
    batch_bytes_ += record_.key.size() + record_.value.size();
    progress_.update(records_ + batch_.count(), reader_.bytes_read());
    if (batch_.count() < args_.batch && batch_bytes_ < kBatchBytesMax) return no_error();
    return write_batch(store);
  }

  // Its lifetime is over, so the record does not exist, and neither does the one it replaces.
  void forget() {
    ++expired_;
    if (into_.duplicates()) return batch_.erase_pair({into_, record_.key}, record_.value);
    batch_.erase({into_, record_.key});
  }

  Error write_batch(Store& store) {
    if (batch_.empty()) return no_error();
    const Status status = store.write(batch_);
    if (status != Status::ok) {
      progress_.clear();
      Error error = call_failed(store.pool(), status,
                                fmt::format("cannot write the records of lines {} to {}",
                                            first_line_, reader_.last_line()),
                                fmt::format("{}, from {}", args_.path, name_));
      error.hint = loaded_words();
      if (status == Status::full) {
        error.hint += "; raise --size-max, or free space on the file system";
      }
      return error;
    }
    ++batches_;
    records_ += batch_puts_;
    record_bytes_ += batch_bytes_;
    batch_.clear();
    batch_puts_ = 0;
    batch_bytes_ = 0;
    return no_error();
  }

  Error bad_line(Store& store, const FormatError& bad) {
    ++bad_lines_;
    if (args_.skip_bad) {
      if (bad_lines_ <= kBadLinesShown && !args_.quiet) {
        progress_.clear();
        print_note(fmt::format("skipped: {} [{}]", bad.what, place_of(bad)));
      }
      return no_error();
    }
    // The records before the bad line are valid and kept.
    TENUTO_TOOL_TRY(write_batch(store));
    progress_.clear();
    return bad_line_error(bad);
  }
  // Skipped, it would give the records behind it to the collection before.
  Error bad_collection_line(Store& store, const FormatError& bad) {
    TENUTO_TOOL_TRY(write_batch(store));
    progress_.clear();
    return failed(Status::invalid_argument, "the line names no collection", place_of(bad),
                  "correct the line; " + loaded_words());
  }
  Error bad_line_error(const FormatError& bad) const {
    return failed(Status::invalid_argument, bad.what, place_of(bad),
                  "correct the line, or leave such lines out with --skip-bad; " + loaded_words());
  }

  // Also with --skip-bad: it is unknown where the next record begins.
  Error no_later_record() const {
    return failed(Status::invalid_argument, reader_.error().what, place_of(reader_.error()),
                  "correct the file; " + loaded_words());
  }

  // A record may have several lines.
  std::string place_of(const FormatError& bad) const {
    const std::string_view before = text_.substr(0, std::min(bad.column - 1, text_.size()));
    const auto lines = static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t begin = lines == 0 ? 0 : before.rfind('\n') + 1;
    return fmt::format("{}, line {}, column {}", name_, reader_.line_number() + lines,
                       bad.column - begin);
  }
  std::string after_line() const {
    if (reader_.line_number() == 0) return name_;
    return fmt::format("{}, line {}", name_, reader_.line_number());
  }
  std::string loaded_words() const {
    if (records_ == 0) return "nothing was loaded";
    return fmt::format("what stands before is loaded (records: {})", format_count(records_));
  }

  const LoadArgs& args_;
  RecordFormat format_;
  std::string name_;
  RecordReader reader_;
  FieldReader fields_;
  std::string_view text_;  // of the last record
  Progress progress_;
  Record record_;
  Collection into_;
  WriteBatch batch_;
  bool begun_ = false;
  Status first_status_ = Status::ok;
  std::string_view first_;  // the first line, until the next one is read
  bool has_form_ = false;
  std::string form_;
  CollectionOptions form_options_;
  CollectionLine collection_;
  std::uint64_t now_ms_ = 0;
  std::uint64_t batch_puts_ = 0;
  std::uint64_t expired_ = 0;  // before they were loaded
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
    // Checked before a pool is made.
    if (!is_readable(fd_)) return os_failed(EBADF, "cannot read", "standard input");
    struct stat info {};
    if (fstat(fd_, &info) != 0) return no_error();
    if (S_ISREG(info.st_mode)) bytes_ = static_cast<std::uint64_t>(info.st_size);
    if (S_ISDIR(info.st_mode)) return os_failed(EISDIR, "cannot read the input", file);
    return no_error();
  }
  int fd() const { return fd_; }
  std::uint64_t bytes() const { return bytes_; }  // 0: unknown

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
  if (loader.expired() > 0) facts.count("expired", "expired before", loader.expired());
  facts.seconds("seconds", "time", seconds);
  if (args.quiet && !args.json) return no_error();
  return print_facts(args, "loaded into " + args.path, facts);
}

Error open_session(const LoadArgs& args, Loader& loader, Session& session) {
  if (!args.create) {
    Error error = session.open_store(args, Access::write);
    if (error.status == Status::not_found) {
      const bool missing = access(args.path.c_str(), F_OK) != 0;
      error.hint = missing ? "check the path; --create makes a pool" : "--create makes it";
    }
    return error;
  }
  TENUTO_TOOL_TRY(loader.begin());
  CollectionOptions form;
  form.order = args.order;
  if (loader.has_form()) form = loader.form();
  if (access(args.path.c_str(), F_OK) != 0) {
    TENUTO_TOOL_TRY(loader.check_first({form.order, form.expires, form.duplicates}));
  }
  return session.open_or_create_store(args, args, form);
}

}  // namespace

Error run_load(const LoadArgs& args) {
  if (args.batch == 0) {
    return failed(Status::invalid_argument, "a batch has at least one record", "--batch 0");
  }
  RecordFormat format{};
  TENUTO_TOOL_TRY(choose_format(args.format, args.file, args.key_field, format));
  Input input;
  TENUTO_TOOL_TRY(input.open_file(args.file));
  const std::string name = args.file == "-" ? "standard input" : args.file;
  Loader loader(args, format, input.fd(), name, input.bytes());
  Session session;
  TENUTO_TOOL_TRY(open_session(args, loader, session));
  const auto start = std::chrono::steady_clock::now();
  Error error = loader.run(session);
  const Status synced = session.store().sync();
  if (!error && synced != Status::ok) {
    error = call_failed(session.pool(), synced, "cannot make the records durable", args.path);
  }
  // A clean close still matters after a failure, but the first error is returned.
  Error close_error = session.close(fmt::format("records loaded: {}", loader.records()));
  if (error) return error;
  TENUTO_TOOL_TRY(close_error);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report_load(args, loader, name, seconds);
}

}  // namespace tenuto::tool

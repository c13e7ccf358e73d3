// Opens and closes a pool for one command, with errors as text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "facts.h"
#include "form_line.h"
#include "output.h"
#include "tenuto/collection.h"
#include "tenuto_commands.h"

namespace tenuto::tool {

// How a command uses the pool.
enum class Access : std::uint8_t {
  // A cleanly closed pool is not written; any other is first recovered, with a note. A signal ends
  // the command at once: a pool that it has recovered is then recovered again.
  read,
  write,  // from the open on, a signal stops at a step
};

class Session {
 public:
  Session();
  // With --read-only the pool is never written, for any `access`.
  Error open(const CommonArgs& args, Access access);
  // Like open(), but fails if the pool has no store. open() also accepts a pool with other objects
  // only.
  Error open_store(const CommonArgs& args, Access access);
  // Opens the store and the collection. Makes the file if it is missing, and the collection with
  // this form.
  Error open_or_create_store(const CommonArgs& args, const NewPoolArgs& new_pool,
                             const CollectionOptions& form);
  // From now on records() are those of this collection.
  Error select(const std::string& name, const CollectionOptions& options);
  // Everything written is certain to be kept only if this succeeds. `done`: what the command has
  // changed until now, for the error of a close that fails.
  Error close(std::string_view done = {});

  bool has_store() const { return store_.has_value(); }
  Store& store() { return *store_; }
  // The requested collection. REQUIRES: has_store().
  Collection& records() { return records_; }
  KeyOrder order() const { return records_.order(); }
  RecordShape shape() const { return {order(), records_.expires(), records_.duplicates()}; }
  std::string form() const {
    return form_words(records_.order(), records_.codec(), records_.duplicates(),
                      records_.expires());
  }
  // The time that decides which records have expired. It is constant during a command. So a
  // timestamp that is read as a remaining lifetime, and written back as such, stays the same. It is
  // the store's time, which does not go back when the clock does. REQUIRES: has_store().
  std::uint64_t now_ms() const { return store_->time_ms(); }
  // When the iterator's record expires, in ms since 1970; 0: never.
  std::uint64_t expires_ms(const Iterator& it) const {
    const std::uint64_t left = it.ttl_ms();
    return left == 0 ? 0 : now_ms() + left;
  }
  Pool& pool() { return store_ ? store_->pool() : *pool_; }
  double open_ms() const { return open_ms_; }
  // "path, key "abc"" for reports.
  std::string where(std::string_view key) const;

 private:
  Error try_open(const CommonArgs& args, bool read_only);
  Error open_once(const CommonArgs& args, bool read_only);
  Error find_collection(const CommonArgs& args, const CollectionOptions& options);

  std::string path_;
  std::optional<Store> store_;
  std::optional<Pool> pool_;
  Collection records_;
  double open_ms_ = 0;
  std::uint64_t clock_ms_;  // read once, at the start of the command
};

// Calls `open` again while it is busy, for as long as --wait says. The error names the process that
// has the pool of `args` open.
Error patiently(const CommonArgs& args, const std::function<Error()>& open);

// A call on the pool has failed and filled no report. If damage or a failed write is why, the error
// says what was found and where.
Error call_failed(const Pool& pool, Status status, std::string what, std::string where);

// What to do when there is no pool at the path.
inline constexpr const char* kNoPoolHint = "check the path; 'tenuto create PATH' makes a pool";

PoolOptions pool_options(const CommonArgs& args, bool notes);

// Parses a key of the command line: the plain text, hexadecimal, or a number in a u64 store.
Error parse_key(KeyOrder order, bool hex, const std::string& text, std::string_view what,
                std::string& key);

// Parses --prefix, --from and --to into the store's form.
Error parse_range(const RangeArgs& args, KeyOrder order, IteratorOptions& options);

// Writes the facts to standard output, as rows or as one JSON object.
Error print_facts(const CommonArgs& args, std::string_view title, const Facts& facts);
Error print_line(std::string_view line);
// Prints a line to standard error: "tenuto: note: ...".
void print_note(std::string_view text);

}  // namespace tenuto::tool

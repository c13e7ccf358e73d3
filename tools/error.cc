// The texts of errors. See error.h.
#include "error.h"

#include <cerrno>
#include <system_error>

#include "text_format.h"

namespace tenuto::tool {
namespace {

const char* default_hint(Status status) {
  switch (status) {
    case Status::busy:
      return "one process opens a pool for writing";
    case Status::permission:
      return "check the owner and mode of the file and of its folder, and that the file system is "
             "mounted for writing";
    case Status::not_a_pool:
      return "check the path; pools are made with 'tenuto create'";
    case Status::wrong_version:
      return "dump it with the version that made it and load the dump with this one";
    case Status::read_only:
      return "run the command without --read-only; a pool that was not closed is recovered then "
             "(on a read-only file system: copy the pool, with its journal, to another one first)";
    case Status::full:
      return "nothing of this operation was done; delete records, raise --size-max, or free space "
             "on the file system";
    case Status::too_large:
      return "a key has at most 65536 bytes, a value what the pool may grow to (--size-max)";
    case Status::corrupt:
      return "'tenuto check PATH --repair NEWPOOL' writes what is intact to a new pool";
    default:
      return "";
  }
}

}  // namespace

std::string Error::text() const {
  std::string text = report.text();
  if (text.empty()) text = status_name(status);
  const std::string_view advice = hint.empty() ? default_hint(status) : std::string_view(hint);
  if (!advice.empty()) (text += "; ") += advice;
  return text;
}

std::string Error::json() const {
  std::string object = "{\"error\":\"";
  object += status_name(status);
  object += "\",\"exit_code\":" + std::to_string(static_cast<int>(status));
  const auto add = [&object](std::string_view name, std::string_view text) {
    if (text.empty()) return;
    ((object += ",\"") += name) += "\":";
    append_json_string(object, text);
  };
  add("what", report.what);
  add("where", report.where);
  add("expected", report.expected);
  add("found", report.found);
  add("hint", hint.empty() ? default_hint(status) : std::string_view(hint));
  return object + "}";
}

Error failed(Status status, std::string what, std::string where, std::string hint) {
  return {status, Report{std::move(what), std::move(where), {}, {}}, std::move(hint)};
}

Error stopped(std::string where, std::string hint) {
  return failed(Status::aborted, "stopped by a signal", std::move(where), std::move(hint));
}

Error os_failed(int error_number, std::string_view what, std::string where) {
  Status status = Status::io;
  switch (error_number) {
    case ENOENT:
      status = Status::not_found;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      status = Status::permission;
      break;
    case EEXIST:
      status = Status::exists;
      break;
    case ENOSPC:
    case EDQUOT:
      status = Status::full;
      break;
    default:
      break;
  }
  // These have their own hints: the default ones are about pools.
  std::string hint;
  if (status == Status::full) hint = "free space there and try again";
  if (status == Status::not_found) hint = "check the path";
  return failed(status, std::string(what) + ": " + std::generic_category().message(error_number),
                std::move(where), std::move(hint));
}

Error store_failed(Status status, std::string what, std::string where, Report report) {
  if (report.what.empty()) {
    report.what = std::move(what) + ": " + status_name(status);
    report.where = std::move(where);
  }
  // Replaces the library's name of an option by the tool's.
  constexpr std::string_view kOption = "PoolOptions::journal.path";
  if (const auto at = report.what.find(kOption); at != std::string::npos) {
    report.what.replace(at, kOption.size(), "--journal FILE");
  }
  return {status, std::move(report), {}};
}

}  // namespace tenuto::tool

// Medium `journal`, the file (journal/format.h): a ring of blocks, preallocated and overwritten.
//
// Authoritative: the pool file, then the blocks from the header's start on, if the header's ids fit
// the pool's superblock (journal/match.h). The header's start moves only when everything before it
// is durable in the pool file:
//   line images and stamp written to the pool, fdatasync | header: start | ring space is reused
//
// The file is made without a name: zeros, header, fsync, and only then its name, which never
// replaces another file. So a file without a sound header is not the library's, and is left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "journal/direct_buffer.h"
#include "journal/format.h"
#include "journal/lines.h"
#include "journal/match.h"
#include "journal/replay.h"
#include "pm/process.h"
#include "tenuto/pool_options.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

class JournalFile final : public OfProcess {
 public:
  using Expected = JournalExpected;
  using Position = JournalPosition;

  // Opens the journal file at `path`, or makes it when the pool needs nothing of one. The path is
  // no link. The file is locked until the destructor. An existing file is not changed. Errors:
  // not_found (the pool needs it), corrupt, invalid_argument (of another pool, or no journal),
  // wrong_version, busy, full, permission, io. A journal that cannot be made leaves no file.
  static Result<std::unique_ptr<JournalFile>> open(std::string_view path, std::uint64_t bytes,
                                                   const Expected& expected, Report* report);
  // The ring's bytes that the options ask for with a pool of this size (JournalOptions::bytes).
  static std::uint64_t ring_bytes_for(const JournalOptions& options, int pool_fd);
  // The same, to read only: nothing is made or written.
  static Result<std::unique_ptr<JournalFile>> open_to_read(std::string_view path,
                                                           const Expected& expected,
                                                           Report* report);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  // Passes all line images of the blocks that count to `apply`, oldest first (journal/replay.h).
  Status replay(const ReplayOptions& options, const ApplyImages& apply, ReplayStats* stats,
                Report* report);

  // What its ids allow (journal/match.h).
  JournalUse use() const { return use_; }
  // Gives it to this pool, before it has a life. Contents that it has are of a pool that was never
  // finished.
  Status claim(const Expected& expected, Report* report);

  // A file that this open made is removed again unless it is kept. It holds nothing until then.
  void keep() { made_ = false; }
  // Whether a clean close removes the file: only if this open made it or found it marked so, and it
  // is wanted. A file without the mark is kept.
  void set_temporary(bool wanted) { temporary_ = wanted && (made_ || temporary_); }
  bool temporary() const { return temporary_; }

  // Makes the ring at least this large, for the life that begin() starts. If it fails, with the
  // report, the ring stays as it is. REQUIRES: as begin().
  Status grow_ring(std::uint64_t bytes, Report* report);
  // The same while blocks are appended, in two steps (make.cc). First the space behind the ring, to
  // twice its size, a piece a call: false until all of it is there. If a call fails, nothing
  // changed. Thread safety: beside all calls of other threads, by one thread.
  Result<bool> prepare_double(Report* report);
  // Then the ring, when it may. io: nothing may be appended after that.
  bool may_double() const;
  Status double_ring(Report* report);
  // The first write of a life that the pool's superblock has announced. The journal is then empty,
  // and the header durable. REQUIRES: what replay found is durable in the pool.
  Status begin(const Expected& expected, std::uint64_t life, Report* report);
  // Marks it closed. REQUIRES: the pool file has all of it, and its superblock needs no journal.
  Status close_life(Report* report);
  // Removes the file's name, unless another file has that name now.
  void remove();

  // Appends a block with these line images, durable on return. full: the ring has no room until
  // set_start moves the start, and nothing is written. io: with the report.
  Status append(std::span<const LineImage> images, Report* report);
  // Where the next block goes. A start for set_start once everything before it is in the pool.
  Position end() const { return end_; }
  // The next replay begins there.
  void rewind(Position to) { end_ = to; }
  // Ring space before `start` may be reused on return. io: nothing changed.
  Status set_start(Position start, Report* report) { return write_header(start, report); }
  Position start() const { return start_; }

  std::uint64_t used_bytes() const { return end_.at - start_.at; }
  std::uint64_t ring_bytes() const { return ring_bytes_; }
  std::uint64_t journal_id() const { return header_.journal_id; }
  std::uint64_t life() const { return header_.life; }
  std::uint64_t written_bytes() const { return written_bytes_; }    // of blocks, with padding
  std::uint64_t payload_bytes() const { return payload_bytes_; }    // compressed
  std::uint64_t device_flushes() const { return device_flushes_; }  // of the journal
  bool direct() const { return direct_; }
  const std::string& path() const { return path_; }

 private:
  JournalFile();
  void let_go() override;
  // exists: another maker's journal got the name first.
  static Result<std::unique_ptr<JournalFile>> open_or_make(std::string_view path,
                                                           std::uint64_t bytes,
                                                           const Expected& expected,
                                                           Report* report);
  Status make(std::uint64_t bytes, const Expected& expected, Report* report);
  Status write_zeros(std::uint64_t from, std::uint64_t to, Report* report);
  Status check_file(const Expected& expected, Report* report);
  Status find_header(JournalHeader& best, Report* report);
  Status take_old_header(const JournalHeaderOld& old, const Expected& expected, Report* report);
  Status check_places(const JournalHeader& h, std::uint64_t file_bytes, Report* report) const;
  Status write_header(Position start, Report* report);
  Status open_direct(int access, Report* report);
  Status write_unit_run(std::uint64_t position, const std::byte* data, std::size_t bytes,
                        Report* report);
  Status failed(const char* what, Report* report) const;

  std::string path_;
  int fd_ = -1;         // for making and checking the file
  int direct_fd_ = -1;  // blocks and headers; O_DSYNC, O_DIRECT where the file system has it
  bool direct_ = false;
  bool made_ = false;
  bool temporary_ = false;
  std::string hidden_;  // the hidden name of a file still being made, if it needs one
  JournalUse use_ = JournalUse::begin;
  std::uint64_t ring_bytes_ = 0;
  std::uint64_t prepared_bytes_ = 0;  // behind the ring, for a larger one
  JournalHeader header_{};
  Position start_;
  Position end_;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t device_flushes_ = 0;
  DirectBuffer block_;
  std::vector<std::byte> raw_;
};

}  // namespace TENUTO_NS::pm

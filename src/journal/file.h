// Medium `journal`, the file (journal/format.h): a ring of blocks, preallocated and overwritten.
//
// Authoritative: the pool file, then the blocks from the header's start on, if the header's ids fit
// the pool's superblock (journal/match.h). The header's start moves only after everything before it
// is in the pool file, durably:
//   line images and stamp written to the pool, fdatasync | header: start | ring space is reused
//
// The file is made without a name: zeros, header, fsync, and only then its name, which never takes
// the place of another file. So whatever stands there without a sound header is somebody else's,
// and is left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "journal/format.h"
#include "journal/lines.h"
#include "journal/match.h"
#include "journal/replay.h"
#include "pm/process.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

// Pages that reach a device, with the alignment that O_DIRECT wants.
class DirectBuffer {
 public:
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  // At least `bytes`; what was in it is lost when it grows.
  void reserve(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t bytes_ = 0;
};

class JournalFile final : public OfProcess {
 public:
  using Expected = JournalExpected;
  using Position = JournalPosition;

  // Opens, or makes when nothing is expected of it, the journal file at `path`, which is no link;
  // locked until the destructor. Nothing of a file that is there is changed. not_found (something
  // is expected), corrupt, invalid_argument (of another pool, or no journal), wrong_version, busy,
  // full, permission, io. A journal that cannot be made leaves no file.
  static Result<std::unique_ptr<JournalFile>> open(std::string_view path, std::uint64_t bytes,
                                                   const Expected& expected, Report* report);
  // The same for reading alone: nothing is made or written.
  static Result<std::unique_ptr<JournalFile>> open_to_read(std::string_view path,
                                                           const Expected& expected,
                                                           Report* report);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  // Hands all line images of the blocks that count to `apply`, oldest first (journal/replay.h).
  Status replay(const ReplayOptions& options, const ApplyImages& apply, ReplayStats* stats,
                Report* report);

  // What its ids allow.
  JournalUse use() const { return use_; }
  // Makes it this pool's, before it has a life: what stands in it is of a pool that never was.
  Status claim(const Expected& expected, Report* report);

  // A file that this open made goes again with it, until it is kept: nothing is in it.
  void keep() { made_ = false; }
  // It goes at a clean close if this open made it so, or found it so; one that stays stays.
  void set_temporary(bool wanted) { temporary_ = wanted && (made_ || temporary_); }
  bool temporary() const { return temporary_; }

  // The first write of a life that the pool's superblock has announced: an empty journal, durable.
  // REQUIRES: what replay found is durable in the pool.
  Status begin(const Expected& expected, std::uint64_t life, Report* report);
  // All of it is in the pool, whose superblock says that it needs no journal.
  Status close_life(Report* report);
  // Removes the file's name, unless that is another file's by now.
  void remove();

  // Appends a block with these line images, durable on return. full: the ring has no room before
  // set_start moves (nothing is written). io, with the report.
  Status append(std::span<const LineImage> images, Report* report);
  // Where the next block goes; a start for set_start once all before is in the pool.
  Position end() const { return end_; }
  // Replay begins there once more.
  void rewind(Position to) { end_ = to; }
  // Space before `start` may be written again on return. io: nothing changed.
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
  Status make(std::uint64_t bytes, const Expected& expected, Report* report);
  Status write_zeros(std::uint64_t bytes, Report* report);
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
  int fd_ = -1;         // looked at and made through it
  int direct_fd_ = -1;  // blocks and headers; O_DSYNC, O_DIRECT where the file system has it
  bool direct_ = false;
  bool made_ = false;
  bool temporary_ = false;
  std::string hidden_;  // the name of a file still being made, when it needs one
  JournalUse use_ = JournalUse::begin;
  std::uint64_t ring_bytes_ = 0;
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

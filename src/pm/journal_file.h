// Medium `journal`, the file (journal_format.h): a ring of blocks, preallocated and overwritten.
// Called by journal.cc, and by pool_salvage.cc to read it.
//
// Authoritative: the pool file, then the blocks from the header's start on. The header's start
// moves only after everything before it is in the pool file, durably:
//   pictures written to the pool, fdatasync | header: start | ring space is reused
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pm/journal_format.h"
#include "pm/journal_lines.h"
#include "pm/journal_replay.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::pm {

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

class JournalFile {
 public:
  // What a pool says of its journal when it is opened.
  struct Expected {
    std::uint64_t pool_id = 0;
    std::uint32_t incarnation = 0;  // low half, of the last open; 0: closed cleanly
    // A superblock copy is damaged, so that the other may be of an older state: what the journal
    // holds counts, of whatever life.
    bool unsure = false;
    bool any_pool() const { return pool_id == 0; }  // a rescue that was told so
    bool to_be_read() const { return incarnation != 0 || unsure; }
  };
  using Position = JournalPosition;

  // Opens, or makes when nothing is expected of it, the journal file at `path`; locked until the
  // destructor. not_found (something is expected), corrupt, invalid_argument (of another pool, or
  // no journal), busy, full, permission, io. A journal that cannot be made leaves no file.
  static Result<std::unique_ptr<JournalFile>> open(std::string_view path, std::uint64_t bytes,
                                                   const Expected& expected, Report* report);
  // The same for reading alone: nothing is made or written.
  static Result<std::unique_ptr<JournalFile>> open_to_read(std::string_view path,
                                                           const Expected& expected,
                                                           Report* report);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  // Hands all pictures of the blocks that count to `apply`, oldest first (journal_replay.h).
  Status replay(const ReplayOptions& options, const ApplyPictures& apply, ReplayStats* stats,
                Report* report);

  // Says whose it is, before it had a life, so that the pool that is made next need not make it
  // again.
  Status claim(Report* report) { return write_header({0, 1}, report); }

  // A file that this open made goes again with it, until it is kept: nothing is in it.
  void keep() { made_ = false; }

  // The first write of a new life: an empty journal of the next incarnation, durable. REQUIRES:
  // what replay found is durable in the pool.
  Status begin(const Expected& expected, Report* report);

  // Appends a block with these pictures, durable on return. full: the ring has no room before
  // set_start moves (nothing is written). io, with the report.
  Status append(std::span<const LinePicture> pictures, Report* report);
  // Where the next block goes; a start for set_start once all before is in the pool.
  Position end() const { return end_; }
  // Space before `start` may be written again on return. io: nothing changed.
  Status set_start(Position start, Report* report) { return write_header(start, report); }

  std::uint64_t used_bytes() const { return end_.at - start_.at; }
  std::uint64_t ring_bytes() const { return ring_bytes_; }
  std::uint64_t incarnation() const { return header_.incarnation; }
  std::uint64_t written_bytes() const { return written_bytes_; }    // of blocks, with padding
  std::uint64_t payload_bytes() const { return payload_bytes_; }    // compressed
  std::uint64_t device_flushes() const { return device_flushes_; }  // of the journal
  bool direct() const { return direct_; }
  const std::string& path() const { return path_; }

 private:
  JournalFile() = default;
  Status make(std::uint64_t bytes, std::uint64_t pool_id, Report* report);
  Status write_zeros(std::uint64_t bytes, Report* report);
  Status check_file(const Expected& expected, Report* report);
  Status read_header(std::uint64_t file_bytes, const Expected& expected, Report* report);
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

}  // namespace tenuto::inline TENUTO_ABI::pm

// Medium `journal`, the file: a ring of blocks, preallocated and overwritten. Called by journal.cc.
//
//   0, 4 KiB     header, two copies written in turn; the valid one with the higher sequence counts
//   8 KiB ...    the ring: blocks of whole 4-KiB units, one after the other, round and round
//
// A block holds the merged pictures of one cut. It is durable before the next one is begun, so the
// journal ends at the first block that does not check, and one that checks behind that is damage,
// never skipped. Blocks count up; a checksum covers the incarnation (one for each open), so that
// blocks of earlier lives mean nothing even where a power cut brings their bytes back.
//
// Authoritative: the pool file, then the blocks from the header's start on. The header's start
// moves only after everything before it is in the pool file, durably:
//   pictures written to the pool, fdatasync | header: start | ring space is reused
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pm/capture.h"
#include "pm/format.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::pm {

inline constexpr std::uint64_t kJournalMagic = 0x314c4e52554f4a;       // "JOURNL1"
inline constexpr std::uint64_t kJournalBlockMagic = 0x4b434f4c424e4a;  // "JNBLOCK"
inline constexpr std::uint32_t kJournalVersion = 1;
inline constexpr std::uint64_t kJournalUnitBytes = 4096;
inline constexpr std::uint64_t kJournalRingOffset = 2 * kJournalUnitBytes;
inline constexpr std::uint64_t kJournalBytesMin = 256u << 10;

struct JournalHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t pool_id;
  std::uint64_t ring_bytes;
  std::uint64_t sequence;     // copy sequence & 1 holds it
  std::uint64_t incarnation;  // of the open that wrote it
  std::uint64_t start;        // ring position (never wraps) of the first block that counts
  std::uint64_t start_block;  // and its number
  // The incarnation that the pool named when this one began. The pool still names it after crashes
  // before the superblock says running, however many incarnations those began.
  std::uint32_t pool_names;
  std::uint32_t crc;  // crc32c of all before
};
static_assert(OnMedia<JournalHeader> && sizeof(JournalHeader) == 72);

enum class JournalBlockKind : std::uint32_t { lines = 1, skip = 2 };

struct JournalBlock {
  std::uint64_t magic;
  std::uint64_t incarnation;
  std::uint64_t number;
  std::uint64_t position;  // where it stands, unwrapped
  std::uint32_t kind;      // skip: the ring goes on at its beginning
  std::uint32_t lines;
  std::uint32_t raw_bytes;     // of the payload: line numbers, then pictures
  std::uint32_t packed_bytes;  // as LZ4; equal to raw_bytes: not compressed
  std::uint64_t payload_crc;   // crc32c
  std::uint32_t zero;
  std::uint32_t crc;  // crc32c of all before
};
static_assert(OnMedia<JournalBlock> && sizeof(JournalBlock) == 64);

// Pages that reach a device, with the alignment that O_DIRECT wants.
class DirectBuffer {
 public:
  std::byte* data() { return data_.get(); }
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
    std::uint32_t incarnation =
        0;  // low half, of the last open; 0: closed cleanly, nothing to read
  };

  // Opens, or makes when nothing is expected of it, the journal file at `path`; locked until the
  // destructor. not_found (something is expected), corrupt, invalid_argument (of another pool, or
  // no journal), busy, full, permission, io.
  static Result<std::unique_ptr<JournalFile>> open(std::string_view path, std::uint64_t bytes,
                                                   const Expected& expected, Report* report);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  // Hands all pictures of the blocks that count to `apply`, block by block in order; corrupt when a
  // block is damaged that is not the torn last one.
  using Apply = std::function<Status(const LineMap&)>;
  Status replay(const Apply& apply, Report* report);

  // The first write of a new life: an empty journal of the next incarnation, durable. REQUIRES:
  // what replay found is durable in the pool.
  Status begin(Report* report);

  // Appends a block with these pictures, durable on return. full: the ring has no room before
  // set_start moves (nothing is written).
  Status append(const LineMap& lines);
  // Where the next block goes; a start for set_start once all before is in the pool.
  struct Position {
    std::uint64_t at = 0;
    std::uint64_t block = 0;
  };
  Position end() const { return end_; }
  Status set_start(Position start);

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
  Status make(std::string_view path, std::uint64_t bytes, std::uint64_t pool_id, Report* report);
  Status read_header(std::uint64_t file_bytes, const Expected& expected, Report* report);
  Status write_header(Report* report);
  Status write_unit_run(std::uint64_t offset, const std::byte* data, std::size_t bytes);
  // The block at a position, with its payload unpacked into `lines`; false: none that checks.
  bool read_block(Position at, JournalBlock* block, LineMap* lines);
  Status find_block_behind(Position end, Report* report);
  Status failed(const char* what, Report* report) const;

  std::string path_;
  int fd_ = -1;        // headers, reading
  int write_fd_ = -1;  // blocks; O_DSYNC, O_DIRECT where the file system has it
  bool direct_ = false;
  std::uint64_t ring_bytes_ = 0;
  std::uint32_t pool_names_ = 0;  // when it was opened
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

// Counts what this process asks of the device: the calls that make something durable, and the block
// device's own count of cache flushes. io_meter.cc defines the libc functions that write, sync and
// open. So the calls of every library in the program are counted, peers included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bench {

// Calls that return when the device has the data. Each is at least one device flush, if the device
// has a volatile cache and there was something to write.
struct IoCalls {
  std::uint64_t syncs = 0;          // fsync, fdatasync, syncfs, sync_file_range that waits
  std::uint64_t synced_maps = 0;    // msync with MS_SYNC
  std::uint64_t synced_writes = 0;  // write calls on a file opened with O_DSYNC or O_SYNC
  std::uint64_t total() const { return syncs + synced_maps + synced_writes; }
};
IoCalls io_calls();  // of all threads, so far

// Bytes that this process sent to storage (write_bytes of /proc/self/io). Pages count when they are
// dirtied, direct writes when they are made. The file system's own journal is not included. On a
// tmpfs it is 0.
std::uint64_t storage_bytes();

// Counts of the whole device below a directory, including other processes' work.
struct DeviceCounts {
  std::uint64_t flushes = 0;  // requested cache flushes
  std::uint64_t bytes = 0;    // written, the file system's journal included
};
std::optional<DeviceCounts> device_counts(const std::string& dir);  // nullopt: no block device

double cpu_seconds();  // of all threads of this process, user and system

// The increase of all these during a piece of work. Plain memory. Negative: not known.
struct IoUse {
  double cpu_seconds = -1;
  double storage_bytes = -1;
  double sync_calls = -1;
  double device_flushes = -1;
  double device_bytes = -1;
};

class IoMeter {
 public:
  explicit IoMeter(std::string dir);
  IoUse since_start() const;

 private:
  std::string dir_;
  double cpu_seconds_;
  std::uint64_t storage_bytes_;
  std::uint64_t sync_calls_;
  std::optional<DeviceCounts> device_;
};

// How the journal's file (any path that ends in ".journal") is really written, to measure each way.
// direct: as the library asks. dsync: without O_DIRECT. fdatasync: plain writes, each followed by
// an fdatasync. Applies to files opened later.
enum class JournalWrites : std::uint8_t { direct, dsync, fdatasync };
std::optional<JournalWrites> journal_writes_of(std::string_view name);
void set_journal_writes(JournalWrites how);

}  // namespace bench

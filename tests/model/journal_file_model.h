// The files of medium `journal` (src/journal/file.h; open, commit and checkpoint of journal.cc).
// The model has a ring of units of two sectors, two header copies, and a pool file of a few lines.
// Its lives end in a kill or a power cut before any write or sync, also in recovery.
//
// A device keeps any subset of the sectors written since its last sync: each as one of the writes
// left it, or as before. A power cut may also damage a sector of the journal that is being written.
// After a kill everything written can be read, but is not therefore durable.
//
// The judge looks at each open. The pool must open, and must be exactly what the acknowledged
// blocks made of it, perhaps with the block that was in flight.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "memory.h"

namespace tenuto_model {

enum class FilePlant {
  none,
  no_life_in_checksum,
  start_before_pool_synced,
  space_reused_before_header,  // the start moves in memory before its header is durable
  one_header_copy,
  older_header_believed,
  next_block_begun_early,   // before the last one is durable
  replay_not_synced,        // the new life begins before the pool is durable
  running_before_new_life,  // the superblock names a running life before its header is durable
  life_before_forgotten,    // the superblock announces a life and drops the one before
  recovery_stores_while_announced,  // stores before the new life runs
  torn_block_believed,
  block_missed_by_checkpoint,
  clean_before_pool_synced,
  damage_taken_for_the_end,
};
inline constexpr int kFilePlants = 14;

struct FileConfig {
  FilePlant plant = FilePlant::none;
  int units = 5;  // units of the ring
  int lines = 3;
  int lives = 3;         // before the last life, which only opens
  int operations = 8;    // of each life, at most
  int crash_every = 24;  // about so many device operations
  bool damages = false;  // damage a sector of the journal before the last open
  bool kills_leave_journal_unsynced = false;
  // The superblock announces a life before the journal's header has it, otherwise afterwards.
  bool announced_first = true;
  bool synced_when_opened = true;  // both files, before their contents are used
};

// The content of a file, and the contents that its device may have instead.
template <class Content>
class Device {
 public:
  explicit Device(std::size_t n) : durable_(n), pending_(n) {}
  const Content& read(std::size_t i) const {
    return pending_[i].empty() ? durable_[i] : pending_[i].back();
  }
  void write(std::size_t i, const Content& c) { pending_[i].push_back(c); }
  void sync() {
    for (std::size_t i = 0; i < durable_.size(); ++i) {
      if (!pending_[i].empty()) durable_[i] = pending_[i].back();
      pending_[i].clear();
    }
  }
  // `pick(n)` chooses below n. `damaged` is what an interrupted write may leave, or null.
  template <class Pick>
  void cut_power(const Pick& pick, const Content* damaged) {
    for (std::size_t i = 0; i < durable_.size(); ++i) {
      std::vector<Content>& written = pending_[i];
      if (written.empty()) continue;
      const std::size_t n = pick(written.size() + (damaged != nullptr ? 2 : 1));
      if (n > written.size()) durable_[i] = *damaged;
      if (n >= 1 && n <= written.size()) durable_[i] = written[n - 1];
      written.clear();
    }
  }
  std::size_t size() const { return durable_.size(); }

 private:
  std::vector<Content> durable_;
  std::vector<std::vector<Content>> pending_;  // writes since the last sync, oldest first
};

// Checksums are perfect: a head is sound unless its sector is damaged, and a payload is sound if it
// is the one of its head.
struct Sector {
  enum Kind { zeros, head, payload, header, damaged } kind = zeros;
  std::uint64_t life = 0, number = 0, position = 0;  // head; header: the start
  bool closed = false;                               // header
  std::uint64_t sequence = 0;                        // header
  bool skip = false;                                 // head
  std::uint64_t payload_crc = 0;                     // head
  int pairs = 0;                                     // head
  int line = 0, value = 0;                           // payload
};

using Values = std::vector<int>;

// The fields of a superblock (journal/match.h has the cases). A life's number is never reused, as
// random ids are not.
struct Super {
  bool running = false;
  std::uint64_t life = 0, before = 0;
};

class FileModel {
 public:
  explicit FileModel(const FileConfig& config);
  void run(std::uint64_t seed);  // some lives; sets failure

  std::uint64_t opens = 0, crashes = 0, replayed = 0, laps = 0, reported = 0, unnoticed = 0;
  std::string failure;  // the first one, with the run that led to it

 private:
  struct Crash {};
  struct Position {
    std::uint64_t at = 0, block = 0;
  };
  using Pairs = std::vector<std::pair<int, int>>;  // line, value
  static constexpr std::size_t kUnitSectors = 2, kHeaders = 2;

  bool is(FilePlant p) const { return config_.plant == p; }
  std::size_t pick(std::size_t n) { return n <= 1 ? 0 : rng_() % n; }
  void say(const std::string& what) { story_ += " " + what; }
  void fail(const std::string& what) {
    if (failure.empty()) failure = what + ":" + story_;
  }
  void may_crash() {
    if (crashing_ && pick(static_cast<std::size_t>(config_.crash_every)) == 0) throw Crash{};
  }
  std::size_t ring_sector(std::uint64_t position) const {
    return kHeaders + position % static_cast<std::uint64_t>(config_.units) * kUnitSectors;
  }

  // The devices. A crash may come before each call.
  void write_journal(std::size_t i, const Sector& s) { may_crash(), journal_.write(i, s); }
  void sync_journal() { may_crash(), journal_.sync(); }
  void write_pool(std::size_t i, int value) { may_crash(), pool_.write(i, value); }
  void sync_pool() { may_crash(), pool_.sync(); }

  // As in journal/file.cc.
  bool read_header(const Super& expected);
  void make_journal();
  bool read_block(Position at, bool* skip, Pairs* pairs) const;
  bool replay(Values* merged);
  void write_header();
  bool append(const Pairs& pairs);
  void write_block(const Pairs& pairs, bool skip);
  std::uint64_t room() const {
    return static_cast<std::uint64_t>(config_.units) - (end_.at - start_.at);
  }

  // As in journal.cc and pool_file.cc.
  bool open();
  void announce();
  void name_life();
  const Super& super() const {
    return supers_[static_cast<std::size_t>(pool_.read(static_cast<std::size_t>(config_.lines)))];
  }
  void write_super(const Super& s);
  void recover();
  void commit(bool acknowledged);
  void checkpoint_step();
  void checkpoint_all();
  void close();
  void work();
  void crash();
  void damage_and_open();
  void judge(const char* where);
  Values pool_lines() const;

  const FileConfig config_;
  Rng rng_;
  Device<Sector> journal_;
  Device<int> pool_;  // the lines, then the index in supers_ of the superblock
  std::vector<Super> supers_;
  std::uint64_t next_life_ = 1;
  bool crashing_ = false;
  std::string story_;
  int next_value_ = 1;

  // State of the life that runs.
  Sector header_;
  Position start_, end_;
  Values memory_;
  std::map<int, int> since_checkpoint_, applied_;
  Position checkpoint_start_;
  int checkpoint_ = 0;                                       // the next step of one that runs
  bool counts_ = false;                                      // the journal's contents count
  bool unborn_ = false;                                      // the journal may be empty
  std::vector<std::pair<std::size_t, std::size_t>> blocks_;  // sectors of all begun blocks
  std::size_t last_ = 0;                                     // the last acknowledged one of them
  std::uint64_t commits_ = 0;

  // What must be there.
  Values acknowledged_;
  Values before_;                  // acknowledged before the last block
  std::vector<Values> in_flight_;  // each of these may be there instead
};

}  // namespace tenuto_model

#include "journal_file_run.h"

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
//
// This file has the devices and the journal's file. journal_file_model.h has the lives.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "memory.h"
#include "mistakes.h"

namespace tenuto_model {

struct FileConfig {
  const char* plant = nullptr;
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

class FileState : public Mistakes<class FileModel> {
 public:
  std::uint64_t opens = 0, crashes = 0, replayed = 0, laps = 0, reported = 0, unnoticed = 0;
  std::string failure;  // the first one, with the run that led to it

 protected:
  explicit FileState(const FileConfig& config) : Mistakes(config.plant), config_(config) {}

  struct Crash {};
  struct Position {
    std::uint64_t at = 0, block = 0;
  };
  using Pairs = std::vector<std::pair<int, int>>;  // line, value
  static constexpr std::size_t kUnitSectors = 2, kHeaders = 2;

  std::size_t pick(std::size_t n) { return tenuto_model::pick(rng_, n); }
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
  void write_journal(std::size_t i, const Sector& s) { may_crash(), journal_.store(i, s); }
  void sync_journal() { may_crash(), journal_.sync(); }
  void write_pool(std::size_t i, int value) { may_crash(), pool_.store(i, value); }
  void sync_pool() { may_crash(), pool_.sync(); }

  // As in journal/file.cc.
  void empty_journal() {
    const auto units = static_cast<std::size_t>(config_.units);
    journal_.reset(std::vector<Sector>(kHeaders + units * kUnitSectors), 1);
  }
  std::uint64_t room() const {
    return static_cast<std::uint64_t>(config_.units) - (end_.at - start_.at);
  }

  // Makes a nameless file, which is complete before it gets its name.
  void make_journal() {
    may_crash();
    empty_journal();
    header_ = {};
    header_.kind = Sector::header;
    header_.life = next_life_++;
    header_.sequence = 1;
    header_.number = 1;
    header_.closed = true;  // it holds nothing
    journal_.store(1, header_);
    journal_.sync();
    say("made");
  }

  // Returns false if the open is refused.
  bool read_header(const Super& expected) {
    counts_ = unborn_ = false;
    Sector best;
    for (std::size_t i = 0; i < kHeaders; ++i) {
      const Sector& s = journal_.load(i);
      if (s.kind != Sector::header) continue;
      const bool newer = s.sequence > best.sequence;
      if (best.kind != Sector::header || newer != planted<"older_header_believed">()) best = s;
    }
    if (best.kind != Sector::header) {
      if (expected.running) return false;
      make_journal();
    } else {
      const bool before = expected.before != 0 && best.life == expected.before;
      if (best.life == expected.life && expected.before != 0) {
        unborn_ = true;
      } else if (expected.running && !before) {
        if (best.life != expected.life || best.closed) return false;
        counts_ = true;
      } else if (!before && best.life != expected.life && !best.closed) {
        return false;
      }
      header_ = best;
    }
    start_ = end_ = {header_.position, header_.number};
    return true;
  }

  void write_header() {
    header_.sequence += 1;
    header_.position = start_.at;
    header_.number = start_.block;
    write_journal(planted<"one_header_copy">() ? 0 : header_.sequence & 1, header_);
    sync_journal();
  }

  bool read_block(Position at, bool* skip, Pairs* pairs) const {
    const std::size_t first = ring_sector(at.at);
    const Sector& head = journal_.load(first);
    const bool same_life = head.life == header_.life || planted<"no_life_in_checksum">();
    if (head.kind != Sector::head || !same_life) return false;
    if (head.number != at.block || head.position != at.at) return false;
    *skip = head.skip;
    pairs->clear();
    if (head.skip) return true;
    std::uint64_t crc = 0;
    for (int i = 0; i < head.pairs; ++i) {
      const std::size_t sector = first + 1 + static_cast<std::size_t>(i);
      if (sector >= journal_.now().size()) return false;
      const Sector& s = journal_.load(sector);
      const bool read = s.kind == Sector::payload;
      crc = mix(crc ^ mix(read ? static_cast<std::uint64_t>(s.value * 8 + s.line) : ~0u));
      if (read) pairs->push_back({s.line, s.value});
    }
    return crc == head.payload_crc || planted<"torn_block_believed">();
  }

  // Returns false if a block is damaged and a later one is whole.
  bool replay(Values* merged) {
    bool skip = false;
    Pairs pairs;
    const auto units = static_cast<std::uint64_t>(config_.units);
    while (read_block(end_, &skip, &pairs)) {
      if (skip) {
        end_ = {end_.at + units - end_.at % units, end_.block + 1};
      } else {
        const int n = journal_.load(ring_sector(end_.at)).pairs;
        for (const auto& [line, value] : pairs) (*merged)[static_cast<std::size_t>(line)] = value;
        end_ = {end_.at + (1 + static_cast<std::uint64_t>(n) + kUnitSectors - 1) / kUnitSectors,
                end_.block + 1};
        replayed += 1;
      }
      if (end_.at - start_.at > units) break;
    }
    if (planted<"damage_taken_for_the_end">()) return true;
    for (std::uint64_t unit = 0; unit < units; ++unit) {
      const Sector& s = journal_.load(ring_sector(unit));
      const bool behind = s.kind == Sector::head && s.life == header_.life &&
                          s.number > end_.block && s.position % units == unit;
      if (behind) return false;
    }
    return true;
  }

  void write_block(const Pairs& pairs, bool skip) {
    Sector head;
    head.kind = Sector::head;
    head.life = header_.life;
    head.number = end_.block;
    head.position = end_.at;
    head.skip = skip;
    head.pairs = static_cast<int>(pairs.size());
    std::vector<Sector> sectors{head};
    for (const auto& [line, value] : pairs) {
      Sector s;
      s.kind = Sector::payload;
      s.line = line;
      s.value = value;
      sectors[0].payload_crc =
          mix(sectors[0].payload_crc ^ mix(static_cast<std::uint64_t>(value * 8 + line)));
      sectors.push_back(s);
    }
    sectors.resize((sectors.size() + kUnitSectors - 1) / kUnitSectors * kUnitSectors);
    const std::size_t first = ring_sector(end_.at);
    blocks_.push_back({first, first + sectors.size()});
    for (std::size_t i = 0; i < sectors.size(); ++i) {
      write_journal(first + i, sectors[i]);
    }
    const auto units = static_cast<std::uint64_t>(config_.units);
    const std::uint64_t next = skip ? units - end_.at % units : sectors.size() / kUnitSectors;
    end_ = {end_.at + next, end_.block + 1};
  }

  // Returns false, without a write, if the ring is full.
  bool append(const Pairs& pairs) {
    const auto units = static_cast<std::uint64_t>(config_.units);
    const std::uint64_t whole = (1 + pairs.size() + kUnitSectors - 1) / kUnitSectors;
    const std::uint64_t rest = units - end_.at % units;
    const std::uint64_t skipped = whole > rest ? rest : 0;
    if (skipped + whole > room()) return false;
    if (skipped != 0) {
      write_block({}, true);
      sync_journal();
    }
    if (end_.at % units == 0 && end_.at != 0) laps += 1;
    write_block(pairs, false);
    const bool waits = !planted<"next_block_begun_early">() || pick(2) == 0;
    if (waits) sync_journal();
    return true;
  }

  const FileConfig config_;
  Rng rng_;
  Lines<Sector, 1> journal_{{}, 1};
  Lines<int, 1> pool_{{}, 1};  // the lines, then the index in supers_ of the superblock
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

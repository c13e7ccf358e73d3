// The steps of journal_file_model.h.
#pragma once

#include "journal_file_model.h"

namespace tenuto_model {

inline FileModel::FileModel(const FileConfig& config) : config_(config), journal_(0), pool_(0) {}

inline Values FileModel::pool_lines() const {
  Values v;
  for (int i = 0; i < config_.lines; ++i) v.push_back(pool_.read(static_cast<std::size_t>(i)));
  return v;
}

// --- the journal's file --------------------------------------------------------------------------

// Makes a nameless file, which is complete before it gets its name.
inline void FileModel::make_journal() {
  may_crash();
  journal_ = Device<Sector>(journal_.size());
  header_ = {};
  header_.kind = Sector::header;
  header_.life = next_life_++;
  header_.sequence = 1;
  header_.number = 1;
  header_.closed = true;  // it holds nothing
  journal_.write(1, header_);
  journal_.sync();
  say("made");
}

// Returns false if the open is refused.
inline bool FileModel::read_header(const Super& expected) {
  counts_ = unborn_ = false;
  Sector best;
  for (std::size_t i = 0; i < kHeaders; ++i) {
    const Sector& s = journal_.read(i);
    if (s.kind != Sector::header) continue;
    const bool newer = s.sequence > best.sequence;
    if (best.kind != Sector::header || newer != is(FilePlant::older_header_believed)) best = s;
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

inline void FileModel::write_header() {
  header_.sequence += 1;
  header_.position = start_.at;
  header_.number = start_.block;
  write_journal(is(FilePlant::one_header_copy) ? 0 : header_.sequence & 1, header_);
  sync_journal();
}

inline bool FileModel::read_block(Position at, bool* skip, Pairs* pairs) const {
  const std::size_t first = ring_sector(at.at);
  const Sector& head = journal_.read(first);
  const bool same_life = head.life == header_.life || is(FilePlant::no_life_in_checksum);
  if (head.kind != Sector::head || !same_life) return false;
  if (head.number != at.block || head.position != at.at) return false;
  *skip = head.skip;
  pairs->clear();
  if (head.skip) return true;
  std::uint64_t crc = 0;
  for (int i = 0; i < head.pairs; ++i) {
    const std::size_t sector = first + 1 + static_cast<std::size_t>(i);
    if (sector >= journal_.size()) return false;
    const Sector& s = journal_.read(sector);
    const bool read = s.kind == Sector::payload;
    crc = mix(crc ^ mix(read ? static_cast<std::uint64_t>(s.value * 8 + s.line) : ~0u));
    if (read) pairs->push_back({s.line, s.value});
  }
  return crc == head.payload_crc || is(FilePlant::torn_block_believed);
}

// Returns false if a block is damaged and a later one is whole.
inline bool FileModel::replay(Values* merged) {
  bool skip = false;
  Pairs pairs;
  const auto units = static_cast<std::uint64_t>(config_.units);
  while (read_block(end_, &skip, &pairs)) {
    if (skip) {
      end_ = {end_.at + units - end_.at % units, end_.block + 1};
    } else {
      const int n = journal_.read(ring_sector(end_.at)).pairs;
      for (const auto& [line, value] : pairs) (*merged)[static_cast<std::size_t>(line)] = value;
      end_ = {end_.at + (1 + static_cast<std::uint64_t>(n) + kUnitSectors - 1) / kUnitSectors,
              end_.block + 1};
      replayed += 1;
    }
    if (end_.at - start_.at > units) break;
  }
  if (is(FilePlant::damage_taken_for_the_end)) return true;
  for (std::uint64_t unit = 0; unit < units; ++unit) {
    const Sector& s = journal_.read(ring_sector(unit));
    const bool behind = s.kind == Sector::head && s.life == header_.life && s.number > end_.block &&
                        s.position % units == unit;
    if (behind) return false;
  }
  return true;
}

inline void FileModel::write_block(const Pairs& pairs, bool skip) {
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
inline bool FileModel::append(const Pairs& pairs) {
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
  const bool waits = !is(FilePlant::next_block_begun_early) || pick(2) == 0;
  if (waits) sync_journal();
  return true;
}

// --- a life --------------------------------------------------------------------------------------

// Returns false if the open is refused.
inline bool FileModel::open() {
  const auto lines = static_cast<std::size_t>(config_.lines);
  const Super expected = super();
  say("open" + std::to_string(expected.life) + (expected.running ? "r" : "c"));
  if (config_.synced_when_opened) {
    sync_pool();
    sync_journal();
  }
  if (!read_header(expected)) return false;
  if (counts_ || unborn_) {
    Values merged(lines, -1);
    const std::uint64_t before = replayed;
    if (!replay(&merged)) return false;
    if (unborn_ && replayed != before) return false;
    for (std::size_t i = 0; i < merged.size(); ++i) {
      if (merged[i] >= 0) write_pool(i, merged[i]);
    }
    if (!is(FilePlant::replay_not_synced)) sync_pool();
  }
  if (config_.announced_first) announce();
  header_.life = config_.announced_first ? super().life : next_life_++;
  header_.closed = false;
  start_ = end_ = {0, 1};
  if (is(FilePlant::running_before_new_life)) name_life();
  write_header();
  say("life" + std::to_string(header_.life));
  if (!config_.announced_first) announce();
  if (expected.running && !is(FilePlant::recovery_stores_while_announced)) name_life();
  memory_ = pool_lines();
  since_checkpoint_.clear();
  checkpoint_ = 0;
  commits_ = 0;
  opens += 1;
  return true;
}

inline void FileModel::write_super(const Super& s) {
  supers_.push_back(s);
  write_pool(static_cast<std::size_t>(config_.lines), static_cast<int>(supers_.size() - 1));
  sync_pool();
}

inline void FileModel::announce() {
  const bool forgets = is(FilePlant::life_before_forgotten);
  const std::uint64_t life = config_.announced_first ? next_life_++ : header_.life;
  write_super({super().running, life, forgets ? 0 : header_.life});
}

inline void FileModel::name_life() { write_super({true, super().life, 0}); }

// The layers above recover. (A clean pool needs no recovery.) Their stores are in blocks of the new
// life before the superblock says that it runs.
inline void FileModel::recover() {
  const bool clean = !super().running;
  for (std::size_t n = clean ? 0 : pick(3); n > 0; --n) commit(false);
  may_crash();
  name_life();
  acknowledged_ = memory_;
  in_flight_.clear();
  say("runs");
}

// A commit. If the ring is full, a checkpoint comes first.
inline void FileModel::commit(bool acknowledged) {
  const Values was = memory_;
  Pairs pairs;
  for (int line = 0; line < config_.lines; ++line) {
    const bool chosen = pick(2) == 0 || (line + 1 == config_.lines && pairs.empty());
    if (chosen) pairs.push_back({line, next_value_++});
  }
  for (const auto& [line, value] : pairs) memory_[static_cast<std::size_t>(line)] = value;
  in_flight_.push_back(memory_);
  if (!append(pairs)) {
    checkpoint_all();
    if (!append(pairs)) fail("a block does not fit after a checkpoint");
  }
  say("block");
  commits_ += 1;
  const bool missed = is(FilePlant::block_missed_by_checkpoint) && commits_ % 3 == 0;
  for (const auto& [line, value] : pairs) {
    if (!missed) since_checkpoint_[line] = value;
  }
  if (!acknowledged) {
    before_ = was;
    last_ = blocks_.size() - 1;
    return;
  }
  // A block that was begun before the last one is durable is acknowledged with the next sync.
  if (is(FilePlant::next_block_begun_early) && pick(2) == 0) return;
  if (is(FilePlant::next_block_begun_early)) sync_journal();
  before_ = acknowledged_;
  acknowledged_ = memory_;
  last_ = blocks_.size() - 1;
  in_flight_.clear();
}

// In steps, so that blocks may come between them.
inline void FileModel::checkpoint_step() {
  const auto move_start = [&] {
    start_ = checkpoint_start_;
    write_header();
  };
  switch (checkpoint_++) {
    case 0:
      checkpoint_start_ = end_;
      applied_.clear();
      std::swap(applied_, since_checkpoint_);
      break;
    case 1:
      for (const auto& [line, value] : applied_) write_pool(static_cast<std::size_t>(line), value);
      break;
    case 2:
      if (is(FilePlant::start_before_pool_synced)) {
        move_start();
      } else {
        sync_pool();
      }
      if (is(FilePlant::space_reused_before_header)) start_ = checkpoint_start_;
      break;
    default:
      if (is(FilePlant::start_before_pool_synced)) {
        sync_pool();
      } else {
        move_start();
      }
      say("checkpoint");
      checkpoint_ = 0;
  }
}

// Finishes a running checkpoint first, because it alone may leave too little room.
inline void FileModel::checkpoint_all() {
  while (checkpoint_ != 0) checkpoint_step();
  do checkpoint_step();
  while (checkpoint_ != 0);
}

inline void FileModel::close() {
  const Super clean{false, super().life, 0};
  if (is(FilePlant::clean_before_pool_synced)) {
    supers_.push_back(clean);
    write_pool(static_cast<std::size_t>(config_.lines), static_cast<int>(supers_.size() - 1));
  }
  checkpoint_all();
  write_super(clean);
  say("close");
  if (pick(2) == 0) {  // the journal is kept
    header_.closed = true;
    write_header();
    return;
  }
  journal_ = Device<Sector>(journal_.size());
  say("unlink");
}

inline void FileModel::work() {
  for (int i = 0; i < config_.operations; ++i) {
    may_crash();
    if (pick(3) != 0) {
      commit(true);
    } else {
      checkpoint_step();
    }
  }
  if (pick(3) == 0) close();
}

inline void FileModel::crash() {
  crashes += 1;
  const auto choose = [this](std::size_t n) { return pick(n); };
  if (pick(3) == 0) {
    say("KILL");
    if (!config_.kills_leave_journal_unsynced) journal_.sync();
    return;
  }
  say("POWER");
  Sector damaged;
  damaged.kind = Sector::damaged;
  journal_.cut_power(choose, &damaged);
  pool_.cut_power(choose, nullptr);
}

inline void FileModel::judge(const char* where) {
  Values found = pool_lines();
  bool right = found == acknowledged_;
  for (const Values& v : in_flight_) right |= found == v;
  if (!right) {
    std::string what = std::string(where) + ": the pool holds";
    for (const int v : found) what += " " + std::to_string(v);
    what += ", acknowledged were";
    for (const int v : acknowledged_) what += " " + std::to_string(v);
    fail(what);
  }
  acknowledged_ = before_ = found;
  in_flight_.clear();
  blocks_.clear();
  last_ = 0;
}

inline void FileModel::run(std::uint64_t seed) {
  rng_.seed(seed);
  story_ = " seed " + std::to_string(seed);
  journal_ = Device<Sector>(kHeaders + static_cast<std::size_t>(config_.units) * kUnitSectors);
  pool_ = Device<int>(static_cast<std::size_t>(config_.lines) + 1);
  supers_ = {{}};
  next_life_ = 1;
  acknowledged_ = Values(static_cast<std::size_t>(config_.lines), 0);
  in_flight_.clear();
  before_ = acknowledged_;
  blocks_.clear();
  next_value_ = 1;
  for (int life = 0; life < config_.lives && failure.empty(); ++life) {
    crashing_ = true;
    try {
      if (!open()) return fail("refused");
      judge("opened");
      recover();
      work();
      if (super().running) throw Crash{};
    } catch (const Crash&) {
      crash();
    }
  }
  crashing_ = false;
  if (!failure.empty()) return;
  if (config_.damages) return damage_and_open();
  if (!open()) return fail("refused");
  judge("opened at last");
}

// Damages any sector of the ring: what was acknowledged is there, or the damage is reported. Damage
// of the last block is an exception, because it looks like a torn one. A checkpoint, or a recovery
// that did not end, may already have written lines of that block.
inline void FileModel::damage_and_open() {
  Sector damaged;
  damaged.kind = Sector::damaged;
  const std::size_t hit = kHeaders + pick(journal_.size() - kHeaders);
  bool tail = false;
  for (std::size_t i = last_; i < blocks_.size(); ++i) {
    tail |= hit >= blocks_[i].first && hit < blocks_[i].second;
  }
  std::vector<Values> either = in_flight_;
  either.push_back(before_);
  either.push_back(acknowledged_);
  journal_.write(hit, damaged);
  journal_.sync();
  if (!open()) {
    reported += 1;
    return;
  }
  const Values found = pool_lines();
  if (!tail || found == acknowledged_) return judge("opened with damage");
  unnoticed += 1;
  for (std::size_t line = 0; line < found.size(); ++line) {
    bool known = false;
    for (const Values& v : either) known |= v[line] == found[line];
    if (!known) fail("opened with a damaged end: line " + std::to_string(line) + " is of neither");
  }
}

}  // namespace tenuto_model

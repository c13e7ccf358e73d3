// The lives of a pool with its journal: open, recovery, commits, checkpoints, close, and crashes at
// any write, as in journal.cc and pool_file.cc.
#pragma once

#include "journal_file_state.h"

namespace tenuto_model {

class FileModel : public FileState {
 public:
  explicit FileModel(const FileConfig& config) : FileState(config) {}

  // Some lives; sets failure.
  void run(std::uint64_t seed) {
    rng_.seed(seed);
    story_ = " seed " + std::to_string(seed);
    empty_journal();
    pool_.reset(std::vector<int>(static_cast<std::size_t>(config_.lines) + 1), 1);
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

 private:
  const Super& super() const {
    return supers_[static_cast<std::size_t>(pool_.load(static_cast<std::size_t>(config_.lines)))];
  }
  // Returns false if the open is refused.
  bool open() {
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
      if (!planted<"replay_not_synced">()) sync_pool();
    }
    if (config_.announced_first) announce();
    header_.life = config_.announced_first ? super().life : next_life_++;
    header_.closed = false;
    start_ = end_ = {0, 1};
    if (planted<"running_before_new_life">()) name_life();
    write_header();
    say("life" + std::to_string(header_.life));
    if (!config_.announced_first) announce();
    if (expected.running && !planted<"recovery_stores_while_announced">()) name_life();
    memory_ = pool_lines();
    since_checkpoint_.clear();
    checkpoint_ = 0;
    commits_ = 0;
    opens += 1;
    return true;
  }

  void write_super(const Super& s) {
    supers_.push_back(s);
    write_pool(static_cast<std::size_t>(config_.lines), static_cast<int>(supers_.size() - 1));
    sync_pool();
  }

  void announce() {
    const bool forgets = planted<"life_before_forgotten">();
    const std::uint64_t life = config_.announced_first ? next_life_++ : header_.life;
    write_super({super().running, life, forgets ? 0 : header_.life});
  }

  void name_life() { write_super({true, super().life, 0}); }

  // The layers above recover. (A clean pool needs no recovery.) Their stores are in blocks of the
  // new life before the superblock says that it runs.
  void recover() {
    const bool clean = !super().running;
    for (std::size_t n = clean ? 0 : pick(3); n > 0; --n) commit(false);
    may_crash();
    name_life();
    acknowledged_ = memory_;
    in_flight_.clear();
    say("runs");
  }

  // A commit. If the ring is full, a checkpoint comes first.
  void commit(bool acknowledged) {
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
    const bool missed = planted<"block_missed_by_checkpoint">() && commits_ % 3 == 0;
    for (const auto& [line, value] : pairs) {
      if (!missed) since_checkpoint_[line] = value;
    }
    if (!acknowledged) {
      before_ = was;
      last_ = blocks_.size() - 1;
      return;
    }
    // A block that was begun before the last one is durable is acknowledged with the next sync.
    if (planted<"next_block_begun_early">() && pick(2) == 0) return;
    if (planted<"next_block_begun_early">()) sync_journal();
    before_ = acknowledged_;
    acknowledged_ = memory_;
    last_ = blocks_.size() - 1;
    in_flight_.clear();
  }

  // In steps, so that blocks may come between them.
  void checkpoint_step() {
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
        for (const auto& [line, value] : applied_)
          write_pool(static_cast<std::size_t>(line), value);
        break;
      case 2:
        if (planted<"start_before_pool_synced">()) {
          move_start();
        } else {
          sync_pool();
        }
        if (planted<"space_reused_before_header">()) start_ = checkpoint_start_;
        break;
      default:
        if (planted<"start_before_pool_synced">()) {
          sync_pool();
        } else {
          move_start();
        }
        say("checkpoint");
        checkpoint_ = 0;
    }
  }

  // Finishes a running checkpoint first, because it alone may leave too little room.
  void checkpoint_all() {
    while (checkpoint_ != 0) checkpoint_step();
    do checkpoint_step();
    while (checkpoint_ != 0);
  }

  void close() {
    const Super clean{false, super().life, 0};
    if (planted<"clean_before_pool_synced">()) {
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
    empty_journal();
    say("unlink");
  }

  void work() {
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

  void crash() {
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
    journal_.reset(journal_.crash(choose, &damaged), 1);
    pool_.reset(pool_.crash(choose), 1);
  }

  void judge(const char* where) {
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

  // Damages any sector of the ring: what was acknowledged is there, or the damage is reported.
  // Damage of the last block is an exception, because it looks like a torn one. A checkpoint, or a
  // recovery that did not end, may already have written lines of that block.
  void damage_and_open() {
    Sector damaged;
    damaged.kind = Sector::damaged;
    const std::size_t hit = kHeaders + pick(journal_.now().size() - kHeaders);
    bool tail = false;
    for (std::size_t i = last_; i < blocks_.size(); ++i) {
      tail |= hit >= blocks_[i].first && hit < blocks_[i].second;
    }
    std::vector<Values> either = in_flight_;
    either.push_back(before_);
    either.push_back(acknowledged_);
    journal_.store(hit, damaged);
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
      if (!known)
        fail("opened with a damaged end: line " + std::to_string(line) + " is of neither");
    }
  }

  Values pool_lines() const {
    Values v;
    for (int i = 0; i < config_.lines; ++i) v.push_back(pool_.load(static_cast<std::size_t>(i)));
    return v;
  }
};

}  // namespace tenuto_model

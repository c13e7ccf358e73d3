// One process of a life: makes the story's steps, from a given one on, until the process ends.
#pragma once

#include "actor.h"
#include "crew.h"

namespace tenuto::life {

class Process {
 public:
  explicit Process(World& world);
  [[noreturn]] void live(std::size_t from);

 private:
  void main_step(const Step& step, std::size_t number);
  void open(const Step& step, std::size_t number);
  void open_unread(unsigned s, const StoreOptions& options);
  // Threads of the stores work. Else a copy of a store that is open and at rest is consistent.
  bool works_by_itself() const { return world_.story.sync_ms != 0 || world_.story.reclaim_ms != 0; }
  bool close(unsigned s, std::size_t number);
  // process_side.cc
  Status open_side(unsigned s);
  void check_side(unsigned s);
  void close_sides();
  void drop_handles(unsigned s);
  void validate(unsigned s, std::size_t number);
  void compact_objects(Pool& pool, std::size_t number);
  void rest(const Step& step, std::size_t number);
  void check_backup(const Step& step, std::size_t number);
  void copy(const Step& step, std::size_t number);
  void restore(const Step& step, std::size_t number);
  void rescue(const Step& step, std::size_t number);
  void forge(const Step& step);
  void open_forged(unsigned s, const std::string& path);
  void other_opens(const Step& step, std::size_t number);
  void fork_child(const Step& step, std::size_t number);
  [[noreturn]] void forked(std::int64_t how);
  void at_exit_for_forked();
  void kill_soon(const Step& step);
  [[noreturn]] void leave(std::int64_t how, std::size_t number);

  World& world_;
  Crew crew_;
  std::vector<std::unique_ptr<Actor>> actors_;
};

// The program that `other_opens` starts: it opens the store and exits with the status.
int try_open(const char* path, Medium medium);

}  // namespace tenuto::life

// A transaction over several pools: the transactions of one thread, one in each pool, that end
// together. The first one leads: its end is the end of all. joint.cc has the protocol.
//
// Thread safety: it belongs to one thread, as its parts do. Its memory is there once a pool has
// joined. A commit needs more only for a frame of decisions; without it, it is `full` and undone.
#pragma once

#include <memory>
#include <vector>

#include "tenuto/status.h"
#include "tx/format.h"

namespace TENUTO_NS::tx {

class Txn;

class Joint {
 public:
  explicit Joint(Txn& leader) : leader_(leader) {}

  Txn& leader() const { return leader_; }
  bool has_pool(std::uint64_t pool_id) const;
  // Whether one of the parts holds the lock.
  bool holds(const void* mutex) const;
  // Gets the memory that another part needs, so that add() cannot fail. It throws std::bad_alloc.
  void make_room();
  void add(Txn& part);
  // A part, or the leader, goes away with its pool while the transaction is open. The others roll
  // back.
  void lose(Txn& gone);

  // As Txn::ready, for the entries of all parts under one fence.
  Status ready();

  // The leader ends, at its outermost level. Statuses as Txn::commit.
  Status commit();
  void roll_back();
  // Ends every part. REQUIRES: committed, or rolled back.
  void end(bool committed);

 private:
  Status ready_to_commit() const;
  Status commit_all();
  Status commit_in_two_phases();
  Status make_log_room(Txn& decider);
  Status prepare(Txn& decider);
  void log_all();
  Status decide(Txn& decider);
  static void leave_in_doubt(Txn& part, const Txn& decider);

  Txn& leader_;
  bool ending_ = false;
  std::vector<Txn*> parts_;    // the leader is the first
  std::vector<Txn*> changed_;  // those with a log, for a commit
};

}  // namespace TENUTO_NS::tx

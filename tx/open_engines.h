// The engines that are open in this process. Pools that were in one transaction ask each other here
// how it ended (joint.cc).
//
// Thread safety: all calls by any thread. They hold process_locks.engines, so that no engine goes
// away meanwhile.
#pragma once

#include <cstdint>
#include <string>

#include "tenuto/abi.h"
#include "tx/format.h"

namespace TENUTO_NS::tx {

class Engine;

enum class Verdict : std::uint8_t {
  committed,
  aborted,
  not_reached,  // the decider is an older copy: it has not begun that transaction
  not_open,     // no pool with that id is open here
  two_open,     // two pools with that id are
  failed,       // that pool's device failed, so what it says may not be durable
};

class OpenEngines {
 public:
  // From a recovery that is durable until the engine goes away.
  static void add(Engine& engine);
  static bool is_open(std::uint64_t pool_id);
  static void remove(Engine& engine);  // does nothing if it is not there
  // The pool was closed cleanly and durably. Until it is opened again has_ended() remembers what
  // its lanes had committed. Cost: 8 bytes for each lane of a pool that was in a joint transaction.
  static void closed(const Engine& engine);

  // How `decider` ended, which decides `part`.
  static Verdict ask(const TxnName& decider, const TxnName& part);
  // Whether `part` has ended, durably after sync(part.pool_id). false also: its pool is not open
  // and was not closed by this process.
  static bool has_ended(const TxnName& part);
  // "the pool PATH, block of 64 bytes at offset 4096, allocated": the object at the address, of any
  // pool that is open. Empty: none. For the watch for mistakes.
  static std::string describe(const void* p);
  // Medium journal: makes that pool's transactions durable that have ended. false: its device
  // failed, or nobody knows about it.
  static bool sync(std::uint64_t pool_id);

 private:
  static Engine* find(std::uint64_t pool_id, std::size_t& count);
  static Engine* first_;
};

}  // namespace TENUTO_NS::tx

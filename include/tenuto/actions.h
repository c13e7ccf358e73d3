// Actions: objects that are made, filled and thrown away outside any transaction, and then become
// part of the pool together, in one atomic step.
//
//   Actions actions(pool);
//   Result<Node*> node = actions.make<Node>(7);    // reserved: after a crash it is free
//   ...                                            // fill it; no lock, no log, as long as it takes
//   actions.set(list.first, *node);                // to be stored
//   actions.free(list.first.get());                // to be freed
//   Status s = actions.publish();                  // all of it, or nothing
//
// For one block and one pointer Pool::reserve and Pool::publish cost less.
//
// Thread safety: one thread at a time; another one may publish. A lock for what set() changes is
// needed only during publish. Close: what is not published is free. The close of a Store destroys
// its pool: no Actions of it may be left then. Fork: in a child all calls return Status::forked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenuto/alloc_options.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

class TENUTO_API Actions {
 public:
  explicit Actions(Pool& pool) : pool_(pool) {}  // the pool is not moved meanwhile
  ~Actions() { cancel(); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;

  // Reserves a block. Its contents are undefined (zero with options.zero), and are flushed by
  // publish. Statuses as Pool::reserve. No fence.
  Result<void*> reserve(std::uint64_t bytes, const AllocOptions& options = {});
  // Constructs a T in a reserved block. Its fields (tenuto/p.h) are stored in place. REQUIRES: no
  // transaction of this thread is open on the pool, or T has no fields.
  template <class T, class... Args>
  Result<T*> make(Args&&... args) {
    Result<void*> block = reserve(sizeof(T), {.align = alignof(T)});
    if (!block) return block.error();
    if constexpr (std::is_constructible_v<T, Args...>) {
      return new (*block) T(std::forward<Args>(args)...);
    } else {  // an aggregate, where the compiler takes no parentheses for it
      return new (*block) T{std::forward<Args>(args)...};
    }
  }

  // publish will store the value. dest: a plain value, a pointer or a field in the pool, or in a
  // block that is reserved here. Of two values for one place the later one counts.
  template <class T>
  requires(std::is_trivially_copyable_v<T>) void set(T& dest, const std::type_identity_t<T>& v) {
    set_bytes(&dest, &v, sizeof v);
  }
  template <class T>
  void set(Ptr<T>& dest, std::type_identity_t<T>* target) {
    set_pointer(&dest, target);
  }
  template <class T>
  void set(p<T>& dest, const std::type_identity_t<T>& value) {
    if constexpr (std::is_pointer_v<T>) {
      set_pointer(&dest, value);
    } else {
      set_bytes(&dest, &value, sizeof value);
    }
  }
  // The same for bytes. A pointer is set by set(): a Ptr stores a distance.
  void set_bytes(void* dest, const void* value, std::size_t bytes);
  // publish will free the object.
  void free(const void* object);

  // Does all of it, in a transaction; with an open one of this thread on the pool, in that, which
  // is rolled back if this fails. Then the list is empty. ok | full, invalid_argument (a place
  // outside the pool, a pointer out of it, or no object to free) | others as Transaction::commit:
  // nothing was done, and all blocks are free again. Durable on return. Cost: three fences, and the
  // lines of a transaction with the same contents. file, line: for reports of mistakes.
  Status publish(const char* file = __builtin_FILE(), int line = __builtin_LINE());
  // Gives the reserved blocks back and forgets the rest. If this is the thread's first call on the
  // pool, and memory is refused to it, the blocks stay reserved until the pool is opened again.
  void cancel() noexcept;

 private:
  struct Value {
    void* dest;
    std::size_t at;  // in bytes_
    std::size_t bytes;
  };
  void set_pointer(void* dest, const void* target) {
    if (target != nullptr && !pool_.contains(target)) return refuse(target);
    const PtrWord word{PtrWord::encode(dest, target)};
    set_bytes(dest, &word, sizeof word);
  }
  void refuse(const void* target);
  Status publish_in(Transaction& tx);

  Pool& pool_;
  std::vector<Reserved> blocks_;
  std::vector<std::uint64_t> sizes_;  // as asked for
  std::vector<Value> values_;
  std::vector<std::byte> bytes_;
  std::vector<const void*> freed_;
};

}  // namespace TENUTO_NS

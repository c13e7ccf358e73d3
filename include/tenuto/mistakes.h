// Mistakes of a program that changes objects, found while it runs.
//
//   PoolOptions options;
//   #ifndef NDEBUG
//   options.on_mistake = tenuto::stop_at_mistake;
//   #endif
//
// With PoolOptions::on_mistake the pool reports, with the place and what to do:
//   - an object that was changed, and neither added to the transaction nor flushed. Found at the
//     end of a transaction, by a comparison with a copy in DRAM that shows what was flushed. The
//     report names the object, the bytes in it, and where the transaction began. Bytes beside
//     added ones are found too, in the same line;
//   - an object of up to 16 KiB that was changed after it was freed. Found at the end of a
//     transaction, unless the block has been taken again by then;
//   - a range that was added where no object is: it was freed, or never allocated, or the range
//     goes on behind the object;
//   - a thread that ends with an open transaction;
//   - a word that was stored and, read as a Ptr, leads to an object of another open pool, or into a
//     pool that was closed (watched like this one). Found at the end of a transaction, also if it
//     was flushed outside of one;
//   - a range that is added, overwritten or freed and is not in the transaction's pool, and a
//     pointer out of its pool that a field refuses (tenuto/p.h). The report names the other pool;
//   - a pointer into a closed pool that is followed: see below.
// Always, without this option: a field refuses such a pointer; a Status that nobody looks at (a
// warning of the compiler); a transaction on a pool that is closed (Status::closed).
//
// A change that is right, and is reported all the same: a thread stores to an object and has not
// flushed it yet, while another thread's transaction ends. Change objects that others can see in
// transactions, and fill new ones before you publish them.
//
// Closed pools. The addresses of a watched pool stay reserved, without access, when it is closed. A
// load or store there is a SIGSEGV. The library's handler writes the pool's path, the offset, when
// it was closed, and the calls of the thread to standard error, and then calls the handler that the
// program had at its first close of such a pool; without one the process ends as by default. The
// option's function is not called, because what it uses may be gone. The addresses of the last 32
// closed pools are kept (16 TiB of them at most; no memory), fewer if an open needs them. An open
// of the same pool gets other addresses. Children of a fork are told the same.
// What this cannot see: a read of an object that was freed; a pointer whose pool's addresses were
// given back; a pointer that is only compared or copied; a system call that gets it (EFAULT); a
// fault after the program has set another handler of SIGSEGV, which does not call the one before.
// What the words cannot show: a pointer that is stored otherwise than as a Ptr or a field.
//
// Cost: a copy of the pool in DRAM. The end of a transaction compares up to 64 MiB (in a larger
// pool some further 64 MiB at each end, and what is near the transaction's own ranges), and each
// flush takes a lock. For programs under development. The crash explorer (tenuto/crash.h) finds
// more, in tests; its build ignores this option, and so does a library with ThreadSanitizer.
#pragma once

#include "tenuto/abi.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

// Writes the report to standard error and ends the program (abort), so that a debugger stops here.
// A handler of your own may go on: the mistake is reported once. It must not throw, and must not
// call the pool. Any thread may call it.
[[noreturn]] TENUTO_API void stop_at_mistake(const Report& mistake);

}  // namespace TENUTO_NS

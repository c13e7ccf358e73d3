// The few words of the NBD protocol (its text is in NetworkBlockDevice/nbd) that QEMU
// needs of a disk: fixed newstyle handshake, simple replies, read, write and flush. One client.
#pragma once

#include <csignal>

#include "powercut/volatile_disk.h"

namespace tenuto::powercut {

// Serves the disk until the client hangs up or vanishes, which is when its power goes. A flush
// takes flush_ms. Once `stop` is not 0, the next request that finds or leaves something unflushed
// is not answered, nor any after it: "stopped" is said, and the client may be ended at leisure.
// False when it never came to a handshake, or broke the protocol.
bool serve_nbd(int client, VolatileDisk& disk, int flush_ms,
               const volatile std::sig_atomic_t& stop);

}  // namespace tenuto::powercut

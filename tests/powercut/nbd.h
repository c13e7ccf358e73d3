// The part of the NBD protocol (described in NetworkBlockDevice/nbd) that QEMU needs for a disk:
// fixed newstyle handshake, simple replies, read, write and flush. One client.
#pragma once

#include <csignal>

#include "powercut/volatile_disk.h"

namespace tenuto::powercut {

// Serves the disk until the client disconnects or vanishes, which means that its power went. A
// flush takes flush_ms. Once `stop` is not 0, the next request that finds or leaves unflushed data
// gets no answer, nor does any later one. It then prints "stopped", and the client may be ended at
// any time. Returns false if there was no handshake, or if the client broke the protocol.
bool serve_nbd(int client, VolatileDisk& disk, int flush_ms,
               const volatile std::sig_atomic_t& stop);

}  // namespace tenuto::powercut

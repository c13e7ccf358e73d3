// The C API: iterators.
#include "store/c/handles.h"

namespace TENUTO_NS::c {

bool take_iterator_options(const tenuto_iterator_options* from, IteratorOptions& to) {
  tenuto_iterator_options o;
  tenuto_iterator_options_init(&o);
  if (take_options(o, from, "tenuto_iterator_options") != Status::ok) return false;
  if (!sound(o.prefix) || !sound(o.lower) || !sound(o.upper)) return false;
  if (o.prefix.data != nullptr) to.prefix = std::string(bytes_of(o.prefix));
  if (o.lower.data != nullptr) to.lower = std::string(bytes_of(o.lower));
  if (o.upper.data != nullptr) to.upper = std::string(bytes_of(o.upper));
  return true;
}

}  // namespace TENUTO_NS::c

using namespace tenuto;
using c::bytes_of;
using c::slice;
using c::sound;

namespace {

bool stands(const tenuto_iterator* it) { return it != nullptr && !it->refused && it->it.valid(); }

// Whether the seek may go on. A refused one clears the position.
bool sent(tenuto_iterator* it, bool sound) {
  if (it != nullptr) it->refused = !sound;
  return it != nullptr && sound;
}

}  // namespace

extern "C" {

void tenuto_iterator_options_init_sized(tenuto_iterator_options* options, size_t struct_bytes) {
  const tenuto_iterator_options all = {};
  c::init_struct(options, struct_bytes, &all, sizeof all);
}

tenuto_status tenuto_iterator_open(const tenuto_collection* in,
                                   const tenuto_iterator_options* options, tenuto_iterator** it) {
  if (in == nullptr || it == nullptr) return TENUTO_INVALID_ARGUMENT;
  *it = nullptr;
  IteratorOptions o;
  if (!c::take_iterator_options(options, o)) return TENUTO_INVALID_ARGUMENT;
  return c::give_iterator(in->collection.iterator(std::move(o)), it);
}

void tenuto_iterator_release(tenuto_iterator* it) { delete it; }

void tenuto_iterator_seek_first(tenuto_iterator* it) {
  if (sent(it, true)) it->it.seek_first();
}
void tenuto_iterator_seek_last(tenuto_iterator* it) {
  if (sent(it, true)) it->it.seek_last();
}
void tenuto_iterator_seek(tenuto_iterator* it, const void* key, size_t key_bytes) {
  if (sent(it, sound(key, key_bytes))) it->it.seek(bytes_of(key, key_bytes));
}
void tenuto_iterator_seek_for_prev(tenuto_iterator* it, const void* key, size_t key_bytes) {
  if (sent(it, sound(key, key_bytes))) it->it.seek_for_prev(bytes_of(key, key_bytes));
}
void tenuto_iterator_next(tenuto_iterator* it) {
  if (stands(it)) it->it.next();
}
void tenuto_iterator_prev(tenuto_iterator* it) {
  if (stands(it)) it->it.prev();
}
void tenuto_iterator_seek_pair(tenuto_iterator* it, const void* key, size_t key_bytes,
                               const void* value, size_t value_bytes) {
  if (!sent(it, sound(key, key_bytes) && sound(value, value_bytes))) return;
  it->it.seek_pair(bytes_of(key, key_bytes), bytes_of(value, value_bytes));
}
void tenuto_iterator_next_key(tenuto_iterator* it) {
  if (stands(it)) it->it.next_key();
}
void tenuto_iterator_prev_key(tenuto_iterator* it) {
  if (stands(it)) it->it.prev_key();
}
int tenuto_iterator_valid(const tenuto_iterator* it) { return stands(it); }
tenuto_slice tenuto_iterator_key(const tenuto_iterator* it) {
  return stands(it) ? slice(it->it.key()) : tenuto_slice{};
}
tenuto_slice tenuto_iterator_value(const tenuto_iterator* it) {
  return stands(it) ? slice(it->it.value()) : tenuto_slice{};
}
uint64_t tenuto_iterator_ttl_ms(const tenuto_iterator* it) {
  return stands(it) ? it->it.ttl_ms() : 0;
}
tenuto_status tenuto_iterator_status(const tenuto_iterator* it) {
  return it == nullptr || it->refused ? TENUTO_INVALID_ARGUMENT : c::give(it->it.status());
}

}  // extern "C"

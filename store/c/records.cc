// The C API: records one by one, and batches.
#include "store/c/handles.h"

using namespace tenuto;
using c::bytes_of;
using c::give;
using c::slice;
using c::sound;
using c::write_options;

extern "C" {

// --- records -------------------------------------------------------------------------------------

tenuto_status tenuto_get(const tenuto_collection* in, const void* key, size_t key_bytes,
                         void** value, size_t* value_bytes) {
  if (!sound(in, key, key_bytes) || value == nullptr || value_bytes == nullptr) {
    return TENUTO_INVALID_ARGUMENT;
  }
  *value = nullptr;
  *value_bytes = 0;
  const Result<View> found = in->collection.view(bytes_of(key, key_bytes));
  if (!found) return give(found.error());
  *value = c::give_bytes(found->value());
  *value_bytes = found->value().size();
  return TENUTO_OK;
}

tenuto_status tenuto_get_into(const tenuto_collection* in, const void* key, size_t key_bytes,
                              void* to, size_t room, size_t* value_bytes) {
  if (!sound(in, key, key_bytes) || !sound(to, room) || value_bytes == nullptr) {
    return TENUTO_INVALID_ARGUMENT;
  }
  *value_bytes = 0;
  const Result<std::size_t> found =
      in->collection.get(bytes_of(key, key_bytes), {static_cast<char*>(to), room});
  if (found) *value_bytes = *found;
  return give(found.error());
}

tenuto_status tenuto_contains(const tenuto_collection* in, const void* key, size_t key_bytes) {
  if (!sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(in->collection.contains(bytes_of(key, key_bytes)));
}

tenuto_status tenuto_put(tenuto_collection* in, const void* key, size_t key_bytes,
                         const void* value, size_t value_bytes, tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !sound(value, value_bytes) || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(in->collection.put(bytes_of(key, key_bytes), bytes_of(value, value_bytes),
                                 write_options(durability)));
}

tenuto_status tenuto_erase(tenuto_collection* in, const void* key, size_t key_bytes,
                           tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !c::is_durability(durability)) return TENUTO_INVALID_ARGUMENT;
  return give(in->collection.erase(bytes_of(key, key_bytes), write_options(durability)));
}

tenuto_status tenuto_view_open(const tenuto_collection* in, const void* key, size_t key_bytes,
                               tenuto_view** view, tenuto_slice* value) {
  if (!sound(in, key, key_bytes) || view == nullptr || value == nullptr) {
    return TENUTO_INVALID_ARGUMENT;
  }
  *view = nullptr;
  *value = {};
  Result<View> found = in->collection.view(bytes_of(key, key_bytes));
  if (!found) return give(found.error());
  *view = new tenuto_view{std::move(*found)};
  *value = slice((*view)->view.value());
  return TENUTO_OK;
}

void tenuto_view_release(tenuto_view* view) { delete view; }

// --- batches -------------------------------------------------------------------------------------

tenuto_batch* tenuto_batch_new(void) { return new tenuto_batch; }
void tenuto_batch_release(tenuto_batch* batch) { delete batch; }

tenuto_status tenuto_batch_put(tenuto_batch* batch, const tenuto_collection* in, const void* key,
                               size_t key_bytes, const void* value, size_t value_bytes) {
  if (batch == nullptr || !sound(in, key, key_bytes) || !sound(value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  batch->batch.put({in->collection, bytes_of(key, key_bytes)}, bytes_of(value, value_bytes));
  return TENUTO_OK;
}

tenuto_status tenuto_batch_put_for(tenuto_batch* batch, const tenuto_collection* in,
                                   const void* key, size_t key_bytes, const void* value,
                                   size_t value_bytes, uint64_t ttl_ms) {
  if (batch == nullptr || !sound(in, key, key_bytes) || !sound(value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  batch->batch.put({in->collection, bytes_of(key, key_bytes)}, bytes_of(value, value_bytes),
                   ttl_ms);
  return TENUTO_OK;
}

tenuto_status tenuto_batch_erase_pair(tenuto_batch* batch, const tenuto_collection* in,
                                      const void* key, size_t key_bytes, const void* value,
                                      size_t value_bytes) {
  if (batch == nullptr || !sound(in, key, key_bytes) || !sound(value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  batch->batch.erase_pair({in->collection, bytes_of(key, key_bytes)}, bytes_of(value, value_bytes));
  return TENUTO_OK;
}

tenuto_status tenuto_batch_erase(tenuto_batch* batch, const tenuto_collection* in, const void* key,
                                 size_t key_bytes) {
  if (batch == nullptr || !sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  batch->batch.erase({in->collection, bytes_of(key, key_bytes)});
  return TENUTO_OK;
}

void tenuto_batch_clear(tenuto_batch* batch) {
  if (batch != nullptr) batch->batch.clear();
}

size_t tenuto_batch_count(const tenuto_batch* batch) {
  return batch == nullptr ? 0 : batch->batch.count();
}

tenuto_status tenuto_write(tenuto_store* store, const tenuto_batch* batch,
                           tenuto_durability durability) {
  if (store == nullptr || batch == nullptr || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(store->store.write(batch->batch, write_options(durability)));
}

}  // extern "C"

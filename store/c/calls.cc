// The C API: lifetimes, duplicates, conditional writes, ranges, many records at once.
#include <algorithm>
#include <vector>

#include "store/c/handles.h"

using namespace tenuto;
using c::bytes_of;
using c::give;
using c::sound;
using c::write_options;

namespace {

using Bound = Result<KeyValue> (Collection::*)(std::string_view) const;

tenuto_status bound(Bound which, const tenuto_collection* in, const void* key,
                    std::size_t key_bytes, void** found_key, std::size_t* found_key_bytes,
                    void** value, std::size_t* value_bytes) {
  const bool room = found_key != nullptr && found_key_bytes != nullptr && value != nullptr &&
                    value_bytes != nullptr;
  if (!sound(in, key, key_bytes) || !room) return TENUTO_INVALID_ARGUMENT;
  *found_key = *value = nullptr;
  *found_key_bytes = *value_bytes = 0;
  const Result<KeyValue> found = (in->collection.*which)(bytes_of(key, key_bytes));
  if (!found) return give(found.error());
  *found_key = c::give_bytes(found->key);
  *found_key_bytes = found->key.size();
  *value = c::give_bytes(found->value);
  *value_bytes = found->value.size();
  return TENUTO_OK;
}

}  // namespace

tenuto::Status tenuto_collection::merge(std::string_view key, tenuto_merge_fn fn, void* context,
                                        WriteOptions options) {
  using Fresh = std::optional<std::string>;
  const auto f = [fn, context](std::optional<std::string_view> old) -> Result<Fresh> {
    tenuto_slice seen = {};
    tenuto_slice fresh = {};
    if (old) seen = c::slice(*old);
    if (fn(context, old ? &seen : nullptr, &fresh) != 0) return Fresh();
    if (!sound(fresh)) return Status::invalid_argument;
    return Fresh(bytes_of(fresh));
  };
  return collection.merge_or_refuse(key, f, options);
}

extern "C" {

tenuto_status tenuto_put_for(tenuto_collection* in, const void* key, size_t key_bytes,
                             const void* value, size_t value_bytes, uint64_t ttl_ms,
                             tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !sound(value, value_bytes) || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  WriteOptions options = write_options(durability);
  options.ttl_ms = ttl_ms;
  return give(in->collection.put(bytes_of(key, key_bytes), bytes_of(value, value_bytes), options));
}

tenuto_status tenuto_ttl_ms(const tenuto_collection* in, const void* key, size_t key_bytes,
                            uint64_t* ttl_ms) {
  if (!sound(in, key, key_bytes) || ttl_ms == nullptr) return TENUTO_INVALID_ARGUMENT;
  const Result<std::uint64_t> left = in->collection.ttl_ms(bytes_of(key, key_bytes));
  *ttl_ms = left.value_or(0);
  return give(left.error());
}

tenuto_status tenuto_touch(tenuto_collection* in, const void* key, size_t key_bytes,
                           uint64_t ttl_ms, tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !c::is_durability(durability)) return TENUTO_INVALID_ARGUMENT;
  WriteOptions options = write_options(durability);
  options.ttl_ms = ttl_ms;
  return give(in->collection.touch(bytes_of(key, key_bytes), options));
}

tenuto_status tenuto_contains_pair(const tenuto_collection* in, const void* key, size_t key_bytes,
                                   const void* value, size_t value_bytes) {
  if (!sound(in, key, key_bytes) || !sound(value, value_bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(in->collection.contains_pair(bytes_of(key, key_bytes), bytes_of(value, value_bytes)));
}

tenuto_status tenuto_erase_pair(tenuto_collection* in, const void* key, size_t key_bytes,
                                const void* value, size_t value_bytes,
                                tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !sound(value, value_bytes) || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(in->collection.erase_pair(bytes_of(key, key_bytes), bytes_of(value, value_bytes),
                                        write_options(durability)));
}

tenuto_status tenuto_count(const tenuto_collection* in, const void* key, size_t key_bytes,
                           uint64_t* count) {
  if (!sound(in, key, key_bytes) || count == nullptr) return TENUTO_INVALID_ARGUMENT;
  const Result<std::uint64_t> n = in->collection.count(bytes_of(key, key_bytes));
  *count = n.value_or(0);
  return give(n.error());
}

tenuto_status tenuto_put_if_absent(tenuto_collection* in, const void* key, size_t key_bytes,
                                   const void* value, size_t value_bytes,
                                   tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !sound(value, value_bytes) || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(in->collection.put_if_absent(bytes_of(key, key_bytes), bytes_of(value, value_bytes),
                                           write_options(durability)));
}

tenuto_status tenuto_compare_and_swap(tenuto_collection* in, const void* key, size_t key_bytes,
                                      const tenuto_slice* expected, const tenuto_slice* desired,
                                      tenuto_durability durability) {
  const bool slices =
      (expected == nullptr || sound(*expected)) && (desired == nullptr || sound(*desired));
  if (!sound(in, key, key_bytes) || !slices || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(in->collection.compare_and_swap(bytes_of(key, key_bytes), bytes_of(expected),
                                              bytes_of(desired), write_options(durability)));
}

tenuto_status tenuto_merge(tenuto_collection* in, const void* key, size_t key_bytes,
                           tenuto_merge_fn fn, void* context, tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || fn == nullptr || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(in->merge(bytes_of(key, key_bytes), fn, context, write_options(durability)));
}

tenuto_status tenuto_erase_range(tenuto_collection* in, const tenuto_slice* from,
                                 const tenuto_slice* to, uint64_t* erased,
                                 tenuto_durability durability) {
  const bool slices = (from == nullptr || sound(*from)) && (to == nullptr || sound(*to));
  if (in == nullptr || !slices || !c::is_durability(durability)) return TENUTO_INVALID_ARGUMENT;
  const Result<std::uint64_t> n =
      in->collection.erase_range(bytes_of(from), bytes_of(to), write_options(durability));
  if (erased != nullptr) *erased = n.value_or(0);
  return give(n.error());
}

uint64_t tenuto_approximate_count(const tenuto_collection* in, const tenuto_slice* from,
                                  const tenuto_slice* to) {
  const bool slices = (from == nullptr || sound(*from)) && (to == nullptr || sound(*to));
  if (in == nullptr || !slices) return 0;
  return in->collection.approximate_count(bytes_of(from), bytes_of(to));
}

tenuto_status tenuto_multi_get(const tenuto_collection* in, const tenuto_slice* keys, size_t count,
                               tenuto_each_fn each, void* context) {
  if (in == nullptr || each == nullptr || !c::sound_array(keys, count)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  std::vector<std::string_view> wanted(count);
  for (size_t i = 0; i < count; ++i) {
    if (!sound(keys[i])) return TENUTO_INVALID_ARGUMENT;
    wanted[i] = bytes_of(keys[i]);
  }
  return give(in->collection.multi_get(wanted, [&](size_t i, Status s, std::string_view value) {
    each(context, i, give(s), s == Status::ok ? c::slice(value) : tenuto_slice{});
  }));
}

tenuto_status tenuto_bulk_load(tenuto_collection* in, const tenuto_record* sorted, size_t count,
                               tenuto_durability durability) {
  if (in == nullptr || !c::sound_array(sorted, count) || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  std::vector<BulkRecord> records(count);
  for (size_t i = 0; i < count; ++i) {
    if (!sound(sorted[i].key) || !sound(sorted[i].value)) return TENUTO_INVALID_ARGUMENT;
    records[i] = {bytes_of(sorted[i].key), bytes_of(sorted[i].value)};
  }
  return give(in->collection.bulk_load(records, write_options(durability)));
}

tenuto_status tenuto_lower_bound(const tenuto_collection* in, const void* key, size_t key_bytes,
                                 void** found_key, size_t* found_key_bytes, void** value,
                                 size_t* value_bytes) {
  return bound(&Collection::lower_bound, in, key, key_bytes, found_key, found_key_bytes, value,
               value_bytes);
}

tenuto_status tenuto_upper_bound(const tenuto_collection* in, const void* key, size_t key_bytes,
                                 void** found_key, size_t* found_key_bytes, void** value,
                                 size_t* value_bytes) {
  return bound(&Collection::upper_bound, in, key, key_bytes, found_key, found_key_bytes, value,
               value_bytes);
}

}  // extern "C"

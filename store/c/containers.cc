// The C API of the containers. Each struct of C has the bytes of the C++ container.
#include <string_view>
#include <utility>

#include "store/c/handles_tx.h"
#include "store/c/parts.h"
#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"
#include "tenuto/queue.h"
#include "tenuto/string.h"
#include "tenuto/tenuto_containers.h"
#include "tenuto/vector.h"

namespace TENUTO_NS::c {
namespace {

using Bytes = std::string_view;
using Strings = Vector<String>;
using Line = Queue<String>;
using Map = OrderedMap<String, String>;
using Table = HashMap<String, String>;

template <class Cpp, class C>
Cpp& as(C* container) {
  static_assert(sizeof(Cpp) == sizeof(C) && alignof(Cpp) == alignof(C));
  return *reinterpret_cast<Cpp*>(container);
}
template <class Cpp, class C>
const Cpp& as(const C* container) {
  static_assert(sizeof(Cpp) == sizeof(C) && alignof(Cpp) == alignof(C));
  return *reinterpret_cast<const Cpp*>(container);
}

tenuto_bytes shown(const String& s) { return {s.c_str(), s.size()}; }

// Runs f(transaction, container). The arguments are there.
template <class Cpp, class C, class F>
tenuto_status change(tenuto_tx* tx, C* container, const void* data, std::size_t bytes, F&& f) {
  if (tx == nullptr || container == nullptr || !sound(data, bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(f(tx->tx, as<Cpp>(container)));
}
template <class Cpp, class C, class F>
tenuto_status change(tenuto_tx* tx, C* container, F&& f) {
  return change<Cpp>(tx, container, nullptr, 0, std::forward<F>(f));
}

template <class Cpp, class C, class F>
tenuto_status change_entry(tenuto_tx* tx, C* map, const void* key, std::size_t key_bytes,
                           const void* value, std::size_t value_bytes, F&& f) {
  if (!sound(value, value_bytes)) return TENUTO_INVALID_ARGUMENT;
  return change<Cpp>(tx, map, key, key_bytes, [&](Transaction& t, Cpp& m) {
    return f(t, m, bytes_of(key, key_bytes), bytes_of(value, value_bytes));
  });
}

template <class Cpp, class C>
tenuto_status get(const C* map, const void* key, std::size_t key_bytes, tenuto_bytes* value) {
  if (map == nullptr || value == nullptr || !sound(key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  const String* const found = as<Cpp>(map).get(bytes_of(key, key_bytes));
  *value = found == nullptr ? tenuto_bytes{} : shown(*found);
  return found == nullptr ? TENUTO_NOT_FOUND : TENUTO_OK;
}

// find(map) returns an iterator; the end is none.
template <class F>
tenuto_status entry_at(const tenuto_map* map, const void* key, std::size_t key_bytes,
                       tenuto_entry* entry, F&& find) {
  if (map == nullptr || entry == nullptr || !sound(key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  const Map& m = as<Map>(map);
  const Map::Iterator at = find(m);
  *entry = {};
  if (at == m.end()) return TENUTO_NOT_FOUND;
  *entry = {shown((*at).key), shown((*at).value)};
  return TENUTO_OK;
}

template <class Cpp, class C>
tenuto_status validate(const tenuto_pool* pool, const C* container, char** message) {
  Report report;
  if (pool == nullptr || container == nullptr) {
    const char* const what = "pool and container must not be NULL";
    return give(fail(Status::invalid_argument, &report, what), report, message);
  }
  return give(as<Cpp>(container).validate(*pool->pool, &report), report, message);
}

constexpr auto kInsert = [](Transaction& t, auto& m, Bytes key, Bytes value) {
  return m.insert(t, key, value);
};
constexpr auto kPut = [](Transaction& t, auto& m, Bytes key, Bytes value) {
  return m.insert_or_assign(t, key, value);
};
constexpr auto kClear = [](Transaction& t, auto& container) { return container.clear(t); };

}  // namespace
}  // namespace TENUTO_NS::c

using namespace tenuto;
using namespace tenuto::c;

extern "C" {

tenuto_status tenuto_string_assign(tenuto_tx* tx, tenuto_string* string, const void* data,
                                   size_t bytes) {
  return change<String>(tx, string, data, bytes, [&](Transaction& t, String& s) {
    return s.assign(t, bytes_of(data, bytes));
  });
}
tenuto_status tenuto_string_append(tenuto_tx* tx, tenuto_string* string, const void* data,
                                   size_t bytes) {
  return change<String>(tx, string, data, bytes, [&](Transaction& t, String& s) {
    return s.append(t, bytes_of(data, bytes));
  });
}
tenuto_bytes tenuto_string_view(const tenuto_string* string) {
  return string == nullptr ? tenuto_bytes{"", 0} : shown(as<String>(string));
}
tenuto_status tenuto_string_clear(tenuto_tx* tx, tenuto_string* string) {
  return change<String>(tx, string, kClear);
}
tenuto_status tenuto_string_validate(const tenuto_pool* pool, const tenuto_string* string,
                                     char** message) {
  return validate<String>(pool, string, message);
}

size_t tenuto_vector_size(const tenuto_vector* vector) {
  return vector == nullptr ? 0 : as<Strings>(vector).size();
}
tenuto_status tenuto_vector_at(const tenuto_vector* vector, size_t at, tenuto_bytes* element) {
  if (vector == nullptr || element == nullptr) return TENUTO_INVALID_ARGUMENT;
  const Strings& strings = as<Strings>(vector);
  *element = at < strings.size() ? shown(strings[at]) : tenuto_bytes{};
  return at < strings.size() ? TENUTO_OK : TENUTO_NOT_FOUND;
}
tenuto_status tenuto_vector_set(tenuto_tx* tx, tenuto_vector* vector, size_t at, const void* data,
                                size_t bytes) {
  return change<Strings>(tx, vector, data, bytes, [&](Transaction& t, Strings& v) {
    if (at >= v.size()) return Status::not_found;
    return v.data()[at].assign(t, bytes_of(data, bytes));
  });
}
tenuto_status tenuto_vector_push(tenuto_tx* tx, tenuto_vector* vector, const void* data,
                                 size_t bytes) {
  return change<Strings>(tx, vector, data, bytes, [&](Transaction& t, Strings& v) {
    return v.emplace_back(t, bytes_of(data, bytes)).error();
  });
}
tenuto_status tenuto_vector_insert(tenuto_tx* tx, tenuto_vector* vector, size_t at,
                                   const void* data, size_t bytes) {
  return change<Strings>(tx, vector, data, bytes, [&](Transaction& t, Strings& v) {
    if (at > v.size()) return Status::not_found;
    return v.emplace(t, at, bytes_of(data, bytes)).error();
  });
}
tenuto_status tenuto_vector_erase(tenuto_tx* tx, tenuto_vector* vector, size_t at) {
  return change<Strings>(tx, vector, [&](Transaction& t, Strings& v) {
    return at < v.size() ? v.erase(t, at) : Status::not_found;
  });
}
tenuto_status tenuto_vector_clear(tenuto_tx* tx, tenuto_vector* vector) {
  return change<Strings>(tx, vector, kClear);
}
tenuto_status tenuto_vector_validate(const tenuto_pool* pool, const tenuto_vector* vector,
                                     char** message) {
  return validate<Strings>(pool, vector, message);
}

size_t tenuto_queue_size(const tenuto_queue* queue) {
  return queue == nullptr ? 0 : as<Line>(queue).size();
}
tenuto_status tenuto_queue_front(const tenuto_queue* queue, tenuto_bytes* element) {
  if (queue == nullptr || element == nullptr) return TENUTO_INVALID_ARGUMENT;
  const String* const front = as<Line>(queue).front();
  *element = front == nullptr ? tenuto_bytes{} : shown(*front);
  return front == nullptr ? TENUTO_NOT_FOUND : TENUTO_OK;
}
tenuto_status tenuto_queue_push(tenuto_tx* tx, tenuto_queue* queue, const void* data,
                                size_t bytes) {
  return change<Line>(tx, queue, data, bytes, [&](Transaction& t, Line& q) {
    return q.emplace(t, bytes_of(data, bytes)).error();
  });
}
tenuto_status tenuto_queue_pop(tenuto_tx* tx, tenuto_queue* queue) {
  return change<Line>(tx, queue, [](Transaction& t, Line& q) { return q.pop_front(t); });
}
tenuto_status tenuto_queue_clear(tenuto_tx* tx, tenuto_queue* queue) {
  return change<Line>(tx, queue, kClear);
}
tenuto_status tenuto_queue_validate(const tenuto_pool* pool, const tenuto_queue* queue,
                                    char** message) {
  return validate<Line>(pool, queue, message);
}

uint64_t tenuto_map_size(const tenuto_map* map) { return map == nullptr ? 0 : as<Map>(map).size(); }
tenuto_status tenuto_map_get(const tenuto_map* map, const void* key, size_t key_bytes,
                             tenuto_bytes* value) {
  return get<Map>(map, key, key_bytes, value);
}
tenuto_status tenuto_map_insert(tenuto_tx* tx, tenuto_map* map, const void* key, size_t key_bytes,
                                const void* value, size_t value_bytes) {
  return change_entry<Map>(tx, map, key, key_bytes, value, value_bytes, kInsert);
}
tenuto_status tenuto_map_put(tenuto_tx* tx, tenuto_map* map, const void* key, size_t key_bytes,
                             const void* value, size_t value_bytes) {
  return change_entry<Map>(tx, map, key, key_bytes, value, value_bytes, kPut);
}
tenuto_status tenuto_map_erase(tenuto_tx* tx, tenuto_map* map, const void* key, size_t key_bytes) {
  return change<Map>(tx, map, key, key_bytes,
                     [&](Transaction& t, Map& m) { return m.erase(t, bytes_of(key, key_bytes)); });
}
tenuto_status tenuto_map_clear(tenuto_tx* tx, tenuto_map* map) {
  return change<Map>(tx, map, kClear);
}
tenuto_status tenuto_map_validate(const tenuto_pool* pool, const tenuto_map* map, char** message) {
  return validate<Map>(pool, map, message);
}
tenuto_status tenuto_map_lower_bound(const tenuto_map* map, const void* key, size_t key_bytes,
                                     tenuto_entry* entry) {
  return entry_at(map, key, key_bytes, entry,
                  [&](const Map& m) { return m.lower_bound(bytes_of(key, key_bytes)); });
}
tenuto_status tenuto_map_upper_bound(const tenuto_map* map, const void* key, size_t key_bytes,
                                     tenuto_entry* entry) {
  return entry_at(map, key, key_bytes, entry, [&](const Map& m) {
    return key == nullptr ? m.begin() : m.upper_bound(bytes_of(key, key_bytes));
  });
}
tenuto_status tenuto_map_below(const tenuto_map* map, const void* key, size_t key_bytes,
                               tenuto_entry* entry) {
  return entry_at(map, key, key_bytes, entry, [&](const Map& m) {
    Map::Iterator at = key == nullptr ? m.end() : m.lower_bound(bytes_of(key, key_bytes));
    return at == m.begin() ? m.end() : --at;
  });
}

uint64_t tenuto_hash_map_size(const tenuto_hash_map* map) {
  return map == nullptr ? 0 : as<Table>(map).size();
}
tenuto_status tenuto_hash_map_get(const tenuto_hash_map* map, const void* key, size_t key_bytes,
                                  tenuto_bytes* value) {
  return get<Table>(map, key, key_bytes, value);
}
tenuto_status tenuto_hash_map_insert(tenuto_tx* tx, tenuto_hash_map* map, const void* key,
                                     size_t key_bytes, const void* value, size_t value_bytes) {
  return change_entry<Table>(tx, map, key, key_bytes, value, value_bytes, kInsert);
}
tenuto_status tenuto_hash_map_put(tenuto_tx* tx, tenuto_hash_map* map, const void* key,
                                  size_t key_bytes, const void* value, size_t value_bytes) {
  return change_entry<Table>(tx, map, key, key_bytes, value, value_bytes, kPut);
}
tenuto_status tenuto_hash_map_erase(tenuto_tx* tx, tenuto_hash_map* map, const void* key,
                                    size_t key_bytes) {
  return change<Table>(tx, map, key, key_bytes, [&](Transaction& t, Table& m) {
    return m.erase(t, bytes_of(key, key_bytes));
  });
}
tenuto_status tenuto_hash_map_clear(tenuto_tx* tx, tenuto_hash_map* map) {
  return change<Table>(tx, map, kClear);
}
tenuto_status tenuto_hash_map_validate(const tenuto_pool* pool, const tenuto_hash_map* map,
                                       char** message) {
  return validate<Table>(pool, map, message);
}
tenuto_status tenuto_hash_map_each(const tenuto_hash_map* map, tenuto_entry_fn each,
                                   void* context) {
  if (map == nullptr || each == nullptr) return TENUTO_INVALID_ARGUMENT;
  for (const auto& [key, value] : as<Table>(map)) {
    const tenuto_entry entry = {shown(key), shown(value)};
    if (const tenuto_status s = each(context, &entry); s != TENUTO_OK) return s;
  }
  return TENUTO_OK;
}

}  // extern "C"

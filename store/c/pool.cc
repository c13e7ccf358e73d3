// The C API: pools. Each call is the C++ call of the same name. Only arguments that may be NULL,
// and options, are checked here. Objects and transactions over them: store/c/objects.cc.
#include <algorithm>
#include <utility>
#include <vector>

#include "store/c/parts.h"
#include "tenuto/mistakes.h"

namespace TENUTO_NS::c {

static_assert(static_cast<int>(Status::in_doubt) == TENUTO_IN_DOUBT);
static_assert(static_cast<int>(InDoubt::abort) == TENUTO_IN_DOUBT_ABORT);
static_assert(static_cast<int>(Medium::journal) == TENUTO_MEDIUM_JOURNAL);
static_assert(static_cast<int>(Durability::buffered) == TENUTO_BUFFERED);

bool is_durability(int d) { return d == TENUTO_SYNC || d == TENUTO_BUFFERED; }

Status take_pool_options(const tenuto_pool_options& from, PoolOptions& to, Report& report) {
  tenuto_pool_options o;
  tenuto_pool_options_init(&o);
  TENUTO_TRY(take_options(o, &from, "tenuto_pool_options", &report));
  if (o.medium < TENUTO_MEDIUM_AUTOMATIC || o.medium > TENUTO_MEDIUM_JOURNAL) {
    return fail(Status::invalid_argument, &report, "there is no such medium",
                "tenuto_pool_options.medium", "0 to 4", std::to_string(o.medium));
  }
  if (o.consistency < TENUTO_CONSISTENCY_AS_IS || o.consistency > TENUTO_CONSISTENCY_INTERNAL) {
    return fail(Status::invalid_argument, &report, "there is no such consistency",
                "tenuto_pool_options.consistency", "0 to 3", std::to_string(o.consistency));
  }
  if (!is_durability(o.durability)) {
    return fail(Status::invalid_argument, &report, "there is no such durability",
                "tenuto_pool_options.durability", "0 or 1", std::to_string(o.durability));
  }
  if (o.in_doubt < TENUTO_IN_DOUBT_ASK || o.in_doubt > TENUTO_IN_DOUBT_ABORT) {
    return fail(Status::invalid_argument, &report, "there is no such end of a transaction",
                "tenuto_pool_options.in_doubt", "0 to 2", std::to_string(o.in_doubt));
  }
  to.size = o.size;
  to.size_max = o.size_max;
  to.medium = static_cast<Medium>(o.medium);
  to.mode = o.mode;
  to.read_only = o.read_only != 0;
  to.catch_bus_errors = o.catch_bus_errors != 0;
  to.model_delays = o.model_delays != 0;
  to.stripes = o.stripes;
  to.recovery_threads = o.recovery_threads;
  to.durability = static_cast<Durability>(o.durability);
  to.heap.morph_occupancy = o.morph_occupancy;
  to.heap.decay_ms = o.decay_ms;
  to.heap.decay_tick_ms = o.decay_tick_ms;
  to.heap.book_dead_factor = o.book_dead_factor;
  to.heap.book_heap_ppm = o.book_heap_ppm;
  to.heap.book_chunks_least = o.book_chunks_least;
  to.journal.path = o.journal_path == nullptr ? "" : o.journal_path;
  to.journal.bytes = o.journal_bytes;
  to.journal.sync_every_ms = o.journal_sync_every_ms;
  to.journal.recovery_ms_max = o.journal_recovery_ms_max;
  to.journal.keep = o.journal_keep != 0;
  to.large_pages = o.large_pages != 0;
  to.heap.memory_max = o.memory_max;
  to.heap.numa.nodes = o.numa_nodes;
  to.heap.numa.two_phase = o.numa_two_phase != 0;
  to.heap.numa.pin_threads = o.numa_pin_threads != 0;
  to.consistency = static_cast<Consistency>(o.consistency);
  to.canaries = o.canaries != 0;
  to.protect_metadata = o.protect_metadata != 0;
  to.heap.wear_levelling = o.wear_levelling != 0;
  to.heap.wear_rest_ms = o.wear_rest_ms;
  to.in_doubt = static_cast<InDoubt>(o.in_doubt);
  if (o.on_mistake != nullptr) {
    to.on_mistake = [say = o.on_mistake, context = o.on_mistake_context](const Report& mistake) {
      say(context, mistake.text().c_str());
    };
  }
  if (o.log != nullptr) {
    to.log = [log = o.log, context = o.log_context](std::string_view text) {
      log(context, std::string(text).c_str());
    };
  }
  return Status::ok;
}

namespace {

using Make = Result<Pool> (*)(std::string_view, const PoolOptions&, Report*);

tenuto_pool* handle_of(Pool pool) {
  auto* const handle = new tenuto_pool;
  handle->own.emplace(std::move(pool));
  handle->pool = &*handle->own;
  return handle;
}

tenuto_status make(Make how, const char* path, const tenuto_pool_options* options,
                   tenuto_pool** pool, char** message) {
  Report report;
  if (path == nullptr || pool == nullptr) {
    return give(fail(Status::invalid_argument, &report, "path and pool must not be NULL"), report,
                message);
  }
  *pool = nullptr;
  PoolOptions o;
  if (options != nullptr) {
    const Status s = take_pool_options(*options, o, report);
    if (s != Status::ok) return give(s, report, message);
  }
  Result<Pool> made = how(path, o, &report);
  if (!made) return give(made.error(), report, message);
  *pool = handle_of(std::move(*made));
  return give(Status::ok, report, message);
}

}  // namespace
}  // namespace TENUTO_NS::c

using namespace tenuto;
using c::give;

extern "C" {

const char* tenuto_status_name(tenuto_status status) {
  return c::is_status(status) ? status_name(static_cast<Status>(status)) : "unknown";
}

void tenuto_free(void* memory) { std::free(memory); }

void tenuto_pool_options_init_sized(tenuto_pool_options* to, size_t struct_bytes) {
  const PoolOptions o;
  tenuto_pool_options all = {};
  all.size = o.size;
  all.size_max = o.size_max;
  all.medium = static_cast<tenuto_medium>(o.medium);
  all.read_only = o.read_only;
  all.catch_bus_errors = o.catch_bus_errors;
  all.model_delays = o.model_delays;
  all.stripes = o.stripes;
  all.recovery_threads = o.recovery_threads;
  all.durability = static_cast<tenuto_durability>(o.durability);
  all.morph_occupancy = o.heap.morph_occupancy;
  all.decay_ms = o.heap.decay_ms;
  all.decay_tick_ms = o.heap.decay_tick_ms;
  all.book_dead_factor = o.heap.book_dead_factor;
  all.book_heap_ppm = o.heap.book_heap_ppm;
  all.book_chunks_least = o.heap.book_chunks_least;
  all.journal_bytes = o.journal.bytes;
  all.journal_sync_every_ms = o.journal.sync_every_ms;
  all.journal_recovery_ms_max = o.journal.recovery_ms_max;
  all.journal_keep = o.journal.keep;
  all.large_pages = o.large_pages;
  all.memory_max = o.heap.memory_max;
  all.numa_nodes = o.heap.numa.nodes;
  all.numa_two_phase = o.heap.numa.two_phase;
  all.numa_pin_threads = o.heap.numa.pin_threads;
  all.consistency = static_cast<tenuto_consistency>(o.consistency);
  all.canaries = o.canaries;
  all.protect_metadata = o.protect_metadata;
  all.wear_levelling = o.heap.wear_levelling;
  all.wear_rest_ms = o.heap.wear_rest_ms;
  c::init_struct(to, struct_bytes, &all, sizeof all);
}

void tenuto_stop_at_mistake(void* /*context*/, const char* text) {
  stop_at_mistake(Report{text, {}, {}, {}});
}

tenuto_status tenuto_pool_create(const char* path, const tenuto_pool_options* options,
                                 tenuto_pool** pool, char** message) {
  return c::make(&Pool::create, path, options, pool, message);
}
tenuto_status tenuto_pool_open(const char* path, const tenuto_pool_options* options,
                               tenuto_pool** pool, char** message) {
  return c::make(&Pool::open, path, options, pool, message);
}
tenuto_status tenuto_pool_open_all(const char* const* paths, size_t count,
                                   const tenuto_pool_options* options, tenuto_pool** pools,
                                   char** message) {
  Report report;
  if (!c::sound_array(paths, count) || !c::sound_array(pools, count) ||
      std::find(paths, paths + count, nullptr) != paths + count) {
    return give(fail(Status::invalid_argument, &report, "paths and pools must not be NULL"), report,
                message);
  }
  std::fill_n(pools, count, nullptr);
  PoolOptions o;
  if (options != nullptr) {
    const Status s = c::take_pool_options(*options, o, report);
    if (s != Status::ok) return give(s, report, message);
  }
  Result<std::vector<Pool>> opened = Pool::open_all({paths, paths + count}, o, &report);
  if (!opened) return give(opened.error(), report, message);
  std::transform(opened->begin(), opened->end(), pools,
                 [](Pool& pool) { return c::handle_of(std::move(pool)); });
  return give(Status::ok, report, message);
}
tenuto_status tenuto_pool_close(tenuto_pool* pool) {
  if (pool == nullptr || !pool->own) return TENUTO_INVALID_ARGUMENT;
  const Status s = pool->own->close();
  if (s != Status::busy) delete pool;
  return give(s);
}

tenuto_status tenuto_root(tenuto_pool* pool, const char* layout, uint64_t bytes, void** root,
                          char** message) {
  if (pool == nullptr || layout == nullptr || root == nullptr) return c::null_root(message);
  Report report;
  const Result<void*> found = pool->pool->root(layout, bytes, &report);
  *root = found.value_or(nullptr);
  return give(found.error(), report, message);
}

int tenuto_pool_contains(const tenuto_pool* pool, const void* p) {
  return pool != nullptr && pool->pool->contains(p);
}
uint64_t tenuto_offset_of(const tenuto_pool* pool, const void* p) {
  return tenuto_pool_contains(pool, p) != 0 ? pool->pool->offset_of(p).value : 0;
}
void* tenuto_at(const tenuto_pool* pool, uint64_t offset) {
  return pool == nullptr ? nullptr : pool->pool->at({offset});
}

tenuto_status tenuto_pool_sync(tenuto_pool* pool) {
  return pool == nullptr ? TENUTO_INVALID_ARGUMENT : give(pool->pool->sync());
}
tenuto_status tenuto_pool_health(const tenuto_pool* pool, char** message) {
  if (pool == nullptr) return give(Status::invalid_argument, {}, message);
  Report report;
  const Status s = pool->pool->health(&report);
  return give(s, report, message);
}
tenuto_status tenuto_pool_trim(tenuto_pool* pool) {
  return pool == nullptr ? TENUTO_INVALID_ARGUMENT : give(pool->pool->trim());
}
tenuto_status tenuto_pool_forget_pool(tenuto_pool* pool, uint64_t pool_id) {
  return pool == nullptr ? TENUTO_INVALID_ARGUMENT : give(pool->pool->forget_pool(pool_id));
}
tenuto_status tenuto_pool_validate(const tenuto_pool* pool, char** message) {
  if (pool == nullptr) return give(Status::invalid_argument, {}, message);
  Report report;
  const Status s = pool->pool->validate(&report);
  return give(s, report, message);
}

tenuto_status tenuto_pool_get_info_sized(tenuto_pool* pool, tenuto_pool_info* info,
                                         size_t struct_bytes) {
  if (pool == nullptr) return TENUTO_INVALID_ARGUMENT;
  const PoolInfo& i = pool->info = pool->pool->info();
  const tenuto_pool_info all = {.path = i.path.c_str(),
                                .layout = i.layout.c_str(),
                                .pool_id = i.pool_id,
                                .version = i.version,
                                .medium = static_cast<tenuto_medium>(i.medium),
                                .power_cut_safe = i.power_cut_safe,
                                .was_clean = i.was_clean,
                                .read_only = i.read_only,
                                .has_store = i.has_store,
                                .recovery_ms = i.recovery_ms,
                                .leaked_frames = i.leaked_frames,
                                .rolled_back = i.rolled_back,
                                .consistency = static_cast<tenuto_consistency>(i.consistency),
                                .canaries = i.canaries,
                                .collect_ms = i.collect_ms,
                                .decisions_waiting = i.decisions_waiting,
                                .has_protection_keys = i.has_protection_keys};
  return c::give_figures(info, struct_bytes, all) ? TENUTO_OK : TENUTO_INVALID_ARGUMENT;
}

uint64_t tenuto_pool_used_bytes(const tenuto_pool* pool) {
  return pool == nullptr ? 0 : pool->pool->used_bytes();
}

tenuto_status tenuto_pool_get_stats_sized(const tenuto_pool* pool, tenuto_pool_stats* stats,
                                          size_t struct_bytes) {
  if (pool == nullptr) return TENUTO_INVALID_ARGUMENT;
  const PoolStats s = pool->pool->stats();
  tenuto_pool_stats all = {};
  for (std::size_t i = 0; i < s.slabs_by_tenth.size(); ++i) {
    all.slabs_by_tenth[i] = s.slabs_by_tenth[i];
  }
#define TENUTO_C_SAME(field) all.field = s.field
  TENUTO_C_SAME(file_bytes);
  TENUTO_C_SAME(disk_bytes);
  TENUTO_C_SAME(used_bytes);
  TENUTO_C_SAME(allocated_bytes);
  TENUTO_C_SAME(objects);
  TENUTO_C_SAME(slabs);
  TENUTO_C_SAME(morphed_slabs);
  TENUTO_C_SAME(extents);
  TENUTO_C_SAME(reclaimed_bytes);
  TENUTO_C_SAME(retained_bytes);
  TENUTO_C_SAME(book_bytes);
  TENUTO_C_SAME(book_list_bytes);
  TENUTO_C_SAME(book_live_entries);
  TENUTO_C_SAME(book_fast_gcs);
  TENUTO_C_SAME(book_slow_gcs);
  TENUTO_C_SAME(zones);
  TENUTO_C_SAME(lanes);
  TENUTO_C_SAME(lines_flushed);
  TENUTO_C_SAME(fences);
  TENUTO_C_SAME(reflushes);
  TENUTO_C_SAME(writes_sequential);
  TENUTO_C_SAME(writes_random);
  TENUTO_C_SAME(journal_bytes);
  TENUTO_C_SAME(journal_used_bytes);
  TENUTO_C_SAME(journal_commits);
  TENUTO_C_SAME(journal_lines);
  TENUTO_C_SAME(journal_payload_bytes);
  TENUTO_C_SAME(journal_written_bytes);
  TENUTO_C_SAME(journal_device_flushes);
  TENUTO_C_SAME(journal_checkpoints);
  TENUTO_C_SAME(journal_checkpoint_bytes);
  TENUTO_C_SAME(journal_recovery_ms);
  TENUTO_C_SAME(journal_replayed_bytes);
  TENUTO_C_SAME(journal_replayed_lines);
  TENUTO_C_SAME(journal_replay_ms);
  TENUTO_C_SAME(cached_bytes);
  TENUTO_C_SAME(large_bytes);
  TENUTO_C_SAME(protected_bytes);
  TENUTO_C_SAME(wear_frames);
  TENUTO_C_SAME(wear_lines);
  TENUTO_C_SAME(wear_max);
  TENUTO_C_SAME(wear_bits_lines);
  TENUTO_C_SAME(wear_bits_max);
  TENUTO_C_SAME(wear_rested);
  TENUTO_C_SAME(wear_forced);
  TENUTO_C_SAME(wear_tables);
  TENUTO_C_SAME(resident_bytes);
  TENUTO_C_SAME(dirty_bytes);
  TENUTO_C_SAME(private_bytes);
#undef TENUTO_C_SAME
  all.numa_nodes = s.numa.nodes;
  all.numa_local = s.numa.local_all();
  all.numa_remote = s.numa.remote_all();
  all.numa_frames_remote = s.numa.frames_remote;
  all.numa_frees_recorded = s.numa.frees_recorded;
  all.numa_frees_waiting = s.numa.frees_waiting;
  all.numa_batches_taken = s.numa.batches_taken;
  all.numa_batches_pushed = s.numa.batches_pushed;
  return c::give_figures(stats, struct_bytes, all) ? TENUTO_OK : TENUTO_INVALID_ARGUMENT;
}

}  // extern "C"

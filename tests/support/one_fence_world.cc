#include "support/one_fence_world.h"

#include <cstdio>
#include <memory>

#include "pm/assert.h"
#include "store/record.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {

namespace {

constexpr CommitProtocol kOneFence = CommitProtocol::one_fence;

std::string numbered(const char* prefix, int n) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%04d", prefix, n);
  return text;
}

std::uint16_t tag_of(const std::string& key, const std::string& value) {
  return store::tagged_head(key, value, {0}).tag();
}

// Of a size of which a slab has eight, so that a block is soon used again. Zeros, which are in
// memory anyway: only the first line has something to lose.
std::string large(const std::string& begin) { return begin + std::string(7992, '\0'); }

// Such a value that gives the key's record this tag.
std::string large_with_tag(const std::string& key, std::uint16_t tag) {
  for (int i = 0; i < 10'000'000; ++i) {
    char text[16];
    std::snprintf(text, sizeof text, "%08d", i);
    std::string value = large(text);
    if (tag_of(key, value) == tag) return value;
  }
  TENUTO_ASSERT(!"no value has this tag");
  return {};
}

// What replaced and erased records wait for: the end of an old version frees what it can.
Status put_and_free(Store& store, const std::string& key, const std::string& value) {
  const Result<Snapshot> s = store.snapshot();
  return s ? store.put(key, value) : s.error();
}

const std::string kOld = large("00000000");

// "a" is written and erased, and its block free; then "b0", "b1" ... follow with the tag of "a".
KvScript stale_script(int count) {
  KvScript script = {{{"a", kOld}}, {{"a", std::nullopt}}, {{"z", "frees"}}};
  for (int i = 0; i < count; ++i) {
    const std::string key = "b" + std::to_string(i);
    script.push_back({{key, large_with_tag(key, tag_of("a", kOld))}});
  }
  return script;
}

}  // namespace

KvCrash one_fence_updates() {
  KvScript script;
  for (int i = 0; i < 66; ++i) script.push_back({{numbered("k", i % 7), numbered("value ", i)}});
  for (int i = 0; i < 4; ++i) script.push_back({{numbered("new", i), numbered("value ", i)}});
  KvCrash::Records before;
  for (int i = 0; i < 7; ++i) before[numbered("k", i)] = "before all";
  return {kOneFence, before, script};
}

KvCrash one_fence_updates_and_split() {
  KvCrash::Records before;
  for (int i = 0; i < 42; ++i) before[numbered("k", 10 * i)] = "before all";
  return {kOneFence,
          before,
          {{{numbered("k", 30), "updated"}},
           {{numbered("k", 370), "updated"}},
           {{numbered("k", 380), "updated"}},
           {{numbered("k", 380), "once more"}},
           {{numbered("k", 205), "splits"}},
           {{numbered("k", 380), "moved"}},
           {{numbered("k", 370), std::nullopt}}}};
}

KvCrash one_fence_stale_record() {
  KvCrash c(kOneFence, {{"z", "last"}}, stale_script(7));
  c.apply_by([](Store& store, const KvStep& step) -> Status {
    const auto& [key, value] = step[0];
    if (!value) return store.erase(key);
    return key == "z" ? put_and_free(store, key, *value) : store.put(key, *value);
  });
  return c;
}

KvCrash one_fence_given_up_record() {
  KvScript script = stale_script(9);
  // Where "a" stood, for five others come before it.
  script.insert(script.begin() + 8, {{"y", std::nullopt}});
  KvCrash c(kOneFence, {{"y", "read"}, {"z", "last"}}, script);
  c.apply_by([](Store& store, const KvStep& step) -> Status {
    const auto& [key, value] = step[0];
    if (key == "z") return put_and_free(store, key, *value);
    if (value) return store.put(key, *value);
    if (key != "y") return store.erase(key);
    StoreTransaction tx = store.begin();
    std::string seen;
    TENUTO_TRY(tx.get(key, seen));
    TENUTO_TRY(tx.put("c", large("11111111")));
    TENUTO_TRY(store.erase(key));
    const Status s = tx.commit();  // the record is written before it is found out
    return s == Status::conflict ? Status::ok : Status::corrupt;
  });
  return c;
}

KvCrash one_fence_kept_records() {
  KvCrash::Records before;
  KvScript script;
  for (int i = 0; i < 5; ++i) before[numbered("k", i)] = "before all";
  for (int i = 0; i < 5; ++i) script.push_back({{numbered("k", i), "updated"}});
  for (int i = 0; i < 4; ++i) script.push_back({{numbered("new", i), "like  them"}});
  KvCrash c(kOneFence, before, script);
  const auto held = std::make_shared<std::optional<Snapshot>>();
  c.apply_by([held](Store& store, const KvStep& step) -> Status {
    const auto& [key, value] = step[0];
    if (key == "k0000") {
      Result<Snapshot> s = store.snapshot();
      if (!s) return s.error();
      held->emplace(std::move(*s));
    }
    if (key == "new0000") held->reset();
    return store.put(key, *value);
  });
  return c;
}

}  // namespace tenuto::test

// Writes to one collection, and batches over several.
#include <algorithm>

#include "actor.h"

namespace tenuto::life {

bool Actor::data(const Step& s) {
  if (s.verb > Verb::drain) return false;
  if (store_of(s.a[0]) == nullptr) return true;
  if (s.verb == Verb::batch) {
    batch(s);
    return true;
  }
  Collection c;
  if (!collection_of(store_, s.a[1], c)) return true;
  switch (s.verb) {
    case Verb::put:
    case Verb::put_if_absent:
      put(s, c);
      break;
    case Verb::touch: {
      const std::string key = text(c, s.a[2]);
      begin({c.id(), clip(s.a[2]), static_cast<std::uint64_t>(s.a[3]), s.a[4] != 0});
      end(call([&] { return c.touch(key, how(s.a[4], s.a[3])); }));
      break;
    }
    case Verb::erase: {
      const std::string key = text(c, s.a[2]);
      begin({c.id(), clip(s.a[2]), s.a[3] != 0});
      end(call([&] { return through(c, [&](auto& in) { return in.erase(key, how(s.a[3])); }); }));
      break;
    }
    case Verb::erase_pair: {
      const std::string key = text(c, s.a[2]), value = value_text(pair_tag(s.a[3]));
      begin({c.id(), clip(s.a[2]), pair_tag(s.a[3]), s.a[4] != 0});
      end(call([&] { return c.erase_pair(key, value, how(s.a[4])); }));
      break;
    }
    case Verb::cas:
      compare_and_swap(s, c);
      break;
    case Verb::merge:
      merge(s, c);
      break;
    case Verb::erase_range:
      // Puts of other threads may stay in the range, so beside them the call has no single result.
      if (!world_.story.at_once || world_.alone) erase_range(s, c);
      break;
    case Verb::bulk:
      bulk(s, c);
      break;
    default:
      many(s, c);
  }
  return true;
}

void Actor::put(const Step& s, Collection& c) {
  const std::string key = text(c, s.a[2]);
  const std::uint64_t tag = new_tag(c, s.a[3]);
  const std::string value = value_text(tag);
  const std::int64_t ttl = c.expires() ? s.a[4] : 0;
  begin({c.id(), clip(s.a[2]), tag, static_cast<std::uint64_t>(ttl), s.a[5] != 0});
  end(call([&] {
    return through(c, [&](auto& in) {
      return s.verb == Verb::put ? in.put(key, value, how(s.a[5], ttl))
                                 : in.put_if_absent(key, value, how(s.a[5], ttl));
    });
  }));
}

void Actor::compare_and_swap(const Step& s, Collection& c) {
  const std::string key = text(c, s.a[2]);
  std::string now;
  std::uint64_t expected = kNone;
  if (s.a[4] == 1 && c.get(key, now) == Status::ok) expected = seen_tag(now);
  if (s.a[4] == 2) expected = make_tag(world_.fresh(), 20);
  const std::uint64_t desired = s.a[3] < 0 ? kNone : new_tag(c, s.a[3]);
  const std::string from = expected == kNone ? "" : value_text(expected);
  const std::string to = desired == kNone ? "" : value_text(desired);
  begin({c.id(), clip(s.a[2]), expected, desired, s.a[5] != 0});
  end(call([&] {
    const auto given = [](std::uint64_t tag, const std::string& value) {
      return tag == kNone ? std::nullopt : std::optional<std::string_view>(value);
    };
    return through(c, [&](auto& in) {
      return in.compare_and_swap(key, given(expected, from), given(desired, to), how(s.a[5]));
    });
  }));
}

void Actor::merge(const Step& s, Collection& c) {
  const std::string key = text(c, s.a[2]);
  const std::uint64_t tag = s.a[3] < 0 ? kNone : new_tag(c, s.a[3]);
  std::uint64_t old = kNone;
  begin({c.id(), clip(s.a[2]), tag, s.a[4] != 0});
  const std::uint64_t status = call([&] {
    const auto f = [&](std::optional<std::string_view> was) -> std::optional<std::string> {
      old = was ? seen_tag(*was) : kNone;
      if (tag == kNone) return std::nullopt;
      return value_text(tag);
    };
    return through(c, [&](auto& in) { return in.merge(key, f, how(s.a[4])); });
  });
  end(status, {old});
}

void Actor::erase_range(const Step& s, Collection& c) {
  const std::string from = s.a[2] < 0 ? "" : text(c, s.a[2]);
  const std::string to = s.a[3] < 0 ? "" : text(c, s.a[3]);
  std::uint64_t count = 0;
  begin(
      {c.id(), s.a[2] < 0 ? kNone : clip(s.a[2]), s.a[3] < 0 ? kNone : clip(s.a[3]), s.a[4] != 0});
  const std::uint64_t status = call([&] {
    const auto bound = [](std::int64_t key, const std::string& given) {
      return key < 0 ? std::nullopt : std::optional<std::string_view>(given);
    };
    const auto n = through(c, [&](auto& in) {
      return in.erase_range(bound(s.a[2], from), bound(s.a[3], to), how(s.a[4]));
    });
    if (!n) return n.error();
    count = *n;
    return Status::ok;
  });
  end(status, {count});
}

// fill and drain: puts and erases in turn, of every third key.
void Actor::many(const Step& s, Collection& c) {
  Step one{s.thread, s.verb == Verb::fill ? Verb::put : Verb::erase, {s.a[0], s.a[1]}};
  verb_ = one.verb;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(s.a[3], 1000) && room(); ++i) {
    one.a[2] = s.a[2] + i * 3;
    if (s.verb == Verb::fill) {
      one.a[3] = s.a[4];
      one.a[5] = s.a[5];
      put(one, c);
    } else {
      const std::string key = text(c, one.a[2]);
      begin({c.id(), clip(one.a[2]), s.a[4] != 0});
      end(call([&] { return c.erase(key, how(s.a[4])); }));
    }
  }
  verb_ = s.verb;
}

void Actor::bulk(const Step& s, Collection& c) {
  const Encoding encoding = encoding_of(c);
  std::vector<std::uint64_t> keys;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(s.a[3], 600); ++i) {
    const std::uint64_t key = clip(s.a[2] + i * 3);
    if (key != 0) keys.push_back(key);
  }
  std::ranges::sort(keys, {}, [&](std::uint64_t k) { return rank_of(encoding.order, k); });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  Words words = {c.id(), 0, keys.size()};
  std::vector<std::string> texts;
  for (const std::uint64_t key : keys) {
    const std::uint64_t tag = new_tag(c, s.a[4]);
    words.push_back(key);
    words.push_back(tag);
    texts.push_back(key_text(encoding.numbers(), key));
    texts.push_back(value_text(tag));
  }
  std::vector<BulkRecord> records;
  for (std::size_t i = 0; i < texts.size(); i += 2) records.push_back({texts[i], texts[i + 1]});
  begin(words);
  end(call([&] { return through(c, [&](auto& in) { return in.bulk_load(records); }); }));
}

void Actor::batch(const Step& s) {
  Random random{static_cast<std::uint64_t>(s.a[1])};
  WriteBatch batch;
  batch.put("forgotten", "by clear");
  batch.clear();
  Words words = {s.a[4] != 0, 0};
  const std::int64_t count = std::min<std::int64_t>(s.a[2], 200);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto draw = static_cast<std::int64_t>(random.below(kCollections));
    const std::uint64_t key = random.below(3) == 0 ? random.below(kKeys) : random.below(60);
    const std::uint64_t kind = random.below(8), life = random.below(200);
    Collection c;
    if (!collection_of(store_, draw, c) || c.status() != Status::ok) continue;
    const std::string name = key_text(numbers(c), key);
    const std::uint64_t tag = new_tag(c, c.duplicates() ? static_cast<std::int64_t>(life) : s.a[3]);
    const std::uint64_t ttl = c.expires() && life < 100 ? 1 + life * 10 : 0;
    const std::uint64_t what = kind < 5 ? 0 : kind < 7 || !c.duplicates() ? 1 : 2;
    const bool plainly = by_itself(c) && ttl == 0;
    if (what == 0 && plainly) batch.put(name, value_text(tag));
    if (what == 0 && !plainly) batch.put({c, name}, value_text(tag), ttl);
    if (what == 1 && plainly) batch.erase(name);
    if (what == 1 && !plainly) batch.erase({c, name});
    if (what == 2) batch.erase_pair({c, name}, value_text(tag));
    words.insert(words.end(), {c.id(), key, what, tag, ttl});
    ++words[1];
  }
  if (batch.count() != words[1] || batch.empty() != (words[1] == 0)) {
    world_.broken("a batch does not count what it was given");
  }
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  begin(words);
  end(call([&] { return store->write(batch, how(s.a[4])); }));
}

}  // namespace tenuto::life

// Reads of a collection in its current state.
#include <algorithm>

#include "actor.h"

namespace tenuto::life {
namespace {

Status given(const Result<std::string>& r, std::string& out) {
  if (r) out = *r;
  return r.error();
}

// By the call that copies into the caller's memory. One that is too small tells how much it takes.
Status get_into(const auto& in, const std::string& key, std::string& got) {
  got.resize(8);
  Result<std::size_t> bytes = in.get(key, std::span<char>(got));
  while (bytes && *bytes > got.size()) {
    got.resize(*bytes);
    bytes = in.get(key, std::span<char>(got));
  }
  got.resize(bytes ? *bytes : 0);
  return bytes.error();
}

}  // namespace

bool Actor::reads(const Step& s) {
  if (s.verb == Verb::drop_view) {
    world_.view[thread_][static_cast<std::size_t>(s.a[0]) % kViewsMax].view.reset();
    return true;
  }
  const bool held = s.verb == Verb::hold_view;
  if (!held && (s.verb < Verb::get || s.verb > Verb::scan)) return false;
  const std::shared_ptr<Store> store = store_of(s.a[held ? 1 : 0]);
  if (store == nullptr) return true;
  if (s.verb == Verb::list) {
    list(s);
    return true;
  }
  if (s.verb == Verb::time) {
    begin({});
    end(0, {store->time_ms()});
    return true;
  }
  Collection c;
  if (!collection_of(store_, s.a[held ? 2 : 1], c)) return true;
  switch (s.verb) {
    case Verb::get:
    case Verb::view:
    case Verb::contains:
    case Verb::contains_pair:
      point(s, c);
      break;
    case Verb::multi_get:
      multi_get(s, c);
      break;
    case Verb::lower:
    case Verb::upper:
      neighbour(s, c);
      break;
    case Verb::hold_view:
      hold_view(s, c);
      break;
    case Verb::scan: {
      Status status = Status::ok;
      Words results = {0};
      begin({c.id(), s.a[2] != 0});
      const std::uint64_t end_status = call([&] {
        scan(through(c, [](const auto& in) { return in.iterator(); }), numbers(c), s.a[2] != 0,
             status, results);
        return status;
      });
      end(end_status, results);
      break;
    }
    default:
      figure(s, c);
  }
  return true;
}

void Actor::point(const Step& s, const Collection& c) {
  const std::string key = text(c, s.a[2]);
  const std::string value = value_text(pair_tag(s.a[3]));
  Words words = {c.id(), clip(s.a[2])};
  if (s.verb == Verb::contains_pair) words.push_back(pair_tag(s.a[3]));
  std::string got;
  begin(words);
  const std::uint64_t status = call([&] {
    switch (s.verb) {
      case Verb::get:
        if (number_ % 3 == 0) {
          return through(c, [&](const auto& in) { return given(in.get(key), got); });
        }
        return number_ % 3 == 1 ? through(c, [&](const auto& in) { return get_into(in, key, got); })
                                : through(c, [&](const auto& in) { return in.get(key, got); });
      case Verb::contains:
        return through(c, [&](const auto& in) { return in.contains(key); });
      case Verb::contains_pair:
        return c.contains_pair(key, value);
      default: {
        const auto view = through(c, [&](const auto& in) { return in.view(key); });
        if (!view) return view.error();
        got = view->value();
        return Status::ok;
      }
    }
  });
  const bool reads = s.verb == Verb::get || s.verb == Verb::view;
  end(status, reads && status == 0 ? Words{seen_tag(got)} : Words{});
}

void Actor::multi_get(const Step& s, const Collection& c) {
  std::vector<std::string> texts;
  Words words = {c.id()}, results;
  for (std::int64_t i = 0; i < std::clamp<std::int64_t>(s.a[3], 1, 100); ++i) {
    words.push_back(clip(s.a[2] + i * 3));
    texts.push_back(text(c, s.a[2] + i * 3));
  }
  const std::vector<std::string_view> keys(texts.begin(), texts.end());
  begin(words);
  const std::uint64_t status = call([&] {
    if (s.a[4] == 0) {
      for (const auto& r : through(c, [&](const auto& in) { return in.multi_get(keys); })) {
        results.push_back(static_cast<std::uint64_t>(r.error()));
        results.push_back(r ? seen_tag(*r) : kNone);
      }
      return Status::ok;
    }
    const auto take = [&](std::size_t, Status each, std::string_view value) {
      results.push_back(static_cast<std::uint64_t>(each));
      results.push_back(each == Status::ok ? seen_tag(value) : kNone);
    };
    return through(c, [&](const auto& in) { return in.multi_get(keys, take); });
  });
  end(status, results);
}

void Actor::neighbour(const Step& s, const Collection& c) {
  const std::string key = text(c, s.a[2]);
  Words results;
  begin({c.id(), clip(s.a[2])});
  const std::uint64_t status = call([&] {
    const auto found = through(c, [&](const auto& in) {
      return s.verb == Verb::lower ? in.lower_bound(key) : in.upper_bound(key);
    });
    if (!found) return found.error();
    results = {seen_key(numbers(c), found->key), seen_tag(found->value)};
    return Status::ok;
  });
  end(status, results);
}

// Calls that return a number: count, ttl, approximate, stats.
void Actor::figure(const Step& s, const Collection& c) {
  const std::string key = text(c, s.a[2]), to = text(c, s.a[3]);
  std::uint64_t n = 0;
  const auto of = [&](const Result<std::uint64_t>& r) {
    n = r.value_or(0);
    return r.error();
  };
  begin({c.id(), clip(s.a[2])});
  const std::uint64_t status = call([&] {
    switch (s.verb) {
      case Verb::count:
        return of(c.count(key));
      case Verb::ttl:
        return of(c.ttl_ms(key));
      case Verb::approximate:
        n = through(c, [&](const auto& in) { return in.approximate_count(key, to); });
        return Status::ok;
      default: {
        const StoreStats stats = world_.store[store_].store->stats();
        n = c.stats().records;
        return stats.pool.file_bytes == 0 ? Status::io : Status::ok;
      }
    }
  });
  end(status, {n});
}

void Actor::hold_view(const Step& s, const Collection& c) {
  ViewSlot& slot = world_.view[thread_][static_cast<std::size_t>(s.a[0]) % kViewsMax];
  slot.view.reset();
  const std::string key = text(c, s.a[3]);
  verb_ = Verb::view;
  begin({c.id(), clip(s.a[3])});
  const std::uint64_t status = call([&] {
    auto view = through(c, [&](const auto& in) { return in.view(key); });
    if (!view) return view.error();
    slot.view.emplace(std::move(*view));
    return Status::ok;
  });
  slot.store = store_;
  if (status == 0) slot.tag = seen_tag(slot.view->value());
  end(status, status == 0 ? Words{slot.tag} : Words{});
}

void Actor::scan(Iterator it, bool numbers, bool backward, Status& status, Words& results) {
  for (backward ? it.seek_last() : it.seek_first(); it.valid(); backward ? it.prev() : it.next()) {
    results.push_back(seen_key(numbers, it.key()));
    results.push_back(seen_tag(it.value()));
    if (++results[0] > 10 * kKeys) world_.broken("a walk without end");
  }
  status = it.status();
}

}  // namespace tenuto::life

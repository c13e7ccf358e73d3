// Objects beside the store, on the model: the blocks that the root's words name. A single call is
// done whole or not at all. Of a batch that was cut off, each block is done by itself.
#include <algorithm>
#include <functional>

#include "apply.h"
#include "objects.h"

namespace tenuto::life {
namespace {

ObjectSlot slot_in(const State& state, std::uint64_t slot) {
  if (state.objects == nullptr) return {{}};
  const auto at = state.objects->find(slot);
  return at == state.objects->end() ? ObjectSlot{{}} : at->second;
}

bool shows(const Object& shown, const Object& o) {
  if (shown.there != o.there || shown.stamp != o.stamp) return false;
  if (!o.there) return true;
  if (shown.bytes < o.bytes || shown.type != o.type) return false;
  return o.told == 0 || (shown.tag == o.tag && shown.told >= o.told);
}

std::string text_of(const Object& o) {
  std::string t = o.there ? std::to_string(o.bytes) + " bytes of type " + std::to_string(o.type) +
                                ", " + std::to_string(o.told) + " as value " +
                                std::to_string(o.tag) + " has them"
                          : "nothing";
  return o.stamp == 0 ? t : t + ", stamp " + std::to_string(o.stamp);
}

using Effect = std::function<void(Object&)>;

void put_block(Object& o, std::uint64_t bytes, std::uint64_t type, std::uint64_t tag,
               std::uint64_t told) {
  o = {true, bytes, type, tag, told, o.stamp};
}
void take_block(Object& o) { o = {false, 0, 0, 0, 0, o.stamp}; }

}  // namespace

std::string Applying::object_walk() const {
  std::string why = rules.faulted && !op.ok() ? "" : expect({Status::ok});
  // Blocks that other threads attach or free meanwhile are shown or not.
  if (!why.empty() || rules.at_once || !op.ok()) return why;
  std::uint64_t least = 0, most = 0;
  for (std::uint64_t slot = 0; slot < kObjects; ++slot) {
    const ObjectSlot may_be = slot_in(state, slot);
    const auto n = std::ranges::count_if(
        may_be, [&](const Object& o) { return o.there && o.type == op.a.at(0); });
    least += static_cast<std::size_t>(n) == may_be.size();
    most += n != 0;
  }
  if (op.r.at(0) < least || op.r.at(0) > most || op.r.at(1) != op.r.at(0)) {
    why = wrong("there are " + std::to_string(least) + (most == least ? "" : " or more") +
                " objects of this type, each on a word of the root");
  }
  return why;
}

std::string Applying::objects() {
  if (op.verb == Verb::object_walk) return said() ? object_walk() : "";
  std::string why;
  const bool refuses = said() && refused(why);
  if (!why.empty()) return why;
  // For each slot of the call: whether it must have a block, and what the call does to it.
  struct Change {
    std::uint64_t slot;
    int there;  // it must: 1, it must not: 0, either: -1
    Effect effect;
  };
  std::vector<Change> changes;
  bool aborts = false;
  const auto& a = op.a;
  switch (op.verb) {
    case Verb::object_new:
      for (std::size_t i = 3; i < a.size(); ++i) {
        changes.push_back(
            {a[i], 0, [&](Object& o) { put_block(o, a[0], a[2], 0, a[1] != 0 ? a[0] : 0); }});
      }
      break;
    case Verb::object_publish:
      changes.push_back({a.at(4), 0, [&](Object& o) {
                           if (a[3] == 0) put_block(o, a[0], a[2], a[1], a[0]);
                         }});
      break;
    case Verb::object_fill:
      aborts = a.at(2) != 0;
      changes.push_back({a.at(3), 1, [&](Object& o) {
                           if (a[0] < 8) return;
                           o.tag = a[1];
                           o.told = a[0];
                         }});
      break;
    case Verb::object_free:
      for (const std::uint64_t slot : a) changes.push_back({slot, 1, take_block});
      break;
    case Verb::object_resize:
      changes.push_back({a.at(1), a[0] == 0 ? 1 : -1, [&](Object& o) {
                           if (a[0] == 0) return take_block(o);
                           if (!o.there) return put_block(o, a[0], 0, 0, 0);
                           o.bytes = a[0];
                           o.told = std::min(o.told, a[0]);
                         }});
      break;
    case Verb::object_swap: {
      if (a.at(0) == a.at(1)) return said() ? expect({Status::invalid_argument}) : "";
      if (said() && !refuses) why = expect({Status::ok});
      if (!done() || !why.empty()) return why;
      // A swap leaves stamps, which belong to transactions on plain words.
      ObjectSlot first = slot_in(state, a[0]), second = slot_in(state, a[1]);
      state.change_objects()[a[0]] = std::move(second);
      state.change_objects()[a[1]] = std::move(first);
      return {};
    }
    default:  // object_tx
      aborts = a.at(1) != 0;
      for (std::size_t i = 3; i + 1 < a.size(); i += 2) {
        changes.push_back({a[i], a[0] != 0 ? 1 : 0, [this, i](Object& o) {
                             const std::uint64_t tag = op.a[i + 1];
                             o.stamp = tag;
                             if (op.a[0] != 0) return take_block(o);
                             put_block(o, bytes_of_tag(tag), op.a[2], tag, bytes_of_tag(tag));
                           }});
      }
  }
  if (said() && !refuses) why = expect({aborts ? Status::aborted : Status::ok});
  if (said() && why.empty() && op.verb == Verb::object_tx && !refuses &&
      (op.r.at(0) != (aborts ? 0 : 1) || op.r.at(1) != (aborts ? 1 : 0))) {
    why = wrong("what was to be called at its end was not, or not once");
  }
  const bool happens = done() && !aborts;
  const bool partly = happens && !said() && changes.size() > 1 && op.verb != Verb::object_tx;
  for (const Change& c : changes) {
    ObjectSlot may_be = slot_in(state, c.slot);
    std::erase_if(may_be,
                  [&](const Object& o) { return c.there >= 0 && o.there != (c.there != 0); });
    if (may_be.empty()) {
      return wrong("slot " + std::to_string(c.slot) +
                   (c.there != 0 ? " should have been empty" : " should not have been empty"));
    }
    const ObjectSlot before = may_be;
    if (happens) {
      for (Object& o : may_be) c.effect(o);
    }
    if (partly) may_be.insert(may_be.end(), before.begin(), before.end());
    state.change_objects()[c.slot] = std::move(may_be);
  }
  return why;
}

Objects objects_shown(const Op& look, std::size_t at) {
  Objects all;
  const std::uint64_t n = look.r.at(at + 1);
  for (std::size_t i = at + 2; i < at + 2 + 6 * n; i += 6) {
    const std::uint64_t* const r = look.r.data() + i;
    all[r[0]] = {{r[1] != 0, r[1], r[2], r[3], r[4], r[5]}};
  }
  return all;
}

std::string compare_objects(State& state, const Op& look, std::size_t at) {
  Objects shown = objects_shown(look, at);
  std::uint64_t there = 0, of_type[kTypes + 1] = {};
  for (std::uint64_t slot = 0; slot < kObjects; ++slot) {
    const auto seen = shown.find(slot);
    const Object now = seen == shown.end() ? Object{} : seen->second.front();
    ObjectSlot may_be = slot_in(state, slot);
    const ObjectSlot all = may_be;
    std::erase_if(may_be, [&](const Object& o) { return !shows(now, o); });
    if (may_be.empty()) {
      return "slot " + std::to_string(slot) + " of the root has " + text_of(now) +
             ", and should have " + text_of(all.front()) +
             (all.size() > 1 ? " or " + text_of(all.back()) : "");
    }
    there += now.there;
    of_type[now.type <= kTypes ? now.type : 0] += now.there;
    if (seen != shown.end() || all.size() > 1) {
      may_be.resize(1);
      state.change_objects()[slot] = std::move(may_be);
    }
  }
  if (look.r[at] != kNone && look.r[at] != there) {
    return "the heap has " + std::to_string(look.r[at]) +
           " objects, and the root's words lead to " + std::to_string(there);
  }
  const std::size_t walks = at + 2 + 6 * look.r[at + 1];
  for (std::uint64_t type = 1; type <= kTypes; ++type) {
    if (look.r.at(walks + type - 1) == of_type[type]) continue;
    return "a walk shows " + std::to_string(look.r[walks + type - 1]) + " objects of type " +
           std::to_string(type) + ", and the root's words lead to " + std::to_string(of_type[type]);
  }
  return {};
}

}  // namespace tenuto::life

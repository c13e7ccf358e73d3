// Opens a store and looks at all of it. Copies its files and puts them back. Starts other
// processes.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "process.h"
#include "support/failing_calls.h"
#include "tenuto/pool.h"
#include "tenuto/rescue.h"

extern char** environ;

namespace tenuto::life {
namespace fs = std::filesystem;

namespace {
constexpr unsigned kOpenTriesMax = 2000;  // a millisecond apart
}

void Process::open(const Step& step, std::size_t number) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  const auto path = static_cast<unsigned>(step.a[1]) % 5;
  StoreSlot& slot = world_.store[s];
  if (slot.store != nullptr) return;
  std::error_code ignored;
  fs::create_directory(world_.folder + "/other", ignored);
  if (path == 1) fs::create_symlink(world_.path_of(s, 0), world_.path_of(s, 1), ignored);
  if (path == 3) {
    // A hard link needs the file, and must lead to the current one.
    fs::remove(world_.path_of(s, 3), ignored);
    fs::create_hard_link(world_.path_of(s, 0), world_.path_of(s, 3), ignored);
    if (ignored) return;
  }
  const bool there = fs::exists(world_.path_of(s, 0), ignored);
  if (!there && path != 0) return;
  StoreOptions options = world_.options_of(s, path);
  // What is right may not be called a mistake. A thread that fills an object at this moment may be.
  if (!world_.story.at_once && world_.story.seed % 2 == 0) {
    options.pool.on_mistake = [this](const Report& r) { world_.broken(r.text()); };
  }
  options.pool.read_only = step.a[2] != 0 && there;
  // Of the two pools the one that decides must be open first. Either may be the one.
  if (!options.pool.read_only) static_cast<void>(open_side(s));
  Report report;
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::open, number, s, {path, options.pool.read_only, there});
  Status status = Status::ok;
  std::optional<Store> made;
  bool clean = true;
  // Children of the last process may still hold files that they inherited (pm/process.h). The store
  // is busy until they release them. A process that closed the store itself need not wait.
  const bool may_wait = !std::exchange(slot.opened, true);
  for (unsigned tries = 0; tries < kOpenTriesMax; ++tries) {
    auto opened = Store::open(world_.path_of(s, path), options, &report);
    if (opened.error() == Status::busy && may_wait && tries + 1 < kOpenTriesMax) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    if (opened) {
      made.emplace(std::move(*opened));
      clean = made->pool().info().was_clean;
    } else {
      status = opened.error();
    }
    break;
  }
  std::snprintf(world_.shared.refusal[s], sizeof world_.shared.refusal[s], "%s",
                report.text().c_str());
  record.end(status, {clean});
  if (!made && status != Status::busy && report.text().empty()) {
    world_.broken("an open is refused without words");
  }
  if (!made) return;
  slot.store = std::make_shared<Store>(std::move(*made));
  slot.path = path;
  slot.read_only = options.pool.read_only;
  world_.let_calls_be();
  if (const Status side = slot.read_only ? Status::ok : open_side(s); side != Status::ok) {
    world_.broken("the second pool does not open: " + std::string(status_name(side)));
  }
  if (world_.story.consistency == 3) actors_[0]->reconcile_objects(slot.store->pool());
  world_.ask_for_time(s);
  actors_[0]->look(s, number, true);
  check_side(s);
  if (world_.story.unread != 0 && !slot.read_only) open_unread(s, options);
}

void Actor::look(unsigned s, std::size_t number, bool fresh) {
  verb_ = Verb::look;
  number_ = number;
  store_ = s;
  begin({});
  end(0, seen_in(s, *world_.store[s].store, !world_.store[s].read_only, fresh));
}

Collection Actor::opened(Store& store, const std::string& name) {
  Report report;
  CollectionOptions options;
  options.create_if_missing = false;
  auto c = store.collection(name, options, &report);
  if (!c) world_.broken(name + " cannot be opened: " + report.text());
  return *c;
}

// The handles that a look has kept, of a store that was opened again.
void Actor::keep_all(unsigned s, Store& store) {
  const auto all = store.collections();
  if (!all) world_.broken("a store that was shown has no list of collections");
  for (const CollectionInfo& info : *all) {
    keep_collection(s, 1 + static_cast<std::int64_t>(*name_of(info.name)) % 5,
                    opened(store, info.name));
  }
}

// All collections with all their records, as cursors show them. keep: steps get the handles.
Actor::Words Actor::seen_in(unsigned s, Store& store, bool keep, bool fresh) {
  Words words = {0, 0, 0};
  const auto one = [&](std::uint64_t name, Collection c) {
    const Encoding encoding = encoding_of(c);
    const bool named = c.name() == (name == kNone ? "" : name_text(name));
    const bool coded = c.codec() == (encoding.order == KeyOrder::registered ? kCodec : "");
    if (!named || !coded) world_.broken("a collection tells another name or codec than its own");
    words.insert(words.end(), {name, c.id(), encoding.word(), 0});
    const std::size_t count = words.size() - 1;
    Iterator it = c.iterator();
    for (it.seek_first(); it.valid(); it.next()) {
      words.insert(words.end(), {seen_key(encoding.numbers(), it.key()), seen_tag(it.value()),
                                 c.expires() ? it.ttl_ms() : 0});
      if (++words[count] > 10 * kKeys) world_.broken("a look without end");
    }
    if (it.status() != Status::ok) {
      world_.broken("the store was opened, and a walk says " +
                    std::string(status_name(it.status())));
    }
    ++words[1];
  };
  if ((store.order() == KeyOrder::u64) != world_.story.numbers) {
    world_.broken("the store has another order of keys than it was made with");
  }
  one(kNone, store);
  const auto all = store.collections();
  if (!all) {
    world_.broken("the store was opened, and collections() says " +
                  std::string(status_name(all.error())));
  }
  for (const CollectionInfo& info : *all) {
    const auto name = name_of(info.name);
    if (!name) world_.broken("a collection that nobody made: " + info.name);
    const Collection c = opened(store, info.name);
    one(*name, c);
    if (keep) keep_collection(s, 1 + static_cast<std::int64_t>(*name) % 5, c);
  }
  look_at_objects(store.pool(), fresh, words);
  words[0] = store.time_ms();
  words[2] = world_.shared.clock_ms.load();
  return words;
}

void Process::check_backup(const Step& step, std::size_t number) {
  const auto to = static_cast<unsigned>(step.a[0]) % kBackups;
  const std::string path = world_.backup_of(to);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  StoreOptions options = world_.options_of(0, 0);
  options.pool.medium = Medium::cache;
  options.pool.read_only = true;
  options.create_if_missing = false;
  options.pool.size_max = world_.story.pool_bytes_max * 2;
  Report report;
  std::uint64_t n = 0;
  {
    auto opened = Store::open(path, options, &report);
    if (!opened) world_.broken("a finished backup does not open: " + report.text());
    if (const Status s = opened->validate(&report); s != Status::ok) {
      world_.broken("a finished backup is not sound: " + report.text());
    }
    Iterator it = opened->iterator();
    for (it.seek_first(); it.valid(); it.next()) ++n;
    if (it.status() != Status::ok) world_.broken("a finished backup cannot be read");
  }
  fs::remove(path, ignored);
  fs::remove(path + ".journal", ignored);
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::check_backup, number, 0, {to});
  record.end(Status::ok, {n});
}

namespace {

// A store's file, and the journals that it may have, one for each path.
constexpr unsigned kFiles = 4;
std::string file_of(const World& world, unsigned s, unsigned which) {
  switch (which) {
    case 0:
      return world.path_of(s, 0);
    case 1:
      return world.path_of(s, 0) + ".journal";
    case 2:
      return world.path_of(s, 3) + ".journal";
    default:
      return world.journal_elsewhere(s);
  }
}
std::string copy_of(const World& world, unsigned s, unsigned which, std::uint64_t to) {
  return world.path_of(s, 0) + ".copy" + std::to_string(to) + "." + std::to_string(which);
}

// The head of a journal, which names its start.
std::string head_of(const std::string& path) {
  constexpr std::size_t kHeadBytes = 8192;
  std::ifstream file(path, std::ios::binary);
  std::string bytes(kHeadBytes, '\0');
  file.read(bytes.data(), kHeadBytes);
  return bytes;
}

void copy_or_remove(const std::string& from, const std::string& to) {
  std::error_code ignored;
  fs::remove(to, ignored);
  if (fs::exists(from, ignored)) fs::copy_file(from, to, ignored);
}

}  // namespace

// What the look has shown is there again, but no thread has come to its leaves. With 2, where that
// is possible, it is also as after a kill that came behind the look: its files are copied while it
// is open and at rest, and put back. Then the first call that needs the heap marks the blocks.
void Process::open_unread(unsigned s, const StoreOptions& options) {
  StoreSlot& slot = world_.store[s];
  // Not an inode that only another name still leads to, two pools, or objects to be mended.
  const bool killed = world_.story.unread == 2 && !works_by_itself() && slot.path != 3 &&
                      world_.story.side == 0 && world_.story.consistency != 3 &&
                      slot.store->pool().sync() == Status::ok;
  const auto copy_files = [&](bool back) {
    for (unsigned f = 0; killed && f < kFiles; ++f) {
      const std::string file = file_of(world_, s, f), copy = copy_of(world_, s, f, kCopies);
      back ? copy_or_remove(copy, file) : copy_or_remove(file, copy);
    }
  };
  copy_files(false);
  static_cast<void>(slot.store->close());  // a full disk may refuse it: then it is as after a kill
  slot.store.reset();
  copy_files(true);
  Report report;
  auto again = Store::open(world_.path_of(s, slot.path), options, &report);
  if (!again) world_.broken("a store that was shown does not open again: " + report.text());
  slot.store = std::make_shared<Store>(std::move(*again));
  world_.let_calls_be();
  world_.ask_for_time(s);
  actors_[0]->keep_all(s, *slot.store);
}

void Process::copy(const Step& step, std::size_t number) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  const std::uint64_t to = static_cast<std::uint64_t>(step.a[1]) % kCopies;
  std::error_code ignored;
  if (!fs::exists(world_.path_of(s, 0), ignored)) return;
  if (world_.store[s].store != nullptr && works_by_itself()) return;
  const auto heads = [&] {
    std::string both;
    for (unsigned f = 1; f < kFiles; ++f) both += head_of(file_of(world_, s, f));
    return both;
  };
  const std::string before = heads();
  for (unsigned f = 0; f < kFiles; ++f) {
    copy_or_remove(file_of(world_, s, f), copy_of(world_, s, f, to));
  }
  // It is not consistent, either, if a checkpoint ended between the copies of pool and journal.
  if (heads() != before) {
    for (unsigned f = 0; f < kFiles; ++f) fs::remove(copy_of(world_, s, f, to), ignored);
    return;
  }
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::copy, number, s, {to});
  record.end(Status::ok);
}

// journal: 0: the copy's is put back; 1: the current one stays; 2: none; 3: only the journal is put
// back.
void Process::restore(const Step& step, std::size_t number) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  const std::uint64_t from = static_cast<std::uint64_t>(step.a[1]) % kCopies;
  const std::uint64_t journal = static_cast<std::uint64_t>(step.a[2]) % 4;
  std::error_code ignored;
  if (world_.store[s].store != nullptr || !fs::exists(copy_of(world_, s, 0, from), ignored)) return;
  if (world_.story.side != 0) return;  // pools that belong together are restored together
  for (unsigned f = 0; f < kFiles; ++f) {
    const std::string file = file_of(world_, s, f), copy = copy_of(world_, s, f, from);
    if (f == 0 ? journal != 3 : journal == 0 || journal == 3) copy_or_remove(copy, file);
    if (f != 0 && journal == 2) fs::remove(file, ignored);
  }
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::restore, number, s, {from, journal});
  record.end(Status::ok);
}

// A rescue of a store that is not open must bring back what the next open would show.
void Process::rescue(const Step& step, std::size_t number) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  const std::string path = world_.path_of(s, 0), to = world_.folder + "/rescued.tnt";
  std::error_code ignored;
  if (world_.store[s].store != nullptr || !fs::exists(path, ignored)) return;
  if (world_.story.side != 0) return;  // a rescue undoes what is in doubt, and an open asks
  fs::remove(to, ignored);
  RescueOptions options;
  options.pool = world_.options_of(s, 0).pool;
  options.pool.medium = Medium::cache;
  options.pool.size_max = world_.story.pool_bytes_max * 2;
  RescueResult result;
  Report report;
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::rescue, number, s, {});
  Status status = Status::busy;
  // As in open(): children of a killed process may still hold the files for a short time.
  for (unsigned tries = 0; status == Status::busy && tries < kOpenTriesMax; ++tries) {
    if (tries != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = tenuto::rescue(path, to, options, result, &report);
  }
  std::vector<std::uint64_t> words;
  if (status == Status::ok) {
    StoreOptions opening = world_.options_of(s, 0);
    opening.pool = options.pool;
    auto opened = Store::open(to, opening, &report);
    if (!opened) world_.broken("what was rescued does not open: " + report.text());
    if (opened->validate(&report) != Status::ok) {
      world_.broken("what was rescued is not sound: " + report.text());
    }
    words = actors_[0]->seen_in(s, *opened, false, false);
  } else {
    std::string text = report.text();
    for (const RescueLoss& loss : result.losses) text += "; " + loss.report.text();
    std::snprintf(world_.shared.refusal[s], sizeof world_.shared.refusal[s], "%s", text.c_str());
  }
  fs::remove(to, ignored);
  record.end(static_cast<std::uint64_t>(status), words);
}

int try_open(const char* path, Medium medium) {
  StoreOptions options;
  options.create_if_missing = false;
  options.pool.medium = medium;
  options.codecs = {masked_codec()};
  const auto opened = Store::open(path, options);
  return static_cast<int>(opened.error());
}

// Another process opens the store while this one has it open.
void Process::other_opens(const Step& step, std::size_t) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  if (world_.store[s].store == nullptr || world_.store[s].read_only) return;
  const auto path = static_cast<unsigned>(step.a[1]) % 3;
  std::error_code ignored;
  if (path == 1) fs::create_symlink(world_.path_of(s, 0), world_.path_of(s, 1), ignored);
  std::string program = "/proc/self/exe", verb = "--try-open", name = world_.path_of(s, path);
  std::string medium = std::to_string(static_cast<int>(world_.story.medium));
  char* argv[] = {program.data(), verb.data(), name.data(), medium.data(), nullptr};
  pid_t pid = 0;
  if (::posix_spawn(&pid, argv[0], nullptr, nullptr, argv, environ) != 0) return;
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return;
  if (!WIFEXITED(status)) world_.broken("a process that only opens the store died");
  if (WEXITSTATUS(status) == 0) world_.broken("two processes have the store open");
}

// --- fork ----------------------------------------------------------------------------------------

void Process::fork_child(const Step& step, std::size_t) {
  const pid_t pid = ::fork();
  if (pid < 0) return;
  if (pid == 0) forked(step.a[0] % 6);
  if (step.a[0] % 6 == 5) return;  // it stays alive, with what it inherited
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    world_.broken("a forked child died of signal " + std::to_string(WTERMSIG(status)));
  }
}

void Process::forked(std::int64_t how) {
  switch (how) {
    case 1:  // leaves the scope of the stores
      for (StoreSlot& slot : world_.store) {
        for (Collection& c : slot.collection) c = {};
        slot.store.reset();
      }
      close_sides();
      ::_exit(0);
    case 2:  // exits, which destroys static objects
      at_exit_for_forked();
      std::exit(0);
    case 3:
      for (StoreSlot& slot : world_.store) {
        if (slot.store == nullptr || slot.read_only) continue;
        const std::string key = key_text(world_.story.numbers, 77);
        if (slot.store->put(key, value_text(make_tag(world_.fresh(), 30))) == Status::ok) {
          world_.broken("a put of a forked child says ok");
        }
        if (slot.store->close() == Status::ok) ::_exit(1);
      }
      ::_exit(0);
    case 4:
      ::execl("/bin/true", "true", static_cast<char*>(nullptr));
      ::_exit(0);
    case 5:
      for (int i = 0; i < 10000 && world_.shared.over.load() == 0; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      ::_exit(0);
    default:
      ::_exit(0);
  }
}

}  // namespace tenuto::life

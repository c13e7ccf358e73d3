// tenuto-import-pmemobj: copies the objects of a pool of libpmemobj into a new pool of the drop-in.
//
// The program is linked to libpmemobj, which reads the old pool, and loads the drop-in, which makes
// the new one. Every object is made anew with its type number and its bytes. OIDs are found by
// their form: an aligned pair of words, the pool's uuid and an offset inside an object. 128 bits
// are not equal to these by chance. Other pointers (a bare offset, a self-relative pointer) cannot
// be told from numbers: --offset names those, or the program that owns the data has to convert.
//
// The new pool gets its name when it is complete. Until then it has a name that no other import
// has, and that is removed on every way out but a kill.
#include <dlfcn.h>
#include <fcntl.h>
#include <libpmemobj.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "tools/pmemobj/import_file.h"

namespace pmemobj_import {

namespace {

// Where libpmemobj keeps the layout's name, behind the header of the file.
constexpr std::size_t kLayoutPlace = 4096;

// The calls of the drop-in.
struct DropIn {
  decltype(::pmemobj_create)* create;
  decltype(::pmemobj_close)* close;
  decltype(::pmemobj_check)* check;
  decltype(::pmemobj_errormsg)* errormsg;
  decltype(::pmemobj_root)* root;
  decltype(::pmemobj_alloc)* alloc;
  decltype(::pmemobj_persist)* persist;

  explicit DropIn(const char* path) {
    // It must find its own calls, and not those of the library that this program is linked to.
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == nullptr) fail(kIo, ::dlerror());
    const auto find = [&](const char* name, auto& call) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, name));
      if (call == nullptr) fail(kIo, std::string(path) + " has no " + name);
    };
    find("pmemobj_create", create);
    find("pmemobj_close", close);
    find("pmemobj_check", check);
    find("pmemobj_errormsg", errormsg);
    find("pmemobj_root", root);
    find("pmemobj_alloc", alloc);
    find("pmemobj_persist", persist);
    if (reinterpret_cast<void*>(create) == reinterpret_cast<void*>(&::pmemobj_create)) {
      fail(kUsage,
           "the drop-in is in the place of libpmemobj; run this program without LD_PRELOAD, and "
           "without its folder in LD_LIBRARY_PATH");
    }
  }
};

// No type number of libpmemobj: the root object.
constexpr std::uint64_t kRoot = ~std::uint64_t{0};

struct Copy {
  std::uint64_t to;
  std::uint64_t bytes;
  std::uint64_t type;
};

class Import {
 public:
  // old_bytes: of the old pool's file; 0: it is a set of files.
  Import(PMEMobjpool* from, std::uint64_t old_bytes, const DropIn& calls, PMEMobjpool* to)
      : from_(from), old_bytes_(old_bytes), calls_(calls), to_(to) {}

  // Words of objects of this type that hold an offset alone, and how many objects have the word.
  std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> offsets;

  void run() {
    allocate();
    for (const auto& [old, copy] : copies_) fill(old, copy);
    for (const auto& [type, places] : offsets) {
      for (const auto& [at, objects] : places) {
        if (objects != 0) continue;
        fail(kUsage, "--offset " + (type == kRoot ? "root" : std::to_string(type)) + ":" +
                         std::to_string(at) + ": no such object has eight bytes there");
      }
    }
  }
  std::size_t objects() const { return copies_.size(); }
  std::uint64_t pointers() const { return pointers_; }
  std::uint64_t odd() const { return odd_; }

 private:
  void allocate() {
    if (const std::size_t bytes = pmemobj_root_size(from_); bytes != 0) {
      const PMEMoid made = calls_.root(to_, bytes);
      const PMEMoid root = pmemobj_root(from_, bytes);
      check(root.off, bytes);
      add(root, {made.off, bytes, kRoot}, made);
    }
    std::uint64_t last = 0;
    for (PMEMoid o = pmemobj_first(from_); !OID_IS_NULL(o); o = pmemobj_next(o)) {
      const std::uint64_t type = pmemobj_type_num(o);
      const std::size_t bytes = pmemobj_alloc_usable_size(o);
      check(o.off, bytes);
      // They come in the order of their addresses, and so each once.
      if (o.off <= last) damaged();
      last = o.off;
      PMEMoid made = OID_NULL;
      if (calls_.alloc(to_, &made, bytes, type, nullptr, nullptr) != 0) made = OID_NULL;
      add(o, {made.off, bytes, type}, made);
    }
  }
  [[noreturn]] static void damaged() {
    fail(kCorrupt, "the old pool is damaged: what it says of its objects leads out of it");
  }
  void check(std::uint64_t offset, std::uint64_t bytes) const {
    const bool inside = offset < old_bytes_ && bytes <= old_bytes_ - offset;
    if (old_bytes_ != 0 && !inside) damaged();
  }
  void add(PMEMoid old, const Copy& copy, PMEMoid made) {
    if (OID_IS_NULL(made)) {
      const Code code = code_of(errno);
      fail(code, std::string("the new pool: ") + calls_.errormsg() +
                     (code == kFull ? "; --size makes it larger" : ""));
    }
    old_uuid_ = old.pool_uuid_lo;
    new_uuid_ = made.pool_uuid_lo;
    copies_[old.off] = copy;
  }

  // The new offset for one of an object or inside it; 0: it is in none.
  std::uint64_t moved(std::uint64_t offset) const {
    auto it = copies_.upper_bound(offset);
    if (it == copies_.begin()) return 0;
    --it;
    const std::uint64_t inside = offset - it->first;
    return inside < it->second.bytes ? it->second.to + inside : 0;
  }

  void fill(std::uint64_t old, const Copy& copy) {
    char* const to = reinterpret_cast<char*>(to_) + copy.to;
    std::memcpy(to, reinterpret_cast<char*>(from_) + old, copy.bytes);
    const std::size_t words = copy.bytes / 8;
    const auto word = [&](std::size_t i) {
      std::uint64_t w = 0;
      std::memcpy(&w, to + 8 * i, sizeof w);
      return w;
    };
    const auto put = [&](std::size_t i, std::uint64_t w) { std::memcpy(to + 8 * i, &w, sizeof w); };
    for (std::size_t i = 0; i + 1 < words; ++i) {
      if (word(i) != old_uuid_) continue;
      const std::uint64_t offset = word(i + 1);
      const std::uint64_t now = offset == 0 ? 0 : moved(offset);
      if (offset != 0 && now == 0) {
        odd_ += 1;  // an OID of an object that was freed, perhaps
        continue;
      }
      put(i, new_uuid_);
      put(i + 1, now);
      pointers_ += 1;
      i += 1;
    }
    const auto named = offsets.find(copy.type);
    if (named != offsets.end()) {
      for (auto& [at, objects] : named->second) {
        if (at >= copy.bytes || copy.bytes - at < 8) continue;
        objects += 1;
        std::uint64_t offset = 0;  // of the old object: the word may be half of an OID
        std::memcpy(&offset, reinterpret_cast<char*>(from_) + old + at, sizeof offset);
        if (offset == 0) continue;
        const std::uint64_t now = moved(offset);
        if (now != 0) put(at / 8, now);
        pointers_ += now != 0;
        odd_ += now == 0;
      }
    }
    calls_.persist(to_, to, copy.bytes);
  }

  PMEMobjpool* from_;
  const std::uint64_t old_bytes_;
  const DropIn& calls_;
  PMEMobjpool* to_;
  std::map<std::uint64_t, Copy> copies_;  // by the old offset
  std::uint64_t old_uuid_ = 0;
  std::uint64_t new_uuid_ = 0;
  std::uint64_t pointers_ = 0;
  std::uint64_t odd_ = 0;
};

constexpr char kHelp[] =
    "usage: tenuto-import-pmemobj [OPTION]... OLD NEW\n"
    "Copies the objects of OLD, a pool of libpmemobj, into NEW, a pool of the drop-in for it.\n"
    "  --size BYTES        of the new pool, such as 64M or 2G; else that of OLD, if it is one "
    "file\n"
    "  --offset TYPE:AT    the word at byte AT of objects of this type number (root: of the root\n"
    "                      object) holds the offset of an object, and no uuid; may be repeated\n"
    "  --library PATH      of libtenuto_pmemobj.so\n";

// A number up to `end`, the first character behind it.
bool parse_number(const char*& text, std::uint64_t& number) {
  if (*text < '0' || *text > '9') return false;  // no sign and no blank
  char* end = nullptr;
  errno = 0;
  number = std::strtoull(text, &end, 0);
  text = end;
  return errno == 0;
}

bool parse_size(const char* text, std::size_t& bytes) {
  std::uint64_t number = 0;
  if (!parse_number(text, number)) return false;
  constexpr char kUnits[] = "KMGT";
  unsigned shift = 0;
  if (*text != 0) {
    const char* const unit = std::strchr(kUnits, *text++);
    if (unit == nullptr) return false;
    shift = 10 * static_cast<unsigned>(unit - kUnits + 1);
  }
  if (*text != 0 || number == 0 || number > SIZE_MAX >> shift) return false;
  bytes = number << shift;
  return true;
}

// TYPE:AT
bool parse_offset(const char* text, decltype(Import::offsets)& offsets) {
  constexpr std::string_view kRootName = "root";
  std::uint64_t type = kRoot;
  std::uint64_t at = 0;
  if (std::string_view(text).starts_with(kRootName))
    text += kRootName.size();
  else if (!parse_number(text, type))
    return false;
  if (*text++ != ':' || !parse_number(text, at)) return false;
  if (*text != 0 || at % 8 != 0) return false;
  offsets[type].emplace(at, 0);
  return true;
}

bool is_set_of_files(const std::string& path) {
  constexpr char kHead[] = "PMEMPOOLSET";
  char head[sizeof kHead - 1] = {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_set = fd >= 0 && ::pread(fd, head, sizeof head, 0) == ssize_t{sizeof head} &&
                      std::memcmp(head, kHead, sizeof head) == 0;
  if (fd >= 0) ::close(fd);
  return is_set;
}

int run(int argc, char** argv) {
  const char* library = "libtenuto_pmemobj.so.1";
  std::size_t bytes = 0;
  decltype(Import::offsets) offsets;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--help") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (word == "--size" && more) {
      if (!parse_size(argv[++i], bytes)) fail(kUsage, std::string("--size: no size: ") + argv[i]);
    } else if (word == "--library" && more) {
      library = argv[++i];
    } else if (word == "--offset" && more) {
      if (!parse_offset(argv[++i], offsets)) {
        fail(kUsage, std::string("--offset wants TYPE:AT, and AT is a multiple of 8: ") + argv[i]);
      }
    } else {
      paths.push_back(word);
    }
  }
  if (paths.size() != 2 || paths[0].starts_with("-") || paths[1].starts_with("-")) {
    std::fputs(kHelp, stderr);
    return kUsage;
  }
  const DropIn calls(library);
  struct stat st;
  if (::stat(paths[0].c_str(), &st) != 0) {
    fail(code_of(errno), paths[0] + ": " + std::strerror(errno));
  }
  const bool is_set = is_set_of_files(paths[0]);
  if (is_set && bytes == 0) {
    fail(kUsage, paths[0] + " is a set of files; --size tells how large the new pool is to be");
  }
  for (const std::string& path : {paths[1], paths[1] + ".journal"}) {
    struct stat there;
    if (::lstat(path.c_str(), &there) == 0) fail(kExists, path + " is there already");
  }
  PMEMobjpool* const from = pmemobj_open(paths[0].c_str(), nullptr);
  if (from == nullptr) {
    const Code code = errno == EINVAL ? kNotAPool : code_of(errno);
    fail(code, paths[0] + ": " + pmemobj_errormsg());
  }
  const char* const layout = reinterpret_cast<const char*>(from) + kLayoutPlace;
  if (bytes == 0) bytes = static_cast<std::size_t>(st.st_size);
  const char* const unfinished = name_unfinished(paths[1]);
  // A crash leaves nothing of the new pool, so nothing in it is durable before its close.
  ::setenv("TENUTO_PMEMOBJ_DURABILITY", "buffered", 0);
  PMEMobjpool* const to = calls.create(unfinished, layout, bytes, st.st_mode & 07777);
  if (to == nullptr) fail(code_of(errno), paths[1] + ": " + calls.errormsg());
  Import import(from, is_set ? 0 : static_cast<std::uint64_t>(st.st_size), calls, to);
  import.offsets = std::move(offsets);
  import.run();
  calls.close(to);
  pmemobj_close(from);
  if (calls.check(unfinished, nullptr) != 1) {
    fail(kCorrupt, std::string("check: ") + calls.errormsg());
  }
  give_name(paths[1]);
  sync_folder_of(paths[1]);
  std::printf("%zu objects, %llu pointers\n", import.objects(),
              static_cast<unsigned long long>(import.pointers()));
  if (import.odd() != 0) {
    std::printf("%llu OIDs or offsets lead to no object and were left as they are\n",
                static_cast<unsigned long long>(import.odd()));
  }
  if (std::fflush(stdout) != 0) fail(kIo, std::string("standard output: ") + std::strerror(errno));
  return 0;
}

}  // namespace

}  // namespace pmemobj_import

int main(int argc, char** argv) {
  try {
    return pmemobj_import::run(argc, argv);
  } catch (const std::bad_alloc&) {
    pmemobj_import::fail(pmemobj_import::kFull, "there is no memory for the list of objects");
  }
}

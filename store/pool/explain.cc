// Why a free, a publish or a cancel was refused: what is there, and what to do. The call has been
// refused already, so nothing here is fast, and the answer may be out of date beside other threads.
#include "heap/place.h"
#include "store/pool/pool_impl.h"

namespace TENUTO_NS {

namespace {

// Fills the report if the word is no reason to free. False: it is one.
template <class Word>
bool explain_word(const PoolImpl& impl, const Word& dest, Report* report) {
  const pm::PoolFile& file = *impl.file;
  const auto refused = [&](std::string what, std::string where) {
    static_cast<void>(fail(Status::invalid_argument, report, std::move(what), std::move(where)));
    return true;
  };
  if (!file.contains(&dest) || reinterpret_cast<std::uintptr_t>(&dest) % alignof(Word) != 0) {
    return refused(
        "the word to be cleared is not in this pool: pass the pointer in the pool itself",
        file.path());
  }
  const std::string word = file.where(file.offset_of(&dest), "the word");
  const void* target = Word::decode(&dest, __atomic_load_n(&dest.raw, __ATOMIC_ACQUIRE));
  if (target == nullptr) return refused("the word is null: its block was freed before", word);
  if (!file.contains(target)) {
    return refused(
        "the word leads out of the pool: was it copied as bytes? A Ptr stores a distance", word);
  }
  const PoolOffset o = file.offset_of(target);
  const heap::Place place = impl.heap->look(o);
  const char* const why = place.refusal(o);
  if (why == nullptr) return false;
  return refused(std::string("no allocated object starts there: ") + why,
                 file.where(o, place.text(o)));
}

template <class Word>
bool explain_words(const PoolImpl& impl, const Words<Word>& dests, Report* report) {
  for (std::size_t i = 0; i < dests.count(); ++i) {
    if (explain_word(impl, dests[i], report)) return true;
  }
  return false;
}
bool explain_words(const PoolImpl& impl, const PtrWord& dest, Report* report) {
  return explain_word(impl, dest, report);
}
bool explain_words(const PoolImpl& impl, const VPtrWord& dest, Report* report) {
  return explain_word(impl, dest, report);
}

}  // namespace

template <class Dest>
Status PoolImpl::explain_free(Status s, const Dest& dest, Report* report) const {
  if (report == nullptr) return s;
  if (s != Status::invalid_argument) {
    if (file->health(report) == Status::ok) *report = Report{status_name(s), file->path(), {}, {}};
    return s;
  }
  if (explain_words(*this, dest, report)) return s;
  return fail(s, report, "a word or block occurs twice, or another thread frees it", file->path());
}

template Status PoolImpl::explain_free(Status, const PtrWord&, Report*) const;
template Status PoolImpl::explain_free(Status, const VPtrWord&, Report*) const;
template Status PoolImpl::explain_free(Status, const Words<PtrWord>&, Report*) const;
template Status PoolImpl::explain_free(Status, const Words<VPtrWord>&, Report*) const;

Status PoolImpl::explain_reserved(Status s, PoolOffset block, Report* report) const {
  if (report == nullptr) return s;
  if (s != Status::invalid_argument) {
    if (file->health(report) == Status::ok) *report = Report{status_name(s), file->path(), {}, {}};
    return s;
  }
  if (!file->in_range(block, 1)) {
    return fail(s, report, "no block can be reserved there", file->path());
  }
  const heap::Place place = heap->look(block);
  const bool reserved = place.use == heap::Place::Use::reserved && place.begin == block;
  return fail(s, report,
              reserved
                  ? "the block cannot be published or cancelled: a transaction allocated it, or "
                    "the word is not null or not in the pool"
                  : "the block is not reserved: it was published or cancelled before",
              file->where(block, place.text(block)));
}

std::string PoolImpl::describe(const void* p) const {
  const PoolOffset o = file->offset_of(p);
  return heap->look(o).text(o);
}

}  // namespace TENUTO_NS

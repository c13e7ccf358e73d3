#include "store/kv/encoding.h"

#include <algorithm>
#include <utility>

namespace TENUTO_NS::store {

namespace {

constexpr char kZero = '\0';
constexpr char kZeroFollows = '\xff';  // after a zero byte: the zero is the key's own
constexpr char kKeyEnds = '\1';        // after a zero byte: the value begins
constexpr char kBehindKey = '\2';      // after a zero byte: above all values of the key

void append_escaped(std::string_view key, std::string& out) {
  for (const char c : key) {
    out += c;
    if (c == kZero) out += kZeroFollows;
  }
}

std::uint64_t number_in(std::string_view bytes) {
  std::uint64_t n = 0;
  for (const char c : bytes) n = n << 8 | static_cast<unsigned char>(c);
  return n;
}

}  // namespace

CollectionOptions options_of(const CollectionSpec& spec) {
  CollectionOptions o;
  o.order = spec.order;
  o.codec = spec.codec;
  o.duplicates = spec.duplicates;
  o.expires = spec.expires;
  return o;
}

std::optional<std::string> behind_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

Encoding::Encoding(const CollectionSpec& spec, const KeyCodec* codec,
                   std::shared_ptr<ExpiryClock> clock)
    : spec_(spec),
      how_(spec),
      codec_(codec == nullptr ? KeyCodec{} : *codec),
      clock_(std::move(clock)),
      reversed_(spec.order == KeyOrder::reverse || spec.order == KeyOrder::reverse_u64),
      plain_(!reversed_ && !spec.duplicates && !spec.expires && codec == nullptr) {}

void Encoding::show_stored() {
  how_ = {};
  codec_ = {};
  reversed_ = false;
  plain_ = true;
}

// --- keys ----------------------------------------------------------------------------------------

bool Encoding::may_be_key(std::string_view key) const {
  const bool integers = how_.order == KeyOrder::u64 || how_.order == KeyOrder::reverse_u64;
  return !integers || key.size() == sizeof(U64Key);
}

// Also for bounds, which need not be valid keys.
Status Encoding::encoded(std::string_view key, std::string& room, std::string_view& out) const {
  out = key;
  if (!codec_.encode) return Status::ok;
  room.clear();
  if (!codec_.encode(key, room)) return Status::invalid_argument;
  out = room;
  return Status::ok;
}

Status Encoding::escaped(std::string_view key, char end, std::string& out) const {
  std::string room;
  std::string_view bytes;
  TENUTO_TRY(encoded(key, room, bytes));
  out.clear();
  append_escaped(bytes, out);
  out += kZero;
  out += end;
  return Status::ok;
}

Status Encoding::key(std::string_view key, std::string& room, std::string_view& out) const {
  return may_be_key(key) ? encoded(key, room, out) : Status::invalid_argument;
}

Status Encoding::pair(std::string_view key, std::string_view value, std::string& room) const {
  if (!may_be_key(key)) return Status::invalid_argument;
  TENUTO_TRY(escaped(key, kKeyEnds, room));
  if (value.size() > kKeyBytesMax - std::min(room.size(), kKeyBytesMax)) return Status::too_large;
  room += value;
  return Status::ok;
}

bool Encoding::take_apart(std::string_view stored, Apart& out) const {
  out.key = stored;
  out.value = {};
  if (how_.duplicates) {
    std::size_t end = stored.find(kZero);
    bool zeros = false;
    for (; end < stored.size() - 1 && stored[end + 1] == kZeroFollows; zeros = true) {
      end = stored.find(kZero, end + 2);
    }
    if (end >= stored.size() - 1 || stored[end + 1] != kKeyEnds) return false;
    out.key = stored.substr(0, end);
    out.value = stored.substr(end + 2);
    if (zeros) {
      out.plain_key.clear();
      for (std::size_t i = 0; i < end; i += stored[i] == kZero ? 2 : 1) out.plain_key += stored[i];
      out.key = out.plain_key;
    }
  }
  if (!codec_.decode) return true;
  out.decoded.clear();
  const bool known = codec_.decode(out.key, out.decoded);
  out.key = out.decoded;
  return known;
}

// --- values --------------------------------------------------------------------------------------

Status Encoding::value(std::string_view value, std::uint64_t ttl_ms, std::string& room,
                       std::string_view& out) const {
  out = value;
  if (!how_.expires) return ttl_ms == 0 ? Status::ok : Status::invalid_argument;
  std::uint64_t when = 0;
  if (ttl_ms != 0) {
    const TimeMs now = clock_->now();
    when = ttl_ms > ~0ull - now ? ~0ull : now + ttl_ms;
  }
  const U64Key stamp = u64_key(when);
  room.assign(std::string_view(stamp));
  room += value;
  out = room;
  return Status::ok;
}

// A value that is too short for a time was not written by this file, and is shown as it is.
TimeMs Encoding::gone_at(std::string_view stored) const {
  if (!how_.expires || stored.size() < kStamp) return 0;
  return number_in(stored.substr(0, kStamp));
}

bool Encoding::expired(std::string_view stored, TimeMs at) const {
  const std::uint64_t when = gone_at(stored);
  return when != 0 && when <= at;
}

std::uint64_t Encoding::ttl_ms(std::string_view stored, TimeMs at) const {
  const std::uint64_t when = gone_at(stored);
  if (when == 0) return 0;
  return when > at ? when - at : 1;
}

// --- places of the tree --------------------------------------------------------------------------

Status Encoding::begin_of(std::string_view key, std::string& out) const {
  if (how_.duplicates) return escaped(key, kKeyEnds, out);
  std::string room;
  std::string_view bytes;
  TENUTO_TRY(encoded(key, room, bytes));
  out = bytes;
  return Status::ok;
}

Status Encoding::end_of(std::string_view key, std::string& out) const {
  if (how_.duplicates) return escaped(key, kBehindKey, out);
  TENUTO_TRY(begin_of(key, out));
  out += kZero;  // the least greater string
  return Status::ok;
}

// Forwards the user's range is [from, to) in the tree. In a reverse order it begins behind all
// stored keys of `to`, and ends with the last stored key of `from`.
Status Encoding::range(std::optional<std::string_view> from, std::optional<std::string_view> to,
                       Span& out) const {
  if (reversed_) {
    if (to) TENUTO_TRY(end_of(*to, out.lower));
    if (from) TENUTO_TRY(end_of(*from, out.upper.emplace()));
    return Status::ok;
  }
  if (from) TENUTO_TRY(begin_of(*from, out.lower));
  if (to) TENUTO_TRY(begin_of(*to, out.upper.emplace()));
  return Status::ok;
}

Status Encoding::span(const IteratorOptions& options, Span& out) const {
  TENUTO_TRY(range(options.lower, options.upper, out));
  if (options.prefix.empty()) return Status::ok;
  if (codec_.encode) return Status::invalid_argument;
  std::string prefix;
  if (how_.duplicates) {
    append_escaped(options.prefix, prefix);
  } else {
    prefix = options.prefix;
  }
  std::optional<std::string> end = behind_prefix(prefix);
  if (end && (!out.upper || *end < *out.upper)) out.upper = std::move(end);
  out.lower = std::max(out.lower, prefix);
  return Status::ok;
}

// --- Encodings -----------------------------------------------------------------------------------

Encodings Encodings::of_stored_keys() {
  Encodings f;
  f.stored_keys_ = true;
  return f;
}

const KeyCodec* Encodings::codec_of(const CollectionSpec& spec) const {
  if (spec.order != KeyOrder::registered) return nullptr;
  const auto at = std::find_if(codecs_.begin(), codecs_.end(),
                               [&](const KeyCodec& c) { return c.name == spec.codec; });
  return at == codecs_.end() ? nullptr : &*at;
}

Encoding Encodings::make(const CollectionSpec& spec, std::shared_ptr<ExpiryClock> clock) const {
  Encoding encoding(spec, codec_of(spec), std::move(clock));
  if (stored_keys_) encoding.show_stored();
  return encoding;
}

// Recovery, backup and rescue need no codec.
Status Encodings::usable(const CollectionSpec& spec, const std::string& where,
                         Report* report) const {
  const bool registered = spec.order == KeyOrder::registered;
  if (registered != !spec.codec.empty() || spec.codec.size() > kCodecNameMax) {
    return fail(Status::invalid_argument, report,
                "a codec's name of 1 to 63 bytes and KeyOrder::registered belong together", where,
                {}, "codec '" + spec.codec + "'");
  }
  if (!registered || stored_keys_) return Status::ok;
  const KeyCodec* codec = codec_of(spec);
  if (codec != nullptr && codec->encode && codec->decode) return Status::ok;
  return fail(Status::invalid_argument, report,
              "the codec of the collection's keys is not registered: give it, with both functions, "
              "in StoreOptions::codecs",
              where, {}, "codec '" + spec.codec + "'");
}

}  // namespace TENUTO_NS::store

// The list of engines; see engine.h.
#include <algorithm>

#include "bench/tx/engine.h"

namespace bench {

std::span<const TxEngineKind> tx_engine_kinds() {
  static const TxEngineKind kKinds[] = {
      {"tenuto", make_tenuto_tx, tenuto_tx_settings, {"line", "cache", "model"}},
#ifdef TENUTO_PEER_PMEMOBJ
      {"pmemobj", make_pmemobj_tx, pmemobj_tx_settings, {"line", "cache"}},
#ifdef TENUTO_PMEMOBJ_DROP_IN
      {"drop-in", make_drop_in_tx, drop_in_tx_settings, {"line", "cache"}},
#endif
#endif
  };
  return kKinds;
}

const TxEngineKind* find_tx_engine(std::string_view name) {
  for (const TxEngineKind& kind : tx_engine_kinds()) {
    if (name == kind.name) return &kind;
  }
  return nullptr;
}

bool has_medium(const TxEngineKind& kind, std::string_view medium) {
  return std::find(kind.media.begin(), kind.media.end(), medium) != kind.media.end();
}

}  // namespace bench

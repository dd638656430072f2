#include "runtime/session/sizes_that_fit.h"

#include <optional>
#include <vector>

#include "reprise/error.h"

namespace reprise {
namespace {

// The largest size of a symbol, below the refused one, that fits; nothing if none is known to.
class Largest {
 public:
  Largest(SizeFamily& family, const RefusedSize& refused, std::size_t varied)
      : family_(family), refused_(refused), varied_(varied), symbols_(refused.symbols.begin(), refused.symbols.end()) {}

  [[nodiscard]] std::optional<std::int64_t> find() {
    std::optional<std::int64_t> best;
    std::int64_t below = 1;  // all sizes up to this one are decided
    std::int64_t above = refused_.symbols[varied_];
    while (above - below > 1) {
      const std::int64_t middle = below + (above - below) / 2;
      const auto size = last_that_holds(below, middle);
      if (size && !fits(*size)) {
        above = *size;
        continue;
      }
      if (size) best = size;
      below = middle;
    }
    return best;
  }

 private:
  [[nodiscard]] std::optional<std::int64_t> last_that_holds(std::int64_t below, std::int64_t last) {
    for (std::int64_t size = last; size > below; --size) {
      symbols_[varied_] = size;
      if (refused_.holds(symbols_)) return size;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool fits(std::int64_t size) {
    symbols_[varied_] = size;
    try {
      return family_.has_plan_within(refused_.room_bytes, refused_.program.at(symbols_));
    } catch (const InputError&) {
      return false;  // the step is another one at this size, or cannot run there
    }
  }

  SizeFamily& family_;
  const RefusedSize& refused_;
  std::size_t varied_;
  std::vector<std::int64_t> symbols_;
};

}  // namespace

std::string sizes_that_fit(SizeFamily& family, const RefusedSize& size, std::span<const std::string> words) {
  std::string text;
  for (std::size_t i = 0; i < size.symbols.size(); ++i) {
    const auto largest = Largest(family, size, i).find();
    if (!largest) continue;
    text += text.empty() ? ". This budget is enough if " : " or if ";
    text += words[i] + " is at most " + std::to_string(*largest);
  }
  return text;
}

}  // namespace reprise

#include "runtime/program/family/told_check.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "reprise/error.h"

namespace reprise::detail {
namespace {

using Origin = ToldStep::Origin;

class ToldCheck {
 public:
  ToldCheck(const ToldStep& told, const std::string& source)
      : told_(told), source_(source), there_(told.memory.size(), false) {}

  void all() {
    bring(Origin::kResident);
    for (const auto& use : told_.inputs) {
      if (use) read(*use, Origin::kResident, "inputs");
    }
    for (const auto& [memory, tensor] : told_.constants) read({.value = memory}, Origin::kResident, "constants");
    for (const auto& seen : told_.forward) call(seen);
    for (const auto& use : told_.outputs) {
      if (use) read(*use, std::nullopt, "outputs");
    }
    bring(Origin::kSeed);
    for (const auto& use : told_.seeds) {
      if (use) read(*use, Origin::kSeed, "seeds");
    }
    for (const auto& seen : told_.backward) call(seen);
    for (const auto& gradient : told_.gradients) {
      if (gradient) read(gradient->use, std::nullopt, "gradients");
    }
    if (told_.gradients.size() != told_.inputs.size()) {
      throw InputError(source_ + ": there are " + std::to_string(told_.inputs.size()) + " inputs and " +
                       std::to_string(told_.gradients.size()) + " gradients, which should be as many");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& where, ValueId memory, const std::string& what) const {
    throw InputError(source_ + ": " + where + ": memory " + std::to_string(index(memory)) + ' ' + what);
  }

  void bring(Origin origin) {
    for (std::size_t i = 0; i < there_.size(); ++i) {
      if (told_.memory[i].origin == origin) there_[i] = true;
    }
  }
  void read(const TensorUse& use, std::optional<Origin> origin, const std::string& where) const {
    if (!there_[index(use.value)]) fail(where, use.value, "is used before it is made");
    if (origin && told_.memory[index(use.value)].origin != *origin) {
      fail(where, use.value, *origin == Origin::kSeed ? "is not a seed" : "does not exist before the step");
    }
  }
  void call(const ProgramBuilder::SeenCall& seen) {
    const std::string where = "call '" + seen.name + "'";
    for_each_use(seen.call, [&](const TensorUse& use) { read(use, std::nullopt, where); });
    std::vector<ValueId> made;
    for (const auto& use : seen.results) {
      if (!use || std::ranges::find(made, use->value) != made.end()) continue;
      const bool is_made = told_.memory[index(use->value)].origin == Origin::kMade && !there_[index(use->value)];
      if (!is_made) fail(where, use->value, "exists already, and cannot be a result");
      made.push_back(use->value);
    }
    for (const ValueId memory : made) there_[index(memory)] = true;
    const bool changes_statistics = !seen.facts.statistics.empty();
    if (changes_statistics && (seen.results.size() < 2 || !seen.results[1])) {
      throw InputError(source_ + ": " + where + ": a batch norm that trains returns the mean that it saves");
    }
    const bool is_slice = seen.call.op.operator_name().name == "aten::slice_backward";
    if (is_slice && (seen.results.size() != 1 || !seen.results.front() || seen.call.tensor(0) == nullptr)) {
      throw InputError(source_ + ": " + where + ": the gradient of a slice is one tensor, of one tensor");
    }
  }

  const ToldStep& told_;
  const std::string& source_;
  std::vector<bool> there_;  // by name of memory
};

}  // namespace

void check_told(const ToldStep& told, const std::string& source) { ToldCheck(told, source).all(); }

}  // namespace reprise::detail

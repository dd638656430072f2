// An action as text: "c12", "c12!" (in place) or "f7".
#pragma once

#include <string>

#include "io/json_reader.h"
#include "reprise/plan.h"

namespace reprise::detail {

[[nodiscard]] Action read_action(JsonReader& in);
void append_action(std::string& out, Action action);

}  // namespace reprise::detail

#include "io/json_writer.h"

#include <nlohmann/json.hpp>

#include "reprise/error.h"

namespace reprise::detail {
namespace {

using nlohmann::json;

std::string quoted(std::string_view text, json::error_handler_t on_bad_utf8) {
  return json(text).dump(-1, ' ', false, on_bad_utf8);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  try {
    out += quoted(text, json::error_handler_t::strict);
  } catch (const json::type_error&) {
    throw InputError("a name is not UTF-8: " + quoted(text, json::error_handler_t::replace));
  }
}

bool is_utf8(std::string_view text) {
  try {
    static_cast<void>(quoted(text, json::error_handler_t::strict));
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

}  // namespace reprise::detail

#include "report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "reprise/io.h"

namespace reprise::tools {
namespace {

using nlohmann::ordered_json;

std::string decimal(double number, int digits) {
  std::array<char, 400> text;
  std::snprintf(text.data(), text.size(), "%.*f", digits, number);
  return text.data();
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// Characters, not bytes: UTF-8 continuation bytes take no room.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Columns two spaces apart; with `numbers_right`, those whose last cell begins with a digit are aligned to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows, bool numbers_right) {
  std::vector<std::size_t> widths(rows.empty() ? 0 : rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      const std::string& sample = rows.back()[i];
      const bool right = numbers_right && !sample.empty() && sample[0] >= '0' && sample[0] <= '9';
      line += (i > 0 ? "  " : "") + (right ? space + row[i] : row[i] + space);
    }
    out.append(line, 0, line.find_last_not_of(' ') + 1).append("\n");
  }
  return out;
}

std::string shown_time(std::int64_t time_ns, bool in_units) {
  constexpr std::array kUnits = {" ns", " us", " ms", " s"};
  if (in_units) return std::to_string(time_ns);
  std::size_t unit = 0;
  auto time = static_cast<double>(time_ns);
  for (; time >= 1000 && unit + 1 < kUnits.size(); ++unit) time /= 1000;
  return decimal(time, unit == 0 ? 0 : 3) + kUnits[unit];
}

ordered_json json_number(Report::Number number) { return number ? ordered_json(*number) : ordered_json(); }

}  // namespace

struct Report::Json {
  ordered_json value;
};

Report& Report::add(std::string_view key, std::string_view caption, Json json, std::string_view shown) {
  auto shared = std::make_shared<const Json>(std::move(json));
  facts_.push_back({std::string(key), std::string(caption), std::move(shared), printable(shown)});
  return *this;
}

Report& Report::text(std::string_view key, std::string_view caption, std::string_view text) {
  return add(key, caption, {text}, text);
}

Report& Report::number(std::string_view key, std::string_view caption, Number number) {
  return add(key, caption, {json_number(number)}, number ? std::to_string(*number) : "");
}

Report& Report::bytes(std::string_view key, std::string_view caption, Number bytes) {
  std::string shown = bytes ? format_bytes(*bytes) : "";
  if (bytes && *bytes >= 1024) shown += "  (" + std::to_string(*bytes) + " bytes)";
  return add(key, caption, {json_number(bytes)}, shown);
}

Report& Report::time(std::string_view key, std::string_view caption, Number time_ns, bool in_units) {
  return add(key, caption, {json_number(time_ns)}, time_ns ? shown_time(*time_ns, in_units) : "");
}

Report& Report::flag(std::string_view key, bool flag) { return add(key, "", {ordered_json(flag)}, ""); }

Report& Report::seconds(std::string_view key, std::string_view caption, double seconds) {
  return add(key, caption, {std::round(seconds * 1e6) / 1e6}, decimal(seconds, 3) + " s");
}

Report& Report::part(std::string_view key, const std::optional<Report>& part) {
  return add(key, "", part ? part->object() : Json{}, "");
}

Report& Report::rows(std::string_view key, std::vector<Report> rows) {
  ordered_json list = ordered_json::array();
  for (const Report& row : rows) list.push_back(row.object().value);
  rows_ = std::move(rows);
  return add(key, "", {std::move(list)}, "");
}

Report::Json Report::object() const {
  ordered_json object = ordered_json::object();
  for (const Fact& fact : facts_) {
    if (!fact.key.empty()) object[fact.key] = fact.json->value;
  }
  return {std::move(object)};
}

std::string Report::json() const { return object().value.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

std::string Report::tables() const {
  std::vector<std::vector<std::string>> lines;
  for (const Fact& fact : facts_) {
    if (!fact.caption.empty() && !fact.shown.empty()) lines.push_back({fact.caption, fact.shown});
  }
  std::vector<std::vector<std::string>> grid(rows_.empty() ? 0 : rows_.size() + 1);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (const Fact& fact : rows_[i].facts_) {
      if (fact.caption.empty()) continue;
      if (i == 0) grid[0].push_back(fact.caption);
      grid[i + 1].push_back(fact.shown);
    }
  }
  return aligned(lines, false) + (grid.empty() ? "" : "\n" + aligned(grid, true));
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return decimal(whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) + " %";
}

std::string printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(out, is_control, '?');
  return out;
}

}  // namespace reprise::tools

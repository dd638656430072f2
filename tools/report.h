// The same facts for two readers: aligned tables for people, one JSON object for programs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::tools {

class Report {
 public:
  using Number = std::optional<std::int64_t>;  // nothing: null for programs, and no line for people

  // Programs find a fact by its key, people by its caption. A fact without a key or a caption is not shown to that
  // reader.
  Report& text(std::string_view key, std::string_view caption, std::string_view text);
  Report& number(std::string_view key, std::string_view caption, Number number);
  Report& bytes(std::string_view key, std::string_view caption, Number bytes);
  Report& time(std::string_view key, std::string_view caption, Number time_ns, bool in_units);
  Report& flag(std::string_view key, bool flag);  // for programs only
  Report& seconds(std::string_view key, std::string_view caption, double seconds);
  Report& part(std::string_view key, const std::optional<Report>& part);  // for programs only
  Report& rows(std::string_view key, std::vector<Report> rows);           // people see a table of their captions

  [[nodiscard]] std::string json() const;
  [[nodiscard]] std::string tables() const;

 private:
  struct Json;  // of the JSON library, whose header only report.cc reads
  struct Fact {
    std::string key;
    std::string caption;
    std::shared_ptr<const Json> json;
    std::string shown;
  };
  Report& add(std::string_view key, std::string_view caption, Json json, std::string_view shown);
  [[nodiscard]] Json object() const;

  std::vector<Fact> facts_;
  std::vector<Report> rows_;
};

// "12.5 %"
[[nodiscard]] std::string percent(std::int64_t part, std::int64_t whole);

// Names in files may contain anything, and a terminal must not execute it.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace reprise::tools

// The page around the data. Its text is made of page.html, page.css and page.js at build time.
#include <string>
#include <string_view>

#include "report/page_text.h"
#include "reprise/error.h"
#include "reprise/report.h"

namespace reprise {

std::string report_page(std::string_view json) {
  constexpr std::string_view kPlace = "@REPORT_JSON@";
  const std::string_view page = detail::page_text();
  const std::size_t at = page.find(kPlace);
  std::string out(page.substr(0, at));
  out.reserve(page.size() + json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";  // occurs only inside strings, so that no name can end the script
    } else {
      out += c;
    }
  }
  return out.append(page.substr(at + kPlace.size()));
}

}  // namespace reprise

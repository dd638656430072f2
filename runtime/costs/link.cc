#include "runtime/costs/link.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "io/json_reader.h"
#include "io/json_writer.h"
#include "reprise/error.h"
#include "runtime/costs/environment.h"
#include "runtime/device/device_thread.h"
#include "runtime/device/host_link.h"
#include "runtime/device/meter.h"
#include "runtime/files/cache.h"
#include "runtime/kernels/call_guards.h"
#include "runtime/messages.h"

namespace reprise {
namespace {

using detail::JsonField;
using detail::JsonObject;
using detail::JsonReader;
using detail::kRequired;

constexpr std::string_view kLinkFormat = "reprise.link";
constexpr std::int64_t kLinkVersion = 1;

constexpr JsonField<Link> kFileFields[] = {
    {"format", [](JsonReader& in, Link&) { in.format(kLinkFormat); }, kRequired},
    {"version", [](JsonReader& in, Link&) { in.version(kLinkVersion); }, kRequired},
    {"down_bytes_per_s", [](JsonReader& in, Link& link) { link.down_bytes_per_s = in.size(); }, kRequired},
    {"up_bytes_per_s", [](JsonReader& in, Link& link) { link.up_bytes_per_s = in.size(); }, kRequired},
    {"both_ways", [](JsonReader& in, Link& link) { link.both_ways = in.boolean(); }, kRequired},
};

std::string link_file(c10::Device device) {
  std::string text;
  for (const auto& [name, value] : environment(device)) text += name + ": " + value + '\n';
  return "link-" + c10::sha1(text).str().substr(0, 16) + ".json";
}

std::optional<Link> read_link(const std::string& name) {
  const auto text = read_cache(name);
  if (!text) return std::nullopt;
  try {
    Link link;
    JsonReader in(*text, name);
    in.object(kFileFields, link);
    if (link.down_bytes_per_s == 0 || link.up_bytes_per_s == 0) throw InputError("a rate is zero");
    return link;
  } catch (const InputError& error) {
    refuse_cache(name, error.what());
    return std::nullopt;
  }
}

void write_link(const std::string& name, const Link& link) {
  std::string out;
  {
    JsonObject file(out);
    file.field("format", kLinkFormat);
    file.field("version", kLinkVersion);
    file.field("down_bytes_per_s", link.down_bytes_per_s);
    file.field("up_bytes_per_s", link.up_bytes_per_s);
    file.field("both_ways", link.both_ways);
  }
  write_cache(name, out + '\n');
}

Link measured(c10::Device device) {
  Link link;
  on_device_thread(device, [&] {
    const CallGuards guards(device);
    link = measure_link(device);
  });
  return link;
}

}  // namespace

Link link_of(c10::Device device) {
  static std::mutex mutex;
  static auto* known = new std::map<c10::DeviceIndex, Link>;  // NOLINT: lives as long as the process
  device = numbered(device);
  const std::lock_guard lock(mutex);
  const auto there = known->find(device.index());
  if (there != known->end()) return there->second;
  const std::string name = link_file(device);
  std::optional<Link> link = read_link(name);
  if (!link) {
    link = measured(device);
    write_link(name, *link);
    log_line(Severity::kInfo, "the link to the host carries " + std::to_string(link->down_bytes_per_s / 1'000'000'000) +
                                  " GB/s down and " + std::to_string(link->up_bytes_per_s / 1'000'000'000) +
                                  " GB/s up" + (link->both_ways ? "" : ", one way at a time"));
  }
  return known->emplace(device.index(), *link).first->second;
}

Link planned_link(Link measured) {
  constexpr std::int64_t kPercent = 80;
  for (std::int64_t* rate : {&measured.down_bytes_per_s, &measured.up_bytes_per_s}) {
    *rate = std::max<std::int64_t>(1, *rate / 100 * kPercent);
  }
  return measured;
}

}  // namespace reprise

#include "runtime/costs/cost_book.h"

#include <ATen/Context.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include "io/json_reader.h"
#include "io/json_writer.h"
#include "reprise/error.h"
#include "reprise/torch/errors.h"
#include "runtime/costs/environment.h"
#include "runtime/costs/roofline.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/files/cache.h"
#include "runtime/files/program_text.h"
#include "runtime/kernels/kernel.h"
#include "runtime/messages.h"
#include "runtime/program/collectives.h"
#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

using detail::append_list;
using detail::JsonField;
using detail::JsonKind;
using detail::JsonObject;
using detail::JsonReader;
using detail::kRequired;
using detail::name_of;

constexpr std::string_view kCostsFormat = "reprise.costs";
constexpr std::int64_t kCostsVersion = 1;
constexpr std::int64_t kEnoughNs = 5'000'000;  // per call

// -- The file.

struct Book {
  std::vector<std::string> environment;
  std::map<std::string, CallCost> calls;
  KnownLayouts layouts;
  std::int64_t kept_bytes = 0;
};

struct CallEntry {
  std::string call;
  CallCost cost;
};

std::vector<std::int64_t> read_integers(JsonReader& in) {
  std::vector<std::int64_t> numbers;
  in.array([&] { numbers.push_back(in.integer()); });
  return numbers;
}

constexpr std::pair<std::string_view, at::DeviceType> kDevices[] = {{"cpu", at::kCPU}, {"cuda", at::kCUDA}};

constexpr JsonField<Layout> kLayoutFields[] = {
    {"dtype",
     [](JsonReader& in, Layout& layout) {
       const auto dtype = detail::dtype_from(in.string());
       if (!dtype) in.fail("unknown type of elements");
       layout.geometry.dtype = *dtype;
     },
     kRequired},
    {"sizes", [](JsonReader& in, Layout& layout) { layout.geometry.sizes = read_integers(in); }, kRequired},
    {"strides", [](JsonReader& in, Layout& layout) { layout.geometry.strides = read_integers(in); }, kRequired},
    {"offset", [](JsonReader& in, Layout& layout) { layout.geometry.offset = in.size(); }},
    {"storage_bytes", [](JsonReader& in, Layout& layout) { layout.storage_bytes = in.size(); }, kRequired},
    {"device", [](JsonReader& in, Layout& layout) { layout.device = in.choice(kDevices); }, kRequired},
};

ResultLayouts read_layouts(JsonReader& in) {
  ResultLayouts layouts;
  in.array([&] {
    layouts.emplace_back();
    if (in.at(JsonKind::kNull)) return in.null();
    in.object(kLayoutFields, layouts.back().emplace());
    const Geometry& geometry = layouts.back()->geometry;
    if (geometry.sizes.size() != geometry.strides.size()) in.fail("as many strides as sizes are needed");
  });
  return layouts;
}

constexpr JsonField<CallEntry> kCallFields[] = {
    {"call", [](JsonReader& in, CallEntry& entry) { entry.call = in.string(); }, kRequired},
    {"time_ns", [](JsonReader& in, CallEntry& entry) { entry.cost.time_ns = in.size(); }, kRequired},
    {"workspace_bytes", [](JsonReader& in, CallEntry& entry) { entry.cost.workspace_bytes = in.size(); }, kRequired},
    {"results", [](JsonReader& in, CallEntry& entry) { entry.cost.results = read_layouts(in); }, kRequired},
};

struct LayoutEntry {
  std::string key;
  ResultLayouts layouts;
};
constexpr JsonField<LayoutEntry> kKnownFields[] = {
    {"key", [](JsonReader& in, LayoutEntry& entry) { entry.key = in.string(); }, kRequired},
    {"results", [](JsonReader& in, LayoutEntry& entry) { entry.layouts = read_layouts(in); }, kRequired},
};

constexpr JsonField<Book> kBookFields[] = {
    {"format", [](JsonReader& in, Book&) { in.format(kCostsFormat); }, kRequired},
    {"version", [](JsonReader& in, Book&) { in.version(kCostsVersion); }, kRequired},
    {"environment", [](JsonReader& in, Book& book) { in.array([&] { book.environment.push_back(in.string()); }); },
     kRequired},
    {"kept_bytes", [](JsonReader& in, Book& book) { book.kept_bytes = in.size(); }, kRequired},
    {"calls",
     [](JsonReader& in, Book& book) {
       in.array([&] {
         CallEntry entry;
         in.object(kCallFields, entry);
         book.calls.insert_or_assign(std::move(entry.call), std::move(entry.cost));
       });
     },
     kRequired},
    {"layouts",
     [](JsonReader& in, Book& book) {
       in.array([&] {
         LayoutEntry entry;
         in.object(kKnownFields, entry);
         book.layouts.insert_or_assign(std::move(entry.key), std::move(entry.layouts));
       });
     },
     kRequired},
};

void append_layouts(std::string& out, const ResultLayouts& layouts) {
  append_list(out, layouts, [&](const std::optional<Layout>& layout) {
    if (!layout) {
      out += "null";
      return;
    }
    JsonObject object(out);
    object.field("dtype", detail::dtype_name(layout->geometry.dtype));
    object.field("sizes", layout->geometry.sizes);
    object.field("strides", layout->geometry.strides);
    object.field("offset", layout->geometry.offset);
    object.field("storage_bytes", layout->storage_bytes);
    object.field("device", name_of(kDevices, layout->device));
  });
}

std::vector<std::string> environment_lines(c10::Device device) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment(device)) lines.push_back(name + ": " + value);
  return lines;
}

std::string file_name(c10::Device device) {
  std::string text = "version " + std::to_string(kCostsVersion);
  for (const std::string& line : environment_lines(device)) text += '\n' + line;
  return "costs-" + c10::sha1(text).str().substr(0, 16) + ".json";
}

// -- What has to run once in every process.

bool contains_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// Per device, the first runs of libraries in this process, and the memory that the libraries kept.
struct FirstRuns {
  std::mutex mutex;
  std::set<std::pair<std::string, std::string>> done;
  std::map<std::string, std::int64_t> kept_bytes;

  static FirstRuns& instance() {
    static auto* runs = new FirstRuns;
    return *runs;
  }
};

// Whether a call that is known from a file still has to run once. In every process, cuDNN chooses its algorithm and
// cuBLAS allocates its workspace at their first run, which must not be in the middle of a step.
bool is_first(c10::Device device, const std::string& signature) {
  const std::string name = signature.substr(0, signature.find(';'));
  if (!device.is_cuda() || !contains_any(name, {"convolution", "mm", "cudnn", "attention"})) return false;
  const bool chooses = at::globalContext().benchmarkCuDNN() && contains_any(name, {"convolution"});
  FirstRuns& runs = FirstRuns::instance();
  const std::lock_guard lock(runs.mutex);
  return runs.done.insert({device.str(), chooses ? signature : name}).second;
}

// Two ops that are parts of one call each make some of its results; the layouts of the others come from the other part.
void add_layouts(const ResultLayouts& found, KnownLayouts& wrong, const KnownLayouts& known, const std::string& key) {
  const auto before = known.find(key);
  ResultLayouts& layouts =
      wrong.try_emplace(key, before == known.end() ? ResultLayouts() : before->second).first->second;
  layouts.resize(std::max(layouts.size(), found.size()));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i]) layouts[i] = found[i];
  }
}

std::int64_t note_kept(c10::Device device, std::int64_t more) {
  FirstRuns& runs = FirstRuns::instance();
  const std::lock_guard lock(runs.mutex);
  return runs.kept_bytes[device.str()] += more;
}

}  // namespace

CostBook::CostBook(c10::Device device) : device_(numbered(device)), name_(file_name(device_)) {
  read();
  kept_bytes_ = std::max(kept_bytes_, note_kept(device_, 0));
}

void CostBook::read() {
  const auto text = read_cache(name_);
  if (!text) return;
  Book book;
  try {
    JsonReader in(*text, name_);
    in.object(kBookFields, book);
  } catch (const InputError& error) {
    return refuse_cache(name_, error.what());
  }
  calls_ = std::move(book.calls);
  layouts_ = std::move(book.layouts);
  kept_bytes_ = book.kept_bytes;
}

// Other processes may have written meanwhile: what they know stays.
void CostBook::write() {
  const std::map<std::string, CallCost> own_calls = calls_;
  const KnownLayouts own_layouts = layouts_;
  const std::int64_t own_kept_bytes = kept_bytes_;
  read();
  for (const std::string& call : std::exchange(new_calls_, {})) calls_.insert_or_assign(call, own_calls.at(call));
  for (const std::string& key : std::exchange(new_layouts_, {})) layouts_.insert_or_assign(key, own_layouts.at(key));
  kept_bytes_ = std::max(kept_bytes_, own_kept_bytes);
  std::string out;
  {
    JsonObject file(out);
    file.field("format", kCostsFormat);
    file.field("version", kCostsVersion);
    file.field("environment", environment_lines(device_));
    file.field("kept_bytes", kept_bytes_);
    append_list(file.line("calls"), calls_, [&](const auto& known) {
      JsonObject call(out += '\n');
      call.field("call", known.first);
      call.field("time_ns", known.second.time_ns);
      call.field("workspace_bytes", known.second.workspace_bytes);
      append_layouts(call.key("results"), known.second.results);
    });
    append_list(file.line("layouts"), layouts_, [&](const auto& known) {
      JsonObject layouts(out += '\n');
      layouts.field("key", known.first);
      append_layouts(layouts.key("results"), known.second);
    });
  }
  write_cache(name_, out + '\n');
}

const CallCost& CostBook::cost_of(const Program& program, OpId op, const std::string& signature) {
  const bool first = is_first(device_, signature);
  const auto known = calls_.find(signature);
  if (!first && known != calls_.end()) return known->second;
  const std::int64_t before = read_meter(device_).allocated_bytes;
  Measurement found = measure(program, op, kEnoughNs);
  if (first) {
    const std::int64_t kept = note_kept(device_, read_meter(device_).allocated_bytes - before);
    keeps_more_ = keeps_more_ || kept > kept_bytes_;
    kept_bytes_ = std::max(kept_bytes_, kept);
  }
  // A time known from a file stays, because with another time the plans in the cache would not be found.
  if (known != calls_.end() && known->second.workspace_bytes == found.workspace_bytes &&
      known->second.results == found.outputs) {
    return known->second;
  }
  new_calls_.insert(signature);
  return calls_.insert_or_assign(signature, CallCost{found.time_ns, found.workspace_bytes, std::move(found.outputs)})
      .first->second;
}

PricedStep CostBook::price(const CapturedStep& step) {
  const auto begin = std::chrono::steady_clock::now();
  const Program& program = *step.program;
  const GeneratorReplay random_numbers_stay(at::kCPU, generator_state(at::kCPU));
  PricedStep priced{.costs = bare_costs(program)};
  std::vector<std::string> signatures(program.ops.size());
  std::set<std::string_view> unknown;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != ProgramOp::Kind::kCall) continue;
    if (is_collective(*program.ops[i].call)) {
      priced.costs.time_ns[i] = collective_ns(program.ops[i], program.device.type());
      continue;
    }
    const auto alike = step.alike.find(op_id(i));
    const std::size_t described = alike == step.alike.end() ? i : index(alike->second);
    signatures[i] = Kernel(*program.ops[described].call).describe(program);
    if (!calls_.contains(signatures[i])) unknown.insert(signatures[i]);
  }
  const std::size_t total = unknown.size();
  std::vector<std::uint8_t> unsure(program.values.size(), 0);  // made from results whose layout is not the expected one
  Progress progress("profiling call");
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (signatures[i].empty()) continue;
    const ProgramOp& op = program.ops[i];
    const auto is_unsure = [&](ValueId value) { return unsure[index(value)] != 0; };
    bool sure = std::ranges::none_of(reads(op), is_unsure);
    if (sure) {
      if (unknown.contains(signatures[i])) progress(total - unknown.size(), total);
      const CallCost& cost = cost_of(program, op_id(i), signatures[i]);
      unknown.erase(signatures[i]);
      priced.costs.time_ns[i] = cost.time_ns;
      priced.costs.workspace_bytes[i] = cost.workspace_bytes;
      const auto key = step.layout_keys.find(op_id(i));
      sure = key == step.layout_keys.end() || lies_as(program, op_id(i), cost.results);
      if (!sure) add_layouts(cost.results, priced.wrong, layouts_, key->second);
    }
    if (!sure) {
      for (const ValueId made : makes(op)) unsure[index(made)] = 1;
    }
  }
  for (const auto& [key, layouts] : priced.wrong) {
    layouts_[key] = layouts;
    new_layouts_.insert(key);
  }
  if (std::exchange(keeps_more_, false) || !new_calls_.empty() || !new_layouts_.empty()) write();
  priced.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log_line(Severity::kInfo, "profiled " + std::to_string(program.ops.size()) + " ops, " +
                                std::to_string(total - unknown.size()) + " kinds of calls among them new");
  return priced;
}

Costs with_roofline_times(Costs costs, const Program& program) {
  costs.time_ns = roofline_ns(program, rates_of(program.device.type()));
  return costs;
}

CostedStep measure_step(CapturedStep step, const std::function<CapturedStep(const KnownLayouts&)>& capture_again) {
  CostedStep measured{.step = std::move(step)};
  KnownLayouts known;
  while (true) {
    CostBook book(measured.step.program->device);
    PricedStep priced = book.price(measured.step);
    measured.seconds += priced.seconds;
    measured.costs = std::move(priced.costs);
    if (priced.wrong.empty() || !capture_again) return measured;
    for (const auto& [key, layouts] : priced.wrong) {
      const auto [entry, is_new] = known.try_emplace(key, layouts);
      if (!is_new && entry->second == layouts) {
        throw Unsupported("cannot find the layout of the results of this call: " + key + ". Move it out of the model");
      }
      entry->second = layouts;
    }
    KnownLayouts all = book.layouts();
    for (const auto& [key, layouts] : known) all[key] = layouts;
    measured.step = capture_again(all);
  }
}

}  // namespace reprise

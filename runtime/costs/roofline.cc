#include "runtime/costs/roofline.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/program/collectives.h"
#include "runtime/program/operator_facts.h"

namespace reprise {
namespace {

using Sizes = std::vector<std::int64_t>;

double count(const Sizes& sizes) { return static_cast<double>(c10::multiply_integers(sizes)); }

double bytes(const TensorUse& use) {
  return count(use.geometry.sizes) * static_cast<double>(c10::elementSize(use.geometry.dtype));
}

// The sizes of a tensor argument; nullptr if it is not a tensor.
const Sizes* sizes_of(const Call& call, std::size_t argument) {
  if (argument >= call.arguments.size() || call.arguments[argument].tensors.empty()) return nullptr;
  const auto& use = call.arguments[argument].tensors.front();
  return use ? &use->geometry.sizes : nullptr;
}

double multiplication_flops(const Sizes* left, const Sizes* right) {
  return left == nullptr || right == nullptr || right->empty() ? 0
                                                               : 2 * count(*left) * static_cast<double>(right->back());
}

// The operations of one pass: every output (every input if it is transposed) with all weights of its group.
double convolution_flops(const Sizes* weight, const Sizes* batch_and_places) {
  if (weight == nullptr || batch_and_places == nullptr || batch_and_places->size() < 2) return 0;
  const double places = count(*batch_and_places) / static_cast<double>((*batch_and_places)[1]);
  return 2 * places * count(*weight);
}

// Queries may share keys and values, but each query is computed on its own.
double attention_flops(const Call& call, std::size_t query, double of_keys, double of_values) {
  const Sizes* q = sizes_of(call, query);
  const Sizes* k = sizes_of(call, query + 1);
  const Sizes* v = sizes_of(call, query + 2);
  if (q == nullptr || k == nullptr || v == nullptr || q->size() < 3) return 0;
  const double scores = count(*q) / static_cast<double>(q->back()) * static_cast<double>((*k)[k->size() - 2]);
  return 2 * scores * (of_keys * static_cast<double>(q->back()) + of_values * static_cast<double>(v->back()));
}

double flops(const ProgramOp& op) {
  const Call& call = *op.call;
  const std::string& name = call.op.operator_name().name;
  const auto is = [&](const char* operator_name) { return name == operator_name; };
  if (is("aten::mm") || is("aten::bmm")) return multiplication_flops(sizes_of(call, 0), sizes_of(call, 1));
  if (is("aten::addmm") || is("aten::baddbmm")) return multiplication_flops(sizes_of(call, 1), sizes_of(call, 2));
  if (is("aten::convolution")) {
    const Sizes* output = op.outputs.empty() || !op.outputs.front() ? nullptr : &op.outputs.front()->geometry.sizes;
    return convolution_flops(sizes_of(call, 1), flag(call, "transposed") ? sizes_of(call, 0) : output);
  }
  if (is("aten::convolution_backward")) {
    const double pass = convolution_flops(sizes_of(call, 2), sizes_of(call, flag(call, "transposed") ? 1 : 0));
    const auto wanted = [&](std::size_t i) { return i < op.outputs.size() && op.outputs[i] ? 1.0 : 0.0; };
    return pass * (wanted(0) + wanted(1));
  }
  // The CPU's kernel is estimated by the bytes it moves.
  if (name.starts_with("aten::_scaled_dot_product") && name.find("_for_cpu") == std::string::npos) {
    const bool backward = name.find("backward") != std::string::npos;
    return backward ? attention_flops(call, 1, 3, 2) : attention_flops(call, 0, 1, 1);
  }
  return 0;
}

// What a call reads and writes.
double moved_bytes(const ProgramOp& op) {
  double total = 0;
  for_each_use(*op.call, [&](const TensorUse& use) { total += bytes(use); });
  for (const auto& output : op.outputs) total += output ? bytes(*output) : 0;
  return total;
}

// The rates of a network between CPUs, or of links between GPUs.
const Rates& between_processes(c10::DeviceType device) {
  static constexpr Rates kNetwork{.flops_per_s = 0, .bytes_per_s = 1e9, .floor_ns = 200'000};
  static constexpr Rates kLinks{.flops_per_s = 0, .bytes_per_s = 100e9, .floor_ns = 20'000};
  return device == at::kCPU ? kNetwork : kLinks;
}

}  // namespace

Rates rates_of(c10::DeviceType device) {
  constexpr Rates kCpu{.flops_per_s = 100e9, .bytes_per_s = 20e9, .floor_ns = 2'000};
  constexpr Rates kGpu{.flops_per_s = 210e12, .bytes_per_s = 4e12, .floor_ns = 3'000};
  return device == at::kCPU ? kCpu : kGpu;
}

std::int64_t collective_ns(const ProgramOp& op, c10::DeviceType device) {
  const Rates& rates = between_processes(device);
  return rates.floor_ns + static_cast<std::int64_t>(moved_bytes(op) / rates.bytes_per_s * 1e9);
}

std::int64_t collective_ns(const ProgramOp& op, c10::DeviceType device, std::int64_t ranks, std::int64_t bytes_per_s) {
  const auto seconds = static_cast<double>(sent_bytes(op, ranks)) / static_cast<double>(bytes_per_s);
  return between_processes(device).floor_ns + static_cast<std::int64_t>(seconds * 1e9);
}

std::int64_t roofline_ns(const ProgramOp& op, const Rates& rates) {
  const double seconds = std::max(moved_bytes(op) / rates.bytes_per_s, flops(op) / rates.flops_per_s);
  return std::max(static_cast<std::int64_t>(seconds * 1e9), rates.floor_ns);
}

std::vector<std::int64_t> roofline_ns(const Program& program, const Rates& rates) {
  std::vector<std::int64_t> times;
  for (const ProgramOp& op : program.ops) {
    times.push_back(0);
    if (op.kind != ProgramOp::Kind::kCall) continue;
    times.back() = is_collective(*op.call) ? collective_ns(op, program.device.type()) : roofline_ns(op, rates);
  }
  return times;
}

}  // namespace reprise

// Compares the time of a training step from C++ with plain libtorch's: a ResNet-50, in one process, steps in turns.
//
//   step_from_cpp [--device cuda] [--batch 16] [--size 112] [--samples 25] [--steps 1] [--share 0.5]
//
// plain     forward, cross entropy and backward, as libtorch runs them
// none      the captured step without recomputation
// planned   the captured step at a budget of --share of its peak
// none_graph, planned_graph
//           on CUDA, the same as CUDA graphs; they run after the others, whose budget has no room for the graphs'
//           pools, and in turns with plain steps of their own
// Prints one JSON object with the medians and their ratios.
#include <reprise/torch.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace nn = torch::nn;

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BottleneckImpl : nn::Module {
  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : main(conv(in, width, 1, 1), nn::BatchNorm2d(width), nn::ReLU(nn::ReLUOptions(true)),
             conv(width, width, 3, stride), nn::BatchNorm2d(width), nn::ReLU(nn::ReLUOptions(true)),
             conv(width, 4 * width, 1, 1), nn::BatchNorm2d(4 * width)) {
    register_module("main", main);
    if (stride != 1 || in != 4 * width) {
      shortcut =
          register_module("shortcut", nn::Sequential(conv(in, 4 * width, 1, stride), nn::BatchNorm2d(4 * width)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = main->forward(x);
    y += shortcut ? shortcut->forward(x) : x;
    return y.relu_();
  }
  nn::Sequential main;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Bottleneck);

nn::Sequential resnet50() {
  nn::Sequential net(conv(3, 64, 7, 2), nn::BatchNorm2d(64), nn::ReLU(nn::ReLUOptions(true)),
                     nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = 64;
  const std::vector<std::int64_t> counts{3, 4, 6, 3};
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    for (std::int64_t i = 0; i < counts[stage]; ++i) {
      net->push_back(Bottleneck(in, width, i == 0 && stage > 0 ? 2 : 1));
      in = 4 * width;
    }
  }
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(in, 1000));
  return net;
}

struct Options {
  std::string device = "cpu";
  std::int64_t batch = 16;
  std::int64_t size = 112;
  int samples = 25;
  int steps = 1;  // in a sample
  double share = 0.5;
};

Options options_from(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--device")
      options.device = argv[i + 1];
    else if (name == "--batch")
      options.batch = std::atoll(argv[i + 1]);
    else if (name == "--size")
      options.size = std::atoll(argv[i + 1]);
    else if (name == "--samples")
      options.samples = std::atoi(argv[i + 1]);
    else if (name == "--steps")
      options.steps = std::atoi(argv[i + 1]);
    else if (name == "--share")
      options.share = std::atof(argv[i + 1]);
    else
      throw std::invalid_argument("unknown option " + name);
  }
  return options;
}

void finish(const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

// The milliseconds of a step: the average of a few in a row, as in training, with the device idle at both ends.
double milliseconds(const at::Device& device, int steps, const std::function<void()>& step) {
  finish(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) step();
  finish(device);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / steps;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Takes samples of several kinds in turns, after a few that do not count.
class Turns {
 public:
  Turns(const Options& options, nn::Sequential net) : options_(options), net_(std::move(net)) {}

  void take(const std::vector<std::pair<std::string, std::function<void()>>>& kinds) {
    for (int i = -3; i < options_.samples; ++i) {
      for (const auto& [name, step] : kinds) {
        const double time = milliseconds(at::Device(options_.device), options_.steps, [&] {
          net_->zero_grad();
          step();
        });
        if (i >= 0) times_[name].push_back(time);
      }
    }
  }

  // Writes the median, the least and the most, and the ratio to the median of `base`.
  void report(const std::string& name, const std::string& base, nlohmann::ordered_json& to) const {
    const std::vector<double>& times = times_.at(name);
    const auto [least, most] = std::ranges::minmax(times);
    to[name + "_ms"] = median(times);
    to[name + "_spread_ms"] = {least, most};
    if (name != base) to[name + "_ratio"] = median(times) / median(times_.at(base));
  }

 private:
  Options options_;
  nn::Sequential net_;
  std::map<std::string, std::vector<double>> times_;
};

void run(const Options& options) {
  const at::Device device(options.device);
  torch::manual_seed(0);
  at::globalContext().setBenchmarkCuDNN(true);
  nn::Sequential net = resnet50();
  net->to(device);
  const std::vector<at::Tensor> batch{torch::randn({options.batch, 3, options.size, options.size}).to(device),
                                      torch::randint(0, 1000, {options.batch}).to(device)};
  const auto loss = [&](const std::vector<at::Tensor>& inputs) {
    return nn::functional::cross_entropy(net->forward(inputs[0]), inputs[1]);
  };
  const auto run_plainly = [&] { loss(batch).backward(); };
  nlohmann::ordered_json found{{"network", "ResNet-50"}, {"device", options.device},
                               {"batch", options.batch}, {"size", options.size},
                               {"steps", options.steps}, {"samples", options.samples},
                               {"torch", TORCH_VERSION}, {"threads", at::get_num_threads()}};
  Turns turns(options, net);
  // Each kind has a captured step of its own, which keeps its own plan.
  reprise::TrainingStep none = reprise::capture(net, loss, batch);
  const reprise::StepSummary plain = none.plan({});
  reprise::TrainingStep half = reprise::capture(net, loss, batch);
  const auto budget = static_cast<std::int64_t>(options.share * static_cast<double>(plain.peak_bytes));
  const reprise::StepSummary planned = half.plan({.budget_bytes = budget});
  turns.take({{"plain", run_plainly}, {"none", [&] { none.run(batch); }}, {"planned", [&] { half.run(batch); }}});
  for (const char* kind : {"plain", "none", "planned"}) turns.report(kind, "plain", found);
  found["peak_bytes"] = plain.peak_bytes;
  found["budget_bytes"] = budget;
  found["planned_peak_bytes"] = planned.peak_bytes;
  found["planned_measured_peak_bytes"] = half.measured_peak_bytes();
  found["recompute_percent"] = 100.0 * static_cast<double>(planned.recompute_ns) / static_cast<double>(planned.time_ns);

  const auto graphed = [&](const std::string& kind, std::optional<std::int64_t> room) {
    net->zero_grad();
    reprise::TrainingStep step = reprise::capture(net, loss, batch);
    step.plan({.budget_bytes = room, .cuda_graphs = reprise::CudaGraphs::kOn});
    const std::string base = "plain_beside_" + kind;
    turns.take({{base, run_plainly}, {kind, [&] { step.run(batch); }}});
    turns.report(base, base, found);
    turns.report(kind, base, found);
    found[kind + "_peak_bytes"] = step.summary().peak_bytes;
    found[kind + "_measured_peak_bytes"] = step.measured_peak_bytes();
    if (!step.summary().as_cuda_graph) throw std::runtime_error(kind + " did not run as a CUDA graph");
  };
  if (device.is_cuda()) {
    graphed("none_graph", std::nullopt);
    graphed("planned_graph", budget);
  }
  std::puts(found.dump(1).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(options_from(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "step_from_cpp: %s\n", error.what());
    return 1;
  }
}

// Time of a training step from C++ against plain libtorch: a ResNet-50, in one process, steps in turns.
//
//   step_from_cpp [--device cuda] [--batch 16] [--size 112] [--samples 25] [--steps 1] [--share 0.5]
//
// plain     forward, cross entropy and backward, as libtorch runs them
// none      the captured step, nothing computed again
// planned   at this share of its peak
// graphs    the same as a CUDA graph, on CUDA; after the others, whose budget has no room for its pool,
//           with plain steps of its own in turns
// Prints one JSON object; the ratio of medians is the result.
#include <reprise/torch.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
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
  int steps = 1;  // of a sample
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

// Of a step: a few in a row, as in training, with the device idle at both ends.
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
  // One captured step for each kind: each keeps its own plan.
  reprise::TrainingStep none = reprise::capture(net, loss, batch);
  const reprise::StepSummary plain = none.plan({});
  reprise::TrainingStep half = reprise::capture(net, loss, batch);
  const auto budget = static_cast<std::int64_t>(options.share * static_cast<double>(plain.peak_bytes));
  const reprise::StepSummary planned = half.plan({.budget_bytes = budget});
  std::map<std::string, std::vector<double>> times;
  const auto in_turns = [&](const std::vector<std::pair<std::string, std::function<void()>>>& kinds) {
    for (int i = -3; i < options.samples; ++i) {
      for (const auto& [name, step] : kinds) {
        const double time = milliseconds(device, options.steps, [&] {
          net->zero_grad();
          step();
        });
        if (i >= 0) times[name].push_back(time);
      }
    }
  };
  const auto run_plainly = [&] { loss(batch).backward(); };
  in_turns({{"plain", run_plainly}, {"none", [&] { none.run(batch); }}, {"planned", [&] { half.run(batch); }}});
  std::string graphs;
  if (device.is_cuda()) try {
      net->zero_grad();
      reprise::TrainingStep graph = reprise::capture(net, loss, batch);
      graph.plan({.budget_bytes = budget, .cuda_graphs = reprise::CudaGraphs::kOn});
      in_turns({{"plain_again", run_plainly}, {"graphs", [&] { graph.run(batch); }}});
      const reprise::StepSummary summary = graph.summary();
      graphs = ", \"graphs_ms\": " + std::to_string(median(times["graphs"])) +
               ", \"graphs_ratio\": " + std::to_string(median(times["graphs"]) / median(times["plain_again"])) +
               ", \"graphs_peak_bytes\": " + std::to_string(summary.peak_bytes) +
               ", \"graphs_measured_peak_bytes\": " + std::to_string(graph.measured_peak_bytes()) +
               ", \"as_cuda_graph\": " + (summary.as_cuda_graph ? "true" : "false");
    } catch (const std::exception& error) {  // the other numbers stand
      std::fprintf(stderr, "step_from_cpp: as a CUDA graph: %s\n", error.what());
      graphs = ", \"graphs_failed\": true";
    }
  const double base = median(times["plain"]);
  std::printf(
      "{\"network\": \"ResNet-50\", \"device\": \"%s\", \"batch\": %lld, \"size\": %lld, \"steps\": %d, \"threads\": "
      "%d, \"torch\": "
      "\"%s\", \"plain_ms\": %.3f, \"none_ms\": %.3f, \"planned_ms\": %.3f, \"none_ratio\": %.4f, \"planned_ratio\": "
      "%.4f, \"peak_bytes\": %lld, \"planned_peak_bytes\": %lld, \"measured_peak_bytes\": %lld, "
      "\"recompute_percent\": %.2f%s}\n",
      options.device.c_str(), static_cast<long long>(options.batch), static_cast<long long>(options.size),
      options.steps, at::get_num_threads(), TORCH_VERSION, base, median(times["none"]), median(times["planned"]),
      median(times["none"]) / base, median(times["planned"]) / base, static_cast<long long>(plain.peak_bytes),
      static_cast<long long>(planned.peak_bytes), static_cast<long long>(half.measured_peak_bytes()),
      100.0 * static_cast<double>(planned.recompute_ns) / static_cast<double>(planned.time_ns), graphs.c_str());
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

#include "runtime/files/program_files.h"

#include <torch/csrc/jit/serialization/pickle.h>

#include <string_view>
#include <unordered_map>
#include <utility>

#include "reprise/error.h"
#include "reprise/io.h"
#include "runtime/files/family_io.h"
#include "runtime/files/program_io.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

c10::IValue unpickled(const fs::path& path) {
  const std::string text = read_text(path);
  try {
    return torch::jit::pickle_load(std::vector<char>(text.begin(), text.end()));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    throw InputError("'" + path.string() + "' is not a file of tensors by name: " + what.substr(0, what.find('\n')) +
                     "; write it with torch.save({name: tensor}) or save_state()");
  }
}

// Does what torch::pickle_save does, but without the types that it writes beside a dict, which
// torch.load(weights_only=True) does not accept.
std::string pickled(const c10::IValue& value) {
  std::string data;
  torch::jit::Pickler pickler([&](const char* bytes, std::size_t count) { data.append(bytes, count); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();

  std::string archive;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, std::size_t count) {
    archive.append(static_cast<const char*>(bytes), count);
    return count;
  });
  writer.writeRecord("data.pkl", data.data(), data.size());
  std::size_t number = 0;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const auto contents = torch::jit::getWriteableTensorData(tensor);
    writer.writeRecord("data/" + std::to_string(number++), contents.data(), contents.sizeInBytes());
  }
  writer.writeEndOfFile();
  return archive;
}

// The tensor in memory of its own, because a file holds whole storages.
at::Tensor alone(const at::Tensor& tensor) {
  const Geometry geometry = geometry_of(tensor);
  const bool fills =
      geometry.offset == 0 && extent_bytes(geometry) == static_cast<std::int64_t>(tensor.storage().nbytes());
  return fills ? tensor.detach() : tensor.detach().clone();
}

fs::path beside(const fs::path& program, std::string_view ending) {
  constexpr std::string_view kEnding = ".program.json";
  std::string name = program.filename().string();
  if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  return fs::path(program).replace_filename(name.append(ending));
}

ProgramFile parsed(std::string_view text, const std::string& source) {
  if (!is_family(text)) return {.step = parse_program(text, source)};
  StepFamily family = parse_family(text, source);
  const std::vector<std::int64_t> sizes = family.traced_at();
  if (!family.limits.hold_at(sizes)) throw InputError(source + ": the step does not hold where it was traced");
  StepProgram step = [&] {
    try {
      return family.at(sizes);
    } catch (const InputError& error) {
      throw InputError(source + ": " + error.what());
    }
  }();
  return {.step = std::move(step), .family = std::move(family)};
}

void check_state(const ProgramFile& file, const fs::path& path) {
  const StepProgram& step = file.step;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const auto& use = step.program->inputs[i];
    if (step.inputs[i] >= 0 || !use) continue;
    const auto position = static_cast<std::size_t>(-(step.inputs[i] + 1));
    Geometry found = geometry_of(file.state[position]);
    found.offset = use->geometry.offset;  // the offset in its storage may differ
    if (found == use->geometry) continue;
    throw InputError("'" + path.string() + "': '" + step.state_names[position] + "' is " + to_string(found) +
                     ", but the program needs " + to_string(use->geometry) +
                     "; does the file belong to another program?");
  }
}

}  // namespace

fs::path parameters_path(const fs::path& program) { return beside(program, ".parameters.pt"); }

fs::path kernels_path(const fs::path& program) { return beside(program, ".kernels"); }

std::vector<at::Tensor> load_state(const fs::path& path, std::span<const std::string> names) {
  const c10::IValue value = unpickled(path);
  if (!value.isGenericDict())
    throw InputError("'" + path.string() + "' does not hold tensors by name: it is not a dict");
  std::unordered_map<std::string, at::Tensor> tensors;
  for (const auto& entry : value.toGenericDict()) {
    if (entry.key().isString() && entry.value().isTensor()) {
      tensors.emplace(entry.key().toStringRef(), entry.value().toTensor());
    }
  }
  std::vector<at::Tensor> state;
  state.reserve(names.size());
  for (const std::string& name : names) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      throw InputError("'" + path.string() + "' has no tensor '" + name +
                       "'; does the file belong to another program?");
    }
    state.push_back(found->second);
  }
  return state;
}

void save_state(const fs::path& path, std::span<const std::string> names, std::span<const at::Tensor> tensors) {
  if (names.size() != tensors.size()) {
    throw InputError("save_state: " + std::to_string(names.size()) + " names for " + std::to_string(tensors.size()) +
                     " tensors");
  }
  c10::Dict<std::string, at::Tensor> dict;
  for (std::size_t i = 0; i < names.size(); ++i) dict.insert(names[i], alone(tensors[i]));
  write_text(path, pickled(dict));
}

ProgramFile load_program(const fs::path& program) { return load_program(program, parameters_path(program)); }

ProgramFile load_program(const fs::path& program, const fs::path& parameters) {
  ProgramFile file = parsed(read_text(program), program.string());
  file.state = load_state(parameters, file.step.state_names);
  check_state(file, parameters);
  return file;
}

}  // namespace reprise

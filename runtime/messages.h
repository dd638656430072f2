// What the runtime tells people: lines for a log, and the progress of long work. The program around it says where they
// go; by default warnings go where libtorch's go, and the rest is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace reprise {

enum class Severity : std::uint8_t { kDebug, kInfo, kWarning };

struct MessageSinks {
  std::function<void(Severity severity, const std::string& line)> log{};
  // Called while something takes long; `total` is 0 when it is over. It may throw, which ends the work.
  std::function<void(const std::string& what, std::size_t done, std::size_t total)> progress{};
};

// Takes effect at once, for the whole process.
void set_message_sinks(MessageSinks sinks);

void log_line(Severity severity, const std::string& line);

// One piece of long work; its end clears the line.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void operator()(std::size_t done, std::size_t total);

 private:
  std::string what_;
  bool shown_ = false;
};

}  // namespace reprise

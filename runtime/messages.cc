#include "runtime/messages.h"

#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <utility>

namespace reprise {
namespace {

// This is never destroyed, because what the sinks hold may be gone at the end of the process.
struct Sinks {
  std::mutex mutex;
  std::shared_ptr<const MessageSinks> now = std::make_shared<const MessageSinks>();

  static Sinks& instance() {
    static auto* sinks = new Sinks;
    return *sinks;
  }
  std::shared_ptr<const MessageSinks> get() {
    const std::lock_guard lock(mutex);
    return now;
  }
};

}  // namespace

void set_message_sinks(MessageSinks sinks) {
  auto made = std::make_shared<const MessageSinks>(std::move(sinks));
  Sinks& all = Sinks::instance();
  const std::lock_guard lock(all.mutex);
  all.now = std::move(made);
}

void log_line(Severity severity, const std::string& line) {
  const auto sinks = Sinks::instance().get();
  if (sinks->log) {
    sinks->log(severity, line);
  } else if (severity == Severity::kWarning) {
    TORCH_WARN("reprise: ", line);
  }
}

void Progress::operator()(std::size_t done, std::size_t total) {
  const auto sinks = Sinks::instance().get();
  if (!sinks->progress || total == 0) return;
  shown_ = true;
  sinks->progress(what_, done, total);
}

Progress::~Progress() {
  if (!shown_) return;
  try {
    if (const auto sinks = Sinks::instance().get(); sinks->progress) sinks->progress(what_, 0, 0);
  } catch (...) {  // NOLINT: a line that is not cleared is not a reason to end the process
  }
}

}  // namespace reprise

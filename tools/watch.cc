#include "watch.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace reprise::tools {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// A second Ctrl-C finds the default handler and ends the program.
void on_interrupt(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Watch::Watch(SolveOptions& options, double seconds) {
  std::signal(SIGINT, on_interrupt);
  options.should_stop = [this, seconds] { return interrupted != 0 || (seconds > 0 && elapsed_seconds() >= seconds); };
  if (isatty(STDERR_FILENO) == 0) return;
  options.progress = [this](std::size_t done, std::size_t total) {
    progress_shown_ = true;
    std::fprintf(stderr, "\rplanning: %zu of %zu", done, total);
  };
}

Watch::~Watch() {
  if (progress_shown_) std::fputs("\r\x1B[K", stderr);  // erases the line
  std::signal(SIGINT, SIG_DFL);
}

double Watch::elapsed_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace reprise::tools

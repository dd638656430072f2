// The libtorch face of the library: link reprise::torch, and include libtorch's own <torch/torch.h> beside this.
#pragma once

#include "reprise/error.h"                // IWYU pragma: export
#include "reprise/torch/checkpoint.h"     // IWYU pragma: export
#include "reprise/torch/training_step.h"  // IWYU pragma: export

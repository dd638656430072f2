// The part of the library for libtorch. Link reprise::torch, and include libtorch's own <torch/torch.h> as well.
#pragma once

#include "reprise/error.h"                // IWYU pragma: export
#include "reprise/torch/checkpoint.h"     // IWYU pragma: export
#include "reprise/torch/online.h"         // IWYU pragma: export
#include "reprise/torch/training_step.h"  // IWYU pragma: export

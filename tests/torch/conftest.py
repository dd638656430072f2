"""Tests of the torch layer run on two threads, so that results do not depend on the machine."""

import torch

torch.set_num_threads(2)

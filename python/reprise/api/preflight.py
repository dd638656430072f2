"""reprise.preflight: says whether training will fit, before anything runs and without the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .. import _core, planning
from ..errors import Unsupported
from ..forecast.host_memory import HostMemory
from ..forecast.lengths import check, which_fit
from ..forecast.network import Network
from ..forecast.question import PROFILES, Question
from ..native import _torch
from ..show.preflight import Preflight
from ..trace.joint_graph import EAGER, check_engine
from ..trace.sharding import SHARD, Sharding, check_placement
from .arguments import byte_count, call_arguments, device_of
from .settings import check_slices
from .shard import check_model
from .tensor_parallel import refuse_distributed


def preflight(model: nn.Module, inputs: Any, budget: str | int, *, device: str | torch.device | None = None,
              optimizer: torch.optim.Optimizer | None = None, reserve: str | int = 0, planner: str = planning.AUTO,
              planning_seconds: float = 10.0, profile: str = "known", largest: bool | None = None,
              batch_dim: int = 0, engine: str = EAGER, slices: bool | str = True, lengths: Sequence[int] | None = None,
              length_dim: int = 1, ranks: int | None = None, bandwidth: str | int | None = None,
              param_dtype: torch.dtype | None = None, reduce_dtype: torch.dtype | None = None,
              placement: str = SHARD, host_budget: str | int = 0,
              link: str | int | tuple[str | int, str | int] | None = None) -> Preflight:
    """Says whether training fits into `budget` bytes, plain and planned, and which batch sizes are the largest that do.
    Nothing runs and nothing is allocated on the device; the model stays as it is.

    inputs: as for reprise.verify; dimension `batch_dim` of the first tensor is the batch size, and every tensor that
        has this size in that dimension is resized with it.
    device: where it would be trained; by default where the model lies.
    optimizer, reserve, planner, planning_seconds: as for reprise.compile.
    profile: the costs of operators. "known" takes earlier measurements on this device, at any batch size, and a
        roofline for the rest; "roofline" estimates all; "measure" runs each kind of operator by itself, and is the
        only one that touches the device.
    largest: also look for the largest batch sizes, which takes captures at two or more of them. The default is to look
        with eager's operators and not with generated kernels, which come in another order at another size, nor with a
        host_budget, for which every batch size is planned twice as long.
    engine: as for reprise.compile. Generating the kernels of "fused" takes as long as in a training run, and needs the
        device, on which they are tuned.
    slices: as for reprise.compile. Unless the profile is "measure", slices are expected to have the bits of whole calls.
    lengths: also look for the largest batches with inputs of these lengths, and for the longest inputs of the batch size
        that was given. An empty list looks for the longest inputs alone.
    length_dim: the dimension of the inputs that is their length; every tensor that has this size there is resized.
    ranks: asks about each of so many processes that train the model together after reprise.shard, with these inputs in each of
        them. Budget, peak and batch are those of one process. There is no need for the others, or for a process group.
    bandwidth: with ranks, how many bytes a second each process sends to the others, such as "50GB".
    param_dtype, reduce_dtype, placement: with ranks, as for reprise.shard.
    host_budget: as for reprise.compile.
    link: with a host_budget, how many bytes a second can be copied to the host's memory and back, such as "50GB", or
        ("25GB", "11GB") for the two ways. Plans are made for somewhat less, as in training. The default is to measure it, which
        needs the device.
    """
    asked = question(model, inputs, budget, device=device, optimizer=optimizer, reserve=reserve, planner=planner,
                    planning_seconds=planning_seconds, profile=profile, batch_dim=batch_dim,
                    engine=engine, slices=slices,
                    network=network_of(model, engine, ranks, bandwidth, param_dtype, reduce_dtype, placement),
                    host_budget=host_budget, link=link)
    if lengths is not None:
        check(asked, lengths, length_dim)
    answer = asked.answer(engine == EAGER and asked.host is None if largest is None else largest)
    if lengths is not None:
        answer.lengths = which_fit(asked, lengths, length_dim)
    return answer


def question(model: nn.Module, inputs: Any, budget: str | int, *, device: str | torch.device | None,
             optimizer: torch.optim.Optimizer | None, reserve: str | int, planner: str, planning_seconds: float,
             profile: str, batch_dim: int = 0, engine: str = EAGER, slices: bool | str = True,
             network: Network | None = None, host_budget: str | int = 0,
             link: str | int | tuple[str | int, str | int] | None = None) -> Question:
    if profile not in PROFILES:
        raise ValueError(f"profile={profile!r}: choose {', '.join(map(repr, PROFILES))}")
    planning.check_planner(planner)
    check_engine(engine)
    check_slices(slices)
    refuse_distributed(model, "a forecast (preflight, curve)")
    where = device_of(model, inputs) if device is None else torch.device(device)
    host = host_memory_of(where, host_budget, link)
    if host is not None and network is not None:
        raise Unsupported("host_budget is not supported with distributed parameters (DTensor), which ranks= asks about: leave it "
                          "out")
    return Question(model, call_arguments(inputs), byte_count("budget", budget), byte_count("reserve", reserve), where, optimizer,
                    planner, planning_seconds, profile, batch_dim, engine, slices if network is None else False,
                    network=network, host=host)


def host_memory_of(device: torch.device | None, host_budget: str | int,
                   link: str | int | tuple[str | int, str | int] | None) -> HostMemory | None:
    """device: None if that is not known, as for a graph."""
    budget_bytes = byte_count("host_budget", host_budget)
    if budget_bytes == 0:
        if link is not None:
            raise ValueError(f"link={link!r} is the way to the host's memory: also give host_budget=, what steps may use of it")
        return None
    if device is not None and device.type == "cpu":
        raise ValueError("host_budget needs an accelerator: the model would be trained on the CPU, where the budget is one of "
                         "the host's memory already. Leave host_budget out, or give device=")
    if link is not None:
        rates = [byte_count("link", rate) for rate in (link if isinstance(link, tuple) else (link, link))]
        if len(rates) != 2 or min(rates) == 0:
            raise ValueError(f"link={link!r}: give bytes a second such as '50GB', or two of them, to the host and back")
    elif device is not None and device.type == "cuda" and torch.cuda.is_available():
        rates = list(_torch.link_of(device)[:2])
    else:
        raise ValueError("host_budget needs link=, how many bytes a second can be copied to the host's memory and back, such as "
                         f"link='50GB': there is no {device or 'device'} here to measure it")
    return HostMemory(budget_bytes, _core.Link(*_torch.planned_link(*rates)))


def network_of(model: nn.Module, engine: str, ranks: int | None, bandwidth: str | int | None,
               param_dtype: torch.dtype | None, reduce_dtype: torch.dtype | None, placement: str) -> Network | None:
    given = {"bandwidth": bandwidth, "param_dtype": param_dtype, "reduce_dtype": reduce_dtype,
             "placement": None if placement == SHARD else placement}
    if ranks is None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name}={value!r} is for many processes: also give ranks=, how many there are")
        return None
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"ranks={ranks!r}: give the number of processes, such as ranks=64")
    if bandwidth is None:
        raise ValueError(f"ranks={ranks} needs bandwidth=, the bytes a second that each process sends to the others, such as "
                         'bandwidth="50GB"')
    bytes_per_s = byte_count("bandwidth", bandwidth)
    if bytes_per_s == 0:
        raise ValueError(f"bandwidth={bandwidth!r}: it has to be more than 0 bytes a second")
    if engine != EAGER:
        raise Unsupported(f"engine={engine!r} is not supported with distributed parameters (DTensor), which ranks={ranks} asks "
                          "about: leave it out")
    check_placement(placement)
    check_model(model)
    return Network(Sharding(("ranks", ranks), None, param_dtype, reduce_dtype, placement), bytes_per_s)

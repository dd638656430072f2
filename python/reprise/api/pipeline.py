"""Schedules of torch.distributed.pipelining: the stages of this process share one budget.

A stage runs forward for several micro-batches before the backward of the first one, so that what it keeps is there several
times. All micro-batches of a stage run one plan, which leaves room for those in flight. Stages are regions, and a step of the
schedule is a step.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

from ..errors import Unsupported
from .regions import RegionsRunner, check_regions, install
from .settings import Settings


def is_schedule(thing: Any) -> bool:
    return any(base.__name__ == "_PipelineSchedule" for base in type(thing).__mro__)


def stages_of(schedule: Any) -> list[Any]:
    """Those of this process."""
    return list(schedule._stages) if hasattr(schedule, "_stages") else [schedule._stage]


def modules_of(schedule: Any) -> torch.nn.Module:
    modules = [stage.submod for stage in stages_of(schedule)]
    return modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)


def in_flight(schedule: Any) -> int:
    """The most micro-batches, of all stages of this process, whose forward has run and whose backward has not."""
    stage = stages_of(schedule)[0]
    now = most = 0
    for action in (schedule.pipeline_order or {}).get(stage.group_rank, ()):
        name = "" if action is None else action.computation_type.name
        if name in ("BACKWARD_INPUT", "BACKWARD_WEIGHT"):
            raise Unsupported("schedules that run backward in two parts, such as those without bubbles, are not supported: they "
                              "keep the graph of the first part. Use Schedule1F1B, ScheduleGPipe or ScheduleInterleaved1F1B")
        now += {"FORWARD": 1, "FULL_BACKWARD": -1}.get(name, 0)
        most = max(most, now)
    return most or schedule._n_microbatches


def compile_schedule(schedule: Any, settings: Settings) -> None:
    stages = stages_of(schedule)
    names = {id(stage.submod): f"stage {stage.stage_index}" for stage in stages}
    check_regions([stage.submod for stage in stages], names)
    # The schedule has the runner, and the runner must not keep the schedule.
    step = partial(_step, weakref.ref(schedule), type(schedule).step)
    runner = RegionsRunner(step, in_flight(schedule), stages[0].group or torch.distributed.group.WORLD, settings)
    runner.begin_with, runner.may_ask_always = partial(_clear, weakref.ref(schedule)), False
    for stage in stages:
        install(runner, stage.submod, names[id(stage.submod)])
    schedule.__dict__["plan"] = runner.plan
    schedule.__dict__["step"] = runner


def _clear(schedule: weakref.ref[Any]) -> None:
    """Stages hold the outputs of a step until the next one begins, which clears them, too, but after it has been planned."""
    alive = schedule()
    assert alive is not None  # it is being called
    for stage in stages_of(alive):
        stage.clear_runtime_states()


def _step(schedule: weakref.ref[Any], step: Any, *args: Any, **kwargs: Any) -> Any:
    alive = schedule()
    assert alive is not None  # it is being called
    return step(alive, *args, **kwargs)

"""Traced steps in the cache.

AOTAutograd's joint graph and the capture take seconds for a large model, and give the same in every process. What is saved of
them is AOTAutograd's metadata of the inputs and outputs, and the program. A later process for whose graph step_key gives the same
key wraps the program into what torch.compile calls, and makes no joint graph. If somebody asks for another program of the same
step, because the device lays out results in another way or for another form of a fused step, the step is traced then.
"""

from __future__ import annotations

import contextvars
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from .. import switches
from ..native import _torch
from ..progress import Preparation
from .autocast import autocast_now, set_autocast
from .captured import Captured
from .fused.lowered import FIRST_FORM, Form
from .joint_graph import JointGraph, Run, trace
from .layouts import Layout, Layouts
from .objects import Objects
from .runtime_metadata import NoText, from_json, inputs_without_gradients, to_json
from .shared_casts import mark_regions
from .step_key import NoKey, step_key

log = logging.getLogger("reprise")

T = TypeVar("T")

_FORMAT, _PROGRAM_FORMAT, _VERSION = "reprise.traced_step", "reprise.saved_program", 1
_BEFORE_CONTENTS, _BEFORE_PROGRAM = ',\n"contents":\n', ',\n"program":\n'


class SavedStep:
    """A joint graph whose programs are in the cache. It is traced when it is needed."""

    def __init__(self, key: str, num_inputs: int, device: torch.device, engine: str, seed_bytes: list[int],
                 joint: Callable[[], JointGraph]) -> None:
        self.key, self.device, self.engine, self.seed_bytes = key, device, engine, seed_bytes
        self.objects, self.readers = Objects(), ()  # A step with either is not saved.
        self._num_inputs = num_inputs
        self.joint = joint

    def capture(self, name: str, layouts: Layouts, form: Form = FIRST_FORM) -> Captured:
        file = "-".join([self.key, form.partition, *map(str, sorted(form.absent))])
        found = _read(file, _PROGRAM_FORMAT, partial(_captured_from, layouts=layouts))
        if found is None:
            found = self.joint().capture(name, layouts, form)
            _keep(file, _PROGRAM_FORMAT, partial(_text_of, found, self._num_inputs))
        return found


@dataclass(frozen=True)
class _Traced:
    """What is saved of a step beside its programs."""

    device: torch.device
    seed_bytes: list[int]
    metadata: Any  # AOTAutograd's
    detached: list[int]

    def text(self) -> str:
        return _json({"device": str(self.device), "seed_bytes": self.seed_bytes, "detached": self.detached,
                      "metadata": to_json(self.metadata)})

    @staticmethod
    def read(text: str) -> _Traced:
        known = json.loads(text)
        return _Traced(torch.device(known["device"]), known["seed_bytes"], from_json(known["metadata"]), known["detached"])


def find_or_trace(gm: fx.GraphModule, inputs: Sequence[Any], runs_of: Callable[[JointGraph | SavedStep], tuple[Run, Run]],
                  preparation: Preparation, engine: str, name: str) -> Callable[..., Any]:
    """What `trace` gives, from the cache if the step is there."""
    with preparation.phase("joint graph"):
        key = _key(gm, inputs, engine, name)
        if key is None:
            return trace(gm, inputs, runs_of, preparation, engine)
        known = _read(key, _FORMAT, _Traced.read)
        sides = _Side(), _Side()
        wrapper = None if known is None else _wrapper(gm, inputs, known, sides)
        if known is None or wrapper is None:
            return _traced(key, gm, inputs, runs_of, preparation, engine)
        again = _Again(gm, inputs, known.device, engine, preparation)
        runs = runs_of(SavedStep(key, len(inputs), known.device, engine, known.seed_bytes, again))
        for side, run in zip(sides, runs, strict=True):
            side.run = run
        return wrapper


def _key(gm: fx.GraphModule, inputs: Sequence[Any], engine: str, name: str) -> str | None:
    try:
        if not switches.keeps_traces():
            raise NoKey("traced steps are not saved")
        return step_key(gm, inputs, engine, name)
    except NoKey as reason:
        log.debug("%s is traced in every process: %s", name, reason)
    except Exception as error:  # tracing needs none of what has changed in PyTorch then
        log.info("%s is traced in every process, because its graph cannot be read: %s: %s", name, type(error).__name__, error)
    return None


def _traced(key: str, gm: fx.GraphModule, inputs: Sequence[Any],
            runs_of: Callable[[JointGraph | SavedStep], tuple[Run, Run]], preparation: Preparation,
            engine: str) -> Callable[..., Any]:
    graphs: list[JointGraph] = []
    count = len(inputs)  # a function that is kept must not keep the inputs
    found_out: list[tuple[Any, fx.GraphModule]] = []

    def runs(joint: JointGraph) -> tuple[Run, Run]:
        if joint.objects != Objects():
            return runs_of(joint)
        graphs.append(joint)
        return runs_of(SavedStep(key, count, joint.device, engine, joint.seed_bytes, lambda: joint))

    step = trace(gm, inputs, runs, preparation, engine, lambda *found: found_out.append(found))
    if graphs and found_out:
        metadata, backward = found_out[0]
        _keep(key, _FORMAT, lambda: _Traced(graphs[0].device, graphs[0].seed_bytes, _plain(metadata),
                                            inputs_without_gradients(backward, metadata)).text())
    return step


def _plain(metadata: Any) -> Any:
    if metadata.tokens or metadata.num_backward_tokens or metadata.num_graphsafe_rng_states or metadata.is_rng_op_functionalized:
        raise NoText("the step has effects that are not of its tensors")
    if metadata.traced_tangents:
        raise NoText("the metadata hold tensors")
    return metadata


# -- A step that was found.


class _Side:
    """Forward or backward, as AOTAutograd takes it out of a cache."""

    run: Run  # comes later
    num_symints_saved_for_bw_ = 0
    backward_state_indices: tuple[int, ...] = ()

    def load(self, _: Any) -> Callable[..., Any]:
        def call(args: list[Any]) -> Any:
            return self.run(args)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def post_compile(self, call: Callable[..., Any], _: Any) -> Callable[..., Any]:
        return call


def _wrapper(gm: fx.GraphModule, inputs: Sequence[Any], known: _Traced, sides: tuple[_Side, _Side]) -> Callable[..., Any] | None:
    """What AOTAutograd makes of forward and backward at the end of tracing, and when it finds a step in its own cache."""
    try:
        from torch._functorch._aot_autograd.aot_autograd_result import GenericAOTAutogradResult

        kind: Any = GenericAOTAutogradResult
        config = _config(gm, inputs)
        # These are texts of graphs, for logs; which ones there are depends on the version of PyTorch.
        texts = {field.name: None for field in fields(kind) if field.name.endswith("_str")}
        result = kind(
            **texts, compiled_fw=sides[0], compiled_bw=sides[1], runtime_metadata=known.metadata, dispatch_wrappers=[],
            maybe_subclass_meta=None, num_fw_outs_saved_for_bw=1, indices_of_inps_to_detach=known.detached,
            forward_time_taken_ns=0, backward_time_taken_ns=0, sanitized_aot_config=None, guards_expr=None,
            serialized_bw_module=None)
        step = result.wrap_post_compile([], config, {})
    except Exception as error:  # this release of PyTorch puts its parts together in another way
        log.info("a step that is in the cache is traced again: %s: %s", type(error).__name__, error)
        return None

    def call(*args: Any) -> Any:
        return step(list(args))

    return torch._dynamo.disable(call, reason="the step is captured already")  # type: ignore[no-any-return]


def _config(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """AOTAutograd's settings for the step. Before torch 2.13, it makes them together with what it needs to trace."""
    from torch._functorch import aot_autograd
    from torch._functorch._aot_autograd.schemas import AOTConfig

    options: dict[str, Any] = {"decompositions": None, "keep_inference_input_mutations": True, "ignore_shape_env": False}
    prepare: Any = getattr(aot_autograd, "prepare_aot_config", None)
    if prepare is not None:
        return prepare(gm, inputs, **options)[-1]
    prepare = aot_autograd.prepare_aot_module_simplified
    made = prepare(gm, inputs, None, boxed_forward_device_index=None, flatten=False, **options)
    return next(part for part in made if isinstance(part, AOTConfig))


class _Again:
    """Traces the step later, in the state in which torch.compile has called us."""

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Any], device: torch.device, engine: str,
                 preparation: Preparation) -> None:
        context = TracingContext.get()
        assert context.fake_mode is not None  # otherwise the step has no key
        self.gm, self.engine, self.preparation = gm, engine, preparation
        self.mode, self.contexts = context.fake_mode, context.tensor_to_context
        self.inputs = [tensor if isinstance(tensor, FakeTensor) else self.mode.from_tensor(tensor, static_shapes=True)
                       for tensor in inputs]
        self.autocast, self.with_gradients = autocast_now(device), torch.is_grad_enabled()
        mark_regions(gm)
        self.joint: JointGraph | None = None

    def __call__(self) -> JointGraph:
        if self.joint is None:
            self.joint = self._in_own_thread()
        return self.joint

    def _in_own_thread(self) -> JointGraph:
        """In a thread, no mode, no disabled autograd and no excluded key of the call that is going on gets in the way."""
        made: list[JointGraph] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                made.append(self._trace())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="reprise-trace")
        with _disable_current_modes():
            thread.start()
            thread.join()
        if errors:
            raise errors[0]
        return made[0]

    def _trace(self) -> JointGraph:
        made: list[JointGraph] = []

        def keep(joint: JointGraph) -> tuple[Run, Run]:
            made.append(joint)
            return _never, _never

        context = TracingContext(self.mode)
        context.tensor_to_context = self.contexts
        with tracing(context), torch.set_grad_enabled(self.with_gradients), set_autocast(self.autocast):
            trace(self.gm, self.inputs, keep, self.preparation, self.engine)
        return made[0]


def _never(_: list[Any]) -> list[Any]:
    raise AssertionError("only the joint graph is wanted")


# -- Files.


def _keep(name: str, kind: str, contents: Callable[[], str]) -> None:
    try:
        text = contents()
    except (NoText, ValueError) as error:
        log.debug("%s is not saved in the cache: %s", name, error)
        return
    head = _json({"format": kind, "version": _VERSION, "name": name, "digest": _digest(text)})
    _torch.write_cache(f"traces/{name}.json", f"{head[:-1]}{_BEFORE_CONTENTS}{text}}}\n".encode())


def _read(name: str, kind: str, read: Callable[[str], T | None]) -> T | None:
    file = f"traces/{name}.json"
    written = _torch.read_cache(file)
    if written is None:
        return None
    try:
        head, _, text = written.decode().partition(_BEFORE_CONTENTS)
        text = text.removesuffix("}\n")
        if json.loads(head + "}") != {"format": kind, "version": _VERSION, "name": name, "digest": _digest(text)}:
            raise NoText("it is not what was written under this name")
        return read(text)
    except Exception as error:  # whatever a broken file may raise
        _torch.refuse_cache(file, f"{type(error).__name__}: {error}")
        return None


def _json(known: dict[str, Any]) -> str:
    return json.dumps(known, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _text_of(captured: Captured, num_inputs: int) -> str:
    """The program as a file has it, preceded by what it was captured with."""
    owners = list(range(num_inputs)), [-1] * num_inputs
    text = _torch.format_program(captured.program, [], *owners)
    there = _program_from(text, "the step")
    if there.difference(captured.program) is not None or _torch.format_program(there, [], *owners) != text:
        raise NoText("its program would be read differently from what was written")
    calls = {key: number for number, key in enumerate(captured.asked)}
    if unasked := next((key for key in captured.keys.values() if key not in calls), None):
        raise NoText(f"its capture did not ask how results of {unasked} lie")
    head = _json({"kernels": captured.kernels, "calls": list(calls),
                  "layouts": [[calls[key], answer] for key, answer in captured.asked.items() if answer is not None],
                  "keys": [[op, calls[key]] for op, key in captured.keys.items()]})
    return f"{head[:-1]}{_BEFORE_PROGRAM}{text}}}"


def _captured_from(text: str, layouts: Layouts) -> Captured | None:
    """None if the device is known to lay out results in another way than when the program was captured, or if kernels are
    gone."""
    head, _, program = text.partition(_BEFORE_PROGRAM)
    known = json.loads(head + "}")
    calls: list[str] = known["calls"]
    asked: dict[str, list[Layout | None] | None] = dict.fromkeys(calls)
    for call, answer in known["layouts"]:
        asked[calls[call]] = [None if layout is None else tuple(layout) for layout in answer]
    folder = Path(_torch.kernel_folder())
    if any(layouts.get(key) != answer for key, answer in asked.items()) or not all(
            (folder / kernel).exists() for kernel in known["kernels"]):
        return None
    found = _program_from(program.removesuffix("}"), "a program in the cache")
    return Captured(found, {op: calls[call] for op, call in known["keys"]}, asked, known["kernels"])


def _program_from(text: str, source: str) -> _torch.Program:
    """Its constants are tensors, and no fake ones, which a mode of whoever traces would make of them."""
    with _disable_current_modes():
        program, *_ = _torch.parse_program(text, source)
    return program

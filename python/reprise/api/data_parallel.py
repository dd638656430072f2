"""Models inside DistributedDataParallel (DDP).

DDP averages gradients over all processes in buckets, and begins with a bucket as soon as all of its gradients are there. A
planned step is one node of autograd's graph, so autograd would see all gradients only when the whole step has ended. Instead
the step passes each gradient on when it is final: this sets it, or adds it to the one that is there, as autograd would do, and
tells DDP's reducer. DDP does everything else as ever: buckets, buffers, no_sync, unused parameters, communication hooks.

Every process plans for itself, and plans may differ: DDP's sums do not depend on them. But a process that ends with an error
would leave the others waiting for its gradients, so all of them ask one another before a call returns, and again before they tell
the reducer of the first gradient of a backward.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ..errors import Unsupported
from .ranks import Ranks

NOBODY = -1


class Reporter:
    """Tells a reducer which gradients are there, instead of the hooks that DDP has registered.

    Autograd still passes by every parameter whose gradient the step itself has passed on, with nothing in its hands.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.reducer: Any = ddp.reducer
        self.parameters: list[Tensor] = ddp._build_params_for_reducer()[0]
        self.told: set[int] = set()  # in this backward, before autograd passes by
        self.reducer._remove_autograd_hooks()
        self.nodes = [_accumulator(parameter) for parameter in self.parameters]  # Autograd keeps no reference of its own.
        for i, node in enumerate(self.nodes):
            node.register_hook(partial(_autograd_passes, weakref.ref(self), i))  # Nobody would find a cycle through autograd.

    def autograd_passes(self, index: int) -> None:
        if index in self.told:
            self.told.discard(index)
        else:
            self.reducer._autograd_hook(index)

    def tell(self, index: int) -> None:
        self.told.add(index)
        self.reducer._autograd_hook(index)

    @classmethod
    def of(cls, ddp: DistributedDataParallel) -> Reporter:
        """Stays, because DDP's own hooks cannot come back: the model trains with it as well without a plan."""
        made = _REPORTERS.get(ddp)
        if made is None or made.reducer is not ddp.reducer:
            made = _REPORTERS[ddp] = cls(ddp)
        return made


_REPORTERS: weakref.WeakKeyDictionary[DistributedDataParallel, Reporter] = weakref.WeakKeyDictionary()


def _autograd_passes(reporter: weakref.ref[Reporter], index: int, *_: Any) -> None:
    alive = reporter()
    if alive is not None:
        alive.autograd_passes(index)


class DataParallel:
    """One model's DDP wrapper."""

    def __init__(self, ddp: DistributedDataParallel, is_older: bool) -> None:
        """is_older: than the model's budget, so that nobody has counted the memory of its buckets."""
        _refuse_options(ddp)
        self._ddp = weakref.ref(ddp)
        self._index = {id(parameter): i for i, parameter in enumerate(self._reporter.parameters)}
        self._waiting: tuple[int, Tensor] | None = None
        self._reporting: Reporter | None = None  # of the backward that is running
        self._is_awaited = False  # in this backward, the others wait for a word of this process
        self._is_counted = not is_older
        self._had_rebuilt = ddp._has_rebuilt_buckets
        self.ranks = Ranks(ddp.process_group)

    @property
    def _reporter(self) -> Reporter:
        """It has the parameters, and compiled code that has this may outlive the model."""
        ddp = self._ddp()
        assert ddp is not None  # who else would call the model
        return Reporter.of(ddp)

    def wraps(self, ddp: DistributedDataParallel) -> bool:
        return self._ddp() is ddp and ddp.reducer is self._reporter.reducer

    @property
    def uncounted_bytes(self) -> int:
        """The bytes of buckets that were allocated before anybody counted. They are allocated anew after the first step."""
        ddp = self._ddp()
        if self._is_counted or ddp is None:
            return 0
        if ddp._has_rebuilt_buckets and not self._had_rebuilt:
            self._is_counted = True
            return 0
        return sum(p.numel() * p.element_size() for p in self._reporter.parameters if p.device.type == "cpu")

    # -- Gradients.

    def takers(self, inputs: Sequence[Any]) -> list[int]:
        """For each input of a step, which of the reducer's parameters it is; NOBODY: its gradient goes through autograd."""
        return [self._taker(tensor) for tensor in inputs]

    def _taker(self, tensor: Any) -> int:
        index = self._index.get(id(tensor), NOBODY)
        return NOBODY if index != NOBODY and (tensor._backward_hooks or tensor._post_accumulate_grad_hooks) else index

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Around a backward: an error before its first gradient is final is raised in all processes, such as that the caller has
        taken memory which the plan needs. Without communication, as in no_sync, they may differ in how often they call it."""
        ddp = self._ddp()
        self._is_awaited = ddp is not None and ddp.require_backward_grad_sync
        self._waiting = None
        self._reporting = self._reporter
        self._reporting.told.clear()
        try:
            yield
            self._ask()
            self.end_backward()
        except Exception as error:
            if self._is_awaited:
                self._is_awaited = False
                self.ranks.agree(error)
            raise
        finally:
            self._reporting = None

    def _ask(self) -> None:
        if self._is_awaited:
            self._is_awaited = False
            self.ranks.agree(None)

    def take(self, index: int, gradient: Tensor) -> None:
        """A gradient is final. The one before it is passed on: the reducer has to hear of the last one on autograd's thread."""
        self._ask()
        waiting, self._waiting = self._waiting, (index, gradient)
        if waiting is not None:
            self._pass_on(*waiting)

    def end_backward(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._pass_on(*waiting)

    def _pass_on(self, index: int, gradient: Tensor) -> None:
        reporter = self._reporting
        assert reporter is not None
        parameter = reporter.parameters[index]
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            with torch.no_grad():
                parameter.grad += gradient
        del gradient
        reporter.tell(index)


def one_graph() -> contextlib.AbstractContextManager[None]:
    """Inside DDP, torch.compile would cut the model where buckets end."""
    patched: contextlib.AbstractContextManager[None] = torch._dynamo.config.patch(optimize_ddp=False)
    return patched


def _accumulator(parameter: Tensor) -> Any:
    """The node at which autograd adds to the parameter's gradient."""
    with torch.enable_grad():
        node = parameter.expand_as(parameter).grad_fn
    assert node is not None  # the parameter requires a gradient
    return node.next_functions[0][0]


def _refuse_options(ddp: DistributedDataParallel) -> None:
    if ddp.mixed_precision is not None:
        raise Unsupported("mixed_precision= of DistributedDataParallel casts parameters behind the model's back: use "
                          "torch.autocast instead")
    if ddp._delay_all_reduce_params:
        raise Unsupported("delay_all_reduce_named_params= of DistributedDataParallel is not supported: leave it out")

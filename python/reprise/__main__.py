"""python -m reprise preflight package:factory --batch 96 --budget 16GiB

The factory is called with the batch size and returns a model, its inputs and optionally an
optimizer. (The command `reprise` plans graphs that are in files.)
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from .api.preflight import preflight
from .errors import RepriseError
from .forecast.question import PROFILES
from .trace.joint_graph import EAGER, ENGINES


def _factory(text: str) -> Callable[[int], Any]:
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form package.module:function")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise argparse.ArgumentTypeError(f"cannot import '{module}': {error}") from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise argparse.ArgumentTypeError(f"'{module}' has no '{name}'") from None
    return cast(Callable[[int], Any], found)


def _lengths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers like 512,1024") from None


def _dtype(text: str) -> torch.dtype:
    found = getattr(torch, text, None)
    if not isinstance(found, torch.dtype):
        raise argparse.ArgumentTypeError(f"'{text}' is not a type of numbers like bfloat16")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reprise", description="Training inside a byte budget.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("preflight", help="will it fit? Without the device",
                                  description="Exit codes: 0 it fits, 1 it does not, 2 wrong usage, 3 an error.")
    command.add_argument("factory", type=_factory, metavar="package:factory",
                         help="called with the batch size; returns model, inputs and perhaps an optimizer")
    command.add_argument("--batch", type=int, required=True, metavar="N")
    command.add_argument("--budget", required=True, metavar="BYTES", help="16GiB, 500MB or a number")
    command.add_argument("--device", help="where it would be trained; default: where the model lies")
    command.add_argument("--reserve", default="0", metavar="BYTES", help="to leave free for other things")
    command.add_argument("--profile", choices=PROFILES, default="known", help="costs of operators")
    command.add_argument("--engine", choices=ENGINES, default=EAGER, help="eager's operators or fused kernels")
    command.add_argument("--no-largest", action="store_true", help="do not look for the largest batch sizes")
    command.add_argument("--lengths", type=_lengths, metavar="N,N,...",
                         help="also the largest batches with inputs of these lengths, and the longest inputs")
    command.add_argument("--length-dim", type=int, default=1, metavar="DIM", help="the dimension that is the length (1)")
    command.add_argument("--ranks", type=int, metavar="N", help="for one of N processes that share the parameters")
    command.add_argument("--bandwidth", metavar="BYTES", help="that each of them sends in a second, such as 50GB")
    command.add_argument("--param-dtype", type=_dtype, metavar="TYPE", help="of whole parameters, such as bfloat16")
    command.add_argument("--reduce-dtype", type=_dtype, metavar="TYPE", help="in which gradients are averaged")
    command.add_argument("--host-budget", default="0", metavar="BYTES", help="of the host's memory, for values of the step")
    command.add_argument("--link", metavar="BYTES", help="that can be copied there and back in a second, such as 50GB")
    command.add_argument("--json", action="store_true", help="for programs")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        model, inputs, *more = options.factory(options.batch)
        found = preflight(model, inputs, options.budget, device=options.device, reserve=options.reserve,
                          profile=options.profile, largest=False if options.no_largest else None,
                          optimizer=more[0] if more else None, engine=options.engine, lengths=options.lengths,
                          length_dim=options.length_dim, ranks=options.ranks, bandwidth=options.bandwidth,
                          param_dtype=options.param_dtype, reduce_dtype=options.reduce_dtype,
                          host_budget=options.host_budget, link=options.link)
    except (RepriseError, ValueError) as error:
        print(f"reprise: {error}", file=sys.stderr)
        return 3
    print(json.dumps(dataclasses.asdict(found)) if options.json else found)
    return 0 if found.fits else 1


if __name__ == "__main__":
    sys.exit(main())

"""The extension for torch, which is loaded only with the torch it was built for."""

import logging

import torch

from .progress import Progress


def _check_versions() -> None:
    try:
        from ._built_for import __version__ as built_for
    except ImportError as error:
        raise ImportError(
            "reprise was built without its torch extension; build it again where torch is installed: "
            "pip install --no-build-isolation .") from error
    # C++ has no stable interface across releases of torch.
    if torch.__version__.split("+")[0].split(".")[:2] != built_for.split("+")[0].split(".")[:2]:
        raise ImportError(
            f"reprise was built for torch {built_for}, but torch {torch.__version__} is installed. Build it again "
            "for this torch: pip install --force-reinstall --no-deps --no-build-isolation .")


_check_versions()

from . import _torch  # noqa: E402  after the check

_log = logging.getLogger("reprise")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING)
_progress: dict[str, Progress] = {}


def _show_progress(what: str, done: int, total: int) -> None:
    if total == 0:
        _progress.pop(what).__exit__()
    else:
        _progress.setdefault(what, Progress(what))(done, total)


_torch.set_messages(lambda severity, line: _log.log(_LEVELS[severity], "%s", line), _show_progress)

__all__ = ["_torch"]

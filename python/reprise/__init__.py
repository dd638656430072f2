"""Plans recomputation for training inside a byte budget."""

from ._core import __version__

__all__ = ["__version__"]

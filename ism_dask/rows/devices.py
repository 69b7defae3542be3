"""Devices of array libraries, such as a GPU, on which blocks of rows are computed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from sklearn._config import get_config
from sklearn.externals.array_api_compat import is_array_api_obj
from sklearn.utils._array_api import supported_float_dtypes

from ism_dask._types import Array
from ism_dask.linalg.arrays import namespace, on_host
from ism_dask.rows.execution import is_dask, task_budget

# The library that opens a device by its name.
_OPENER = "torch"
# The names that stand for the device of the rows, and for this machine's processor.
AUTO, CPU = "auto", "cpu"


def is_foreign(array: Any) -> bool:
    """Return whether something is an array in memory, but not one of NumPy."""
    if isinstance(array, np.ndarray | np.generic) or is_dask(array):
        return False
    return bool(is_array_api_obj(array))


@dataclass(frozen=True, eq=False)
class Device:
    """A device of an array library.

    Attributes
    ----------
    xp : module
        The functions of the library.
    device : object
        The device as the library calls it.
    """

    xp: Any
    device: Any

    @classmethod
    def of(cls, array: Any) -> Device | None:
        """Return the device of an array if scikit-learn is to dispatch on it.

        It is None for arrays of NumPy and Dask, and for what is no array.
        """
        if not get_config()["array_api_dispatch"] or not is_foreign(array):
            return None
        return cls(namespace(array), array.device)._checked(str(array.device))

    @classmethod
    def named(cls, name: str) -> Device:
        """Return the device of a name such as "cuda:0"; raise a ValueError if it is not there."""
        try:
            library = import_module(_OPENER)
        except ImportError as error:
            raise ValueError(
                f"`device`={name!r} needs PyTorch, which is not installed here; install "
                "ism-dask[gpu], or take device='cpu'"
            ) from error
        try:
            one = library.zeros(1, device=name)
        except Exception as error:  # each backend raises errors of its own
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"`device`={name!r} is not there ({reason}); take device='auto' or 'cpu'"
            ) from error
        return cls(namespace(one), one.device)._checked(name)

    def _checked(self, name: str) -> Device:
        """Return the device; raise a ValueError if it has no double precision."""
        if self.xp.float64 not in supported_float_dtypes(self.xp, self.device):
            raise ValueError(
                f"the device {name} has no float64, in which sums over rows are computed; take "
                "device='cpu' and arrays of NumPy"
            )
        return self

    def put(self, array: Array) -> Any:
        """Return an array of NumPy as one on the device."""
        return self.xp.asarray(array, device=self.device)

    @property
    def free_bytes(self) -> int:
        """The free memory of the device."""
        library = sys.modules[self.xp.__name__.rpartition(".")[2]]
        ask = getattr(getattr(library, "cuda", None), "mem_get_info", None)
        if ask is None or not str(self.device).startswith("cuda"):
            return task_budget()
        return int(ask(self.device)[0])


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of an array library says that a device has too little memory."""
    return isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__


def on_this_host(array: Any) -> Any:
    """Return an array on which scikit-learn is to dispatch as one of NumPy; others unchanged."""
    return array if Device.of(array) is None else on_host(array)

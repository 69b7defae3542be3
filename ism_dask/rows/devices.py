"""Devices of array libraries, such as a GPU, on which blocks of rows are computed."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from sklearn import get_config

from ism_dask._types import Array
from ism_dask.linalg.arrays import is_array, namespace, on_device, on_host
from ism_dask.rows.execution import is_dask, task_budget

# The library that opens a device by its name.
_OPENER = "torch"
# What float32 adds to 1 and TF32 does not, and the rows of a matrix that distinguishes them.
_SINGLE, _CHECKED = 2.0**-12, 256
# The names that stand for the device of the rows, and for this machine's processor.
AUTO, CPU = "auto", "cpu"


def is_foreign(array: Any) -> bool:
    """Return whether something is an array in memory, but not one of NumPy."""
    if isinstance(array, np.ndarray | np.generic) or is_dask(array):
        return False
    return is_array(array)


@dataclass(frozen=True)
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
    def of_array(cls, array: Any) -> Device | None:
        """Return the device of an array if scikit-learn is to dispatch on it.

        It is None for arrays of NumPy and Dask, and for what is no array.
        """
        if not get_config()["array_api_dispatch"] or not is_foreign(array):
            return None
        return cls(namespace(array), array.device)._checked()

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
        device = cls(namespace(one), one.device)._checked()
        device.check_single()
        return device

    def _checked(self) -> Device:
        """Return the device; raise a ValueError if it has no double precision."""
        if "float64" not in self.type_names:
            raise ValueError(
                f"{self.title} has no float64, in which sums over rows are computed; take arrays "
                "of NumPy and device='cpu'"
            )
        return self

    def check_single(self) -> None:
        """Raise a ValueError if products in single precision have fewer digits, as in TF32."""
        number = 1.0 + _SINGLE
        shape, single = (_CHECKED, _CHECKED), self.xp.float32
        matrix = self.xp.full(shape, number, dtype=single, device=self.device)
        if abs(float((matrix @ matrix)[0, 0]) / _CHECKED - number**2) > _SINGLE:
            raise ValueError(
                f"products in float32 have three digits with {self.title} here, as by TF32; set "
                "torch.backends.cuda.matmul.allow_tf32 = False"
            )

    @property
    def type_names(self) -> Collection[str]:
        """The names of the types of numbers that the device has."""
        names: Collection[str] = self.xp.__array_namespace_info__().dtypes(device=self.device)
        return names

    @property
    def library(self) -> str:
        """The name of the library."""
        return str(self.xp.__name__.rpartition(".")[2])

    @property
    def title(self) -> str:
        """The library and the device in words."""
        return f"{self.library} on {self.device}"

    def put(self, array: Array) -> Any:
        """Return an array of NumPy as one on the device."""
        return on_device(array, self.xp, self.device)

    @property
    def free_bytes(self) -> int:
        """The free memory of the device."""
        library = sys.modules[self.library]
        ask = getattr(getattr(library, "cuda", None), "mem_get_info", None)
        if ask is None or not str(self.device).startswith("cuda"):
            return task_budget()
        of_library = library.cuda.memory_reserved(self.device)
        in_use = library.cuda.memory_allocated(self.device)
        return int(ask(self.device)[0]) + int(of_library - in_use)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of an array library says that a device has too little memory."""
    says_so = "OutOfMemory" in type(error).__name__ or "ALLOC_FAILED" in str(error)
    return says_so or isinstance(error, MemoryError)


def on_this_host(array: Any) -> Any:
    """Return an array on which scikit-learn is to dispatch as one of NumPy; others unchanged."""
    return array if Device.of_array(array) is None else on_host(array)

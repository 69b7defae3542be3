"""Arrays of other libraries, such as PyTorch: taken at the door, and given back there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import get_config

from ism_dask._types import Array
from ism_dask.rows.execution import is_dask


def is_foreign(array: Any) -> bool:
    """Return whether something is an array in memory, but not one of NumPy."""
    if isinstance(array, np.ndarray | np.generic) or is_dask(array):
        return False
    return hasattr(array, "__array_namespace__") or _is_of_pytorch(array)


@dataclass(frozen=True)
class Device:
    """A device of an array library: the functions of the library, and its name of the device."""

    xp: Any
    device: Any

    @classmethod
    def of_array(cls, array: Any) -> Device | None:
        """Return the device of an array if scikit-learn is to dispatch on it.

        It is None for arrays of NumPy and Dask, and for what is no array.
        """
        if not get_config()["array_api_dispatch"] or not is_foreign(array):
            return None
        is_of_pytorch = _is_of_pytorch(array)
        xp = sys.modules["torch"] if is_of_pytorch else array.__array_namespace__()
        device = cls(xp, array.device)
        try:
            xp.asarray(np.zeros(1), device=device.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{device.title} has no float64, in which a fit is computed; give arrays of NumPy"
            ) from error
        return device

    @property
    def title(self) -> str:
        """The library and the device in words."""
        return f"{self.xp.__name__.rpartition('.')[2]} on {self.device}"

    def put(self, array: Array) -> Any:
        """Return an array of NumPy as one on the device."""
        # PyTorch takes no negative strides, of single numbers either; it warns of read-only memory.
        takes = array.flags.writeable and min(array.strides, default=0) >= 0
        whole = np.asarray(array, order="C", copy=None if takes else True)
        return self.xp.asarray(whole, device=self.device)


def on_host(array: Any) -> Array:
    """Return an array of any library and device as one of NumPy."""
    if isinstance(array, np.ndarray | np.generic):
        return np.asarray(array)
    for copy_to_host in ("cpu", "get"):  # of PyTorch and of CuPy
        if hasattr(array, copy_to_host):
            return np.asarray(getattr(array, copy_to_host)())
    return np.array(np.from_dlpack(array, device="cpu"))


def on_this_host(array: Any) -> Any:
    """Return an array on which scikit-learn is to dispatch as one of NumPy; others unchanged."""
    return array if Device.of_array(array) is None else on_host(array)


def _is_of_pytorch(array: Any) -> bool:
    """Return whether something is a tensor of PyTorch, which has no `__array_namespace__`."""
    return type(array).__module__ == "torch" and hasattr(array, "__dlpack__")

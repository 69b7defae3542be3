"""Arrays of any library that follows the array API standard, NumPy first.

Functions of `namespace(array)` serve all libraries. Only NumPy is given memory to write to: fresh
memory costs it as much as the arithmetic, and others reuse theirs. Its methods are called directly
where the detour by functions would be felt in blocks of a hundred rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ism_dask._types import Array


def namespace(array: Any) -> Any:
    """Return the functions of the standard for the library of an array."""
    return np if isinstance(array, np.ndarray) else _compat().array_namespace(array)


def is_array(value: Any) -> bool:
    """Return whether a value is an array of a library that `namespace` serves."""
    return bool(_compat().is_array_api_obj(value))


def _compat() -> Any:
    """Return array-api-compat, of which scikit-learn has a copy, under no public name."""
    from sklearn.utils._array_api import array_api_compat  # noqa: PLC0415 - it is slow

    return array_api_compat


def output_argument(memory: Any) -> dict[str, Array]:
    """Return the arguments by which a function writes its result to memory, if that is NumPy's."""
    return {"out": memory} if isinstance(memory, np.ndarray) else {}


def in_type(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array in a floating type, itself if it has that type."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype, copy=False)
    xp = namespace(array)
    return xp.astype(array, getattr(xp, dtype.name), copy=False)


def copied_in_type(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return a copy of an array in a floating type, one of NumPy in C order."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype, order="C")
    xp = namespace(array)
    return xp.astype(array, getattr(xp, dtype.name), copy=True)


def on_host(array: Any) -> Array:
    """Return an array of any library and device as one of NumPy."""
    if isinstance(array, np.ndarray | np.generic):
        return np.asarray(array)
    for copy_to_host in ("cpu", "get"):  # of PyTorch and of CuPy
        if hasattr(array, copy_to_host):
            return np.asarray(getattr(array, copy_to_host)())
    return np.array(np.from_dlpack(array, device="cpu"))


def on_device(array: Array, xp: Any, device: Any) -> Any:
    """Return an array of NumPy as one of another library on a device."""
    # PyTorch takes no negative strides, of single numbers either, and warns of read-only memory.
    takes = array.flags.writeable and min(array.strides, default=0) >= 0
    whole = np.asarray(array, order="C", copy=None if takes else True)
    return xp.asarray(whole, device=device)


def in_library_of(array: Any, other: Any) -> Any:
    """Return an array of NumPy in the library and on the device of another array."""
    if isinstance(other, np.ndarray):
        return array
    return on_device(array, namespace(other), other.device)


def in_type_of(array: Any, other: Any) -> Any:
    """Return an array in the type of another one of its library."""
    if isinstance(array, np.ndarray):
        return array.astype(other.dtype, copy=False)
    return namespace(array).astype(array, other.dtype, copy=False)


def sum_along(array: Any, axis: int) -> Any:
    """Return the sums of an array along an axis."""
    if isinstance(array, np.ndarray):
        return array.sum(axis=axis)
    return namespace(array).sum(array, axis=axis)


def with_diagonal(matrices: Any, values: Any) -> Any:
    """Return matrices (..., n, n), overwritten, with values, a number or (..., n), added."""
    n = matrices.shape[-1]
    if isinstance(matrices, np.ndarray):
        matrices.flat[:: n + 1] += values
        return matrices
    xp = namespace(matrices)
    entries = xp.reshape(matrices, (*matrices.shape[:-2], -1))
    entries[..., :: n + 1] += values
    return xp.reshape(entries, matrices.shape)


def transposed(matrices: Any) -> Any:
    """Return the transposes of matrices (..., a, b)."""
    if isinstance(matrices, np.ndarray):
        return matrices.swapaxes(-1, -2)
    return namespace(matrices).matrix_transpose(matrices)


def squared_lengths(rows: Any) -> Any:
    """Return the squared lengths (..., n) of rows (..., n, k)."""
    if isinstance(rows, np.ndarray):
        return np.einsum("...ij,...ij->...i", rows, rows)
    return namespace(rows).vecdot(rows, rows)

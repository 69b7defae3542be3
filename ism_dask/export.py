"""Take a fitted estimator elsewhere: as a model of ONNX, or in a file of skops, without pickle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ism_dask.clustering.spectral_embedding import FactorExtension, KernelExtension
from ism_dask.engines import EngineOptions
from ism_dask.engines.lowrank.landmarks import Nystrom
from ism_dask.engines.lowrank.row_sums import FactoredSlope
from ism_dask.estimators.base import IKDR, column_names
from ism_dask.estimators.clusterers import AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.estimators.fitted import Contributions
from ism_dask.estimators.predictive import PredictiveIKDR
from ism_dask.estimators.supervised import SupervisedIKDR
from ism_dask.gamma.base import Gamma
from ism_dask.gamma.row_values import on_host
from ism_dask.kernels import KERNELS, ConicSum, Laplacian
from ism_dask.kernels.base import ValueAsSlope
from ism_dask.records.fit_report import Avoidance, Certificate, DimensionTrial, FitReport, Trial
from ism_dask.records.iteration import Record, Round
from ism_dask.selection.sample import Setting
from ism_dask.solvers import ISM, Ascent
from ism_dask.status import Status

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_CLUSTERERS = (AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR)
_SUPERVISED = (PredictiveIKDR, SupervisedIKDR)
_PARAMETERS = (*KERNELS.values(), Ascent, ConicSum, EngineOptions, ISM, Laplacian)
_REPORTS = (Avoidance, Certificate, Contributions, DimensionTrial, FitReport, Record, Round)
_STATE = (KernelExtension, Setting, Status, Trial)
# What places rows in an embedding by landmarks.
_LANDMARKS = (FactorExtension, FactoredSlope, Gamma, Nystrom, ValueAsSlope)
# The names of the classes that a fitted estimator consists of, for `skops.io.load(file, trusted=)`.
# They hold numbers, texts and each other, and run nothing that a file could choose. All names that
# begin with ism_dask would be unsafe: our modules import functions, which a file could then call.
TRUSTED_TYPES = tuple(
    f"{each.__module__}.{each.__qualname__}"
    for each in (*_SUPERVISED, *_CLUSTERERS, *_PARAMETERS, *_REPORTS, *_STATE, *_LANDMARKS)
)
# Versions of the operators that all runtimes since 2021 have.
_OPSET = 14
_SINGLE = np.finfo(np.float32)
# Beyond so many deviations from 0, float32 rounds a column by a hundredth of its deviation.
_FARTHEST = 100_000


def to_onnx(estimator: IKDR) -> ModelProto:
    """Return `transform` of a fitted estimator as a model of ONNX, of Sub, Div and MatMul.

    It takes rows `X` (n, d) in float32 and returns the new features `Z` (n, q) in float32. With
    `missing="mean"`, IsNaN and Where fill gaps first; else X is to have none. The names of the
    columns and of the new features are among the properties of the model, as JSON. It needs the
    package onnx: `pip install 'ism-dask[export]'`.
    """
    if not isinstance(estimator, IKDR):
        raise TypeError(
            "`estimator` must have new features that are weighted sums of columns, such as "
            f"PredictiveIKDR; got {type(estimator).__name__}. Of a pipeline, give this step"
        )
    check_is_fitted(estimator)
    try:
        from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 - an extra
    except ImportError as error:
        needed = "`to_onnx` needs the package onnx: pip install 'ism-dask[export]'"
        raise ImportError(needed) from error
    mean, scale, W = map(on_host, (estimator.mean_, estimator.scale_, estimator.components_))
    names = column_names(estimator)
    beyond = (np.abs(mean) > _SINGLE.max) | (scale > _SINGLE.max) | (scale < _SINGLE.tiny)
    if estimator.as_fitted().standardize:
        beyond |= W.any(axis=0) & (np.abs(mean) > _FARTHEST * scale)
    if beyond.any():
        j = int(beyond.argmax())
        raise ValueError(
            f"column {names[j]!r} has the mean {mean[j]:.3g} and the deviation {scale[j]:.3g}; "
            f"expected {_SINGLE.tiny:.2g} to {_SINGLE.max:.2g}, which float32 holds, and a mean "
            f"within {_FARTHEST:,} deviations from 0, beyond which it loses digits. Take another "
            "unit or origin, and fit again"
        )
    q, d = W.shape
    fill: list[NodeProto] = []
    constants, rows = {"mean": mean, "scale": scale, "W": W.T}, "X"
    if estimator.gap_means_ is not None:
        constants["gap_means"], rows = on_host(estimator.gap_means_), "filled"
        fill = [
            helper.make_node("IsNaN", ["X"], ["gaps"]),
            helper.make_node("Where", ["gaps", "gap_means", "X"], [rows]),
        ]
    single = {name: values.astype(np.float32) for name, values in constants.items()}
    graph = helper.make_graph(
        [
            *fill,
            helper.make_node("Sub", [rows, "mean"], ["deviations"]),
            helper.make_node("Div", ["deviations", "scale"], ["standardised"]),
            helper.make_node("MatMul", ["standardised", "W"], ["Z"]),
        ],
        type(estimator).__name__,
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, d])],
        [helper.make_tensor_value_info("Z", TensorProto.FLOAT, [None, q])],
        [numpy_helper.from_array(values, name) for name, values in single.items()],
    )
    opset = [helper.make_opsetid("", _OPSET)]
    version = helper.find_min_ir_version_for(opset)  # which the runtimes of the operators read
    model = helper.make_model(graph, opset_imports=opset, ir_version=version)
    new = estimator.get_feature_names_out().tolist()
    helper.set_model_props(model, {"columns": json.dumps(names), "new_features": json.dumps(new)})
    return model

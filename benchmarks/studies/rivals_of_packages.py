"""Other methods of dimension reduction, as packages fit them; all but the network are optional.

Each takes standardised rows X (n, d), numeric labels or classes (whole numbers) y (n,), and q. It
returns a W (d, q) that spans its subspace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils import validation

from benchmarks.studies.rivals_by_gradients import is_classes, leading
from ism_dask.selection.starts import starts_by_name

Array = NDArray[Any]

# Methods with random starts begin this often; the W of the least loss counts.
_STARTS = 5
# The network: its units after the first layer, rows of a batch at most, the fewest steps and passes
# over the rows, and the rate of its steps.
_UNITS, _BATCH, _STEPS, _EPOCHS, _RATE = (64, 64), 500, 3_000, 25, 2e-3
# MLKR takes n^2 memory and time: with more rows, it is fitted to so many of them.
_MLKR_ROWS = 1_000
# xRFM and LassoNet choose by the error on this share of the rows.
_HELD_OUT = 0.2


def network(X: Array, y: Array, q: int) -> Array:
    """Return the first layer, of q units, of a network of scikit-learn that predicts y."""
    batch = min(_BATCH, len(X) // 10)
    kind = MLPClassifier if is_classes(y) else MLPRegressor
    networks = [
        kind(
            hidden_layer_sizes=(q, *_UNITS),
            activation="tanh",
            batch_size=batch,
            learning_rate_init=_RATE,
            max_iter=max(_EPOCHS, _STEPS * batch // len(X)),
            random_state=seed,
        ).fit(X, y if is_classes(y) else _standardised(y))
        for seed in range(_STARTS)
    ]
    return np.asarray(min(networks, key=lambda each: each.loss_).coefs_[0])


def metric_for_kernel_regression(X: Array, y: Array, q: int) -> Array:
    """Return W by MLKR (Weinberger and Tesauro 2007), the best climb from the library's starts.

    It takes classes as numbers.
    """
    util: Any = import_module("metric_learn._util")
    for name in ("check_array", "check_X_y"):  # scikit-learn has renamed a keyword of these
        setattr(util, name, partial(_with_new_keyword, getattr(validation, name)))
    chosen = np.linspace(0, len(X) - 1, min(len(X), _MLKR_ROWS)).astype(int)
    X, y = X[chosen], y[chosen]
    target = _standardised(y)
    Y = np.eye(y.max() + 1)[y] if is_classes(y) else target[:, None]
    fits = [
        import_module("metric_learn").MLKR(q, init=start.T).fit(X, target)
        for start in starts_by_name(X, Y - Y.mean(axis=0), target, q).values()
    ]
    best = min(fits, key=lambda fit: fit._loss(fit.components_.ravel(), X, target)[0])
    return np.asarray(best.components_.T)


def projection_pursuit(X: Array, y: Array, q: int) -> Array:
    """Return the directions of a projection pursuit of q terms (Friedman and Stuetzle 1981)."""
    pursuit = import_module("skpp").ProjectionPursuitRegressor
    Y = np.eye(y.max() + 1)[y] if is_classes(y) else _standardised(y)
    fits = [pursuit(r=q, random_state=seed).fit(X, Y) for seed in range(_STARTS)]
    return np.asarray(max(fits, key=lambda fit: fit.score(X, Y))._alpha_)


def packaged_feature_machine(X: Array, y: Array, q: int) -> Array:
    """Return W by xRFM (Beaglehole et al. 2025), the leading gradients of its default machine."""
    model = import_module("xrfm").xRFM(device="cpu", random_state=0, verbose=False)
    targets = y if is_classes(y) else _standardised(y).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(X))
    held_out, rest = np.split(order, [int(_HELD_OUT * len(X))])
    model.fit(X[rest], targets[rest], X[held_out], targets[held_out])
    return leading(model.trees[0]["model"].agop_best_model.double().numpy(), q)


def lasso_network(X: Array, y: Array, q: int) -> Array:
    """Return the leading gradients of the best network on LassoNet's path (Lemhadri et al. 2021).

    The penalty is that of the least error on held-out rows.
    """
    torch, lassonet = import_module("torch"), import_module("lassonet")
    kind = lassonet.LassoNetClassifier if is_classes(y) else lassonet.LassoNetRegressor
    model = kind(verbose=0, random_state=0, torch_seed=0, val_size=_HELD_OUT, device="cpu")
    targets = y if is_classes(y) else _standardised(y)
    path = model.path(X, targets, return_state_dicts=True)
    model.load(min(path, key=lambda step: step.val_loss))
    rows = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    outputs = model.model(rows).sum(axis=0)
    slopes = [torch.autograd.grad(each, rows, retain_graph=True)[0].numpy() for each in outputs]
    return leading(np.sum([each.T @ each for each in slopes], axis=0, dtype=float), q)


# The distribution that each rival needs, and the rival.
PACKAGED: dict[str, tuple[str, Callable[[Array, Array, int], Array]]] = {
    "network": ("scikit-learn", network),
    "MLKR": ("metric-learn", metric_for_kernel_regression),
    "PPR": ("projection-pursuit", projection_pursuit),
    "xRFM": ("xrfm", packaged_feature_machine),
    "LassoNet": ("lassonet", lasso_network),
}


def missing(name: str) -> str:
    """Return why a rival of `PACKAGED` cannot be fitted, or nothing."""
    try:
        version(PACKAGED[name][0])
    except PackageNotFoundError as error:
        return f"{error.name} is not installed: pip install --group benchmarks"
    return ""


def provenance(name: str) -> str:
    """Return the package and the version by which a rival is fitted, or why it is not."""
    package = PACKAGED[name][0]
    return f"{name}: {missing(name) or f'{package} {version(package)}'}"


def _standardised(y: Array) -> Array:
    return np.asarray((y - y.mean()) / y.std())


def _with_new_keyword(
    check: Callable[..., Any], *arrays: Any, force_all_finite: bool = True, **options: Any
) -> Any:
    return check(*arrays, ensure_all_finite=force_all_finite, **options)

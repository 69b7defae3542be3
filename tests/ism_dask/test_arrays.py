"""Arrays of other libraries than NumPy: the criterion, its blocks on a device, and whole fits.

`array_api_strict` has the functions of the standard and no others, and devices of its own.
"""

from dataclasses import replace
from functools import cache, partial

import array_api_strict as strict
import dask.array as da
import numpy as np
import pytest
from models import CULTIVAR, DEFINITE, WINE, StoredRows
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from ism_dask import (
    ColoredMVU,
    PredictiveIKDR,
    SupervisedIKDR,
    dependence_test,
    hsic,
    intervals,
)
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines import device_blocks
from ism_dask.engines.blocks import BlocksInMemory, BlocksOfShards
from ism_dask.engines.device_blocks import BlocksOnDevice, DeviceMatrix, DeviceRows, MemoryPlan
from ism_dask.estimators.prediction_fit import PredictionTask
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.estimators.problem import pose
from ism_dask.kernels import Gaussian, Linear
from ism_dask.linalg import cholesky
from ism_dask.linalg.arrays import on_host
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.rows import blocks as dealing
from ism_dask.rows import devices
from ism_dask.rows.devices import Device

PLACE = strict.Device("device1")
DEVICE = Device(strict, PLACE)


@cache
def _fitted(kind=PredictiveIKDR):
    return kind(2).fit(WINE, CULTIVAR)


@pytest.fixture
def dispatching(monkeypatch):
    """Let scikit-learn dispatch on arrays."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with config_context(array_api_dispatch=True):
        yield


def _batch(rng, *, weighted=False, k=3, n=45):
    """Return k blocks of n rows."""
    weights = rng.integers(1, 4, size=(k, n)).astype(float) if weighted else None
    return Block(rng.normal(size=(k, n, 6)), rng.normal(size=(k, n, 3)), weights)


def _placed(block):
    weights = None if block.weights is None else DEVICE.put(block.weights)
    return Block(DEVICE.put(block.X), DEVICE.put(block.Y), weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", DEFINITE)
def test_a_batch_of_another_library_has_the_numbers_of_its_blocks(kernel, weighted, monkeypatch):
    monkeypatch.setattr(cholesky, "_LEAF", 8)
    rng = np.random.default_rng(0)
    batch, W = _batch(rng, weighted=weighted), rng.normal(size=(6, 2))
    placed = _placed(batch)
    regression = RidgeRegression(kernel, 1e-2, np.array([1.0, 1.0, -0.5]))
    value, errors = regression.explained(placed, W), regression.leave_one_out(placed, W)
    for number in range(3):
        block, one = batch.part(number), _placed(batch.part(number))
        own = regression.explained(block, W)
        assert on_host(value.objective)[number] == pytest.approx(own.objective, rel=1e-9)
        assert_allclose(on_host(value.product)[number], own.product, rtol=1e-7, atol=1e-9)
        own_errors = regression.leave_one_out(block, W)
        assert_allclose(on_host(errors)[number], own_errors, rtol=1e-7)
        assert regression.evidence(one, W) == pytest.approx(regression.evidence(block, W))
        phi = on_host(regression.phi(one, W))
        assert_allclose(phi, regression.phi(block, W), rtol=1e-7, atol=1e-8)
        predicted = on_host(regression.predicted(one, W, one.X))
        assert_allclose(predicted, regression.predicted(block, W, block.X), rtol=1e-7, atol=1e-8)


def test_single_precision_is_that_of_numpy():
    rng = np.random.default_rng(1)
    batch, W = _batch(rng, n=80), np.linalg.qr(rng.normal(size=(6, 2)))[0]
    batch = replace(batch, X=batch.X.astype(np.float32))
    regression = RidgeRegression(Gaussian(1.5), 1e-2)
    exact = regression.explained(_placed(batch), W)
    single = regression.in_single.explained(_placed(batch), W)
    assert on_host(single.objective).dtype == np.float64
    assert_allclose(on_host(single.objective), on_host(exact.objective), rtol=1e-5)
    here = regression.in_single.explained(batch.part(0), W)
    assert on_host(single.objective)[0] == pytest.approx(here.objective, rel=1e-5)


def test_a_kernel_matrix_that_is_not_positive_definite_is_an_error():
    batch = _placed(Block(np.zeros((1, 5, 2)), np.ones((1, 5, 1))))
    with pytest.raises(ValueError, match="is not positive definite"):
        RidgeRegression(Linear(), -1.0).explained(batch, np.eye(2))


# Blocks on a device.


def _blocks(weighted=False):
    """Return 95 rows in 10 blocks, which differ in size, here and on the device."""
    rng = np.random.default_rng(2)
    rows = _batch(rng, weighted=weighted, k=1, n=95).part(0)
    parts = np.array_split(rng.permutation(95), 10)
    here = BlocksInMemory(tuple(map(rows.part, parts)))
    regression = RidgeRegression(Gaussian(1.5), 1e-2)
    W = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    return BlocksOnDevice(DeviceRows.from_block(DEVICE, rows), parts), here, regression, W


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("resident", [False, True])
def test_blocks_on_a_device_have_j_its_slope_and_noise_of_those_in_memory(resident, weighted):
    blocks, here, regression, W = _blocks(weighted)
    expected = here.explained(regression, W)
    blocks._plan = MemoryPlan(resident, 8 * 10 * (70 + 18) * 3)
    assert [each.shape for each in blocks._numbers] == [(3, 9), (2, 9), (3, 10), (2, 10)]
    value = blocks.explained(regression, W)
    assert isinstance(value.objective, float)
    assert value.objective == pytest.approx(expected.objective, rel=1e-12)
    assert_allclose(value.product, expected.product, rtol=1e-9, atol=1e-12)
    assert value.noise == pytest.approx(expected.noise)
    errors = np.sort(blocks.leave_one_out(regression, W))
    assert_allclose(errors, np.sort(here.leave_one_out(regression, W)), rtol=1e-8)
    assert blocks.rows.matrix.is_loaded == resident


class OutOfMemoryError(RuntimeError):
    """What libraries call theirs."""


def _sizes_tried(monkeypatch, place, name, call, expected, most, too_few):
    """Check that a call has the J expected if so many rows fit, and fails if too few do."""
    whole, sizes, fitting = getattr(place, name), [], most

    def limited(*given):
        sizes.append(given[-1].X.shape[0])
        if sizes[-1] > fitting:
            raise OutOfMemoryError
        return whole(*given)

    monkeypatch.setattr(place, name, limited)
    assert call().objective == pytest.approx(expected.objective)
    tried, fitting = sizes.copy(), too_few
    with pytest.raises(OutOfMemoryError):
        call()
    return tried


def test_a_device_that_runs_out_of_memory_takes_smaller_batches(monkeypatch):
    blocks, here, *given = _blocks()
    call, expected = partial(blocks.explained, *given), here.explained(*given)
    sizes = _sizes_tried(monkeypatch, device_blocks, "_sums_of_batch", call, expected, 1, 0)
    assert sizes[0] == 5
    assert sizes[-10:] == [1] * 10


def test_rows_of_which_few_fit_stream_and_those_of_which_many_do_stay():
    small, large = MemoryPlan.for_rows(10**9, 4 * 10**9), MemoryPlan.for_rows(10**10, 4 * 10**9)
    assert (small.resident, large.resident) == (True, False)
    assert small.batch_bytes == 1.5 * 10**9
    assert MemoryPlan.for_rows(1, 10**12).batch_bytes == device_blocks._BATCH_BYTES
    assert small.smaller(loaded=True) == MemoryPlan(True, 0.75 * 10**9)
    assert not small.smaller(loaded=False).resident
    assert small.most_blocks(400, 784) > 3 * small.most_blocks(800, 784) / 2
    assert small.most_blocks(10**6, 10) == 1


def test_rows_that_are_not_in_memory_have_the_same_blocks_on_a_device(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 4))
    y, weights = X[:, 0] ** 2, rng.integers(0, 3, size=1000).astype(float)
    problem = pose(PredictiveIKDR(2), X, y, weights).in_order()
    monkeypatch.setattr(dealing, "MEMORY_NUMBERS", 1000)
    monkeypatch.setattr("ism_dask.selection.training_rows.MEMORY_NUMBERS", 1000)
    kernel, W, sums = Gaussian(1.5), np.linalg.qr(rng.normal(size=(4, 2)))[0], []
    for device, kind in ((None, BlocksOfShards), (DEVICE, BlocksOnDevice)):
        posed = replace(problem, device=device)
        task = PredictionTask.of(posed)
        blocks = task.rows.all_blocks(task.targets["mean"])
        assert isinstance(blocks, kind)
        regression = RidgeRegression(kernel, 1e-2)
        sums += [each.explained(regression, W) for each in (blocks, blocks.first(400))]
    for here, there in zip(sums[:2], sums[2:], strict=True):
        assert there.objective == pytest.approx(here.objective, rel=1e-10)
        assert_allclose(there.product, here.product, rtol=1e-8, atol=1e-12)


def _indicators(rng):
    """Return rows of which three columns are indicators that sum to 1."""
    return np.hstack([np.eye(3)[rng.integers(0, 3, size=300)], rng.normal(size=(300, 4))])


STORED = {
    "bytes and a constant": lambda rng: np.c_[rng.integers(0, 9, (300, 5)), [7] * 300].astype("u1"),
    "big endian": lambda rng: rng.normal(size=(300, 3)).astype(">f8"),
    "half precision": lambda rng: rng.normal(size=(300, 3)).astype(np.float16),
    "indicators": _indicators,
    "chunks": lambda rng: da.from_array(rng.normal(size=(300, 4)), chunks=(70, 2)),
    "read": lambda rng: StoredRows(rng.normal(size=(300, 4)), 70),
}


@pytest.mark.parametrize("kind", STORED)
def test_rows_that_stay_on_a_device_are_those_of_numpy(kind, monkeypatch):
    monkeypatch.setattr("ism_dask.rows.shards._READ_BYTES", 4000)
    X = STORED[kind](np.random.default_rng(5))
    shards = prepare_rows(X, Gaussian(), standardize=True).shards
    matrix, numbers = DeviceMatrix.from_shards(DEVICE, shards), np.array([[5, 299], [80, 5]])
    rows = shards.rows(np.arange(300))
    assert_array_equal(matrix.read(numbers), rows[numbers])
    assert_array_equal(matrix.here(numbers[1, ::-1]), rows[[5, 80]])
    assert not matrix.is_loaded
    assert matrix.n_bytes == rows.nbytes
    assert matrix.whole.device == PLACE
    if kind == "indicators":  # which a product turns
        assert_allclose(on_host(matrix.whole), rows, rtol=1e-12, atol=1e-14)
    else:
        assert_array_equal(on_host(matrix.whole), rows)
    assert_allclose(matrix.here(numbers[0]), rows[[5, 299]])


# Fits.


NOTE = f"on array_api_strict on {PLACE}"
# Sums over pairs of rows are computed on the processor.
FITS = [(PredictiveIKDR, NOTE), (SupervisedIKDR, "")]


@pytest.mark.usefixtures("dispatching")
@pytest.mark.parametrize(("kind", "note"), FITS)
def test_a_fit_to_arrays_of_another_library_is_that_of_numpy(kind, note):
    fitted = _fitted(kind)
    X, y = DEVICE.put(WINE), DEVICE.put(CULTIVAR)
    other = kind(2).fit(X, y)
    for name in ("components_", "mean_", "scale_", "eigenvalues_"):
        assert getattr(other, name).device == PLACE
        here = getattr(other.on_host(), name)
        assert_allclose(here, getattr(fitted, name), rtol=1e-6, atol=1e-8)
    Z = other.transform(X)
    assert Z.device == other.inverse_transform(Z).device == PLACE
    assert_allclose(on_host(Z), fitted.transform(WINE), atol=1e-6)
    assert other.score(X, y) == pytest.approx(fitted.score(WINE, CULTIVAR), abs=1e-6)
    assert_allclose(other.feature_importances_, fitted.feature_importances_, atol=1e-6)
    assert_allclose(other.weights_, fitted.weights_, atol=1e-6)
    assert other.report_.engine_note == note
    assert other.objective_ == pytest.approx(fitted.objective_)
    assert other.certify(X, y).is_certified
    if kind is PredictiveIKDR:
        there, here = intervals(other, X, y), intervals(fitted, WINE, CULTIVAR)
        assert_allclose(there.standard_errors, here.standard_errors, rtol=1e-3, atol=1e-6)
        again = other.set_params(warm_start=True).fit(X, y)
        assert again.n_iter_ == 1
    with pytest.raises(ValueError, match="they are of NumPy, the fit is of array_api_strict"):
        other.transform(WINE)
    gap = DEVICE.put(np.where(WINE > 1500, np.nan, WINE))
    with pytest.raises(ValueError, match=r"\d of 178 rows have missing numbers, in \d of 13 col"):
        other.transform(gap)


def test_numpy_goes_to_a_device_and_comes_back(monkeypatch):
    monkeypatch.setattr(Device, "named", classmethod(lambda *_: DEVICE))
    here, there = (PredictiveIKDR(2, device=each).fit(WINE, CULTIVAR) for each in ("cpu", "cuda:0"))
    assert isinstance(there.components_, np.ndarray)
    assert subspace_sine(there.components_.T, here.components_.T) < 1e-8
    assert there.objective_ == pytest.approx(here.objective_)
    assert there.report_.engine_note == NOTE
    monkeypatch.undo()  # what follows a fit is computed on the processor
    assert there.certify(WINE, CULTIVAR).is_certified
    assert intervals(there, WINE, CULTIVAR).stability.min() > 0


@pytest.mark.usefixtures("dispatching")
def test_a_device_without_double_precision_is_refused(monkeypatch):
    monkeypatch.setattr(type(strict.__array_namespace_info__()), "dtypes", lambda *_, **__: {})
    with pytest.raises(ValueError, match=r"array_api_strict on .* has no float64"):
        PredictiveIKDR(2).fit(DEVICE.put(WINE), DEVICE.put(CULTIVAR))


@pytest.mark.usefixtures("dispatching")
def test_what_computes_here_takes_arrays_of_another_library():
    X, y = DEVICE.put(WINE), DEVICE.put(CULTIVAR)
    assert hsic(X, y) == hsic(WINE, CULTIVAR)
    there = dependence_test(X, y, given=X[:, 0], random_state=0)
    assert there.pvalue == dependence_test(WINE, CULTIVAR, given=WINE[:, 0], random_state=0).pvalue
    Z = ColoredMVU(1).fit_transform(X[50:80, :], y[50:80])
    assert_array_equal(Z, ColoredMVU(1).fit_transform(WINE[50:80], CULTIVAR[50:80]))


def test_single_precision_of_few_digits_is_refused(monkeypatch):
    DEVICE.check_single()
    monkeypatch.setattr(devices, "_SINGLE", 2.0**-30)  # which float32 does not add to 1 either
    with pytest.raises(ValueError, match="products in float32 have three digits with array_api"):
        DEVICE.check_single()


@pytest.mark.long
@pytest.mark.usefixtures("dispatching")
def test_a_fit_to_tensors_of_pytorch_is_that_of_numpy():
    torch = pytest.importorskip("torch")
    reversed_rows, read_only = np.arange(6.0)[::-1], np.arange(6.0)
    read_only.flags.writeable = False
    for rows in (reversed_rows, read_only, np.zeros(()), np.zeros(1)[::-1]):
        assert_allclose(on_host(Device.named("cpu:0").put(rows)), rows)
    X, y = torch.asarray(WINE), torch.asarray(CULTIVAR)
    for kind, note in ((PredictiveIKDR, "on torch on cpu"), (SupervisedIKDR, "")):
        other = kind(2).fit(X, y)
        assert isinstance(other.components_, torch.Tensor)
        assert other.report_.engine_note == note
        assert subspace_sine(other.on_host().components_.T, _fitted(kind).components_.T) < 1e-6
        assert isinstance(other.transform(X), torch.Tensor)

"""The engine of blocks: the definition on each block, and all pairs in expectation."""

from functools import partial
from itertools import combinations

import dask
import dask.array as da
import numpy as np
import pytest
from definition import Definition, dense_gamma
from distributed import Client
from models import curved, first_engine, hsic_model, problem_of, stored
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.metrics import normalized_mutual_info_score as nmi

from ism_dask import AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.criteria.dependence import AllPairs
from ism_dask.engines import Auto, BlockEngine, Blocks, DeclinedError
from ism_dask.gamma.base import Dependence, ThinGamma
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Gaussian, Linear, Multiquadric, Polynomial, RelativeGaussian
from ism_dask.linalg.subspaces import subspace_sine

RNG = np.random.default_rng(3)
N, D, Q = 36, 4, 2
X = RNG.normal(size=(N, D))
W = np.linalg.qr(RNG.normal(size=(D, Q)))[0]
CLASSES, NUMBERS = RNG.integers(0, 3, N), RNG.normal(size=N)
KERNELS = {
    "gaussian": Gaussian(1.5),
    "polynomial": Polynomial(3, 1.0),
    "relative": RelativeGaussian(5),
    "sum": 0.5 * Multiquadric(0.7) + 2.0 * Linear() + RelativeGaussian(4),
}
TARGETS = {
    "classes": target_dependence(CLASSES),
    "numbers": target_dependence(NUMBERS),
    "weights": target_dependence(NUMBERS, weights=RNG.uniform(0.5, 2.0, N)),
    # Neither centred nor positive, as with labels to avoid.
    "embedding": Dependence(ThinGamma(np.array([1.0, -0.6])), RNG.normal(size=(N, 2)) + 0.3),
}


def _centred_without_diagonal(M):
    """U-centring of a symmetric matrix by its definition."""
    n, off = len(M), M - np.diag(np.diag(M))
    sums = off.sum(axis=0)
    out = off - np.add.outer(sums, sums) / (n - 2) + off.sum() / ((n - 1) * (n - 2))
    return out - np.diag(np.diag(out))


def _block_gamma(Gamma, rows):
    n, m = len(Gamma), len(rows)
    rest = Gamma - _centred_without_diagonal(Gamma)
    within = Gamma[np.ix_(rows, rows)]
    expected = (n - 3) / (m - 3) * _centred_without_diagonal(within)
    expected += (n - 1) / (m - 1) * rest[np.ix_(rows, rows)]
    np.fill_diagonal(expected, within.diagonal())
    return expected


@pytest.mark.parametrize("size", [4, 5, 6, 8])
def test_the_mean_over_all_deals_is_the_sum_over_all_pairs(size):
    n = 8
    U, signs = RNG.normal([0.0, 1.0, 0.2], size=(n, 3)), np.array([1.0, -0.5, 2.0])
    Gamma, f = U * signs @ U.T, RNG.normal(size=(n, n))
    f += f.T
    pairs = AllPairs(n, U.sum(axis=0), signs, float(np.trace(Gamma)))

    def sum_in(rows):
        block = pairs.in_block(U[rows])
        own = block.U * block.signs @ block.U.T + np.diag(block.missing)
        return float((own * f[np.ix_(rows, rows)]).sum())

    firsts = map(list, combinations(range(n), size))
    deals = [(first, np.setdiff1d(range(n), first)) for first in firsts]
    sums = [sum(sum_in(rows) for rows in deal if len(rows)) for deal in deals]
    assert np.mean(sums) == pytest.approx((Gamma * f).sum(), rel=1e-12)
    assert size == n or np.std(sums) > 0.1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_are_the_definition(kernel, target):
    resolved = KERNELS[kernel].resolve(X)
    engine = first_engine(Blocks(rows=12), problem_of(X, TARGETS[target], resolved, 10), Q)
    dealt = engine._dealt.shards
    assert dealt.bounds == (0, 12, 24, 36)
    Gamma = dense_gamma(TARGETS[target])
    # The rows of a block are found by their numbers.
    order = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in dealt.rows(np.arange(N))]
    thirds = order[:12], order[12:24], order[24:]
    blocks = [Definition(X[rows], _block_gamma(Gamma, rows), resolved) for rows in thirds]
    phi, values = sum(block.phi(W) for block in blocks), [block.objective(W) for block in blocks]
    near = {"rtol": 1e-10, "atol": 1e-10 * np.abs(phi).max()}
    evaluation = engine.phi(W)
    assert_allclose(evaluation.phi, phi, **near)
    assert_allclose(engine.gradient(W).product, phi @ W, **near)
    assert evaluation.objective == pytest.approx(sum(values), rel=1e-10)
    assert engine.objective(W) == pytest.approx(sum(values), rel=1e-10)
    # The mean of three blocks has the standard error of the mean, times three for the sum.
    error = 3 * np.std(values, ddof=1) / np.sqrt(3)
    share = error / abs(sum(values))
    assert evaluation.error == pytest.approx(share / (1 - share) if share < 1 else np.inf, rel=1e-6)


ROWS, SCORE = curved(1500, 6, noise=0)
LABELS = np.digitize(SCORE, [0.0, 1.0, 2.0])


@pytest.mark.parametrize("kernel", [RelativeGaussian(), Gaussian(0.4)])
def test_fits_agree_with_exact_ones_within_the_stated_error(kernel):
    engines = (Blocks(rows=375), "exact")
    blocks, exact = (hsic_model(2, kernel=kernel, engine=e).fit(ROWS, LABELS) for e in engines)
    assert blocks.converged_
    assert blocks.engine_ == "blocks"
    assert blocks.residual_ <= 1e-4
    assert 0 < blocks.engine_error_ < 0.1
    assert abs(blocks.objective_ / exact.objective_ - 1) < blocks.engine_error_
    assert subspace_sine(blocks.components_.T, exact.components_.T) < 0.05


def _evaluated(rows, y):
    engine = BlockEngine(problem_of(rows, y, Gaussian(0.8), 300, seed=5), 2, 100)
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0]
    return engine.phi(V).phi, engine.gradient(V).product


@pytest.mark.parametrize("numbers_in_memory", [None, 0])
def test_the_same_bits_wherever_the_rows_are(
    monkeypatch, tmp_path, thread_cluster, numbers_in_memory
):
    if numbers_in_memory is not None:  # then blocks are dealt within shards
        monkeypatch.setattr("ism_dask.rows.blocks.MEMORY_NUMBERS", numbers_in_memory)
    known = _evaluated(ROWS, LABELS)
    places = da.from_array(ROWS, chunks=(300, 6)), stored(ROWS, tmp_path, 300).X
    found = [_evaluated(place, LABELS) for place in places]
    with dask.config.set(scheduler="synchronous"):
        found.append(_evaluated(ROWS, LABELS))
    with Client(thread_cluster):
        found.append(_evaluated(ROWS, LABELS))
    for phi, product in found:
        assert_array_equal(phi, known[0])
        assert_array_equal(product, known[1])


def test_sorted_rows_that_are_not_in_memory_are_declined(monkeypatch):
    for name, limit in (("MEMORY_NUMBERS", 0), ("RANGE_ROWS", 300)):
        monkeypatch.setattr(f"ism_dask.rows.blocks.{name}", limit)
    order = np.argsort(LABELS)
    with pytest.raises(DeclinedError, match=r"sorted by their target.*random order"):
        _evaluated(ROWS[order], LABELS[order])


def test_auto_takes_no_blocks_where_it_may_not_or_rows_are_sparse():
    y, rows = np.arange(10_000) % 3, np.random.default_rng(0).normal(size=(10_000, 3))
    dense, sparse = (problem_of(each, y, Gaussian(0.1)) for each in (rows, csr_array(np.eye(3)[y])))
    for engine, problem in ((Auto(blocks=False), dense), (Auto(), sparse)):
        assert [each.name for each in engine.engines(problem, 2)] == ["landmarks", "exact"]
    with pytest.raises(ValueError, match="'blocks' cannot serve this problem: it deals dense rows"):
        Blocks().engines(sparse, 2)


# Rows around four centres, whose first two coordinates split them in two ways.
DRAWN = np.random.default_rng(1)
CENTRE = DRAWN.integers(0, 4, 800)
CENTRES = 3.0 * np.array([[1, 1, 0, 0], [1, -1, 0, 0], [-1, 1, 0, 0], [-1, -1, 0, 0]])
CLOUDS = CENTRES[CENTRE] + DRAWN.normal(size=(800, 4))


@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (partial(UnsupervisedIKDR, 4, 2), None),
        (partial(SemiSupervisedIKDR, 4, 2), np.where(np.arange(800) < 200, CENTRE, -1)),
        # Of directions that say nothing of the labels there is one.
        (partial(AlternativeIKDR, 2, 1), CENTRE < 2),
    ],
)
def test_clusterers_by_blocks(make, labels):
    rows = CLOUDS[:, :2] if make.func is AlternativeIKDR else CLOUDS
    blocks, exact = (make(engine=each).fit(rows, labels) for each in (Blocks(rows=200), "exact"))
    assert blocks.engine_ == "blocks"
    assert blocks.converged_
    assert nmi(blocks.labels_, exact.labels_) > 0.95
    assert subspace_sine(blocks.components_.T, exact.components_.T) < 0.1


def test_a_block_of_a_few_rows_has_no_more_than_its_share():
    """The last chunk of stored rows may have one row."""
    alone = AllPairs(10, np.zeros(1), np.ones(1), 4.0).in_block(np.array([[0.7]]))
    assert_allclose(alone.U * alone.signs @ alone.U.T + np.diag(alone.missing), 0.49)

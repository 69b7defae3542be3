"""Sizes at which one engine overtakes another: the evidence for the rule of `engine="auto"`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.fits import fit, phi_seconds
from benchmarks.measure import Figure, alternating, crossing, median_seconds, say
from benchmarks.rows import Labelled, blobs, labelled, mnist_train, problem_of
from ism_dask.kernels import Gaussian, PointwiseKernel, Polynomial
from ism_dask.kernels.inner_products import Monomials

_SIZES = (250, 500, 1000, 2000, 4000, 8000)
_REPEATS = 5


@dataclass(frozen=True, eq=False)
class _Case:
    """Rows in memory, with the pairs (degree, rows) at which monomials are compared with tiles."""

    name: str
    rows: Labelled
    q: int
    degrees: tuple[tuple[int, int], ...]


def crossover() -> Figure:
    """Sizes at which `landmarks` overtake `exact`, by kernel: the basis of the rule of `auto`.

    By rows: one Phi and J, and whole fits, of rows in memory. By monomials: one Phi and J at
    several degrees, against the number of monomials for each row. q = 10 on MNIST (717 columns
    that vary), and q = 2 on blobs of 30 columns.
    """
    crossings: Figure = {}
    lines: list[Figure] = []
    for case in _cases():
        for kernel in (Gaussian("median"), Polynomial(degree=3)):
            case_lines = [_by_rows(case, kernel, n) for n in _SIZES]
            for measure in ("phi", "fit"):
                ratios = [line[f"{measure}_times_as_fast"] for line in case_lines]
                crossings[f"{kernel.title} from n, {measure}, {case.name}"] = _size_or_words(
                    crossing(_SIZES, ratios)
                )
            lines += case_lines
        case_lines = sorted((_by_degree(case, *each) for each in case.degrees), key=_share)
        ratios = [line["phi_times_as_fast"] for line in case_lines]
        key = f"features up to m / n, phi, {case.name}"
        crossings[key] = _size_or_words(crossing([_share(line) for line in case_lines], ratios))
        lines += case_lines
    return {
        **crossings,
        "table": lines,
        "must": "(nothing: it backs the rule of auto)",
        "met": True,
    }


def _cases() -> tuple[_Case, ...]:
    mnist = labelled(mnist_train()).head(_SIZES[-1]).in_memory()
    # 66, 286 and 1,001 monomials of ten variables; 55, 120, 210 and 300 of two.
    many = ((3, 250), (3, 500), (3, 1000), (4, 1000), (4, 2000), (4, 4000), (5, 2000), (5, 8000))
    few = ((10, 500), (15, 500), (20, 500), (24, 500), (15, 2000), (24, 2000), (24, 8000))
    return (
        _Case("MNIST", mnist, 10, many),
        _Case("blobs", blobs(_SIZES[-1], 30, 3), 2, few),
    )


def _by_rows(case: _Case, kernel: PointwiseKernel, n: int) -> Figure:
    """Compare landmarks with the tiles of the exact engine at n rows."""
    engine = "landmarks"
    say(f"{case.name}, {n} rows, {kernel.title} ...")
    head = case.rows.head(n)
    calls = {name: partial(fit, head, kernel, case.q, engine=name) for name in (engine, "exact")}
    fits = {name: median_seconds(runs) for name, runs in alternating(calls, _REPEATS).items()}
    phi = phi_seconds(problem_of(head, kernel), (engine, "exact"), case.q, _REPEATS)
    line = _line(case, engine, n, phi)
    times = fits["exact"] / fits[engine]
    return {
        **line,
        "kernel": kernel.title,
        "fit_ms": 1e3 * fits[engine],
        "fit_times_as_fast": times,
    }


def _by_degree(case: _Case, degree: int, n: int) -> Figure:
    """Compare the monomials of one degree with the tiles of the exact engine at n rows."""
    kernel = Polynomial(degree=degree)
    problem = problem_of(case.rows.head(n), kernel)
    phi = phi_seconds(problem, ("landmarks", "exact"), case.q, _REPEATS)
    line = _line(case, "landmarks", n, phi)
    monomials = Monomials(case.q, *kernel.power)
    return {**line, "degree": degree, "monomials_a_row": monomials.size / n}


def _line(case: _Case, engine: str, n: int, phi: dict[str, float]) -> Figure:
    return {
        "rows": case.name,
        "engine": engine,
        "n": n,
        "phi_ms": 1e3 * phi[engine],
        "exact_phi_ms": 1e3 * phi["exact"],
        "phi_times_as_fast": phi["exact"] / phi[engine],
    }


def _share(line: Figure) -> float:
    return float(line["monomials_a_row"])


def _size_or_words(size: float | None) -> float | str:
    return "nowhere here" if size is None else size

"""Words for results and counts, shared by the terminal, the pages and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ism_dask.status import Status, components_advice, count_useful, is_negative_gap

# Command-line options that replace the names of estimator parameters in messages.
_OPTIONS = {
    "`tol` of the engine": "--engine-tol",
    "`tol`": "--tol",
    "engine='exact'": "--engine exact",
    "criterion='dependence'": "--criterion dependence",
    "`max_iter`": "--max-iter",
    "fewer `n_components`": "fewer --components",
    "`n_components`": "number of --components",
    "n_components=": "--components ",
    "`max_seconds`": "--max-seconds",
    "`restarts`": "--restarts",
    "`class_weight`": "--balanced",
    "solver='ism'": "--solver ism",
    "`y`": "the label",
    "refine=True": "--refine",
    "`n_neighbors`": "--neighbors",
    "`n_eigenvectors`": "--eigenvectors",
}


def residual_words(residual: float, residual_rows: int, rows: int) -> str:
    """Return the residual of a fit to `rows` rows, and how it was measured."""
    against = (
        f"all {rows:,} rows"
        if residual_rows == rows
        else f"a sample of {residual_rows:,} rows against all {rows:,}"
    )
    return f"{residual:.2g}, true kernel, {against}"


def fold_notes(notes: Mapping[int, str]) -> str:
    """Return one line with the notes of the engines on some folds, or nothing."""
    with_note = {fold: note for fold, note in notes.items() if note}
    if not with_note:
        return ""
    first = next(iter(with_note.values()))
    same = [str(fold) for fold, note in with_note.items() if note == first]
    others = [str(fold) for fold, note in with_note.items() if note != first]
    more = f" (fold {', '.join(others)}: with other numbers, which --json has)" if others else ""
    return f"fold {', '.join(same)}: {first}{more}"


def ending_words(status: str) -> str:
    """Return how a fit ended that has not converged, and advice that names options."""
    ending = Status(status)
    return f"{_with_options(ending.meaning)}. {_capitalised(_with_options(ending.advice))}"


def certificate_words(reason: str) -> str:
    """Return the reason of a certificate as a sentence that names options."""
    words = _capitalised(_with_options(reason.removeprefix("not certified: ")))
    return words if words.endswith(".") else f"{words}."


def components_words(advice: str) -> str:
    """Return the advice of a fit against its number of new features, or nothing."""
    return _capitalised(_with_options(advice))


def eigenvalue_warnings(
    names: Sequence[str], eigenvalues: Sequence[float], eigengap: float
) -> tuple[str, ...]:
    """Return what the eigenvalues say against the number of new features, which have these names.

    The last one has the conclusion.
    """
    advice = components_advice(eigenvalues, eigengap)
    problems = _eigenvalue_problems(names, eigenvalues, eigengap)
    conclusion = _capitalised(advice.rpartition(". ")[2])
    return (*problems[:-1], *(f"{each}. {conclusion}" for each in problems[-1:]))


def _eigenvalue_problems(
    names: Sequence[str], eigenvalues: Sequence[float], eigengap: float
) -> tuple[str, ...]:
    """Return which new features hardly add to J, and whether a direction outside of W would."""
    q, useful = len(eigenvalues), count_useful(eigenvalues)
    problems = []
    if useful < q:
        one, negative = useful == q - 1, [value <= 0 for value in eigenvalues[useful:]]
        between = " and" if useful == q - 2 else " to"
        weak = names[useful] + ("" if one else f"{between} {names[-1]}")
        nothing, less = (f"add{'s' * one} next to nothing to J", f"lower{'s' * one} J")
        what = less if all(negative) else f"{nothing} or lower it" if any(negative) else nothing
        values = f"{'its eigenvalue is' if one else 'their eigenvalues are'} " + (
            f"{number(eigenvalues[useful])}"
            + ("" if one else f"{between} {number(eigenvalues[-1])}")
        )
        first = f", that of {names[0]} is {number(eigenvalues[0])}" if useful else ""
        problems.append(f"{weak} {what}: {values}{first}")
    if is_negative_gap(eigenvalues, eigengap):
        outside = eigenvalues[-1] - eigengap
        smaller = sum(value > outside for value in eigenvalues)
        problems.append(
            f"the eigengap is {number(eigengap)}, below zero: a direction outside of W has the "
            f"eigenvalue {number(outside)}, larger than that of {names[smaller]}"
        )
    return tuple(problems)


def _with_options(words: str) -> str:
    """Return `words` with command-line options in place of estimator parameters."""
    for parameter, option in _OPTIONS.items():
        words = words.replace(parameter, option)
    return words


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def count_noun(number: int, what: str) -> str:
    """Return a count with its noun, such as 1 round or 1,200 rounds."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def number(value: float) -> str:
    """Return a number with four significant digits, such as 0.8619, 4,298 or 1.235e+09."""
    rounded = float(f"{value:.4g}")
    if rounded == 0 or 1e-3 <= abs(rounded) < 1e7:
        return f"{rounded:,.10g}"
    return f"{value:.4g}"


def printable(words: str) -> str:
    """Return `words` with a space for each control character, which a terminal would obey."""
    return "".join(each if each.isprintable() else " " for each in words)


def shortened(words: str) -> str:
    """Return `words` without the middle if they are longer than 40 letters."""
    return words if len(words) <= 40 else f"{words[:26]}…{words[-13:]}"


def byte_size(count: int) -> str:
    """Return a number of bytes in words, such as 12 KiB or 1.2 MiB."""
    return f"{count / 2**10:.0f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"

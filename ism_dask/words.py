"""Words for numbers and sizes, shared by messages, the terminal and pages."""

from __future__ import annotations


def count_noun(number: int, what: str) -> str:
    """Return a count with its noun, such as 1 round or 1,200 rounds."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def new_feature(number: int) -> str:
    """Return the name of a new feature, counted from 0, in tables and pictures for people.

    Columns of files have the names of scikit-learn, such as `supervisedikdr0`.
    """
    return f"new feature {number + 1}"


def number(value: float) -> str:
    """Return a number with four significant digits, such as 0.8619, 4,298 or 1.235e+09."""
    rounded = float(f"{value:.4g}")
    if rounded == 0 or 1e-3 <= abs(rounded) < 1e7:
        return f"{rounded:,.10g}"
    return f"{value:.4g}"


def share(value: float) -> str:
    """Return a share in percent, such as 97.2%."""
    return f"{100 * value:.1f}%"


def printable(words: str) -> str:
    """Return `words` with a space for each control character, which a terminal would obey."""
    if words.isprintable():  # pages have pictures of a hundred thousand letters
        return words
    return "".join(each if each.isprintable() else " " for each in words)


def shortened(words: str) -> str:
    """Return `words` without the middle if they are longer than 40 letters."""
    return words if len(words) <= 40 else f"{words[:26]}…{words[-13:]}"


def byte_size(count: int) -> str:
    """Return a number of bytes in words, such as 12 KiB or 1.2 MiB."""
    return f"{count / 2**10:.0f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"

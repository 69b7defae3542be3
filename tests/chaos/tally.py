"""What chaos does, counted: faults injected, survived, and answers that were wrong."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

# What the rows of the table are called in a report of pytest.
PROPERTY = "tally"
# Of tests that take minutes; a limit of time set by their function would hold in place of this.
LONG = [pytest.mark.chaos, pytest.mark.minutes, pytest.mark.timeout(3600)]
FEW = [pytest.mark.timeout(900)]
COLUMNS = ("fault", "injected", "survived", "wrong", "seconds")


@dataclass
class Tally:
    """A row of the table."""

    fault: str
    aim: int  # how many are to be injected
    injected: int = 0
    survived: int = 0
    wrong: int = 0
    began: float = field(default_factory=time.monotonic)

    def add(self, *, survived: bool, wrong: bool = False, times: int = 1) -> None:
        """Take note of a fault, or of several, and of what came of them."""
        self.injected += times
        self.survived += times * survived
        self.wrong += times * wrong

    def row(self) -> dict[str, Any]:
        """Return it in plain JSON."""
        return {**asdict(self), "seconds": round(time.monotonic() - self.began, 1)}

    def check(self) -> None:
        """Fail unless all that was to be injected was, and survived, and nothing was wrong."""
        assert (self.injected, self.survived, self.wrong) == (self.aim, self.aim, 0), self.row()


def few_and_many(few: int, many: int) -> pytest.MarkDecorator:
    """Let a test run with few faults in `make test` or `make long`, with many in `make chaos`."""
    long = pytest.param(many, id="many", marks=LONG)
    return pytest.mark.parametrize("count", [pytest.param(few, id="few"), long])


def sizes(faults: dict[str, Any]) -> list[Any]:
    """Return the same for a table of faults that say how `few` and how `many` they are."""
    return [
        pytest.param(fault, count, id=f"{name}-{size}", marks=LONG if size == "many" else FEW)
        for name, fault in faults.items()
        for size, count in (("few", fault.few), ("many", fault.many))
        if count
    ]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows in Markdown."""
    cells = [[str(row[name]) for name in COLUMNS] for row in rows]
    return ["| " + " | ".join(each) + " |" for each in (COLUMNS, ["---"] * len(COLUMNS), *cells)]

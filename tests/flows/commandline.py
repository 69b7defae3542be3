"""What a command leaves behind."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Ended:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """The object of the last line, in strict JSON: without infinities."""
        assert self.out, self
        return json.loads(self.out.splitlines()[-1], parse_constant=pytest.fail)

    @property
    def words(self) -> str:
        """What was printed, with a space for each line break."""
        return " ".join(self.out.split())

    def failed(self, status: int) -> str:
        """Return the one line that a failed command prints; with `--json`, an object as well."""
        assert self.status == status, self
        if self.out:
            line = self.err.removeprefix("ism-dask: ").strip()
            assert json.loads(self.out) == {"error": line, "status": status}
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        assert self.err.startswith("ism-dask: ")
        return self.err


Command = Callable[..., Ended]

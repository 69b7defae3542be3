"""What a command leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ended:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        return json.loads(self.out.splitlines()[-1])

    def failed(self, status: int) -> str:
        """Return the one line that a failed command prints."""
        assert self.status == status, self
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        assert self.err.startswith("ism-dask: ")
        return self.err


Command = Callable[..., Ended]

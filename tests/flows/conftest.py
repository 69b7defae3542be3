"""Fixtures of the flows, which the chaos suite has, too."""

from fixtures import *  # noqa: F403
from fixtures import _serving, _swinging  # noqa: F401

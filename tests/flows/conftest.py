"""Fixtures of the flows, which the chaos suite has, too."""

from fixtures import *  # noqa: F403
from fixtures import _home_with_a_fit, _serving, _swinging  # noqa: F401

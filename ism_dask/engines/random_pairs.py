"""Draw random pairs of rows that represent all pairs.

The rows of a shard are dealt into groups. If two shards are paired, each group of one is paired
with a few groups of the other, shifted by a random number around the circle of groups. Every pair
of rows of the two shards is then drawn with the same probability, whatever the order of the rows
and however they are dealt. Sums over the drawn pairs, divided by this probability, are unbiased.

Shards are paired in the same way. If there are few, all pairs of shards are drawn. If there are
many, each is paired with one other in each round, by a random permutation that is shifted around
the circle of shards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard

# Rows of a group: smaller groups slow BLAS down, larger ones give rows needlessly many partners.
_GROUP_ROWS = 512
# The largest number of rounds of shards: each round reads every shard twice.
_MOST_ROUNDS = 8
# Identifiers of the streams of random numbers.
_DEALING_STREAM, _SHIFTS_STREAM, _SHARDS_STREAM = 1, 2, 3


@dataclass(frozen=True)
class ShardPair:
    """A pair of shards, seen from one of them, the head.

    Attributes
    ----------
    round : int
        The round that pairs them.
    first : int
        Group g of the head is paired with `g + first`, `g + first + 1`, ... of the tail.
    leads : bool
        Whether this is the side of the pair from which the round drew the other.
    own : bool
        Whether head and tail are the same shard.
    """

    round: int
    first: int
    leads: bool
    own: bool


@dataclass(frozen=True, eq=False)
class PairDesign:
    """The random choice of the pairs of shards, and of groups within them.

    Attributes
    ----------
    seed : int
    groups : int
        The number of groups of each shard.
    shifts : int
        The number of groups of the other shard that each group is paired with.
    whole : bool
        Whether every pair of shards is drawn, once.
    partners, firsts : (r, s) arrays
        For each of r rounds and s shards, the partner, -1 for none, and the first shift.
    """

    seed: int
    groups: int
    shifts: int
    whole: bool
    partners: Array
    firsts: Array

    @classmethod
    def of(cls, shards: Shards, partners: float, seed: int) -> PairDesign:
        """Return a design in which each row has about `partners` partners, or all rows if fewer."""
        count, largest, n = len(shards.parts), shards.largest, shards.n_rows
        groups, shifts = max(1, round(largest / _GROUP_ROWS)), 1
        rounds = math.ceil(partners * groups / (2 * largest))
        whole = 2 * rounds >= count
        if whole:
            shifts = min(groups, max(1, math.ceil(partners * groups / n)))
            chosen = _all_shard_pairs(count)
        else:
            shifts = min(groups, math.ceil(rounds / _MOST_ROUNDS))
            rounds = -(-rounds // shifts)
            chosen = np.array(
                [_spread_permutation(count, [seed, _SHARDS_STREAM, i]) for i in range(rounds)]
            )
        rng = np.random.default_rng([seed, _SHIFTS_STREAM])
        firsts = rng.integers(groups, size=chosen.shape)
        return cls(seed, groups, shifts, whole, chosen, firsts)

    @property
    def is_complete(self) -> bool:
        """Whether all pairs of rows are drawn."""
        return self.whole and self.shifts == self.groups

    def partners_of(self, shards: Shards) -> float:
        """Return the number of partners of each row."""
        rounds = self.count if self.whole else 2 * self.rounds
        return rounds * self.shifts / self.groups * shards.n_rows / self.count

    def standard_error(self, sums: Array) -> float:
        """Return the standard error of J from the sums (r + 2,) of all walks.

        The last sum is the variance by the choice of groups. If the shards are chosen at random
        too, the sums of the rounds, all but the first and the last, vary by both choices.
        """
        _, *rounds, variance = sums
        if not self.whole and self.rounds > 1:
            variance = max(variance, self.rounds * float(np.var(rounds, ddof=1)))
        return math.sqrt(variance)

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.partners)

    @property
    def count(self) -> int:
        """The number of shards."""
        return self.partners.shape[1]

    def weight(self, pair: ShardPair) -> float:
        """Return the weight of a drawn pair of rows, the same on both of its sides."""
        if not self.whole:
            return self.count * self.groups / (2 * self.rounds * self.shifts)
        # A shard that is its own partner meets itself on both sides.
        return self.groups / self.shifts / (2 if pair.own else 1)

    @cached_property
    def _by_head(self) -> list[dict[int, list[ShardPair]]]:
        heads: list[dict[int, list[ShardPair]]] = [{} for _ in range(self.count)]
        for number, (partners, firsts) in enumerate(zip(self.partners, self.firsts, strict=True)):
            for shard, (other, first) in enumerate(zip(partners.tolist(), firsts, strict=True)):
                if other < 0:
                    continue
                own, back = shard == other, -int(first) - self.shifts + 1
                leading = ShardPair(number, int(first), leads=True, own=own)
                following = ShardPair(number, back, leads=False, own=own)
                heads[shard].setdefault(other, []).append(leading)
                heads[other].setdefault(shard, []).append(following)
        return heads

    @property
    def tails(self) -> list[list[int]]:
        """The indices of the partners of each shard."""
        return [sorted(tails) for tails in self._by_head]

    def between(self, head: int, tail: int) -> list[ShardPair]:
        """Return the pairings of two shards, seen from the head."""
        return self._by_head[head][tail]

    def dealt(self, piece: LoadedShard) -> LoadedShard:
        """Return a loaded shard with its rows in the order of their groups.

        Rows are sorted by the first column of `GAMMA_FACTS` and dealt out one by one: each group
        has its share of each class, and so has each half of a group.
        """
        rng = np.random.default_rng([self.seed, _DEALING_STREAM, piece.start])
        first = piece.facts[GAMMA_FACTS][:, 0]
        order = np.lexsort([rng.random(len(first)), first])
        groups = [order[group :: self.groups] for group in range(self.groups)]
        order = np.concatenate([half for rows in groups for half in (rows[::2], rows[1::2])])
        facts = {name: values[order] for name, values in piece.facts.items()}
        return LoadedShard(piece.start, piece.X[order], facts)

    def edges(self, rows: int) -> list[int]:
        """Return the first row of each group of a shard with `rows` rows, and `rows` at the end."""
        sizes = [len(range(group, rows, self.groups)) for group in range(self.groups)]
        return [0, *np.cumsum(sizes).tolist()]


def _all_shard_pairs(count: int) -> Array:
    """Return rounds (r, s) that pair each of `count` shards with every shard, itself too, once."""
    shards, steps = np.arange(count), np.arange(count // 2 + 1)
    partners = (shards + steps[:, None]) % count
    if count > 1 and count % 2 == 0:
        # Both ends of a diameter would draw the same pair.
        partners[-1, count // 2 :] = -1
    return partners


def _spread_permutation(count: int, seed: list[int]) -> Array:
    """Return a random permutation (s,) that spreads each run of adjacent shards evenly.

    In a sorted file adjacent shards are of one class. Without the spreading some pairs of classes
    would be drawn too often or too rarely. The random shift at the end makes all partners of a
    shard equally likely.
    """
    rng = np.random.default_rng(seed)
    length = math.isqrt(count)
    positions = np.empty(count)
    for start in range(0, count, length):
        run = positions[start : start + length]
        run[:] = (rng.permutation(len(run)) + rng.random(len(run))) / len(run)
    ranks = np.empty(count, dtype=np.intp)
    ranks[np.argsort(positions)] = np.arange(count)
    return (ranks + rng.integers(count)) % count

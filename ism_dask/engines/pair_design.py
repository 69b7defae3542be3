"""Random pairs of rows that stand for all of them.

The rows of a shard are dealt into groups. Of two shards that are paired, each group of one is
paired with a few groups of the other, shifted by a random number around the circle of groups.
Whatever the order of the rows and however they are dealt, each pair of rows of the two shards is
drawn with the same probability. Sums over the drawn pairs, divided by it, are unbiased.

Shards are paired alike. Where they are few, all pairs of them are drawn. Where they are many, each
is paired with one other in each round of a random permutation, shifted around the circle of shards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.rows import LoadedShard, Shards

# Rows of a group: with fewer BLAS slows down, with more a row has more partners than it needs.
_GROUP_ROWS = 512
# Rounds of shards, at most: each reads a shard twice.
_MOST_ROUNDS = 8
# Streams of random numbers.
_DEALING, _SHIFTS, _SHARDS = 1, 2, 3


@dataclass(frozen=True)
class ShardPair:
    """Two shards that are paired, as one of them sees it.

    Attributes
    ----------
    round : int
    first : int
        Group g of the head is paired with `g + first`, `g + first + 1`, ... of the tail.
    leads : bool
        Whether the round began with the head: of the two sides of a pair one does.
    own : bool
        Whether head and tail are the same shard.
    """

    round: int
    first: int
    leads: bool
    own: bool


@dataclass(frozen=True, eq=False)
class PairDesign:
    """Which groups of which shards are paired.

    Attributes
    ----------
    seed : int
    groups : int
        Of each shard.
    shifts : int
        Groups of the other shard that a group is paired with.
    whole : bool
        Whether each pair of shards is drawn, once.
    partners, firsts : (r, s) arrays
        The partner of each of s shards in each of r rounds, -1 for none, and the first shift.
    """

    seed: int
    groups: int
    shifts: int
    whole: bool
    partners: Array
    firsts: Array

    @classmethod
    def of(cls, shards: Shards, partners: float, seed: int) -> PairDesign:
        """Return a design in which each row has about `partners` others, or all there are."""
        count, largest, n = len(shards.parts), shards.largest, shards.n_rows
        groups, shifts = max(1, round(largest / _GROUP_ROWS)), 1
        rounds = math.ceil(partners * groups / (2 * largest))
        whole = 2 * rounds >= count
        if whole:
            shifts = min(groups, max(1, math.ceil(partners * groups / n)))
            chosen = _circle(count)
        else:
            shifts = min(groups, math.ceil(rounds / _MOST_ROUNDS))
            rounds = -(-rounds // shifts)
            chosen = np.array([_permutation(count, [seed, _SHARDS, i]) for i in range(rounds)])
        rng = np.random.default_rng([seed, _SHIFTS])
        firsts = rng.integers(groups, size=chosen.shape)
        return cls(seed, groups, shifts, whole, chosen, firsts)

    @property
    def is_complete(self) -> bool:
        """Whether all pairs of rows are drawn."""
        return self.whole and self.shifts == self.groups

    def partners_of(self, shards: Shards) -> float:
        """Return how many others each row is paired with."""
        rounds = self.count if self.whole else 2 * self.rounds
        return rounds * self.shifts / self.groups * shards.n_rows / self.count

    def standard_error(self, sums: Array) -> float:
        """Return the standard error of J, by the sums (r + 2,) of all walks.

        The last of them is the variance by the choice of groups. Where shards are a choice, too,
        rounds, which are all sums but the first and the last, differ by both.
        """
        _, *rounds, variance = sums
        if not self.whole and self.rounds > 1:
            variance = max(variance, self.rounds * float(np.var(rounds, ddof=1)))
        return math.sqrt(variance)

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.partners)

    @property
    def count(self) -> int:
        """How many shards there are."""
        return self.partners.shape[1]

    def weight(self, pair: ShardPair) -> float:
        """Return the weight of a pair of rows, on each of its sides."""
        if not self.whole:
            return self.count * self.groups / (2 * self.rounds * self.shifts)
        # A shard is its own partner on both sides.
        return self.groups / self.shifts / (2 if pair.own else 1)

    @cached_property
    def _by_head(self) -> list[dict[int, list[ShardPair]]]:
        heads: list[dict[int, list[ShardPair]]] = [{} for _ in range(self.count)]
        for number, (partners, firsts) in enumerate(zip(self.partners, self.firsts, strict=True)):
            for shard, (other, first) in enumerate(zip(partners.tolist(), firsts, strict=True)):
                if other < 0:
                    continue
                own, back = shard == other, -int(first) - self.shifts + 1
                there = ShardPair(number, int(first), leads=True, own=own)
                here = ShardPair(number, back, leads=False, own=own)
                heads[shard].setdefault(other, []).append(there)
                heads[other].setdefault(shard, []).append(here)
        return heads

    @property
    def tails(self) -> list[list[int]]:
        """The partners of each shard."""
        return [sorted(tails) for tails in self._by_head]

    def between(self, head: int, tail: int) -> list[ShardPair]:
        """Return how two shards are paired."""
        return self._by_head[head][tail]

    def dealt(self, piece: LoadedShard) -> LoadedShard:
        """Return a piece with its rows in the order of their groups.

        Rows are sorted by the first number that Gamma has for them, and dealt out one by one:
        each group has its share of each class, and so has each half of it.
        """
        rng = np.random.default_rng([self.seed, _DEALING, piece.start])
        first = piece.facts[0][:, 0]
        order = np.lexsort([rng.random(len(first)), first])
        groups = [order[group :: self.groups] for group in range(self.groups)]
        order = np.concatenate([half for rows in groups for half in (rows[::2], rows[1::2])])
        return LoadedShard(piece.start, piece.X[order], tuple(fact[order] for fact in piece.facts))

    def edges(self, rows: int) -> list[int]:
        """Return where the groups of a piece with this many rows begin and end."""
        sizes = [len(range(group, rows, self.groups)) for group in range(self.groups)]
        return [0, *np.cumsum(sizes).tolist()]


def _circle(count: int) -> Array:
    """Return rounds in which each of `count` shards is paired with each, and itself, once."""
    shards, steps = np.arange(count), np.arange(count // 2 + 1)
    partners = (shards + steps[:, None]) % count
    if count > 1 and count % 2 == 0:
        # Both ends of a diameter would see it.
        partners[-1, count // 2 :] = -1
    return partners


def _permutation(count: int, seed: list[int]) -> Array:
    """Return a random permutation (s,) that sends each stretch of shards everywhere alike.

    In files that are sorted neighbours are of one class, and pairs of classes would else be drawn
    more or less often than they should. The last shift makes all partners of a shard as likely.
    """
    rng = np.random.default_rng(seed)
    length = math.isqrt(count)
    places = np.empty(count)
    for start in range(0, count, length):
        stretch = places[start : start + length]
        stretch[:] = (rng.permutation(len(stretch)) + rng.random(len(stretch))) / len(stretch)
    ranks = np.empty(count, dtype=np.intp)
    ranks[np.argsort(places)] = np.arange(count)
    return (ranks + rng.integers(count)) % count

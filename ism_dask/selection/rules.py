"""The numbers that decide the choices of a prediction, all in one place."""

from __future__ import annotations

from dataclasses import dataclass

Factors = tuple[float, ...]


@dataclass(frozen=True)
class SelectionRules:
    """The numbers by which rows choose start, width, ridge, dimension and support of a prediction.

    Widths are multiples of the kernel's own, ridges shares of the mean kernel of a row with itself.
    """

    # Rows. The choices are made on the first stage of growth, or on all rows if one regression has
    # them; the last stage has all rows, and at least `least_growth` times those of the one before.
    # Fewer than these cannot be split into rows that fit W and rows that judge it, and hardly tell
    # how their influences on W spread.
    fewest_rows: int = 20
    stages: tuple[int, ...] = (600, 4000, 64_000)
    exact_rows: int = 900  # the most for which one regression has all rows
    least_growth: float = 1.25
    hand_rows: int = 100
    stage_steps: int = 40
    stage_numbers: int = 32_000_000  # the most numbers of a stage that is in memory

    # The grid of widths and ridges at each start, those that are tried first, and the limits.
    widths: Factors = (2.0, 1.0, 0.5, 0.25)
    ridges: Factors = (1e-4, 1e-3, 1e-2, 1e-1)
    first_factors: tuple[float, float] = (0.5, 1e-3)
    width_limits: tuple[float, float] = (0.1, 16.0)
    ridge_limits: tuple[float, float] = (1e-5, 1.0)

    # Factors of width and ridge near the W of a few steps, and with which rows that join judge.
    near_widths: Factors = (0.5**0.5, 1.0, 2.0**0.5)
    near_ridges: Factors = (0.1, 0.3, 1.0, 3.0, 10.0)
    joining_widths: Factors = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
    joining_ridges: Factors = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
    joining_least_ridge: float = 1e-7
    judging_rows: int = 4000
    judging_folds: int = 4
    predicting_rows: int = 8000

    # The regression over all rows: its landmarks, at most, with the share of the trace of the
    # kernel matrix at which fewer suffice, and the rows that they are chosen from.
    landmarks: int = 400
    few_landmarks: int = 150
    left_out: float = 1e-8
    left_out_of_ridge: float = 1e-2
    # With more left out, W would turn to where the landmarks are dense: the setting is refused.
    most_left_out: float = 1e-2
    pool_rows: int = 6000
    # With so many rows, W climbs first on every 16th shard, then on every 4th, with such landmarks.
    rows_in_parts: int = 250_000
    parts: tuple[tuple[int, int], ...] = ((16, few_landmarks), (4, landmarks))
    # With many rows it ends once steps explain less than this share of what noise adds to one new
    # feature, of these many rows at most: a step less is not worth a pass over more.
    noise_gain: float = 0.25
    noise_rows: int = 100_000

    # The network of a start: the rows from which on there is one, the most that it learns from, and
    # its layers, epochs and steps.
    network_rows: int = 5000
    most_network_rows: int = 100_000
    network_units: int = 64
    network_batch: int = 500
    network_reach: float = 3.0
    network_rate: float = 2e-3
    network_epochs: int = 15
    network_steps: int = 1600  # at least, in more epochs of fewer rows

    # Starts: how many are climbed from, and the steps of the first ascents and of the chosen one.
    climbed_starts: int = 2
    few_steps: int = 10
    steps: int = 25
    # Exchanges of a direction of W: with more ways none is tried.
    most_exchanges: int = 250
    # Two W are different maxima from this sine on, and as good up to this many standard errors.
    other_sine: float = 0.5
    as_good: float = 1.0

    # Own scales of directions: the largest, as a multiple of the common one, and the steps.
    largest_scale: float = 8.0
    scale_steps: int = 7

    # Folds: four of few rows, two of many. Each tries the best starts beside the cheap ones.
    folds: int = 4
    halves: int = 2
    many_fold_rows: int = 600
    best_starts: int = 2
    cheap_starts: tuple[str, ...] = ("linear", "partial least squares")
    fold_steps: int = 10
    # Factors of width and ridge with which held-out rows judge a W, and a start: those that it was
    # fitted with may be too wide to predict with.
    judges: tuple[tuple[float, float], ...] = (
        (1.0, 1.0),
        (1.0, 0.1),
        (0.5, 1.0),
        (0.5, 0.1),
        (2.0, 1.0),
    )
    start_judges: tuple[tuple[float, float], ...] = (
        (1.0, 1.0),
        (1.0, 10.0),
        (2.0, 1.0),
        (2.0, 10.0),
    )
    # Factors of width and ridge of a more cautious trial.
    cautious_widths: Factors = (1.0, 2.0)
    cautious_ridge: float = 10.0
    # Standard errors by which a trial is clearly better, up to which a signal is weak, and from
    # which on what the best of many trials explains is clear.
    clearly_better: float = 1.0
    weak: float = 4.0
    clear: float = 2.0
    # The share of the gain of evidence on all rows that steps on training rows have to come to;
    # with fewer rows for each weight of W, evidence alone is no proof.
    least_gain: float = 0.5
    rows_per_weight: int = 10

    # Starts by gradients: the Laplace kernel's width in units of the root of d, its ridge, the most
    # rows and functions of y; with many columns fewer rows have to do. Rows at a smaller distance
    # count as equal: their slopes would drown all others in a sum.
    laplace_width: float = 1.6
    laplace_ridge: float = 0.1
    gradient_rows: int = 600
    many_columns: int = 200
    few_gradient_rows: int = 400
    gradient_functions: int = 8
    same_distance: float = 1e-4
    # The linear start: ridges for columns of variance 1, as shares of the number of rows, and the
    # share of the largest prediction below which a direction is rounding.
    linear_ridges: Factors = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
    dependent: float = 1e-8
    # Waves: how many frequencies are tried, of which lengths, and from how many it climbs.
    waves: int = 3000
    wave_lengths: tuple[float, float] = (0.5, 6.0)
    climbed_waves: int = 300
    wave_steps: int = 12
    # Directional regression: the slices of numbers y, and the ridge of the whitening.
    slices: int = 10
    whitening_ridge: float = 1e-3

    # The most functions of y that its law is predicted by; what each weight of W gains by noise if
    # W is fitted to them, as a share of y times the number of rows; and the most new features that
    # are tried. A feature explains nothing if J without it is larger than this share of J.
    law_functions: int = 6
    gain_of_law: float = 0.5
    most_features: int = 6
    nothing: float = 0.999

    # The chance of a false alarm of a test, and that noise brings a feature into the support. The
    # most free weights whose curvature is computed, and the most for which few features are tried
    # by default. The share of features that remains after a stage (from `singly` down, all but
    # one), and the most steps of a stage.
    chance: float = 0.01
    most_weights: int = 1000
    tried_weights: int = 300
    remains: float = 0.8
    singly: int = 16
    support_steps: int = 100
    # Features are many if there is more than one for two rows. Then one for five rows remains, by a
    # regression on each alone, with this ridge for columns of variance 1.
    many_features_rows: int = 2
    rows_per_feature: int = 5
    tiny_ridge: float = 1e-9

    # The most rows from which the covariance of W is computed, and the fewest of a block of them.
    # A small block explains less than all rows do, and its estimate of the error is too large.
    curvature_rows: int = 10_000
    curvature_block: int = 1_000


RULES = SelectionRules()

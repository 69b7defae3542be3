"""
How sure?
=========

The curvature of J says how far W may be from the truth, and which features surely matter.
"""

# %%
# y depends on the first two of eight columns. Their intervals lie above those of all others.

import numpy as np

from ism_dask import PredictiveIKDR, intervals, plot

random = np.random.default_rng(0)
X = random.normal(size=(300, 8))
y = X[:, 0] * (X[:, 0] + X[:, 1] + 1) + 0.5 * random.normal(size=300)
model = PredictiveIKDR(2, max_features=None, target="linear")  # all features, and y itself
result = intervals(model.fit(X, y), X, y)
ax = plot.shares(result)
low, high = result.distance_interval
ax.set_title(f"90% interval of the distance from the truth: {low:.2f} to {high:.2f}")

# %%
# With 70 rows, W may be farther from the truth, and the interval says so.

result = intervals(model.fit(X[:70], y[:70]), X[:70], y[:70])
ax = plot.shares(result)
low, high = result.distance_interval
ax.set_title(f"90% interval of the distance from the truth: {low:.2f} to {high:.2f}")

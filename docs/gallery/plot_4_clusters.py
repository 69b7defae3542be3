"""
Another grouping than the one you know
======================================

The rows form groups in two ways at once: by their first two columns, which you know already, and by
two other columns. Alternative clustering finds the second grouping.
"""

# %%
# Two independent groupings in six columns.

import numpy as np
from sklearn.metrics import adjusted_rand_score

from ism_dask import AlternativeIKDR, plot

random = np.random.default_rng(0)
known, hidden = random.integers(0, 2, size=(2, 300))
X = random.normal(size=(300, 6))
X[:, :2] += 6.0 * known[:, None]
X[:, 2:4] += 5.0 * hidden[:, None]
fitted = AlternativeIKDR(2).fit(X, known)

# %%
# The clusters agree with the hidden grouping, and not with the known one.

for name, labels in (("known", known), ("hidden", hidden)):
    print(f"{name}: {adjusted_rand_score(labels, fitted.labels_):.2f}")

# %%
# The weights show in which columns the clusters differ.

plot.components(fitted)

"""
Which columns drive a number that rises and falls?
==================================================

The number oscillates with one column and is an even function of another. It has no linear trend in
any column, so that linear methods find nothing.
"""

# %%
# Ten columns, of which only the third and the eighth matter.

import numpy as np
from sklearn.cross_decomposition import PLSRegression

from ism_dask import PredictiveIKDR, plot

random = np.random.default_rng(0)
X = random.normal(size=(800, 10))
y = np.cos(2 * X[:, 2]) - np.cos(X[:, 7]) + 0.2 * random.normal(size=800)
fitted = PredictiveIKDR(2).fit(X, y)

# %%
# The share of these two columns in the fitted plane is near 1. In the plane of partial least
# squares (PLS) it is near 0.2, as in a random one.


def share(weights: np.ndarray) -> float:
    """Return the share of columns 2 and 7 in the space that the rows of weights (2, 10) span."""
    basis = np.linalg.qr(weights.T)[0]
    return float((basis[[2, 7]] ** 2).sum() / 2)


pls = PLSRegression(2).fit(X, y)
print(f"ism_dask {share(fitted.components_):.2f}, PLS {share(pls.x_weights_.T):.2f}")

# %%
# The rows in the new features, coloured by the number.

plot.scatter(fitted, X, y)

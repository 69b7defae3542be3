"""
What the mean of a number cannot see
====================================

The mean of y is 0 everywhere, and its spread grows with the size of one column. No regression on X
can predict y itself, but functions of y, such as its square, can be predicted.
"""

# %%
# Eight columns, of which only the first matters.

import matplotlib.pyplot as plt
import numpy as np

from ism_dask import PredictiveIKDR, SupervisedIKDR

random = np.random.default_rng(0)
X = random.normal(size=(600, 8))
y = X[:, 0] * random.uniform(-1, 1, size=600)

# %%
# `target="linear"` predicts y itself: W is hardly better than a guess. The dependence criterion
# (HSIC) compares whole distributions of y, and finds the column. The default tries functions of y
# as well, its "law", and takes them, because their means depend on X.

fits = {
    "mean": PredictiveIKDR(1, target="linear").fit(X, y),
    "dependence": SupervisedIKDR(1).fit(X, y),
    "default": PredictiveIKDR(1).fit(X, y),
}
for name, fitted in fits.items():
    print(f"{name:10} share of the first column: {fitted.feature_importances_[0]:.2f}")
print(f"the default has predicted the {fits['default'].report_.target} of y")

# %%
# `report_.trials` has the results on unseen rows. Nothing of the mean is explained.

for name in ("mean", "default"):
    best = fits[name].report_.trials[0]
    print(f"{name:10} share of the target that is explained for unseen rows: {best.explained:.2f}")

# %%
# y against the new feature of the default: the spread grows at both ends.

figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.scatter(fits["default"].transform(X), y, s=8)
ax.set(xlabel="new feature", ylabel="y")

"""
Is there anything at all?
=========================

A test of independence says whether y depends on X, whatever the form of the dependence. Fitted
features must be tested on rows that the fit has not seen.
"""

# %%
# A circle: neither coordinate says anything about the mean of the other.

import matplotlib.pyplot as plt
import numpy as np

from ism_dask import SupervisedIKDR, dependence_test

random = np.random.default_rng(0)
angle = random.uniform(0, 2 * np.pi, 200)
x, y = np.cos(angle), np.sin(angle) + 0.2 * random.normal(size=200)
result = dependence_test(x[:, None], y, random_state=0)
figure, ax = plt.subplots(figsize=(4, 4), layout="constrained")
ax.scatter(x, y, s=8)
ax.set(title=f"correlation {np.corrcoef(x, y)[0, 1]:.2f}, p-value {result.pvalue:.3f}")

# %%
# Pure noise: W is fitted to it, so a test on the same rows finds a dependence that does not exist.
# A fit to two thirds of the rows is tested on the others.

X, noise = random.normal(size=(200, 12)), random.normal(size=200)
estimator = SupervisedIKDR(1, kernel="linear")
wrong = dependence_test(estimator.fit_transform(X, noise), noise, random_state=0)
unseen = estimator.fit(X[:133], noise[:133]).transform(X[133:])
right = dependence_test(unseen, noise[133:], random_state=0)
print(f"on the rows of the fit: p = {wrong.pvalue:.3f}; on other rows: p = {right.pvalue:.3f}")

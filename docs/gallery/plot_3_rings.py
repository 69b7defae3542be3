"""
Classes that surround one another
=================================

Three classes are rings in a plane that no single column shows. Their means are equal, so linear
discriminant analysis (LDA) finds nothing.
"""

# %%
# Twenty columns; the rings lie in a random plane.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ism_dask import PredictiveIKDR, SupervisedIKDR

random = np.random.default_rng(0)
plane = np.linalg.qr(random.normal(size=(20, 2)))[0]
X = random.normal(size=(1200, 20))
ring = np.digitize(np.linalg.norm(X @ plane, axis=1), [0.9, 1.6])
models = {
    "LDA": LinearDiscriminantAnalysis(n_components=2),
    "the published system": SupervisedIKDR(2),
    "prediction": PredictiveIKDR(2),
}

# %%
# The rows in the two features of each method.

figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ax.scatter(*model.fit(X, ring).transform(X).T, c=ring, s=6, cmap="viridis")
    ax.set(title=name, xlabel="feature 0", ylabel="feature 1")

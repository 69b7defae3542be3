"""
Does it depend on sex?
======================

Features that predict y, but do not reveal s: with a larger `avoid_weight`, a classifier detects
less of s in the new features of other rows, and at first nearly as much of y.
"""

# %%
# The progression of diabetes, above the median or below; X does not include the column of sex.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from ism_dask import PredictiveIKDR

patients = load_diabetes()
sex = (patients.data[:, 1] > 0).astype(int)
y = (patients.target > np.median(patients.target)).astype(int)
X = np.delete(patients.data, 1, axis=1)

# %%
# Fit W with several weights, on three splits of the rows; measure both accuracies on held-out rows.

weights = [0, 0.3, 1, 3, 10, 30]
of_y, of_sex = np.empty((2, len(weights), 3))
for split in range(3):
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=split)
    for number, weight in enumerate(weights):
        fitted = PredictiveIKDR(1, avoid_weight=weight).fit(X[train], y[train], avoid=sex[train])
        Z = fitted.transform(X)
        for labels, accuracies in ((y, of_y), (sex, of_sex)):
            classifier = SVC().fit(Z[train], labels[train])
            accuracies[number, split] = classifier.score(Z[test], labels[test])

figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
places = np.arange(len(weights))
ax.plot(places, of_y.mean(axis=1), marker="o", label="progression, y")
ax.plot(places, of_sex.mean(axis=1), marker="o", label="sex, to avoid")
ax.axhline(max(sex.mean(), 1 - sex.mean()), color="grey", linestyle=":", label="chance of sex")
ax.set_xticks(places, [str(weight) for weight in weights])
ax.set(xlabel="avoid_weight", ylabel="held-out accuracy")
ax.legend()

"""
Unroll a roll, and show what matters of it
==========================================

Colored maximum variance unfolding places rows in a plane: neighbours keep their distances, and the
picture depends on y. No projection of a rolled-up sheet does that.
"""

# %%
# 1,500 points of a sheet that is rolled up in space. The first two principal components are drawn
# beside two unfoldings: one without y, and one in which y is the height along the roll.

import matplotlib.pyplot as plt
from sklearn.base import clone
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from ism_dask import ColoredMVU, plot

X, angle = make_swiss_roll(1500, random_state=0)
height = X[:, 1]
roll = ColoredMVU(nu=3, standardize=False)  # the columns have one unit
plain, by_height = clone(roll).fit(X), clone(roll).fit(X, height)
pictures = {
    "PCA": PCA(2).fit_transform(X),
    "without y": plain.embedding_,
    "y is the height": by_height.embedding_,
}
figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
for column, (name, Z) in zip(axes.T, pictures.items(), strict=True):
    for ax, colour, by in zip(column, (angle, height), ("angle", "height"), strict=True):
        ax.scatter(*Z.T, c=colour, s=4, cmap="viridis")
        ax.set(title=f"{name}, coloured by {by}", xticks=[], yticks=[], aspect="equal")

# %%
# The variances along the axes of the plain unfolding: a sheet has two.

plot.spectrum(plain)

# %%
# Images of digits: three quarters are unfolded with their classes (left). The others are placed
# among them by their neighbours alone (right). Each colour is a digit.

digits, digit = load_digits(return_X_y=True)
seen, new, of_seen, of_new = train_test_split(digits, digit, random_state=0)
fitted = ColoredMVU(standardize=False).fit(seen, of_seen)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), sharex=True, sharey=True)
plot.scatter(fitted, seen, of_seen, ax=left)
left.set_title(f"distances of neighbours are off by {fitted.distance_error_:.0%}")
plot.scatter(fitted, new, of_new, ax=right)
right.set_title("rows that the fit has not seen")

# %%
# A classifier that sees nothing but the picture:

nearest = KNeighborsClassifier(10).fit(fitted.embedding_, of_seen)
print(f"accuracy for the new rows: {nearest.score(fitted.transform(new), of_new):.2f}")

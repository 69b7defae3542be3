"""
What carries the axes of a t-SNE map?
=====================================

The axes of a map by t-SNE or UMAP have no meaning by themselves. A fit to the coordinates of the
map finds the weighted sums of the original columns that explain them, and says how much.
"""

# %%
# A map of images of digits. Any coordinates will do; how the map was made does not matter.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

from ism_dask import PredictiveIKDR, plot

digits = load_digits()
X, y = digits.data[:500], digits.target[:500]
places = TSNE(random_state=0, max_iter=300).fit_transform(X)

# %%
# Two features explain nine tenths of where unseen images lie on the map.

fitted = PredictiveIKDR(2).fit(X, places)
print(f"{fitted.report_.trials[0].explained:.0%} of the places of unseen images")

# %%
# The map coloured by the digits, and by the two features, each of which rises in one direction.

figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
colours = [y, *fitted.transform(X).T]
titles = ["digit", *fitted.get_feature_names_out()]
for ax, colour, title in zip(axes, colours, titles, strict=True):
    drawn = ax.scatter(*places.T, c=colour, s=10, cmap="tab10" if title == "digit" else "viridis")
    figure.colorbar(drawn, ax=ax)
    ax.set_title(title)

# %%
# The weights: which pixels raise or lower each feature.

plot.components(fitted, image_shape=(8, 8))

# %%
# The same for a biological table: 569 tumours with 30 measurements of their cell nuclei. Six of
# these explain most of the map. A rotation within the plane of the two features leaves few large
# weights.

from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

tumours = load_breast_cancer(as_frame=True)
rows = StandardScaler().fit_transform(tumours.data)
places = TSNE(random_state=0, max_iter=300).fit_transform(rows)
few = PredictiveIKDR(2, max_features=6, rotation="varimax").fit(tumours.data, places)
print(f"{few.objective_:.0%} of the map, {few.report_.full_objective:.0%} with all measurements")
plot.components(few, top=6)

# %%
# How the first coordinate of the map follows each of them.

plot.response(few, tumours.data, places[:, 0])

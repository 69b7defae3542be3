"""
Weights of pixels are pictures
==============================

Images of digits have 64 pixels. The weights of a new feature are a picture, too: where it is blue,
ink raises the feature; where it is red, ink lowers it.
"""

# %%
# Four features of the digits 0 to 4.

from sklearn.datasets import load_digits

from ism_dask import PredictiveIKDR, SupervisedIKDR, plot

digits = load_digits(n_class=5)
fitted = PredictiveIKDR(4).fit(digits.data, digits.target)
plot.components(fitted, image_shape=(8, 8))

# %%
# The images in the first two new features.

plot.scatter(fitted, digits.data, digits.target)

# %%
# The fit has converged if the residual is below its limit.

plot.convergence(fitted)
print(fitted.status_.meaning)

# %%
# Three features of the published system: its J would not rise with a fourth.

published = SupervisedIKDR(3).fit(digits.data, digits.target)
plot.components(published, image_shape=(8, 8))
plot.spectrum(published)

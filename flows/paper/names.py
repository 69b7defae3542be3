"""What the paper compares: its data sets, kernels and methods, by name. Importing this is cheap."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Data:
    """A data set of the tables.

    Attributes
    ----------
    rows : int
        Of the tables: of MNIST they have the 10,000 test images.
    classes : int
        q and k are as many.
    """

    rows: int
    classes: int


@dataclass(frozen=True)
class Method:
    """A way to new features.

    Attributes
    ----------
    title : str
    published : str
        Its name in `published.json`, empty where the paper has no such.
    solver : bool
        Whether it maximises J; else it is a reference point, without a kernel of the tables.
    needs_labels : bool
        Whether it is of no use to clusters.
    """

    title: str
    published: str = ""
    solver: bool = True
    needs_labels: bool = False


# What a run may be asked for.
PARTS = {
    "table-4": "ISM and its rivals under the gaussian and the polynomial kernel",
    "table-5": "ISM under other kernels",
    "references": "no reduction, PCA, LDA, NCA, kernel PCA, supervised PCA",
    "features": "accuracy against the number of new features, on MNIST",
    "figure-1a": "alternative clusters of the flower and of the faces",
    "figure-1b": "seconds against the number of rows",
}
DATA = {
    "wine": Data(178, 3),
    "cancer": Data(683, 2),
    "face": Data(624, 20),
    "mnist": Data(10_000, 10),
}
SUPERVISED, UNSUPERVISED = "supervised", "unsupervised"
PARADIGMS = (SUPERVISED, UNSUPERVISED)
# Of Table 4, where all methods run, and of Table 5.
RIVALLED = ("gaussian", "polynomial")
ALIGNED = "gaussian+polynomial"
OTHERS = ("linear", "squared", "multiquadric", ALIGNED)
# The published stopping rule: eigenvalues that change by less than delta.
DELTA = 0.01
ISM, ISM_PUBLISHED, ISM_STARTS = "ism", "ism-0.01", "ism-5"
RIVALS = ("stiefel", "grassmann", "dimension-growth")
# Those that ISM's seconds are held against.
TIMED = ("stiefel", "grassmann")
METHODS = {
    ISM: Method("ISM", "ism"),
    ISM_PUBLISHED: Method("ISM, delta 0.01", "ism"),
    ISM_STARTS: Method("ISM, 5 starts", "ism"),
    "stiefel": Method("Stiefel (SM)", "sm"),
    "grassmann": Method("Grassmann (GM)", "gm"),
    "dimension-growth": Method("Dimension growth (DG)", "dg"),
    "none": Method("all old features", solver=False),
    "pca": Method("PCA", solver=False),
    "kernel-pca": Method("kernel PCA", solver=False),
    "lda": Method("LDA", solver=False, needs_labels=True),
    "nca": Method("NCA", solver=False, needs_labels=True),
    "supervised-pca": Method("supervised PCA", solver=False, needs_labels=True),
}

"""Names of the data sets, kernels and methods that the paper compares. Importing this is cheap."""

from __future__ import annotations

from dataclasses import dataclass

SUPERVISED, UNSUPERVISED = "supervised", "unsupervised"
PARADIGMS = (SUPERVISED, UNSUPERVISED)


@dataclass(frozen=True)
class Data:
    """A data set of the tables.

    Attributes
    ----------
    rows : int
        Number of rows in the tables, which use the 10,000 test images of MNIST.
    classes : int
        Number of classes; also the number of features q and of clusters k.
    """

    rows: int
    classes: int


@dataclass(frozen=True)
class Method:
    """A method that learns new features.

    Attributes
    ----------
    title : str
    published : str
        Its name in `published.json`; empty if the paper does not have it.
    solver : bool
        Whether it maximises J. If not, it is a reference point, without a kernel of the tables.
    paradigms : tuple of str
        Those in which it has cells. A method that needs labels has no unsupervised ones, nor has
        another stopping rule of ISM, because clusterers have a single one.
    """

    title: str
    published: str = ""
    solver: bool = True
    paradigms: tuple[str, ...] = PARADIGMS


# Parts that a run can measure, with a description of each.
PARTS = {
    "table-4": "ISM and the other solvers under the gaussian and the polynomial kernel",
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
# Kernels of Table 4, in which all solvers run, and of Table 5, in which only ISM does.
TABLE_4_KERNELS = ("gaussian", "polynomial")
ALIGNED = "gaussian+polynomial"
TABLE_5_KERNELS = ("linear", "squared", "multiquadric", ALIGNED)
# The published stopping rule: the eigenvalues change by less than delta.
DELTA = 0.01
ISM, ISM_PUBLISHED, ISM_STARTS = "ism", "ism-0.01", "ism-5"
# ISM with the published graph of the rows of X W, where the other methods have that of the library.
ISM_GRAPH = "ism-graph"
OTHER_SOLVERS = ("stiefel", "grassmann", "dimension-growth")
# Solvers whose seconds are compared with those of ISM.
TIMED_SOLVERS = ("stiefel", "grassmann")
METHODS = {
    ISM: Method("ISM", "ism"),
    ISM_PUBLISHED: Method("ISM, delta 0.01", "ism", paradigms=(SUPERVISED,)),
    ISM_STARTS: Method("ISM, 5 starts", "ism", paradigms=(SUPERVISED,)),
    ISM_GRAPH: Method("ISM, published graph", "ism", paradigms=(UNSUPERVISED,)),
    "stiefel": Method("Stiefel (SM)", "sm"),
    "grassmann": Method("Grassmann (GM)", "gm"),
    "dimension-growth": Method("Dimension growth (DG)", "dg"),
    "none": Method("all old features", solver=False),
    "pca": Method("PCA", solver=False),
    "kernel-pca": Method("kernel PCA", solver=False),
    "lda": Method("LDA", solver=False, paradigms=(SUPERVISED,)),
    "nca": Method("NCA", solver=False, paradigms=(SUPERVISED,)),
    "supervised-pca": Method("supervised PCA", solver=False, paradigms=(SUPERVISED,)),
}

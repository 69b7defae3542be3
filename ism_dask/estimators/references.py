"""The publications of the methods that a fit used, for BibTeX."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

# The keys of publications, by the attribute of a fit and its value.
_USED = {
    ("criterion_", "prediction"): ("fukumizu2004", "fukumizu2009"),
    ("criterion_", "dependence"): ("gretton2005",),
    ("solver_", "ism"): ("wu2019",),
    ("name", "UnsupervisedIKDR"): ("niu2011",),
    ("name", "AlternativeIKDR"): ("wu2018",),
    ("name", "ColoredMVU"): ("song2007",),
}
_ENTRIES = """\
@software{ism_dask, title = {ism\\_dask: interpretable kernel dimension reduction},
  author = {{The ism\\_dask developers}}, version = {VERSION}}

@article{fukumizu2004, author = {Fukumizu, Kenji and Bach, Francis R. and Jordan, Michael I.},
  title = {Dimensionality Reduction for Supervised Learning with Reproducing Kernel {Hilbert}
    Spaces}, journal = {Journal of Machine Learning Research}, volume = {5}, year = {2004}}

@article{fukumizu2009, author = {Fukumizu, Kenji and Bach, Francis R. and Jordan, Michael I.},
  title = {Kernel Dimension Reduction in Regression},
  journal = {The Annals of Statistics}, volume = {37}, year = {2009}}

@inproceedings{gretton2005, booktitle = {Algorithmic Learning Theory}, year = {2005},
  title = {Measuring Statistical Dependence with {Hilbert-Schmidt} Norms},
  author = {Gretton, Arthur and Bousquet, Olivier and Smola, Alex and Sch{\\"o}lkopf, Bernhard}}

@inproceedings{wu2019, title = {Solving Interpretable Kernel Dimension Reduction},
  author = {Wu, Chieh and Miller, Jared and Chang, Yale and Sznaier, Mario and Dy, Jennifer},
  booktitle = {Advances in Neural Information Processing Systems 32}, year = {2019}}

@inproceedings{wu2018, title = {Iterative Spectral Method for Alternative Clustering},
  author = {Wu, Chieh and Ioannidis, Stratis and Sznaier, Mario and Li, Xiangyu and Kaeli, David
    and Dy, Jennifer}, booktitle = {Artificial Intelligence and Statistics}, year = {2018}}

@inproceedings{niu2011, title = {Dimensionality Reduction for Spectral Clustering},
  author = {Niu, Donglin and Dy, Jennifer G. and Jordan, Michael I.},
  booktitle = {Artificial Intelligence and Statistics}, year = {2011}}

@inproceedings{song2007, title = {Colored Maximum Variance Unfolding}, year = {2007},
  author = {Song, Le and Smola, Alex and Borgwardt, Karsten and Gretton, Arthur},
  booktitle = {Advances in Neural Information Processing Systems 20}}
"""


def references_of(model: Any) -> str:
    """Return the BibTeX entries of this software and of the methods of a fitted estimator."""
    facts = {**vars(model), "name": type(model).__name__}
    used = ["ism_dask"]
    for (fact, value), keys in _USED.items():
        used += keys if facts.get(fact) == value else ()
    entries = _ENTRIES.replace("VERSION", version("ism-dask")).split("\n\n")
    return "\n\n".join(each.strip() for each in entries if each.split("{")[1].split(",")[0] in used)

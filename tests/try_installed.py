"""Try an installed wheel with its extra `flows`: names, a fit, the command line, a saved model.

Usage: python -I tests/try_installed.py, in an environment that has them and nothing else.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Run each check; the first one that fails ends the process with its error."""
    import ism_dask

    assert "site-packages" in ism_dask.__file__, ism_dask.__file__
    for name in ism_dask.__all__:
        getattr(ism_dask, name)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ISM_DASK_HOME": folder}
        command = str(Path(sys.executable).with_name("ism-dask"))
        rows = "".join(f"{k};{k % 7},5;{'yes' if k % 7 > 3 else 'no'}\n" for k in range(50))
        Path(folder, "sales.csv").write_text(f"id;income;churned\n{rows}")
        for line in (
            "--version",
            "datasets",
            "fit wine -q 2 --plain --run two",
            "report two",
            "ingest sales.csv --label churned --keep id --plain",
        ):
            subprocess.run([command, *line.split()], env=environment, check=True, cwd=folder)
        os.environ["ISM_DASK_HOME"] = folder
        check_saved_model()
    print(f"ism_dask {ism_dask.__version__}: the wheel works")


def check_saved_model() -> None:
    """Compare the new features of the saved model with those of a fit in this process."""
    import numpy as np
    from sklearn.datasets import load_wine

    from ism_dask import PredictiveIKDR
    from storage import load_model

    X, y = load_wine(return_X_y=True)
    fitted = PredictiveIKDR(2).fit(X, y)
    np.testing.assert_allclose(load_model("two").transform(X), fitted.transform(X), atol=1e-6)


if __name__ == "__main__":
    main()

"""What `make demo` runs, and the runs of deploy/prefect.yaml: the published system on a cluster."""

import re
import shlex
from pathlib import Path

import pytest

from flows.compute.session import Session

ROOT = Path(__file__).parents[2]


def _words_of_the_demo():
    """Return the words of the command of `make demo`, without the program."""
    recipe = re.search(r"^demo: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert "ism-dask up --detach --workers 2 " in recipe
    (words,) = re.findall(r"ism-dask (crossval .+?) \\$", recipe, re.M)
    return shlex.split(words)


@pytest.mark.long
def test_the_demo_has_ism_and_prediction_side_by_side_on_a_cluster(here, up, monkeypatch):
    monkeypatch.chdir(ROOT)
    tasks, workers, close = {}, [], Session.close
    assert _words_of_the_demo()[-2:] == ["--scheduler", "up"]

    def counted(session):
        def counts(dask_scheduler):
            prefixes = dask_scheduler.task_prefixes.items()
            return {name: prefix.state_counts["memory"] for name, prefix in prefixes}

        tasks.update(session.client.run_on_scheduler(counts))
        workers.extend(session.client.run(lambda dask_worker: dask_worker.nanny))
        close(session)

    monkeypatch.setattr(Session, "close", counted)
    ended = here(*_words_of_the_demo())
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"run: {up.answer['ui']}/runs/flow-run/")
    rows = re.findall(r"^ ([A-Za-z ]+?)  .*  (\d\.\d{4}) *$", ended.out, re.MULTILINE)
    accuracies = {name: float(accuracy) for name, accuracy in rows}
    assert list(accuracies)[:3] == ["ISM", "prediction", "PCA"]
    assert {"LDA", "chance"} < set(accuracies)
    assert min(accuracies["ISM"], accuracies["prediction"]) > 0.95
    assert accuracies["chance"] < 0.5
    assert "One row of 178 is 0.0056 of the accuracy" in ended.words
    assert len(workers) == 2
    # In each fold, workers compute J and Phi of the training rows once for each iteration of ISM.
    assert tasks["phi_of_pairs"] >= 20, tasks

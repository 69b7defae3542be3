"""The command line, as people and scripts use it."""

import math
import re
import resource
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from daskparts import ran
from support import Ended, store_own

from flows.cli.app import app
from flows.progress.interrupts import delay_interrupts
from flows.runs.data import ensure_stored
from flows.services.service import live_record
from storage import load_model, runs_folder

DEPENDENCE = ("--criterion", "dependence")
COMMANDS = {each.name: each.rich_help_panel for each in app.registered_commands if each.name}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_all_commands_have_the_same_options(here, command):
    ended = here(command, "--help")
    assert ended.status == 0
    assert f"Example: ism-dask {command}" in ended.out
    assert all(option in ended.out for option in ("--json", "--quiet", "--debug"))


def test_help_waits_for_nothing_heavy(apart):
    # Not by the clock, which a busy machine lets run on: 0.2 s of computing.
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    ended = apart("--help", PYTHONPROFILEIMPORTTIME="1")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2
    for heavy in ("numpy", "scipy", "sklearn", "dask", "zarr", "prefect", "pydantic"):
        assert f" {heavy}\n" not in ended.err
    assert all(command in ended.out for command in COMMANDS)


def test_help_has_panels_and_no_types_of_flags(here):
    panels = re.findall(r"^╭─ ([\w ]+) ─", here("--help").out, re.MULTILINE)
    assert panels[-5:] == list(dict.fromkeys(COMMANDS.values()))
    output = here("fit", "--help").out
    panels = re.findall(r"^╭─ (\w+) ─", output, re.MULTILINE)
    assert panels == ["Arguments", "Data", "Kernel", "Solver", "Run", "Output"]
    assert output.index("Kernel ─") < output.index("--sigma") < output.index("Solver ─")
    assert "<bool>" not in output
    assert "Usage: ism-dask fit" in output


@pytest.mark.parametrize(
    ("words", "completed"),
    [("fi", "fit"), ("fit wi", "wine"), ("fit wine --kernel ga", "gaussian")],
)
def test_a_shell_completes_commands_data_sets_and_kernels(here, monkeypatch, words, completed):
    monkeypatch.setenv("_ISM_DASK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"ism-dask {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert here().out.split() == [completed]


def test_version_and_no_command_at_all(here):
    assert here("--version").out.startswith("ism-dask 0.")
    bare = here()
    assert bare.status == 2
    assert "crossval" in bare.out


def test_a_missing_file_does_not_wait_for_prefect(here, monkeypatch, tmp_path):
    for looked in ("run_file.connect_to_prefect", "compute.has_prefect"):
        monkeypatch.setattr(f"flows.cli.{looked}", pytest.fail)
    for command in ("fit", "ingest"):
        said = here(command, tmp_path / "absent.csv").failed(1)
        assert f"there is no file or folder {tmp_path / 'absent.csv'}" in said
    path = tmp_path / "absent.toml"
    for words in (("run", path), ("schedule", path, "--cron", "0 2 * * *")):
        assert f"the run file {path} cannot be read" in here(*words).failed(2)
    rows = '[[transform]]\nsource = "no/rows"\nout = "x.csv"\n'
    path.write_text(f'[data]\nsource = "wine"\n[fit]\n{rows}')
    for options in ((), ("--plain",), ("--dry-run",)):
        lacks = here("run", path, *options).failed(1)
        assert f"there is no file or folder {tmp_path / 'no/rows'}" in lacks


def test_crossval_for_people_starts_no_server(here):
    words = ("crossval", "wine", *DEPENDENCE, "--sigma", "median")
    ended = here(*words, "--first", 3)
    assert (ended.status, ended.err) == (0, "")
    assert "run: http" not in ended.out
    assert live_record("prefect-server") is None
    assert "Cross-validation of wine: 178 rows, 13 columns, gaussian kernel, q = 2" in ended.out
    name = "wine-gaussian-q2-crossval"
    assert f"`ism-dask report {name}` makes a page of it\n" in ended.out
    rows = re.findall(r"^ *(\d+|mean|sd) ", ended.out, re.MULTILINE)
    assert rows == ["1", "2", "3", "mean", "sd"]
    assert here(*words, "--first", 1, "--quiet") == Ended(0, "", "")


def test_datasets_and_ingest(here):
    before = {each["name"]: each for each in here("datasets", "--json").answer["datasets"]}
    assert before["mnist"]["rows"] in (10_000, 60_000)
    assert before["wine"]["stored"] is False
    ingested = here("ingest", "wine", "--plain", "--json").answer
    assert (ingested["rows"], ingested["columns"]) == (178, 13)
    assert "178 rows, 13 columns" in here("ingest", "wine", "--plain", "--force").out
    after = {each["name"]: each for each in here("datasets", "--json").answer["datasets"]}
    assert after["wine"]["labels"] == {"cultivar": 3}
    assert after["wine"]["bytes"] > 0
    (Path(ingested["path"]) / "zarr.json").unlink()
    assert "damaged" in here("datasets").out


def test_only_settings_become_options(here, tmp_path):
    """Words in backticks that a user has written stay as they are."""
    (tmp_path / "t.csv").write_text("a,`label`\n1,\n2,3\n")
    message = here("ingest", tmp_path / "t.csv", "--plain").failed(1)
    assert "rows: `label` (1); accept that with `--missing` drop" in message


@pytest.mark.usefixtures("reference_data")
def test_other_rows_of_a_data_set_are_named(here):
    """Without --split, MNIST is its 10,000 test rows."""
    ended = here("ingest", "mnist", "--plain")
    assert "mnist has other rows, too: --split train stores them" in ended.out
    assert "mnist (test): 10,000 rows" in ended.out
    assert "other rows" not in here("ingest", "mnist", "--split", "test", "--plain").out
    assert "flower has no labels" in here("crossval", "flower", "--plain").failed(2)


def test_a_bound_that_says_nothing_is_null(here):
    # With labels that say nothing, so that the engine bounds the error of J by infinity.
    store_own(400, 8, y=np.random.default_rng(0).integers(0, 2, 400))
    words = ("-q", 3, "--kernel", "multiquadric", "--offset", 4, "--tol", 0.01, *DEPENDENCE)
    words += ("--engine", "landmarks", "--engine-tol", 0.99)
    answer = here("fit", "own", "--plain", "--json", *words).answer
    assert answer["engine_error"] is None
    assert here("show", answer["run"], "--json").answer["metrics"]["engine_error"] is None
    assert load_model(answer["run"]).metrics["engine_error"] == math.inf


def test_the_status_of_a_fit_is_in_its_summary_and_in_its_record(here):
    for status, options in (
        ("converged", ()),
        ("tolerance met", ("--tol", 1e9)),
        ("max_iter", ("--tol", 1e-12, "--max-iter", 1)),
        ("over the cap", ("--max-seconds", 1e-9)),
    ):
        words = ("fit", "wine", "--plain", "--json", "--force", "--run", "one", *DEPENDENCE)
        assert here(*words, "--sigma", "median", *options).answer["status"] == status
        assert load_model("one").metrics["status"] == status


@pytest.mark.parametrize("command", ["fit", "cluster", "crossval"])
def test_runs_that_cannot_be_kept_are_known_of_before_the_work(here, monkeypatch, command):
    for work in ("fit.fit", "crossval.fit", "clustering._fitted"):
        monkeypatch.setattr(f"flows.runs.{work}", pytest.fail)
    ensure_stored("wine", None)
    runs_folder().touch()
    assert f"could not write {runs_folder()}" in here(command, "wine", "--plain").failed(1)
    runs_folder().unlink()
    runs_folder().mkdir()
    (runs_folder() / "mine").touch()
    words = (command, "wine", "--plain", "--run", "mine")
    assert f"could not write {runs_folder() / 'mine'}" in here(*words).failed(1)
    assert sorted(path.name for path in runs_folder().iterdir()) == [".leases", "mine"]


def test_ctrl_c_is_told_of_whatever_error_comes_of_it(here, monkeypatch):
    def half_imported(*_):
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:
            raise AttributeError("partially initialized module") from None

    def hasty(line):
        signal.raise_signal(signal.SIGINT)
        return line

    monkeypatch.setattr("flows.settings.runs.SavedRunSettings.build_kernel", half_imported)
    monkeypatch.setattr("flows.cli.app.printable", hasty)
    assert here("fit", "wine", "--plain") == Ended(130, "", "ism-dask: interrupted\n")
    monkeypatch.undo()
    # The next command of this process knows nothing of it.
    assert here("fit", "wine", "--plain", "--sigma", "x").failed(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nonsense", "No such command"),
        ("crossval wine --folds many", "many'"),
        ("crossval whine --plain", "`dataset` is 'whine'; did you mean 'wine'? expected one of"),
        ("crossval wine --plain -q 13", "wine has 13 columns, expected 1 to 12"),
        ("cluster wine --plain -q 13", "wine has 13 columns, expected 1 to 12"),
        ("fit wine --plain --max-features 14", "wine has 13 columns, expected 1 to 13"),
        ("ingest a.csv --label=", "`--label` is ''; expected names of columns, or leave it out"),
        ("datasets whine", "no data set 'whine'; did you mean 'wine'"),
        ("crossval wine --plain --label colour", "`--label` is 'colour'; wine has cultivar"),
        ("fit wine --plain --label=", "`--label` is ''; wine has cultivar"),
        ("fit  --plain", "`dataset` is ''; expected 1 to 128 of the characters"),
        ("crossval wine --plain --folds 49", "expected at most 48"),
        ("crossval wine --plain --folds 1", "`--folds` is 1; expected 2 or more"),
        ("crossval wine --plain --first 11", "`--first` is 11; expected at most `--folds`"),
        ("crossval wine --plain --split train", "`--split` is 'train'; wine has all"),
        ("crossval parts --plain", "or a path, with a / or an ending such as .csv: ./parts"),
        ("fit wine --plain --engine newton", "`--engine` is 'newton'; expected one of auto, "),
        ("fit wine --plain --sigma wide", "`--sigma` must be a positive finite number"),
        ("fit wine --plain --target colour", "expected one of auto, numbers, classes, labels"),
        ("crossval wine --plain --scheduler foo://127.0.0.1:1", "`--scheduler` is 'foo:"),
        ("cluster wine --plain --criterion dependence", "No such option: --criterion"),
        ("crossval wine --plain --tol inf", "`--tol` is inf; expected a finite number"),
        ("fit wine --plain --engine-tol 2", "`--engine-tol` is 2.0; expected a number below 1"),
        ("crossval mnist-test --split train --plain", "is no data set with splits"),
        ("fit wine --plain --run a/b", "`--run` is 'a/b'"),
        ("transform two wine", "--out"),
        ("history two --rollback -o a.html", "--rollback and --out exclude each other"),
        ("transform two wine -o out.txt", "ends in .csv or .npy"),
        ("transform two in.csv --split all -o out.csv", "is a table, which has none"),
        ("resume cud --plain", "no run 'cud' was interrupted"),
        ("resume ../cut --plain", "expected 1 to 128 of the characters"),
        ("up --stop --detach", "exclude each other; give one of them"),
        ("up --workers 0", "`--workers` is 0; expected 1 or more"),
        ("up --port 70000", "`--port` is 70000; expected 65535 or less"),
        ("up --memory much", "`--memory` is 'much'; expected a size such as 4GB"),
        ("up --pool a/b", "`--pool` is 'a/b'"),
    ],
)
def test_wrong_usage(here, arguments, message):
    ended = here(*arguments.split(" "), "--json")
    assert message in ended.answer["error"]
    ended.failed(2)


def test_arguments_and_a_home_that_cannot_be_are_refused(here, monkeypatch, tmp_path):
    for words in (("fit", "\udce9"), ("init", "x.toml", "--data", "\udce9.csv", "--json")):
        assert r"'\udce9" in here(*words).failed(2)
    assert "could not write" in here("init", "x" * 300).failed(1)
    (tmp_path / "file").touch()
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path / "file"))
    assert "file', which is a file; name a folder" in here("runs").failed(2)


def test_errors_of_the_library_name_options_and_expect_what_is_possible(here, tmp_path):
    closed = here("fit", "wine", "--plain", *DEPENDENCE, "--engine", "closed_form").failed(1)
    assert "`--engine`='closed_form' cannot serve this problem" in closed
    few = here("fit", "wine", "--max-features", 1, "-q", 2, "--plain").failed(1)
    assert "`--max-features` is 1, but 2 new features need 2 features or more" in few
    steep = here("fit", "wine", "--kernel", "polynomial", "--degree", 20, "-q", 1, "--plain")
    assert "take a lower degree" in steep.failed(1)
    table = tmp_path / "rare.csv"
    table.write_text("x,z,y\n" + "".join(f"{n},{n % 5}.5,{n}\n" for n in range(30)))
    unclear = here("ingest", table, "--label", "y", "--plain").failed(1)
    assert "give `--target` classes or numbers" in unclear
    table.write_text("x,z,y\n1,2.5,rare\n" + "2,1,a\n3,4,b\n" * 9)
    assert here("ingest", table, "--label", "y", "--plain").status == 0
    rows = "1,3,p\n2,1,q\n3,2,p\n5,2,q\n4,9,q\n"
    table.with_name("five.csv").write_text(f"x,z,y\n{rows}")
    assert here("ingest", table.with_name("five.csv"), "--label", "y", "--plain").status == 0
    found = here("crossval", "five", "--folds", 2, "--plain", "--json").answer["results"]
    assert ["LDA" in fold["baselines"] for fold in found] == [False, True]
    alone = here("crossval", "rare", "--folds", 3, "--plain").failed(2)
    assert "the smallest of rare has 1; expected two rows of each class, or more" in alone


def test_failures_of_transform(here, tmp_path):
    out = tmp_path / "out.csv"
    assert "no run 'two' is saved" in here("transform", "two", "wine", "-o", out).failed(2)
    words = ("fit", "wine", "-q", 2, "--run", "two", "--plain", *DEPENDENCE)
    assert here(*words).status == 0
    huge = np.ones((3, 13))
    huge[1:] = 1e308
    np.save(tmp_path / "huge.npy", huge)
    np.save(tmp_path / "pickled.npy", np.array([{}]), allow_pickle=True)
    for source, target, message in (
        (tmp_path / "pickled.npy", out, "Python objects"),
        ("digits", out, "has 64 columns, but the model was fitted to 13"),
        (tmp_path / "huge.npy", out, "huge.npy: 'the projection' is .* too large in 2 rows"),
    ):
        assert re.search(message, here("transform", "two", source, "-o", target).failed(1))
    assert not out.exists()


@pytest.mark.parametrize(("words", "status"), [("runs 1>&-", 0), ("show nope 2>&-", 2)])
def test_a_closed_stream_gets_nothing_and_breaks_nothing(words, status):
    ended = ran("sh", "-c", f"{sys.executable} -m flows.cli {words}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_answer_that_cannot_be_printed_is_an_error_of_one_line(unbuffered):
    command = f"{sys.executable} -m flows.cli runs --json > /dev/full"
    ended = ran("sh", "-c", command, PYTHONUNBUFFERED=unbuffered)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1


def test_the_traceback_is_there_for_who_asks(here):
    words = ("fit", "wine", "--plain", "--label", "colour")
    ended = here(*words, "--debug")
    assert ended.status == 2
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1].startswith("ism-dask: `--label`")


def test_an_error_that_nobody_foresaw_is_one_line(here, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("flows.runs.data.open_dataset", broken)
    monkeypatch.setattr("flows.runs.data.ingest", broken)
    assert "RuntimeError: first second (--debug" in here("ingest", "wine", "--plain").failed(1)


def test_an_interruption_waits_until_dask_has_started():
    done = []

    def start():
        with delay_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]


def test_a_command_ends_though_a_thread_does_not():
    code = (
        "import threading, time\n"
        "from flows.progress import interrupts\n"
        "interrupts._EXIT_SECONDS = 0.2\n"
        "threading.Thread(target=time.sleep, args=[600]).start()\n"
        "interrupts.exit_process(130)\n"
    )
    assert ran(sys.executable, "-c", code).returncode == 130


@pytest.mark.parametrize("name", ["flows", "storage"])
def test_a_package_of_another_project_in_place_of_ours_is_named(name, tmp_path):
    other = tmp_path / name / "__init__.py"
    other.parent.mkdir()
    other.touch()
    command = "from ism_dask_command import main; main()"
    done = ran(sys.executable, "-P", "-c", command, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"ism-dask: ism-dask needs its own package `{name}`")
    assert str(other.parent) in done.stderr

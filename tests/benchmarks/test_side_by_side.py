"""Cases in processes of their own, which take turns."""

import json
import threading

import pytest

from benchmarks import kernel_cases, kernel_checks, side_by_side, timing
from benchmarks.side_by_side import Unit

FAKE = """
import json, os, signal, sys, time
how, out = sys.argv[1:]
row = {"operation": "trans", "case": how, "implementation": "xla", "holds": True}
if how != "crashes early":
    with open(out + ".part", "w") as file:
        json.dump({"chip": "this", "turns": os.environ["LOGIC_ZOO_TURNS"], "rows": [row]}, file)
    os.replace(out + ".part", out)  # whole or not at all, as the programs' own records
if how.startswith("crashes"):
    os.kill(os.getpid(), signal.SIGKILL)
if how == "hangs":
    time.sleep(60)
sys.exit(how == "is wrong")
"""


def units(*cases, kind="checks"):
    return [Unit(kind, "trans", case, number) for number, case in enumerate(cases)]


@pytest.fixture
def _fakes(tmp_path, monkeypatch):
    (tmp_path / "fake_case.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Unit, "command", lambda self, out: ["fake_case", self.case, str(self.part(out))])
    monkeypatch.setattr(side_by_side, "STEP", 0.02)


@pytest.mark.usefixtures("_fakes")
def test_what_crashes_or_hangs_loses_its_own_rows_only(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(side_by_side, "LONGEST", 3.0)
    todo = units("is right", "crashes late", "is wrong", "hangs", "crashes early")
    ended = side_by_side.run(todo, tmp_path / "out", 60.0, processes=5)
    assert ended == {"done": 2, "failed": 3, "stopped": 0, "not started": 0}
    record = json.loads((tmp_path / "out" / "checks_trans.json").read_text())
    assert (record["chip"], record["turns"]) == ("this", str(tmp_path / "out" / "turns"))
    rows = {(row["case"], row.get("failed")) for row in record["rows"]}
    assert rows == {
        ("is right", None),
        ("is wrong", None),
        *{("crashes late", each) for each in (None, "exit status -9")},
        *{("hangs", each) for each in (None, "ended after 3 s")},
        ("crashes early", "exit status -9"),
    }
    assert "checks trans hangs: ended after 3 s" in capsys.readouterr().out


@pytest.mark.usefixtures("_fakes")
def test_ends_with_the_seconds_and_keeps_what_is_there(tmp_path):
    """What was not measured has no rows, a check that was stopped has not failed, and what was is kept."""
    todo = [*units("is right", "hangs"), *units("is right", "hangs", "is right", kind="kernels")]
    todo = [Unit(unit.kind, "trans", unit.case, number) for number, unit in enumerate(todo)]
    ended = side_by_side.run(todo, tmp_path / "out", 3.0, processes=2)
    assert ended == {"done": 2, "failed": 0, "stopped": 2, "not started": 1}
    for name in ("kernels", "checks"):
        rows = json.loads((tmp_path / "out" / f"{name}_trans.json").read_text())["rows"]
        assert [(row["case"], row.get("failed")) for row in rows] == [("is right", None), ("hangs", None)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--only=nothing"], "--only: got 'nothing', expected a part of an operation or a case"),
        ([], "which has records of cases, expected another folder"),
    ],
)
def test_mistakes_are_reported(flags, message, tmp_path, monkeypatch, capsys):
    out = tmp_path / "new" if flags else tmp_path
    (tmp_path / "parts").mkdir()
    monkeypatch.setattr("sys.argv", ["side_by_side", f"--out={out}", *flags])
    with pytest.raises(SystemExit) as end:
        side_by_side.main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_every_case_has_a_process_that_runs_it_alone(tmp_path):
    """Checks come first, since only what is right is used."""
    found = side_by_side.units()
    kinds = [unit.kind for unit in found]
    assert kinds == sorted(kinds) == ["checks"] * kinds.count("checks") + ["kernels"] * kinds.count("kernels")
    assert len({unit.part(tmp_path) for unit in found}) == len(found)
    cases = {"checks": list(kernel_checks.to_check()), "kernels": kernel_cases.cases("cpu")}
    for unit in found:
        module, only, out = unit.command(tmp_path)
        assert module == {"checks": "benchmarks.kernel_checks", "kernels": "benchmarks.kernels"}[unit.kind]
        (case,) = kernel_cases.chosen(cases[unit.kind], only.removeprefix("--only="))
        assert (case.operation.name, case.name) == (unit.operation, unit.case)
        assert out == f"--out={unit.part(tmp_path)}"
    assert {unit.operation for unit in side_by_side.units("trans ")} == {"trans"}


def test_turns(tmp_path, monkeypatch):
    """Several may compile; what is timed is alone."""
    monkeypatch.setenv(timing.TURNS, str(tmp_path / "turns"))
    alone = threading.Event()

    def time_something():
        with timing.turn(alone=True):
            alone.set()

    thread = threading.Thread(target=time_something)
    with timing.turn(alone=False), timing.turn(alone=False):
        thread.start()
        assert not alone.wait(0.2)
    thread.join(10)
    assert alone.is_set()


def test_nothing_is_waited_for_alone(monkeypatch):
    monkeypatch.delenv(timing.TURNS, raising=False)
    with timing.turn(alone=True), timing.turn(alone=True):
        pass
    times = timing.alternate({"nothing": lambda: 0}, blocks=2, block_seconds=0.0)
    assert len(times["nothing"]) == 2

"""Tests all parts in one call: the budget of seconds, the needs of a part, and how it is stopped."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import accelerator, accelerator_summary

ROOT = Path(__file__).resolve().parents[2]
DRAWING = ("matplotlib", "PIL", "imageio", "imageio_ffmpeg", "tensorboardX", "tqdm")
NOT_NEEDED = (
    "ml_collections",
    "grain",
    "array_record",
    "tensorflow_datasets",
    "mathematics_dataset",
    "sympy",
)
"""Packages of this project that all parts do without, so that they may be missing."""
OF_TRAINING = (*accelerator.FOLNET, "ml_dtypes", "msgpack", "rich", "yaml", "etils")

BLOCKED = """
import importlib, sys
for group in sys.argv[1:]:
    blocked, modules = (names.split(",") for names in group.split(":"))
    sys.modules.update(dict.fromkeys(blocked))
    for name in modules:
        importlib.import_module(name)
    for name in blocked:
        del sys.modules[name]
"""


def programs(*needs):
    """The modules of the parts that need these packages, with those of the experiments that they name."""
    found = set()
    for part in accelerator.parts(Path("out"), Path("runs")):
        if part.needs in needs:
            module, *given = part.command(60.0)
            if source(module).name == "__main__.py":
                (only,) = [flag for flag in given if flag.startswith("--only=")]
                found |= {f"{module}.__main__", f"{module}.{only.removeprefix('--only=')}"}
            else:
                found.add(module)
    return sorted(found)


def source(module):
    """The file that `python -m` runs."""
    path = ROOT / module.replace(".", "/")
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def test_a_part_needs_no_more_than_it_says():
    """Its program is imported where nothing else of this project's packages is; those of kernels first."""
    groups = []
    for needs, blocked, expected in (
        (
            (accelerator.KERNELS,),
            (*DRAWING, *NOT_NEEDED, *set(OF_TRAINING) - set(accelerator.KERNELS)),
            {"side_by_side", "tune_kernels"},
        ),
        ((accelerator.TRAINING, accelerator.FOLNET), (*DRAWING, *NOT_NEEDED), {"training", "bursts"}),
    ):
        # These are JAX's own.
        blocked = [name for name in blocked if name not in ("scipy", "ml_dtypes")]
        modules = programs(*needs)
        assert {name.split(".")[1] for name in modules} == expected
        groups.append(f"{','.join(blocked)}:{','.join(modules)}")
    command = [sys.executable, "-c", BLOCKED, *groups]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_missing_packages_are_named():
    def command(seconds):
        raise AssertionError("not to be started")

    part = accelerator.Part("p", 1, command, ("jax", "nobody_has_this"))
    assert part.missing() == "needs nobody_has_this"
    assert dataclasses.replace(part, needs=("jax",)).missing() == ""


def part(name, share, **fields):
    return accelerator.Part(name, share, lambda seconds: ["this", f"{seconds:.0f}"], ("json",), **fields)


def test_what_a_part_leaves_over_goes_to_the_next(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(accelerator.time, "monotonic", lambda: now[0])
    budget = accelerator.Budget(101.0)
    one, two, three = part("one", 20), part("two", 20), part("three", 60)
    assert budget.of(one, [two, three]) == pytest.approx(20)
    now[0] = 4.0  # it took 4 of its 20
    assert budget.of(two, [three]) == pytest.approx(24)
    assert budget.of(three, []) == pytest.approx(96)
    now[0] = 80.0
    assert budget.of(one, [two, three]) == accelerator.LEAST  # a share of 4 s would be of no use
    assert budget.of(part("long", 1, least=40.0), []) == pytest.approx(20)


def test_what_will_not_fit_has_no_share(monkeypatch):
    """All seconds are used: those of a part that they are too few for go to the one before it."""
    monkeypatch.setattr(accelerator.time, "monotonic", lambda: 0.0)
    long, other = part("long", 20, least=50.0), part("other", 20, least=40.0)
    assert accelerator.Budget(101.0).of(long, [other]) == pytest.approx(50)
    assert accelerator.Budget(91.0).of(long, [part("more", 20, least=46.0)]) == pytest.approx(90)
    first, many = part("first", 5), [part(str(number), 5) for number in range(20)]
    # Five parts of the least that is of use, not twenty-one of nothing.
    assert accelerator.Budget(61.0).of(first, many) == pytest.approx(12)


def test_parts_that_do_not_fit_are_reported(monkeypatch, tmp_path):
    """In their order; the seconds of what cannot run go to the others."""
    started = []

    def run(command, seconds, log, grace):
        started.append((command, round(seconds)))
        return "done, 0 s"

    monkeypatch.setattr(accelerator, "run", run)
    chosen = [
        part("one", 1),
        dataclasses.replace(part("two", 8), needs=("nobody_has_this",)),
        part("three", 1, least=10_000.0),
        part("four", 1),
    ]
    ended = accelerator.run_all(accelerator.Budget(301.0), chosen, tmp_path)
    assert started == [(["this", "150"], 150), (["this", "300"], 300)]
    assert ended["two"] == "not started: needs nobody_has_this"
    assert ended["three"] == "not started: 300 s left, needs 10000"
    assert json.loads((tmp_path / "parts.json").read_text()) == ended


OBSTINATE = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True) or (sys.exit(3) if {leaves} else None))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
time.sleep(60)
"""


@pytest.mark.parametrize("leaves", [True, False])
def test_a_part_is_asked_then_ended_with_all_it_started(tmp_path, monkeypatch, leaves):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "obstinate.py").write_text(OBSTINATE.format(leaves=leaves))
    start = time.monotonic()
    ended = accelerator.run(["obstinate"], 4.0, tmp_path / "log.txt", grace=1.0)
    assert time.monotonic() - start < 20
    assert ended.startswith("stopped when" if leaves else "killed when")
    _, command, child, asked = (tmp_path / "log.txt").read_text().splitlines()
    assert (command, asked) == ("== python -m obstinate", "asked")
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split():
            break
        time.sleep(0.05)
    else:
        raise AssertionError(f"process {child} is still running")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--budget=1"], "--budget: got 1.0, expected at least 12 seconds"),
        (["--budget=60", "--out=."], "--out: got ., expected a new or empty folder"),
        (["--budget=60", "--only=nothing"], "--only: got 'nothing', expected text in one of kernels, tr"),
    ],
)
def test_mistakes_are_reported(flags, message, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["accelerator", f"--out={tmp_path}", *flags])
    with pytest.raises(SystemExit) as end:
        accelerator.main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_the_table_has_a_line_for_all_there_is(tmp_path):
    def write(name, value):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(value) if not isinstance(value, str) else value)

    write("machine.json", {"chip": "Chip", "devices": 1, "date": "2026-11-22", "versions": {"jax": "0.12"}})
    right = {"operation": "trans", "case": "a", "implementation": "gpu", "errors": [1e-6], "holds": True}
    write("checks_trans.json", {"rows": [right, {**right, "case": "b", "holds": False}]})
    ratio = {"median": 2.0, "least": 1.9, "greatest": 2.1}
    fast = {"seconds": 1e-3, "speedup": {"plain": ratio}, "times_floor": 1.5, "temporary_bytes": None}
    paths = {"gpu": fast, "tpu": {"failed": "none"}}
    write("kernels_trans.json", {"rows": [{**right, "direction": "forward", "paths": paths}]})
    boxworld = {"case": "relational", "steps_per_second": {"median": 2e4}, "times_the_authors": 1.1}
    write("training_boxworld.json", {"rows": [{**boxworld, "utilisation": 0.25, "peak_bytes": 2**31}]})
    rows = [{"name": "product", "operations_per_second": 1e12}, {"name": "t5", "failed": "no room"}]
    write("training_kinship.json", {"rows": [*rows, {"name": "bert", "problems_per_second": 123.0}]})
    write("training_llrnn.json", '{"rows": [')  # half of a file
    write(
        "boxworld/relational/metrics.jsonl", '{"frames": 5, "solved": null}\n{"frames": 9, "solved": 0.5}\n'
    )
    text = "\n".join(accelerator_summary.lines(tmp_path, {"modules": "not started: needs data"}))
    for expected in (
        "Chip x 1, 2026-11-22; jax 0.12",
        "not started: needs data",
        "checks_trans: 1 hold, 1 wrong, 0 not supported",
        f"  trans{'':20}b{'':44}gpu{'':12}WRONG 1.0e-06",
        "1.000 ms       0.0 MB   1.5x floor 2.00 (1.90 to 2.10) times plain",
        "20,000 steps/s,  25.0 % of the matrix rate,   2.00 GiB, 1.1x the authors'",
        "1.00 TFLOP/s",
        "no room",
        "123 problems/s",
        "boxworld/relational: frames 9, solved 0.5",
    ):
        assert expected in text


@pytest.mark.slow
def test_one_call_within_its_budget(tmp_path):
    """On a CPU: it ends in time, with whole records and a table; a SIGTERM ends it with its part."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "benchmarks.accelerator", "--budget=60", f"--out={out}"]
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert time.monotonic() - start < 65
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "machine.json").read_text())["platform"] == "cpu"
    ended = json.loads((out / "parts.json").read_text())
    names = [part.name for part in accelerator.parts(out, out)]
    assert list(ended) == names
    assert ended["boxworld"].startswith("not started: ")
    for path in out.glob("*.json"):
        json.loads(path.read_text())
    assert not ended[names[0]].startswith("not started")
    assert "WRONG" not in done.stdout
    # How many checks fit into the seconds depends on what else the machine does.
    assert done.stdout.count("hold, 0 wrong") == len(list(out.glob("checks_*.json")))
    assert done.stdout.strip().endswith((out / "summary.txt").read_text().strip())

    process = subprocess.Popen([*command, f"--out={tmp_path / 'other'}"], cwd=ROOT, stdout=subprocess.DEVNULL)
    time.sleep(8)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 128 + signal.SIGTERM
    assert children
    assert not any(os.path.exists(f"/proc/{child}") for child in children)


def test_parts_call_their_programs_rightly():
    """Every flag that is given is defined where the program is, or where it takes its flags from."""
    parts = accelerator.parts(Path("out"), Path("runs"))
    assert len({part.name for part in parts}) == len(parts)
    assert sum(part.share for part in parts) == 100
    for part in parts:
        module, *given = part.command(60.0)
        text = source(module).read_text()
        for flag in given:
            name, _, value = flag.removeprefix("--").partition("=")
            assert f'"{name}", ' in text or f"{name}=" in text, flag
            if name in ("budget", "seconds"):
                assert 0 < float(value) < 60

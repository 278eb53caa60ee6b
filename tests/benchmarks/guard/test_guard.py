"""The guard: verdicts, flags, records it continues, and the processes it starts in either tree."""

import contextlib
import json
import shutil
from types import SimpleNamespace
from typing import Any

import pytest
from absl import app

from benchmarks.guard import __main__ as guard
from benchmarks.guard import subjects
from benchmarks.kernel_cases import all_cases


def runs(before, after) -> Any:
    made = zip(guard.TREES, (before, after), strict=True)
    return {tree: [{"seconds": [number, number]} for number in numbers] for tree, numbers in made}


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([1.0, 1.1, 1.0], [1.2, 1.3, 1.1], "slower"),
        ([1.0, 1.1, 1.2, 1.2, 1.2], [1.2, 1.3, 1.1, 1.3, 1.3], "slower"),  # once faster
        ([1.0, 1.1, 1.2, 1.2, 1.2], [1.2, 1.3, 1.1, 1.1, 1.3], "within the spread"),  # twice of five
        ([1.0, 1.0, 1.0], [1.01, 1.01, 1.01], "within the spread"),  # by less than the tolerance
        ([1.2, 1.3, 1.2], [1.0, 1.0, 1.1], "faster"),
        ([1.2], [1.0], "faster"),  # one turn
    ],
)
def test_slower_is_what_exceeds_spread_and_tolerance(before, after, verdict):
    found = guard.judged(runs(before, after), 0.02)
    assert found["verdict"] == verdict
    assert found["ratio"]["blocks"] == [b / a for b, a in zip(before, after, strict=True)]
    assert verdict in guard.line("name", found)


def test_what_fails_in_this_tree_only_is_broken():
    made = runs([1.0], [1.0])
    made["after"][0] = {"failed": "ValueError: no"}
    assert guard.judged(made, 0.02) == {"before": None, "after": "ValueError: no", "verdict": "broken"}
    made["before"][0] = {"failed": "too old"}
    assert guard.judged(made, 0.02)["verdict"] == "not compared"


def test_an_interrupted_record_is_continued_and_another_ones_refused(tmp_path, monkeypatch):
    """Each tree is measured so often; the order alternates; nothing is measured twice."""
    asked, closed = [], []

    @contextlib.contextmanager
    def started(tree, name, size, limit):
        def measure(seconds):
            if not seconds:
                return {"seconds": [9.0]}
            asked.append(tree)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return {"seconds": [2.0 if tree == "new" else 1.0] * 2}

        try:
            yield measure
        finally:
            closed.append(tree)

    monkeypatch.setattr(guard, "started", started)
    values = SimpleNamespace(repetitions=2, size="tiny", seconds=1.0, limit=9.0, tolerance=0.02)
    trees: Any = {"before": "old", "after": "new"}
    made: Any = {}
    with pytest.raises(KeyboardInterrupt):
        guard.compare(trees, ["a"], values, made, lambda: None)
    assert asked == ["old", "new", "new"]
    assert sorted(closed) == ["new", "old"]
    guard.compare(trees, ["a"], values, made, lambda: None)
    assert asked[3:] == ["new", "old"]
    guard.compare(trees, ["a"], values, made, lambda: None)
    assert len(asked) == 5
    assert guard.judged(made["a"], 0.02)["verdict"] == "slower"

    out, head = tmp_path / "guard.json", {"against": "a", "size": "full"}
    assert guard.begun(out, head) == {}
    out.write_text(json.dumps({**head, "runs": made}))
    assert guard.begun(out, head) == made
    with pytest.raises(app.UsageError, match="of a run with another size, expected the same"):
        guard.begun(out, head | {"size": "tiny"})
    out.write_text('{"against"')
    with pytest.raises(app.UsageError, match=r"--out: got .* expected a record of this program"):
        guard.begun(out, head)


def test_a_commit_that_does_not_exist_is_refused():
    with pytest.raises(app.UsageError, match="--against: got 'none', expected a commit of"):
        guard.full_name("none")


ROW = "kernels.trans.decoder.forward"
OTHER_TREE = {
    "kernels/__init__.py": "",
    "benchmarks/__init__.py": "",
    "benchmarks/kernel_cases.py": """
import types
def all_cases(platform):
    function = lambda direction, implementation: lambda logits: logits + 1
    yield types.SimpleNamespace(name="decoder float32", draw=lambda: (1.0,), function=function)
""",
}


def replies(tree, name, size, *seconds, limit=600.0):
    with guard.started(tree, name, size, limit) as measure:
        return [measure(each) for each in seconds]


def test_a_process_measures_the_tree_it_is_given(tmp_path):
    """A tree with other packages of the same names, and one without."""
    for name, text in OTHER_TREE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    first, *others = replies(tmp_path, ROW, "full", 0.0, 0.0, 0.01)
    assert len(first["seconds"]) == 1
    assert min(first["seconds"]) > 0
    assert sum(others[1]["seconds"]) > 0.01
    shutil.rmtree(tmp_path / "kernels")
    missing, again = replies(tmp_path, ROW, "full", 0.0, 0.0)
    assert "expected those of" in missing["failed"] or "ModuleNotFoundError" in missing["failed"]
    assert again == missing


def test_a_process_that_does_not_reply_is_ended(tmp_path):
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text("import time\ntime.sleep(300)\n")
    found = replies(tmp_path, ROW, "full", 0.0, 0.0, limit=0.2)
    assert found == [{"failed": "no reply after 0.2 s"}] * 2


def test_the_kernels_are_those_of_their_benchmark():
    cases = [f"{case.operation.name.removesuffix('_attention')}.{case.name}" for case in all_cases("cpu")]
    named = [f"{name}.{shape}" for name, shapes in subjects.KERNELS.items() for shape in shapes]
    assert cases == [f"{name} float32" for name in named]
    rows = [name for name in subjects.SUBJECTS if name.startswith("kernels.")]
    assert len(rows) == 2 * len(cases)
    assert ROW in rows


def test_modules_that_have_moved_are_found():
    assert subjects.found("no.such.module", "json") is json
    with pytest.raises(ModuleNotFoundError, match=r"without no\.such, none, expected one of them"):
        subjects.found("no.such", "none")


@pytest.mark.usefixtures("compiled_quickly")
def test_a_subject_runs_here():
    """A tiny one, in this process; the tests above start others."""
    assert len(subjects.measure(subjects.SUBJECTS["llrnn.second_order"](True), 0.0)) == 1


@pytest.mark.slow
def test_every_subject_runs_here():
    for name in subjects.SUBJECTS:
        if name == ROW or not name.startswith("kernels."):
            (found,) = replies(guard.ROOT, name, "tiny", 0.0)
            assert len(found["seconds"]) == 1, found


def test_flags_are_checked_first(monkeypatch):
    monkeypatch.setattr(guard.flags, "FLAGS", SimpleNamespace(against="none", only=["kernels.tans"]))
    message = "--only: got 'kernels.tans', expected a part of one of kernels.two_simplicial.agent.forward"
    with pytest.raises(app.UsageError, match=message):
        guard.main()

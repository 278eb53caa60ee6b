"""A repository of two files, one of them with a weak test, from end to end."""

import subprocess

import pytest

from benchmarks.mutants import __main__ as program
from benchmarks.mutants import records, sites, trials
from benchmarks.mutants.session import Session

FILES = {
    "toy/__init__.py": "",
    "toy/strong.py": "def area(a, b):\n    return a * b\n",
    "toy/weak.py": "def top(a, b):\n    return a - b\n",
    "toy/waiting.py": "def wait(n):\n    while n > 0:\n        n -= 1\n    return n\n",
    "tests/toy/test_strong.py": "from toy import strong\ndef test_area(): assert strong.area(2, 3) == 6\n",
    "tests/toy/test_weak.py": "from toy import weak\ndef test_top(): assert weak.top(1, 0) == 1\n",
    "tests/toy/test_waiting.py": "from toy import waiting\ndef test_wait(): assert waiting.wait(3) == 0\n",
    "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow"]\n',
}
HEAD = {
    "command": "make mutants",
    "machine": {"date": "2026-11-22", "cpus": 2, "versions": {"jax": "0.12", "python": "3.12"}},
    "commit": "0123",
    "seconds": 120.0,
    "left_out": ["toy/pytorch/model.py"],
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"
    )  # which takes most of the time of so small tests
    root = tmp_path / "repository"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return sites.Project(root)


@pytest.fixture
def opened(project, tmp_path):
    """A function that starts a session, as the program does each time."""

    def start(jobs=1):
        folder = tmp_path / f"copies{len(list(tmp_path.glob('copies*')))}"
        lines = records.Lines(tmp_path / "out" / "mutants.jsonl")
        now = sites.Project(project.root)
        return Session(now, lines, folder, tmp_path / "compiled", jobs=jobs, packages=["toy"])

    return start


def of(project, *names):
    return [mutant for mutant in project.mutants(["toy"]) if mutant.path.removeprefix("toy/") in names]


def outcomes(lines, explained=None):
    return {(line["path"], line["operator"]): records.outcome(line, explained or {}) for line in lines}


def test_strong_tests_kill_and_weak_ones_let_survive(project, opened, tmp_path):
    drawn = of(project, "strong.py", "weak.py")
    lines, normal = program.run_all(opened(2), drawn, 2, lambda line: None)
    assert outcomes(lines) == {
        ("toy/strong.py", "arithmetic"): "killed",
        ("toy/strong.py", "factor dropped"): "killed",
        ("toy/weak.py", "arithmetic"): "survived",
        ("toy/weak.py", "term dropped"): "survived",
    }
    assert [line["id"] for line in lines] == [mutant.id for mutant in drawn]
    assert {line["by"] for line in lines} == {"tests/toy/test_strong.py::test_area", ""}
    assert [line["group"] for line in normal] == ["toy"]
    assert {*normal[0]["files"]} == {name for name in FILES if name.startswith("tests/")}
    for name, text in FILES.items():  # the repository itself is as it was
        assert (project.root / name).read_text(encoding="utf-8") == text

    page = records.page(lines, normal, {}, HEAD)
    assert "5 single changes" in page
    assert "| toy | 5 | 3 | 0 | 0 | 2 | 60.0 % |" in page
    assert "-    return a - b\n+    return a + b\n" in page
    assert page.count("Not explained yet.") == 2
    assert "without PyTorch: `toy/pytorch/model.py` are left out.\n" in page

    file = tmp_path / "explained.toml"
    dropped = next(
        mutant for mutant in drawn if mutant.path == "toy/weak.py" and mutant.operator == "term dropped"
    )
    file.write_text(records.entry("equivalent", dropped, 'b is "0".'), encoding="utf-8")
    explained = records.explanations(file, project)
    assert outcomes(lines, explained)["toy/weak.py", "term dropped"] == "equivalent"
    page = records.page(lines, normal, explained, HEAD)
    assert "| toy | 5 | 3 | 0 | 1 | 1 | 75.0 % |" in page
    assert f"### Equivalent: `{dropped.id}`, term dropped, `toy/weak.py:2`" in page
    assert 'b is "0".' in page


def test_after_an_interruption_only_the_rest_is_tested(project, opened, tmp_path, monkeypatch):
    """Without starting tests: a change is noticed if the copy has it and the tests ask for the value."""
    ran = []

    def run(copy, tests, limit):
        if copy._closed.wait(0.2):  # so that no mutant is finished after the interruption
            raise KeyboardInterrupt
        ran.append("run")
        read = [(copy._folder / name).read_text(encoding="utf-8") for name in ("toy/strong.py", *tests)]
        noticed = read[0] != FILES["toy/strong.py"] and any("== 6" in text for text in read)
        return trials.Run("failed" if noticed else "", "", 0.1, "")

    def measure(copy, tests, group, limit):
        ran.append("measure")
        return trials.Run("", "", 0.1, ""), dict.fromkeys(tests, 0.1)

    monkeypatch.setattr(trials.Copy, "run", run)
    monkeypatch.setattr(trials.Copy, "measure", measure)
    drawn = of(project, "strong.py")

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run_all(opened(), drawn, 1, interrupt)
    file = tmp_path / "out" / "mutants.jsonl"
    finished = file.read_text(encoding="utf-8").splitlines()
    assert len(finished) == 2  # the tests without a mutant, and one mutant
    with file.open("a", encoding="utf-8") as torn:
        torn.write('{"id": "0123", "how"')
    ran.clear()
    lines, _ = program.run_all(opened(), drawn, 1, lambda line: None)
    assert ran == ["run"] * 2
    assert [line["how"] for line in lines] == ["failed"] * 3
    assert file.read_text(encoding="utf-8").splitlines()[:2] == finished

    (project.root / "tests/toy/test_strong.py").write_text("def test_area(): pass\n", encoding="utf-8")
    lines, _ = program.run_all(opened(), drawn[:1], 1, lambda line: None)  # other tests, so another result
    assert ran[2:] == ["measure", "run", "run", "run"]
    assert [line["how"] for line in lines] == [""]


def test_a_mutant_that_hangs_is_killed_by_the_time_limit(project, opened, monkeypatch):
    (hanging,) = [mutant for mutant in of(project, "waiting.py") if mutant.new == "n += 1"]
    monkeypatch.setattr("benchmarks.mutants.session.START", 1.0)
    (line,), _ = program.run_all(opened(), [hanging], 1, lambda line: None)
    assert (line["how"], line["by"]) == ("timeout", "")
    assert 1 <= line["seconds"] < 30


def test_errors_of_import_kill(project, opened):
    mutant = of(project, "strong.py")[0]
    broken = mutant._replace(span=(0, 3), new="raise ImportError\ndef")
    line = opened().test(broken, again=True)
    assert (line["how"], line["by"]) == ("error", "tests/toy/test_strong.py")


def test_tests_must_pass_without_a_mutant(project, opened):
    (project.root / "tests/toy/test_weak.py").write_text("def test_top(): assert 0\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"tests/toy: fail without a mutant: failed .*::test_top"):
        program.run_all(opened(), of(project, "strong.py"), 1, lambda line: None)


def test_packages_must_be_imported_from_the_copy(project, tmp_path):
    lines = records.Lines(tmp_path / "lines")
    with pytest.raises(RuntimeError, match=r"packages: got \S*logic_zoo\s*, expected them in"):
        Session(project, lines, tmp_path / "copies", tmp_path, jobs=1, packages=["logic_zoo"])


def test_tracked_files_are_copied_and_others_are_not(project):
    run = {"cwd": project.root, "check": True}
    subprocess.run(["git", "init", "-q"], **run)
    subprocess.run(["git", "add", "toy"], **run)
    (project.root / "toy" / "weak.py").unlink()
    assert {*sites.Project(project.root).contents} == {"toy/__init__.py", "toy/strong.py", "toy/waiting.py"}


def test_a_copy_is_restored_after_each_mutant(project, tmp_path):
    (project.root / "tool").write_text("#!/bin/sh\n", encoding="utf-8")
    (project.root / "tool").chmod(0o755)
    copied = sites.Project(project.root)
    copy = trials.Copy(copied, tmp_path / "copy", tmp_path)
    strong, weak = (tmp_path / "copy" / "toy" / name for name in ("strong.py", "weak.py"))
    with copy.changed(of(project, "strong.py")[0]):
        assert strong.read_text(encoding="utf-8") != FILES["toy/strong.py"]
        weak.unlink()
        (tmp_path / "copy" / "runs" / "one").mkdir(parents=True)
        (tmp_path / "copy" / "runs" / "one" / "left").touch()
    found = {
        str(path.relative_to(tmp_path / "copy")): path.read_bytes()
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert found == copied.contents
    assert not (tmp_path / "copy" / "runs").exists()
    assert (tmp_path / "copy" / "tool").stat().st_mode & 0o111

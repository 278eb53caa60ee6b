"""Explanations hold for mutants that exist, and have a reason."""

import pytest

from benchmarks.mutants import __main__ as program
from benchmarks.mutants import records, sites

TEXT = 'def f(a, b):\n    return (  # "é"\n        a - b\n    )\n'


@pytest.fixture
def project(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a.py").write_text(TEXT, encoding="utf-8")
    return sites.Project(tmp_path)


@pytest.fixture
def mutant(project):
    return next(iter(project.mutants(["toy"])))


def read(tmp_path, project, text):
    (tmp_path / "explained.toml").write_text(text, encoding="utf-8")
    return records.explanations(tmp_path / "explained.toml", sites.Project(project.root))


def test_entries_are_read_back(tmp_path, project, mutant):
    text = records.entry("survivor", mutant, "Nobody asks.")
    assert read(tmp_path, project, text) == {mutant.id: records.Explanation("survivor", "Nobody asks.")}
    assert records.explanations(tmp_path / "missing.toml", project) == {}


def test_an_entry_without_a_reason_is_refused(tmp_path, project, mutant):
    with pytest.raises(ValueError, match=f"equivalent '{mutant.id}': got no reason"):
        read(tmp_path, project, records.entry("equivalent", mutant, " "))


def test_an_entry_of_no_mutant_is_refused(tmp_path, project, mutant):
    text = records.entry("equivalent", mutant, "Because.")
    (project.root / "toy" / "a.py").write_text(TEXT.replace("b\n", "c\n"), encoding="utf-8")
    with pytest.raises(ValueError, match=f"explained.toml: equivalent '{mutant.id}': got no mutant"):
        read(tmp_path, project, text)


def test_an_entry_of_another_change_is_refused(tmp_path, project, mutant):
    with pytest.raises(ValueError, match=r"after: got 'return 0', expected 'return"):
        read(tmp_path, project, records.entry("equivalent", mutant._replace(after="return 0"), "Because."))


def test_the_committed_explanations_are_of_this_code():
    records.explanations(program.ROOT / "benchmarks/mutants/explained.toml", sites.Project(program.ROOT))


def test_without_any_that_can_be_noticed_there_is_no_percentage():
    assert records.noticed({"killed": 0, "timeout": 0, "equivalent": 3, "survived": 0}) == "-"
    assert records.noticed({"killed": 1, "timeout": 1, "equivalent": 3, "survived": 1}) == "66.7 %"

"""Names and the draw: both depend on the code and the seed, and on nothing else."""

import collections
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.mutants import __main__ as program
from benchmarks.mutants import sites

ROOT = Path(__file__).resolve().parents[3]
TEXT = '''"""Doc."""

def first(a, b):
    return a + b

def second(a, b):
    c = a < b
    return a + b
'''
MANY = "\n".join(f"def f{i}(x):\n    x = x[{i}]\n    return g(x < {i})" for i in range(30))


def ids(text):
    return {(mutant.operator, mutant.new, mutant.line): mutant.id for mutant in sites.of_file("p/a.py", text)}


def test_ids_are_stable_under_edits_elsewhere():
    moved = TEXT.replace("def first", "# A comment.\n\nNUMBER = 3\n\ndef first").replace("c = a < b", "c = b")
    before, after = {*ids(TEXT).values()}, {*ids(moved).values()}
    changed = {mutant.id for mutant in sites.of_file("p/a.py", TEXT) if mutant.operator == "comparison"}
    assert before - after == changed
    assert len(changed) == 1


def test_ids_are_stable_under_other_spaces_and_differ_between_equal_statements():
    text = "def f(a, b):\n    g(a + b)\n    g(a + b)\n"
    assert len({*ids(text).values()}) == len(sites.of_file("p/a.py", text)) == 8
    spread = "def f(a, b):\n    g(\n        a + b\n    )\n    g(a + b)\n"
    assert sum(name in ids(text).values() for name in ids(spread).values()) >= 4


def test_ids_differ_between_functions_and_files():
    found = ids(TEXT)
    assert len({*found.values()}) == len(found)
    other = {mutant.id for mutant in sites.of_file("p/b.py", TEXT)}
    assert not other & {*found.values()}


@pytest.fixture
def mutants():
    texts = {"p/a.py": MANY, "p/b.py": TEXT, "q/c.py": MANY.replace(" f", " h")}
    return [mutant for path, text in texts.items() for mutant in sites.of_file(path, text)], texts


def drawn(mutants, count=12, seed=1, packages=("p", "q")):
    found, texts = mutants
    return [mutant.id for mutant in sites.draw(found, texts, packages, count, seed)]


def test_the_draw_depends_on_the_seed_and_not_on_the_order(mutants):
    found, texts = mutants
    assert drawn(mutants) == drawn((found[::-1], texts))
    assert len({*drawn(mutants)}) == 12
    assert len({*drawn(mutants)} & {*drawn(mutants, seed=2)}) < 6


def test_a_smaller_draw_is_part_of_a_larger_one(mutants):
    assert {*drawn(mutants, 6)} < {*drawn(mutants, 12)}
    assert drawn(mutants, 6, packages=["q"]) == drawn(mutants, 12)[6:]


def test_packages_have_equal_shares_and_frequent_operators_do_not_fill_them(mutants):
    found, texts = mutants
    operators = collections.Counter()
    for seed in range(10):
        chosen = sites.draw(found, texts, ["p", "q"], 10, seed)
        assert [mutant.path[0] for mutant in chosen] == ["p"] * 5 + ["q"] * 5
        operators.update(mutant.operator for mutant in chosen)
    available = collections.Counter(mutant.operator for mutant in found)
    assert available["constant"] > 3 * available["comparison"]
    assert operators["constant"] < 2.5 * operators["comparison"]


def test_what_does_not_compile_or_means_the_same_is_not_drawn():
    text = "def f(x):\n    return g(x, a=1)\n"
    (mutant,) = [mutant for mutant in sites.of_file("p/a.py", text) if mutant.operator == "keyword dropped"]
    start, end = mutant.span
    assert mutant.valid(text)
    assert not mutant._replace(new=" (").valid(text)
    assert not mutant._replace(new=text[start:end] + " ").valid(text)
    assert sites.draw([mutant._replace(new=" (")], {"p/a.py": text}, ["p"], 1, 0) == []


@pytest.mark.parametrize("installed", [False, True])
def test_what_no_test_can_notice_here_is_not_drawn(installed, tmp_path, monkeypatch):
    """Sizes to test, and models in PyTorch where it is not installed."""
    monkeypatch.setattr(sites.importlib.util, "find_spec", lambda name: installed or None)
    for name in ("p/a.py", "p/shapes.py", "p/pytorch/b.py", "p/pytorch.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(TEXT, encoding="utf-8")
    found = {mutant.path for mutant in sites.Project(tmp_path).mutants(["p"])}
    assert found == {"p/a.py"} | ({"p/pytorch/b.py", "p/pytorch.py"} if installed else set())


def test_the_program_lists_the_draw_as_diffs(monkeypatch, capsys):
    flags = SimpleNamespace(list=True, packages=["tp_transformer"], count=3, seed=5, only=[])
    monkeypatch.setattr(program.flags, "FLAGS", flags)
    program.main()
    project = sites.Project(ROOT)
    found = list(project.mutants(flags.packages))
    texts = {mutant.path: project.text(mutant.path) for mutant in found}
    expected = sites.draw(found, texts, flags.packages, 3, 5)
    assert len(expected) == 3
    assert capsys.readouterr().out == "".join(
        f"{mutant.id} {mutant.path}:{mutant.line} [{mutant.operator}]\n{mutant.diff(texts[mutant.path])}\n\n"
        for mutant in expected
    )
    assert len({mutant.id for mutant in found}) == len(found) > 1000

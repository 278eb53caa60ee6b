"""Clauses read from models whose rules are known, and from a run."""

import dataclasses
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from absl import flags

from experiments import runtime
from experiments.kinship import clauses, measures, rules, train
from experiments.kinship.clauses import Clause
from folnet import kinship
from tests.experiments.kinship.small import small
from tests.folnet import small as small_folnet

pytestmark = pytest.mark.usefixtures("compiled_quickly", "looks")

SOURCE = kinship.Kinship(seed=5, lengths=(2, 3, 6))
SON, DAUGHTER, FATHER = (kinship.RELATIONS.index(name) for name in ("son", "daughter", "father"))
GRANDSON = kinship.RELATIONS.index("grandson")


def knowing(rules):
    """Returns a model that says what follows by rules, from pairs of relations to relations, with .9."""

    def probabilities(arrays):
        batch, length = arrays["input_ids"].shape
        found = np.full((batch, length, length, len(kinship.RELATIONS) + 1), 0.1 / len(kinship.RELATIONS))
        for row, relations in enumerate(arrays["relation_ids"]):
            known = {(x, y): relations[x, y] for x, y in np.argwhere(relations >= 0).tolist()}
            while new := {
                (x, y): rules[first, second]
                for (x, a), first in known.items()
                for (b, y), second in known.items()
                if a == b and x != y and (x, y) not in known and (first, second) in rules
            }:
                known |= new
            for x in range(length):
                for y in range(length):
                    found[row, x, y, known.get((x, y), kinship.UNRELATED)] = 0.9
        return found

    return probabilities


def as_rules(found):
    return {(clause.first, clause.second): clause.conclusion for clause in found}


def test_the_rules_of_a_model_that_knows_them_are_recovered():
    found = clauses.report(knowing(kinship.COMPOSITIONS), SOURCE, count=120)
    assert as_rules(found.clauses) == kinship.COMPOSITIONS
    assert {clause.probability for clause in found.clauses} == {0.9}
    assert (found.agrees, found.total, sum(found.decides)) == (120, 120, 120)
    assert str(found.clauses[0]) == "grandson(x, y) <- son(x, a), son(a, y)"


def test_the_rules_of_a_model_with_others_are_its_own():
    """One rule another, one less, one more: the clauses are the model's and still give its answers."""
    rules = dict(kinship.COMPOSITIONS) | {(SON, SON): DAUGHTER, (FATHER, GRANDSON): SON}
    del rules[SON, DAUGHTER]
    found = clauses.report(knowing(rules), SOURCE, count=120)
    assert as_rules(found.clauses) == rules
    # Where nothing follows, the model's answer is a guess among the classes, which no clause gives; and rules
    # that contradict each other may be applied in another order.
    assert 100 < found.agrees <= sum(found.decides) < 120


def test_the_clauses_of_another_model_do_not_give_its_answers():
    """The count of agreement can be low: nearly no question is answered by other rules."""
    wrong = {pair: (relation + 2) % 14 for pair, relation in kinship.COMPOSITIONS.items()}
    probe, rest = knowing(wrong), knowing(kinship.COMPOSITIONS)
    found = clauses.report(
        lambda of: (probe if of["input_ids"].shape[1] == 4 else rest)(of), SOURCE, count=60
    )
    assert found.agrees < 10


def test_most_derivations_decide_and_the_first_relation_of_equals():
    facts = tuple(kinship.Fact(*of) for of in ((0, SON, 1), (1, SON, 4), (0, SON, 2), (2, SON, 4)))
    facts += (kinship.Fact(0, FATHER, 3), kinship.Fact(3, FATHER, 4))
    problem = dataclasses.replace(SOURCE[0], num_people=5, facts=facts, query=(0, 4))
    two, one = Clause(SON, SON, GRANDSON, 1.0), Clause(FATHER, FATHER, SON, 1.0)
    assert clauses.answer(problem, [one, two]) == (GRANDSON, two)
    less = dataclasses.replace(problem, facts=(*facts[:2], *facts[4:]))
    assert clauses.answer(less, [two, one]) == (SON, one)
    assert clauses.answer(problem, []) == (None, None)


def test_a_report_is_text_and_a_picture():
    found = clauses.Report([Clause(SON, SON, GRANDSON, 0.98), Clause(SON, DAUGHTER, SON, 0.5)], [1, 7], 8, 9)
    assert found.text().splitlines() == [
        "The clauses give the model's answer to 8 of 9 problems.",
        "",
        "    7  son(x, y) <- son(x, a), daughter(a, y)  (0.500)",
        "    1  grandson(x, y) <- son(x, a), son(a, y)  (0.980)",
    ]
    axes = clauses.figure_of(found).axes[0]
    assert {text.get_text() for text in axes.texts} == {"", "grand-\nson\n1", "son\n7"}
    assert len(axes.texts) == len(kinship.COMPOSITIONS)


def test_a_runs_probabilities_are_those_after_its_loops_of_tests(finished):
    config, workdir, results = finished
    probabilities, read = clauses.of_run(workdir)
    assert read.pairs == config.pairs
    batch = train.make_batches(config)(0)
    model, params = config.make("j.a"), results["j.a"].params
    softmax = small_folnet.quickly(
        lambda p: jax.nn.softmax(measures.apply(model, p, batch, num_loops=3)[-1], axis=-1)
    )
    np.testing.assert_allclose(probabilities(batch), softmax(params), atol=1e-5)


def test_the_program_writes_text_numbers_and_a_picture(tmp_path, monkeypatch, capsys):
    """`rules`, of a run whose model knows them; its problems are of the run's tests, but new ones."""
    given = flags.FlagValues()
    flags.DEFINE_string("run", str(tmp_path / "run"), "", flag_values=given)
    flags.DEFINE_string("out", str(tmp_path / "out"), "", flag_values=given)
    flags.DEFINE_integer("problems", 5, "", flag_values=given)
    given([sys.argv[0]])
    sources, report = [], clauses.report
    monkeypatch.setattr(rules.flags, "FLAGS", given)
    monkeypatch.setattr(clauses, "of_run", {tmp_path / "run": (knowing(kinship.COMPOSITIONS), small())}.get)
    monkeypatch.setattr(clauses, "report", lambda *of: sources.append(of[1]) or report(*of))
    rules.main()
    assert sources == [kinship.Kinship(clauses.SEED, (2, 3, 4))]
    assert "give the model's answer to 5 of 5 problems" in capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "clauses.json").read_text(encoding="utf-8"))
    assert (written["total"], len(written["clauses"])) == (5, len(written["decides"]))
    assert (tmp_path / "out" / "clauses.txt").read_text(encoding="utf-8").startswith("The clauses give")
    assert (tmp_path / "out" / "clauses.png").stat().st_size > 1000


def test_a_run_that_needs_more_than_facts_is_refused(tmp_path):
    """Also a released one, by its name."""
    runtime.workdir.Workdir(tmp_path / "run", small()).close()
    for path in (tmp_path / "run", Path("kinship/jmc.atp")):
        with pytest.raises(
            ValueError, match=r"--run: got .* with pairs\.read=False .* expected one whose model says"
        ):
            clauses.of_run(path)

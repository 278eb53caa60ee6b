"""The properties of a problem."""

import dataclasses

import pytest

from folnet.kinship.problems import DISTRACTORS, Problem
from folnet.kinship.rules import TARGET_NAMES, TARGETS, Fact, Step, number

CHAIN = (Fact(2, number("mother"), 0), Fact(0, number("brother"), 1))
ANSWER = Fact(2, number("uncle"), 1)
PROBLEM = Problem(
    num_people=4,
    facts=(*CHAIN, Fact(3, number("wife"), 0)),
    kinds=("chain", "chain", "irrelevant"),
    query=(2, 1),
    answer=ANSWER.relation,
    proof=(Step(*CHAIN, ANSWER),),
)


def test_the_chain_is_what_the_proof_needs():
    """The chain is the first facts, one more than there are compositions."""
    assert (PROBLEM.length, PROBLEM.chain) == (2, CHAIN)
    assert PROBLEM.kinds[2] in DISTRACTORS


def test_the_label_is_the_answers_class():
    """There are eighteen classes; husband is not one of them."""
    assert PROBLEM.answer_name == "uncle"
    assert TARGET_NAMES[PROBLEM.label] == "uncle"
    labels = [dataclasses.replace(PROBLEM, answer=target).label for target in TARGETS]
    assert labels == list(range(18))
    with pytest.raises(ValueError, match="not in"):
        _ = dataclasses.replace(PROBLEM, answer=number("husband")).label

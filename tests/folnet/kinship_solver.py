"""A solver of kinship problems that shares nothing with the generator but the numbers of its relations.

The rules are read from a table in CLUTRR's own words; conclusions are drawn for all problems at once, rule
by rule, on sets of people held as bits, until no rule adds anything.
"""

import re
from collections.abc import Sequence

import numpy as np

from folnet import kinship

WORDS = {
    "child": ("son", "daughter"),
    "inv-child": ("father", "mother"),
    "SO": ("husband", "wife"),
    "sibling": ("brother", "sister"),
    "grand": ("grandson", "granddaughter"),
    "inv-grand": ("grandfather", "grandmother"),
    "inv-un": ("uncle", "aunt"),
    "in-law": ("son-in-law", "daughter-in-law"),
    "inv-in-law": ("father-in-law", "mother-in-law"),
    "un": ("nephew", "niece"),
}

TABLE = """
child: child -> grand, SO -> in-law, sibling -> child, inv-un -> sibling, inv-grand -> inv-child
inv-child: child -> sibling, inv-child -> inv-grand, sibling -> inv-un
SO: inv-child -> inv-in-law, grand -> grand, child -> child
sibling: sibling -> sibling, inv-grand -> inv-grand, child -> un, inv-child -> inv-child
grand: sibling -> grand
"""


def rules() -> list[tuple[str, str, str]]:
    """Returns every rule in words, with gender: (first, second, conclusion)."""
    found = []
    for line in TABLE.strip().splitlines():
        first, rest = line.split(": ")
        for second, result in re.findall(r"(\S+) -> ([^\s,]+)", rest):
            for one in WORDS[first]:
                for place, other in enumerate(WORDS[second]):
                    married_alike = (one, other) in (("son", "husband"), ("daughter", "wife"))
                    if not married_alike:
                        found.append((one, other, WORDS[result][place]))
    return found


def closure(facts: Sequence[Sequence[tuple[int, int, int]]], num_people: int) -> np.ndarray:
    """Returns bits [20, B, P]: bit y at [r, b, x] is set if y is the r of x by the facts of problem b."""
    number = {name: place for place, name in enumerate(kinship.RELATIONS)}
    numbered = [(number[a], number[b], number[c]) for a, b, c in rules()]
    known = np.zeros((len(number), len(facts), num_people), np.int64)
    for row, some in enumerate(facts):
        for x, relation, y in some:
            known[relation, row, x] |= 1 << y
    others = ~(1 << np.arange(num_people, dtype=np.int64))[None]
    grown = True
    while grown:
        grown = False
        for first, second, result in numbered:
            if not known[first].any() or not known[second].any():
                continue
            before = known[result].copy()
            for z in range(num_people):
                through = np.where(known[first] >> z & 1, known[second][:, z : z + 1], 0)
                known[result] |= through & others
            grown |= bool((before != known[result]).any())
    return known


def answers(problems: Sequence[kinship.Problem]) -> list[set[str]]:
    """Returns everything that follows about the two people of each question."""
    known = closure([problem.facts for problem in problems], max(p.num_people for p in problems))
    return [
        {
            name
            for relation, name in enumerate(kinship.RELATIONS)
            if known[relation, row, problem.query[0]] >> problem.query[1] & 1
        }
        for row, problem in enumerate(problems)
    ]

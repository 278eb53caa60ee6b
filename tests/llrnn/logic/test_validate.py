import re

import pytest

from llrnn.logic import Atom, Bang, Derivation, Lolli, One, Tensor, With, validate

A, B = Atom("A", 3), Atom("B", 2)
AX = Derivation("ax", (A,), A, ())
FREE = Derivation("zero", (A, A), A, ())


@pytest.mark.parametrize(
    "wrong",
    [
        Derivation("ax", (A,), B, ()),
        Derivation("ax", (A, A), A, ()),
        Derivation("1R", (A,), One, ()),
        Derivation("1L", (B, A), A, (AX,)),
        Derivation("cut", (A, A), A, (AX, AX)),
        Derivation("promotion", (A,), Bang(A), (AX,)),
        Derivation("contraction", (A,), A, (FREE,)),
        Derivation("weakening", (B, A), A, (AX,)),
        Derivation("dereliction", (Bang(B),), A, (AX,)),
        Derivation("codereliction", (A,), A, (AX,)),
        Derivation("deriving", (A, A), Bang(A), (AX, AX)),
        Derivation("-oR", (), Lolli(B, A), (AX,)),
        Derivation("-oL", (Lolli(B, A), A), A, (AX, AX)),
        Derivation("&R", (A, A), With(A, A), (AX, AX)),
        Derivation("&L1", (With(B, A),), A, (AX,)),
        Derivation("&L2", (With(A, B),), A, (AX,)),
        Derivation("(x)R", (A,), Tensor(A, A), (AX, AX)),
        Derivation("(x)L", (Tensor(A, B),), A, (FREE,)),
        Derivation("sum", (A, A), A, (AX, FREE)),
        Derivation("ax", (A,), A, (AX,)),
    ],
)
def test_what_is_no_instance_of_its_rule_is_refused(wrong):
    above = " and ".join(premise.sequent for premise in wrong.premises) or "nothing"
    start = f"rule {wrong.rule}: got `{wrong.sequent}` from {above}, expected the form "
    with pytest.raises(ValueError, match=re.escape(start)):
        validate(wrong)


def test_every_instance_of_a_tree_is_checked():
    validate(AX)
    with pytest.raises(ValueError, match=r"rule ax: got `A \|- B` from nothing, expected the form A \|- A"):
        validate(Derivation("weakening", (Bang(B), A), B, (Derivation("ax", (A,), B, ()),)))
    with pytest.raises(ValueError, match="rule: got 'nonsense', expected one of 'ax', 'cut'"):
        validate(Derivation("nonsense", (A,), A, ()))

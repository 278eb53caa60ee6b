import re

import pytest

from llrnn.logic import (
    Atom,
    Bang,
    Derivation,
    ForAll,
    Lolli,
    One,
    Plus,
    Tensor,
    Top,
    TypeVariable,
    Void,
    With,
    validate,
)

A, B = Atom("A", 3), Atom("B", 2)
AX = Derivation("ax", (A,), A, ())
X = TypeVariable("X")
FREE = Derivation("zero", (A, A), A, ())


def zero(*hypotheses, of):
    return Derivation("zero", hypotheses, of, ())


@pytest.mark.parametrize(
    "wrong",
    [
        Derivation("ax", (A,), B, ()),
        Derivation("ax", (A, A), A, ()),
        Derivation("sum", (A,), A, ()),
        Derivation("1R", (A,), One, ()),
        Derivation("1L", (B, A), A, (AX,)),
        Derivation("cut", (A, A), A, (AX, AX)),
        Derivation("cut", (A, B), B, (AX, Derivation("ax", (B,), B, ()))),
        Derivation("promotion", (A,), Bang(A), (AX,)),
        Derivation("contraction", (A,), A, (FREE,)),
        Derivation("weakening", (B, A), A, (AX,)),
        Derivation("dereliction", (Bang(B),), A, (AX,)),
        Derivation("codereliction", (A,), A, (AX,)),
        Derivation("deriving", (A, A), Bang(A), (AX, AX)),
        Derivation("-oR", (), Lolli(B, A), (AX,)),
        Derivation("-oL", (Lolli(B, A), A), A, (AX, AX)),
        Derivation("-oL", (Lolli(A, One), A, B), B, (AX, Derivation("ax", (B,), B, ()))),
        Derivation("&R", (A, A), With(A, A), (AX, AX)),
        Derivation("&R", (A,), With(A, A), (AX, FREE)),
        Derivation("&R", (A,), With(A, A), (FREE, AX)),
        Derivation("&L1", (With(B, A),), A, (AX,)),
        Derivation("&L2", (With(A, B),), A, (AX,)),
        Derivation("(x)R", (A,), Tensor(A, A), (AX, AX)),
        Derivation("(x)L", (Tensor(A, B),), A, (FREE,)),
        Derivation("sum", (A, A), A, (AX, FREE)),
        Derivation("sum", (A,), A, (AX, Derivation("zero", (A,), B, ()))),
        Derivation("+R1", (A,), Plus(B, A), (AX,)),
        Derivation("+R2", (A,), Plus(A, B), (AX,)),
        Derivation("+R1", (A, A), Plus(A, B), (AX,)),
        Derivation("+L", (Plus(A, B),), A, (AX, AX)),
        Derivation("+L", (Plus(B, A),), A, (AX, AX)),
        Derivation("+L", (Plus(A, A), A), A, (AX, AX)),
        Derivation("topR", (A,), One, ()),
        Derivation("0L", (A,), A, ()),
        Derivation("0L", (Top,), A, ()),
        Derivation(
            "forallR", (X,), ForAll("X", X), (Derivation("ax", (X,), X, ()),)
        ),  # X is free on the left
        Derivation("forallR", (A,), ForAll("X", X), (AX,)),
        Derivation("forallR", (), ForAll("X", A), (AX,)),
        Derivation("forallL", (ForAll("X", Tensor(X, X)),), A, (AX,)),
        Derivation("forallL", (ForAll("X", X), A), A, (AX,)),
        Derivation("ax", (A,), A, (AX,)),
        Derivation("cut", (A,), B, (AX, AX)),
        Derivation("1L", (One, A), B, (AX,)),
        Derivation("(x)L", (Tensor(A, A),), B, (FREE,)),
        Derivation("-oL", (Lolli(A, A), A), B, (AX, AX)),
        Derivation("&L1", (With(A, B),), B, (AX,)),
        Derivation("+L", (Plus(A, A),), B, (AX, AX)),
        Derivation("forallL", (ForAll("X", X),), B, (AX,)),
        Derivation("dereliction", (Bang(A),), B, (AX,)),
        Derivation("contraction", (Bang(A),), B, (zero(Bang(A), Bang(A), of=A),)),
        Derivation("weakening", (Bang(B), A), B, (AX,)),
        Derivation("weakening", (Bang(B),), A, (AX,)),
        Derivation("promotion", (Bang(B),), Bang(A), (zero(Bang(A), of=A),)),
        Derivation("promotion", (Bang(A),), Bang(B), (zero(Bang(A), of=A),)),
        Derivation("codereliction", (B,), Bang(A), (AX,)),
        Derivation("deriving", (A, A), Bang(A), (zero(B, of=Bang(A)), AX)),
        Derivation("(x)R", (A, A), Tensor(A, B), (AX, AX)),
        Derivation("-oR", (), Lolli(A, B), (AX,)),
        Derivation("&R", (A,), With(A, B), (AX, AX)),
        Derivation("1R", (), A, ()),
    ],
)
def test_what_is_no_instance_of_its_rule_is_refused(wrong):
    above = " and ".join(premise.sequent for premise in wrong.premises) or "nothing"
    start = f"rule {wrong.rule}: got `{wrong.sequent}` from {above}, expected the form "
    with pytest.raises(ValueError, match=re.escape(start)):
        validate(wrong)


def test_instances_of_the_second_order_rules():
    variable = Derivation("ax", (X,), X, ())
    same = Derivation("-oR", (), Lolli(X, X), (variable,))
    validate(Derivation("forallR", (), ForAll("Y", Lolli(TypeVariable("Y"), TypeVariable("Y"))), (same,)))
    validate(Derivation("forallR", (A,), ForAll("X", A), (AX,)))
    validate(Derivation("forallL", (ForAll("X", X),), A, (AX,)))
    validate(Derivation("+L", (Plus(A, A),), A, (AX, AX)))
    validate(Derivation("0L", (A, Void), B, ()))
    validate(Derivation("topR", (A, B), Top, ()))


def test_a_sum_may_have_one_summand():
    validate(Derivation("sum", (A,), A, (AX,)))


def test_every_instance_of_a_tree_is_checked():
    validate(AX)
    with pytest.raises(ValueError, match=r"rule ax: got `A \|- B` from nothing, expected the form A \|- A"):
        validate(Derivation("weakening", (Bang(B), A), B, (Derivation("ax", (A,), B, ()),)))
    with pytest.raises(ValueError, match="rule: got 'nonsense', expected one of 'ax', 'cut'"):
        validate(Derivation("nonsense", (A,), A, ()))

"""The additives of linear logic beyond &: sums, and the two units, in rules, values and cut elimination."""

import jax.numpy as jnp
import numpy as np
import pytest

from llrnn.logic import (
    Absurd,
    Atom,
    Bang,
    Both,
    Case,
    IllTyped,
    Inl,
    Inr,
    LinearityError,
    Lolli,
    One,
    Plus,
    Top,
    Trivial,
    Var,
    Void,
    With,
    bang,
    banged,
    check,
    cut_elimination,
    denote,
    derivation,
    derivative,
    endo,
    lam,
    normalize,
    parse,
    validate,
)
from tests.llrnn.logic.matrices import A, B, D, E, close, matrices

SWAP = r"\s:A[3] + B[2]. case s of <\x:A[3]. inr:B[2] x, \y:B[2]. inl:A[3] y>"


def test_a_case_takes_the_branch_of_its_injection():
    swap = parse(SWAP)
    assert check(swap) == Lolli(Plus(A, B), Plus(B, A))
    a, b = Var("a", A), Var("b", B)
    assert normalize(swap(Inl(a, B))) == Inr(B, a)
    assert normalize(swap(Inr(A, b))) == Inl(b, A)
    assert [step.rule for step in cut_elimination(swap(Inl(a, B))).steps] == ["-o", "+", "&", "-o"]


def test_a_sum_is_a_pair_of_which_a_case_adds_what_the_branches_give(rng):
    x, y, p = rng.normal(size=D), rng.normal(size=2), rng.normal(size=(D, 2))
    b, a = denote(parse(SWAP))((x, y))
    close(a, x)
    close(b, y)
    join = banged(Lolli(B, A), lambda f: lam(Plus(A, B), lambda s: Case(s, Both(lam(A, lambda a: a), f))))
    close(denote(join)(p)((x, y)), x + p @ y)
    left, right = denote(lam(A, lambda x: Inl(x, B)))(x)
    close(left, x)
    close(right, np.zeros(2))


def test_branches_share_their_linear_variables():
    both = lam(E, Plus(A, A), lambda f, s: Case(s, Both(f, lam(A, lambda x: f(x)))))
    assert check(both) == Lolli(E, Lolli(Plus(A, A), A))
    with pytest.raises(LinearityError, match="got no use of f : A -o A"):
        check(lam(E, Plus(A, A), lambda f, s: Case(s, Both(f, lam(A, lambda x: x)))))


def test_branches_of_other_types_are_refused():
    s = Var("s", Plus(A, B))
    for wrong in (With(E, E), With(E, Lolli(B, B)), With(A, B)):
        with pytest.raises(IllTyped, match=r"branches: got `p` : .*, expected .* for `s` : A \+ B = A \+ B"):
            Case(s, Var("p", wrong))
    with pytest.raises(IllTyped, match=r"scrutinee of `case t of u`: got `x` : A, expected type A \+ B"):
        Case(Var("x", A), Var("p", With(E, E)))
    with pytest.raises(IllTyped, match=r"branches of `case t of u`: got `x` : A, expected type \(A -o C\)"):
        Case(s, Var("x", A))
    with pytest.raises(ValueError, match="right: got 3, expected a type"):
        Inl(Var("x", A), 3)  # pyrefly: ignore
    with pytest.raises(ValueError, match="left: got 3, expected a type"):
        Inr(3, Var("x", A))  # pyrefly: ignore
    for wrong in (lambda: Inl(3, A), lambda: Inr(A, 3)):  # pyrefly: ignore
        with pytest.raises(ValueError, match="term: got 3, expected a term"):
            wrong()


def test_the_units_absorb_a_context(rng):
    forget = lam(A, lambda x: Trivial())
    assert check(forget) == Lolli(A, Top)
    assert denote(forget)(np.ones(D)).shape == (0,)
    anything = lam(Void, A, lambda v, x: Absurd(v, B))
    assert check(anything) == Lolli(Void, Lolli(A, B))
    close(denote(anything)(np.zeros(0), np.ones(D)), np.zeros(2))
    with pytest.raises(LinearityError, match="got two uses"):
        check(lam(Void, lambda v: Case(Inl(v, Void), Both(*[lam(Void, lambda w: Absurd(v, A))] * 2))))
    with pytest.raises(IllTyped, match="scrutinee of `absurd t`: got `x` : A, expected type 0"):
        Absurd(Var("x", A), B)
    # A -o top has no coordinate, and its sum over none of them is no error.
    swapped = denote(parse(r"\t:top (x) A[3]. let u (x) a = t in a (x) u"))
    assert swapped(jnp.zeros((0, D))).shape == (D, 0)


def test_the_derivative_of_a_case_is_that_of_its_branches(rng):
    """F -> case (inl (f x), inr y) of f, f has f x as its left part: D(f f x) = v f x + f v x, and v y."""
    m, v = matrices(rng, 2)
    x, y = rng.normal(size=D), rng.normal(size=D)

    def body(f, s):
        return Case(s, Both(lam(A, lambda a: f(f(a))), lam(A, lambda b: f(b))))

    program = banged(E, lambda f: lam(Plus(A, A), lambda s: body(f, s)))
    slope = derivative(program)
    assert check(slope) == Lolli(Bang(E), Lolli(E, Lolli(Plus(A, A), A)))
    close(denote(slope)(m, v)((x, y)), v @ m @ x + m @ v @ x + v @ y)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (SWAP, {"+L", "+R1", "+R2"}),
        (r"\s:A[3] + 1. \f:(A[3] -o B[2]) & (1 -o B[2]). case s of f", {"+L", "&L1", "&L2", "-oL"}),
        (r"\x:A[3]. <>", {"topR"}),
        (r"\v:0. \x:A[3]. absurd:B[2] v", {"0L"}),
        (r"\s:A[3] + A[3]. case s of <0:(A[3] -o A[3]), \x:A[3]. x + x>", {"+L", "zero", "sum"}),
        (r"\s:A[3] + A[3]. fst (case s of <\x:A[3]. <x, x>, \x:A[3]. <x, x>>)", {"+L", "cut"}),
    ],
)
def test_derivations_of_the_additives(text, rules):
    tree = derivation(parse(text))
    validate(tree)
    assert rules <= {node.rule for node in tree.instances()}
    assert ("cut" in {node.rule for node in tree.instances()}) == ("cut" in rules)


def test_sums_move_out_of_a_case_but_not_out_of_its_branches():
    s, p = Var("s", Plus(A, A)), Var("p", With(E, E))
    assert normalize(Case(s + s, p)) == Case(s, p) + Case(s, p)
    assert normalize(Case(s, p + p)) == Case(s, p) + Case(s, p)
    inner = Case(s, Both(lam(A, lambda x: x + x), Var("f", endo(A))))
    assert normalize(inner) == Case(s, Both(lam(A, lambda x: x) + lam(A, lambda x: x), Var("f", endo(A))))
    assert str(Case(s, p)) == "case s of p"
    assert str(Absurd(Var("v", Void), A)) == "absurd v"
    assert str(bang(Inl(Var("x", A), Atom("B", 2)))) == "!(inl x)"
    assert str(Plus(One, With(Void, Top))) == "1 + (0 & top)"

import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    Bang,
    Both,
    ForAll,
    IllTyped,
    Ket,
    Lam,
    LinearityError,
    Lolli,
    One,
    Pair,
    Snd,
    Star,
    Sum,
    Tensor,
    TypeLam,
    TypeVariable,
    Var,
    With,
    Zero,
    bang,
    banged,
    check,
    judge,
    lam,
    let_bang,
    let_pair,
)

A, B = Atom("A", 3), Atom("B", 2)
E = logic.endo(A)
INT, BINT = logic.integer(A), logic.binary(A)


@pytest.mark.parametrize(
    ("program", "of"),
    [
        (logic.numeral(3, A), Lolli(Bang(E), E)),
        (logic.numeral(0, A), INT),
        (logic.binary_integer("01101", A), Lolli(Bang(E), Lolli(Bang(E), E))),
        (logic.plus(A), Lolli(INT, Lolli(INT, INT))),
        (logic.mult(A), Lolli(INT, Lolli(Bang(INT), INT))),
        (logic.square(A), Lolli(Bang(INT), INT)),
        (logic.concat(A), Lolli(BINT, Lolli(BINT, BINT))),
        (logic.repeat(A), Lolli(Bang(BINT), BINT)),
        (logic.evaluate(A), Lolli(Bang(INT), Lolli(Bang(E), E))),
        (logic.compose(A), Lolli(E, Lolli(E, E))),
        (logic.dereliction(B), Lolli(Bang(B), B)),
        (logic.feed(A), Lolli(BINT, Lolli(Bang(INT), Lolli(Bang(INT), INT)))),
    ],
)
def test_the_library_has_the_types_of_the_notes(program, of):
    assert check(program) == of
    assert logic.is_plain(program)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (
            lambda: lam(E, lambda f: lam(A, lambda z: f(f(z)))),
            r"f : A -o A: got two uses in `f \(f z\)`, expected exactly one; give it type !\(A -o A\)",
        ),
        (
            lambda: lam(A, lambda x: Star()),
            r"linear variable x : A: got no use in `\\x. \*`, expected exactly one; give it type !A",
        ),
        (
            lambda: lam(A, lambda p: bang(p)),
            r"promotion `!p`: got the linear variable p : A, expected none; give it type !A",
        ),
        (
            lambda: lam(Bang(A), lambda x: bang(x)),
            r"promotion `!x`: got the linear variable x : !A, expected none; write `let !y = x in !y`$",
        ),
        (
            lambda: lam(Bang(A), lambda y: bang(Pair(y, Star()))),
            r"y : !A, expected none; open it outside, `let !y1 = y in \.\.`, and use `!y1` in its place",
        ),
        (
            lambda: lam(Bang(A), lambda y: Pair(y, y)),
            r"linear variable y : !A: got two uses .* open it once with `let !x = y in",
        ),
        (lambda: lam(Bang(A), lambda y: Star()), r"linear variable y : !A: got no use .* open it once"),
        (
            lambda: lam(Tensor(A, B), lambda t: let_pair(t, lambda x, y: x)),
            r"linear variable y : B: got no use in `let x \(x\) y = t in x`",
        ),
        (
            lambda: lam(A, E, lambda x, f: Both(x, f(x))),
            r"branches of <.., ..> `.*`: got no use of f : A -o A in `x`, expected the same linear variables",
        ),
        (
            lambda: lam(A, A, lambda x, y: Sum((x, y))),
            r"terms of a sum `x \+ y`: got no use of y : A in `x`, expected the same linear variables",
        ),
        (lambda: lam(A, lambda x: let_bang(Ket(x), lambda y: y)), r"`!x`: got the linear variable x : A"),
        (lambda: lam(A, lambda x: Ket(Zero(A), (x, x))), r"x : A: got two uses"),
        (lambda: lam(With(A, A), lambda p: Pair(logic.Fst(p), Snd(p))), r"p : A & A: got two uses"),
    ],
)
def test_a_linearity_error_names_the_variable_its_type_the_place_and_the_repair(term, message):
    with pytest.raises(LinearityError, match=message):
        check(term())


def test_the_repair_of_a_promotion_is_a_proof():
    assert check(lam(Bang(A), lambda x: let_bang(x, lambda y: bang(y)))) == Lolli(Bang(A), Bang(A))
    y = lam(Bang(A), lambda y: let_bang(y, lambda y1: bang(Pair(bang(y1), Star()))))
    assert check(y) == Lolli(Bang(A), Bang(Tensor(Bang(A), One)))


def test_a_variable_that_a_traced_function_kept_is_named_without_its_number():
    kept = []
    first = lam(A, lambda x: kept.append(x) or x)
    assert (str(kept[0]), repr(kept[0]), str(first)) == ("x", "<x : A>", r"\x. x")
    message = (
        "variable x : A: got a use outside the Python function of which it was a parameter, expected uses in "
        "the term that the function returns"
    )
    for term in (kept[0], lam(A, lambda x: Pair(x, kept[0]))):
        with pytest.raises(IllTyped, match=message):
            check(term)
    # A later function of the same parameter does not bind it.
    assert len({lam(A, lambda x: kept.append(x) or kept[0]).free for _ in range(20)}) == 1


def test_a_type_variable_is_named_without_its_number():
    """While its function is traced; two that print alike differ in one message."""
    with pytest.raises(IllTyped) as raised:
        logic.polymorphic(lambda X: lam(X, lambda x: x(x)))
    assert str(raised.value).startswith("function: got `x` : X, expected a type A -o B")
    with pytest.raises(IllTyped) as raised:
        logic.polymorphic(lambda X: logic.polymorphic(lambda Y: lam(logic.endo(X), Y, lambda f, y: f(y))))
    assert "argument: got `y` : Y, expected type X for `f` : X -o X" in str(raised.value)
    inner = lambda outer: lambda X: lam(logic.endo(outer), X, lambda f, x: f(x))  # noqa: E731
    with pytest.raises(IllTyped) as raised:
        logic.polymorphic(lambda X: logic.polymorphic(inner(X)))
    assert "argument: got `x` : X, expected type X1 for `f` : X1 -o X1" in str(raised.value)
    kept = []
    logic.polymorphic(lambda X: kept.append(X) or lam(X, lambda x: x))
    assert str(ForAll("Y", Lolli(kept[0], TypeVariable("Y")))) == "forall Y. X -o Y"
    with pytest.raises(IllTyped) as raised:
        check(TypeLam(kept[0].name, Var("q", kept[0])), unrestricted={"q": kept[0]})
    assert "type variable X of" in str(raised.value)
    assert "#" not in str(raised.value)


def test_variables_of_a_context_are_named_without_their_numbers():
    """Those that a traced function has kept, as free variables and as names that a term binds."""
    q = []
    lam(A, Bang(A), lambda x, b: q.extend((x, b)) or Pair(x, b))
    x, b = q
    linear = {x.name: A, b.name: Bang(A)}
    wrong = [
        lambda: check(x, linear=linear),
        lambda: check(Pair(x, Pair(x, b)), linear=linear),
        lambda: check(Both(Pair(x, b), Pair(x, Star())), linear=linear),
        lambda: check(Ket(x), linear=linear),
        lambda: check(Ket(b), linear=linear),
        lambda: check(Ket(Pair(b, Star())), linear=linear),
        lambda: check(x, {x.name: A}, {x.name: A}),
        lambda: check(Lam(x.name, A, Star())),
        lambda: check(logic.LetBang(Ket(Zero(A)), x.name, Lam(b.name, A, Star()))),
        lambda: check(logic.LetPair(Zero(Tensor(A, A)), x.name, b.name, x)),
    ]
    for each in wrong:
        with pytest.raises(ValueError, match=r"got") as raised:
            each()
        assert "#" not in str(raised.value), raised.value


def test_an_unbound_variable_and_one_bound_at_another_type_are_refused():
    with pytest.raises(IllTyped, match="variable x : A: got no binder, expected a lambda"):
        check(Var("x", A))
    with pytest.raises(IllTyped, match="variable x: got a use at type A, expected B"):
        check(Lam("x", B, Var("x", A)))
    with pytest.raises(IllTyped, match=r"variable x: got a use at type A\[3\], expected !A\[4\], its type"):
        check(Lam("x", Bang(Atom("A", 4)), Var("x", A)))


def test_contexts_say_which_free_variables_are_linear():
    x, f = Var("x", A), Var("f", E)
    assert check(f(f(x)), unrestricted={"f": E}, linear={"x": A}) == A
    with pytest.raises(LinearityError, match="f : A -o A: got two uses"):
        check(f(f(x)), linear={"f": E, "x": A})
    with pytest.raises(LinearityError, match="x : A: got no use"):
        check(Star(), linear={"x": A})
    with pytest.raises(ValueError, match="linear: got x, expected names that are not in unrestricted"):
        check(x, {"x": A}, {"x": A})
    many: dict[str, logic.Type] = dict.fromkeys("dbace", A)
    with pytest.raises(ValueError, match="linear: got a, b, c, d, e, expected names"):
        check(x, many, many)
    found = judge(f(x), {"f": E}, {"x": A, "y": B})
    assert (found.type, dict(found.linear), found.absorbs) == (A, {"x": A}, False)


def test_an_inner_variable_hides_an_outer_one_of_the_same_name():
    # \x:A. \f:E. (\x:A. x) (f x): two variables called x, each used once.
    x, f = Var("x", A), Var("f", E)
    assert check(Lam("x", A, Lam("f", E, Lam("x", A, x)(f(x))))) == Lolli(A, Lolli(E, A))


def test_zero_proves_anything_from_any_context_but_does_not_excuse_a_second_use():
    assert check(lam(A, lambda x: Zero(B))) == Lolli(A, B)
    assert check(lam(A, B, lambda x, y: Pair(x, Zero(A)))) == Lolli(A, Lolli(B, Tensor(A, A)))
    assert check(lam(A, lambda x: Both(x, Zero(B)))) == Lolli(A, With(A, B))
    assert check(lam(A, lambda x: Sum((x, Zero(A))))) == Lolli(A, A)
    assert check(Zero(A), linear={"x": A}) == A
    with pytest.raises(LinearityError, match="y : A: got no use"):
        check(lam(A, A, lambda x, y: Both(x, Zero(B))))  # the left branch cannot absorb y
    with pytest.raises(LinearityError, match="got two uses"):
        check(lam(A, lambda x: Pair(Pair(x, x), Zero(A))))
    with pytest.raises(LinearityError, match="x : A: got no use"):
        check(lam(A, lambda x: Ket(Zero(A))))  # what a zero absorbs cannot be promoted


def test_slip_1_the_linear_master_of_example_2_10_is_no_proof():
    state = logic.ntm_state(A, A, B)
    w_dual = logic.dual(A)

    def draft(m, n, alpha, beta, u, s):
        r, w, memory = (
            m(bang(alpha))(logic.Fst(Snd(s))),
            n(bang(beta))(logic.Fst(Snd(Snd(s)))),
            Snd(Snd(Snd(s))),
        )
        return memory(r) + logic.LetStar(w(r), u)

    def master(u_and_state_linear):
        return banged(logic.integer(A), logic.integer(w_dual), E, logic.endo(w_dual), u_and_state_linear)

    with pytest.raises(LinearityError, match=r"linear variable s : .*: got two uses"):
        check(master(lambda m, n, a, b: banged(B, lambda u: lam(state, lambda s: draft(m, n, a, b, u, s)))))
    assert check(master(lambda m, n, a, b: banged(B, state, lambda u, s: draft(m, n, a, b, u, s))))


def test_slip_2_feed_needs_its_numerals_banged():
    def draft(s, m, n):
        return banged(E, lambda f: s(bang(m(bang(f))), bang(n(bang(f)))))

    with pytest.raises(
        LinearityError, match=r"promotion `.*`: got the linear variable m : .*, expected none"
    ):
        check(lam(BINT, INT, INT, draft))

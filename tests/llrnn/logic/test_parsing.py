import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    Bang,
    Both,
    Ket,
    Lolli,
    One,
    Pair,
    ParseError,
    Star,
    Sum,
    Tensor,
    TypeVariable,
    Var,
    With,
    Zero,
    bang,
    lam,
    let_pair,
    parse,
    parse_type,
    show,
)

A, B = Atom("A", 3), Atom("B", 2)
E = logic.endo(A)
TYPES = {"int": logic.integer(A), "E": E, "B": B, "A": A}
FREE = {"x": Var("x", A), "f": Var("f", E), "t": Var("t", Tensor(A, B)), "2": logic.numeral(2, A)}


@pytest.mark.parametrize(
    ("text", "term"),
    [
        (r"\!f:!(A -o A). \z:A. f (f z)", lambda: logic.numeral(2, A)),
        (r"\!f : !E.\z:A .f(f z)", lambda: logic.numeral(2, A)),
        ("\\m:int.\n  \\n:int.\n    \\!f:!E. \\z:A. m !f (n !f z)", lambda: logic.plus(A)),
        (r"\x:A[3]. x", lambda: lam(A, lambda x: x)),
        ("f (f x)", lambda: FREE["f"](FREE["f"](FREE["x"]))),
        ("2 !f x", lambda: FREE["2"](bang(FREE["f"]))(FREE["x"])),
        ("let a (x) b = t in b (x) a", lambda: let_pair(FREE["t"], lambda a, b: Pair(b, a))),
        ("let * = * in <x, * (x) *>", lambda: logic.LetStar(Star(), Both(FREE["x"], Pair(Star(), Star())))),
        ("x + x + 0:A", lambda: Sum((FREE["x"], FREE["x"], Zero(A)))),
        ("(x + x) + x", lambda: FREE["x"] + FREE["x"] + FREE["x"]),
        ("+ x", lambda: Sum((FREE["x"],))),
        ("|f x, x>_0:A", lambda: Ket(Zero(A), (FREE["f"](FREE["x"]), FREE["x"]))),
        ("fst <f, x> x", lambda: logic.Fst(Both(FREE["f"], FREE["x"]))(FREE["x"])),
        ("snd (fst <<f, x>, x>)", lambda: logic.Snd(logic.Fst(Both(Both(FREE["f"], FREE["x"]), FREE["x"])))),
        (r"\f:B. f", lambda: lam(B, lambda y: y)),  # a binder hides a term of the same name
        (r"!!0:!(A -o 1)", lambda: bang(bang(Zero(Bang(Lolli(A, One)))))),
    ],
)
def test_texts_and_their_terms(text, term):
    parsed = parse(text, TYPES, FREE)
    assert parsed == term()
    assert parse(show(parsed, types=True), terms=FREE) == parsed


def test_types():
    assert parse_type("A -o B -o !A & (B (x) 1)", TYPES) == Lolli(A, Lolli(B, With(Bang(A), Tensor(B, One))))
    assert parse_type("!(W[4] -o A)", TYPES) == Bang(Lolli(Atom("W", 4), A))
    assert parse_type("W[1]") == Atom("W", 1)


@pytest.mark.parametrize(
    "name", ["plus", "mult", "square", "concat", "repeat", "evaluate", "compose", "feed"]
)
def test_the_library_can_be_read_back(name):
    program = getattr(logic, name)(A)
    assert parse(show(program, types=True)) == program
    assert parse(show(logic.derivative(logic.square(A)), types=True)) == logic.derivative(logic.square(A))


def test_a_text_as_deep_as_a_large_numeral():
    numeral = logic.numeral(2000, A)
    assert parse(show(numeral, types=True)) == numeral


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"\x. x", r"line 1, column 3: got `\.`, expected `:` and the type of x"),
        (
            r"\x:C. x",
            r"column 4: got `C`, expected one of A, B, E, int, or the dimension of the atom as in `C\[8\]`",
        ),
        (r"\x:A[0]. x", r"column 6: got `0`, expected the dimension of A, at least 1"),
        (r"\x:A[²]. x", r"column 6: got `²`, expected the dimension of A, at least 1"),
        (rf"\x:A[{'9' * 5000}]. x", r"column 6: got `9+`, expected the dimension of A, .* at most 18 digits"),
        (r"\!x:A. x", r"column 5: got type A, expected a type !A for `\\!x`"),
        ("\\x:A.\n  y", r"line 2, column 3: got `y`, expected a bound variable or one of 2, f, t, x"),
        ("f (x)", r"column 6: got the end, expected a term"),
        (
            "f ((x) x)",
            r"column 4: got `\(x\)`, expected a term; `\(x\)` is the tensor, write an argument x without",
        ),
        ("f (f x", r"column 7: got the end, expected `\)` for the bracket of line 1, column 3"),
        ("f x)", r"column 4: got `\)`, expected an operator, an argument or the end"),
        ("x (x) x (x) x", r"column 9: got `\(x\)`, expected an operator, an argument or the end"),
        ("<x; x>", r"column 3: got `;`, expected `,` after the first component of `<` of line 1, column 1"),
        ("<x, x", r"column 6: got the end, expected `>` for `<`"),
        ("|x>", r"column 3: got `>`, expected `>_` or `,` for `\|`"),
        ("let y = t in y", r"column 7: got `=`, expected `\(x\)` after `let y`"),
        ("let = t in y", r"column 5: got `=`, expected `\*`, `!x` or `x \(x\) y` after `let`"),
        ("let !y = !x y", r"column 13: got `y`, expected a bound variable"),
        ("let !y = !x", r"column 12: got the end, expected `in` after the term that `let` opens"),
        (r"\let:A. x", r"column 2: got `let`, expected a variable after `\\`, a name"),
        ("", r"line 1, column 1: got the end, expected a term"),
        (3, "text: got 3, expected a string"),
    ],
)
def test_an_error_names_the_place_and_what_was_expected(text, message):
    with pytest.raises(ParseError, match=message):
        parse(text, TYPES, FREE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            r"\y:A. g y",
            r"column 7: got `g`, expected a term without the free variable y, which is bound here",
        ),
        (r"let y (x) z = t in g z", r"column 20: got `g`, expected a term without the free variable y"),
        (r"\y:A. (\z:A. y) g", r"column 17: got `g`, expected a term without the free variable y"),
        (
            r"/\X. u",
            r"column 6: got `u`, expected a term without the free variable /\\X, which is bound here",
        ),
        (r"/\X. \y:Y. y", r"column 9: got `Y`, expected a type without the free variable /\\X, which is"),
        (r"0:(forall X. Y)", r"column 14: got `Y`, expected a type without the free variable /\\X"),
    ],
)
def test_a_binder_captures_nothing_that_is_given(text, message):
    x = TypeVariable("X")
    given = FREE | {"g": lam(A, lambda z: Pair(z, Var("y", A))), "u": Zero(x)}
    with pytest.raises(ParseError, match=message):
        parse(text, TYPES | {"Y": x}, given)


def test_a_binder_elsewhere_or_of_the_names_own_captures_nothing():
    x = Var("x", A)
    assert parse(r"(\x:A. x) g", TYPES, {"g": x}) == lam(A, lambda y: y)(x)
    assert parse(r"\x:A. x", TYPES, {"x": x}) == lam(A, lambda y: y)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f (f f)", r"line 1, column 6: argument: got `f` : A -o A, expected type A for `f`"),
        ("x x", r"column 3: function: got `x` : A, expected a type A -o B for the argument"),
        ("let !y = x in y", r"column 1: scrutinee of `let !x = t in u`: got `x` : A, expected type !A"),
        ("x + f", r"column 1: terms: got `f` : A -o A, expected the type of the first term"),
        ("f (snd t)", r"column 4: product of snd: got `t` : A \(x\) B, expected type A & B"),
        (r"(\y:A[4]. y) x", r"column 14: argument: got `x` : A\[3\], expected type A\[4\]"),
    ],
)
def test_an_error_of_types_names_the_place(text, message):
    with pytest.raises(logic.IllTyped, match=message):
        parse(text, TYPES, FREE)


def test_a_type_error_names_the_place():
    with pytest.raises(ParseError, match="line 1, column 5: got the end, expected a type"):
        parse_type("A -o ", TYPES)
    with pytest.raises(ParseError, match="column 8: got `&`, expected an operator"):
        parse_type("A & B  & A", TYPES)

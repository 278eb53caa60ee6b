r"""Linear logic: types, terms, checking, cut elimination, denotations as JAX values, a library of programs.

For example:

    from llrnn import logic
    A = logic.Atom("A", 5)
    two = logic.numeral(2, A)                     # \!f. \z. f (f z)
    logic.check(two)                              # !(A -o A) -o A -o A
    square = logic.denote(two)(x)                 # x : [5, 5]; a linear callable
    logic.matrix(square, 5)                       # x @ x
"""

from llrnn.logic import kets, values
from llrnn.logic.check import Judgement, LinearityError, check, judge
from llrnn.logic.denote import denote, ket_value, nonlinear
from llrnn.logic.differential import derivative
from llrnn.logic.elimination import Step, Trace, cut_elimination
from llrnn.logic.masters import dual, ntm_master, ntm_state
from llrnn.logic.names import is_plain
from llrnn.logic.normalize import equivalent, normalize
from llrnn.logic.parsing import ParseError, parse, parse_type
from llrnn.logic.programs import (
    binary_integer,
    compose,
    concat,
    dereliction,
    evaluate,
    feed,
    mult,
    numeral,
    plus,
    repeat,
    square,
)
from llrnn.logic.sequent import Derivation, derivation
from llrnn.logic.spans import (
    NumeralSpan,
    Span,
    WordProducts,
    WordSpan,
    numeral_span,
    word_products,
    word_span,
)
from llrnn.logic.terms import (
    App,
    Both,
    Fst,
    IllTyped,
    Ket,
    Lam,
    LetBang,
    LetPair,
    LetStar,
    Pair,
    Snd,
    Star,
    Sum,
    Term,
    Var,
    Zero,
    alpha_equal,
    show,
)
from llrnn.logic.tracing import bang, banged, both, lam, let_bang, let_pair, let_star
from llrnn.logic.types import Atom, Bang, Lolli, One, Tensor, Type, With, binary, endo, integer
from llrnn.logic.validate import validate
from llrnn.logic.values import Kets, LinearMap, dense, ket, matrix, superpose

__all__ = [
    "App",
    "Atom",
    "Bang",
    "Both",
    "Derivation",
    "Fst",
    "IllTyped",
    "Judgement",
    "Ket",
    "Kets",
    "Lam",
    "LetBang",
    "LetPair",
    "LetStar",
    "LinearMap",
    "LinearityError",
    "Lolli",
    "NumeralSpan",
    "One",
    "Pair",
    "ParseError",
    "Snd",
    "Span",
    "Star",
    "Step",
    "Sum",
    "Tensor",
    "Term",
    "Trace",
    "Type",
    "Var",
    "With",
    "WordProducts",
    "WordSpan",
    "Zero",
    "alpha_equal",
    "bang",
    "banged",
    "binary",
    "binary_integer",
    "both",
    "check",
    "compose",
    "concat",
    "cut_elimination",
    "denote",
    "dense",
    "dereliction",
    "derivation",
    "derivative",
    "dual",
    "endo",
    "equivalent",
    "evaluate",
    "feed",
    "integer",
    "is_plain",
    "judge",
    "ket",
    "ket_value",
    "kets",
    "lam",
    "let_bang",
    "let_pair",
    "let_star",
    "matrix",
    "mult",
    "nonlinear",
    "normalize",
    "ntm_master",
    "ntm_state",
    "numeral",
    "numeral_span",
    "parse",
    "parse_type",
    "plus",
    "repeat",
    "show",
    "square",
    "superpose",
    "validate",
    "values",
    "word_products",
    "word_span",
]

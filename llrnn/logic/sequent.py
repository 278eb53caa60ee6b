"""The sequent-calculus derivation of a term, with every structural rule explicit.

In a term, contraction, weakening and dereliction are implicit in the number of uses of a variable; here each
is a rule. The rules, with exchange implicit (a context is a multiset), are

    ax          A |- A                                  cut         G |- A   and  A, D |- C   give  G, D |- C
    1R          |- 1                                    1L          G |- C   gives  1, G |- C
    (x)R        G |- A  and  D |- B  give  G, D |- A (x) B          (x)L  A, B, G |- C  gives  A (x) B, G |- C
    -oR         A, G |- B  gives  G |- A -o B           -oL   G |- A  and  B, D |- C  give  A -o B, G, D |- C
    &R          G |- A  and  G |- B  give  G |- A & B   &L1, &L2    A, G |- C  gives  A & B, G |- C
    +R1, +R2    G |- A  gives  G |- A + B               +L   A, G |- C  and  B, G |- C  give  A + B, G |- C
    topR        G |- top  for any G                     0L          0, G |- C  for any G and C
    forallR     G |- A  gives  G |- forall X. A,        forallL     A[X := B], G |- C
                X not free in G                                     gives  forall X. A, G |- C
    promotion   !G |- A  gives  !G |- !A                dereliction A, G |- C  gives  !A, G |- C
    contraction !A, !A, G |- C  gives  !A, G |- C       weakening   G |- C  gives  !A, G |- C

and for differential linear logic

    codereliction   G |- A  gives  G |- !A  (v -> |v>_0)
    deriving        G |- !A  and  D |- A  give  G, D |- !A  (|v1 .. vs>_P (x) v -> |v1 .. vs, v>_P)
    sum             G |- A  n times gives  G |- A       zero        G |- A  for any G

A term in normal form has a derivation without cuts, unless it eliminates a `case` of an unknown subject.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llrnn.logic import terms
from llrnn.logic.check import check
from llrnn.logic.names import fresh
from llrnn.logic.stackless import Steps, each, stackless
from llrnn.logic.term import Term, apart, rename
from llrnn.logic.types import Bang, Lolli, One, Plus, Top, Type, Void


@dataclass(frozen=True, eq=False)
class Derivation:
    """A tree of rule instances; `print(derivation)` draws it.

    Attributes:
      rule: the name of the last rule.
      hypotheses: the types on the left of the last sequent.
      conclusion: the type on the right of the last sequent.
      premises: the derivations of the rule's premises.
    """

    rule: str
    hypotheses: tuple[Type, ...]
    conclusion: Type
    premises: tuple["Derivation", ...]

    def instances(self) -> Iterator["Derivation"]:
        """Yields every rule instance in the tree, this one first."""
        pending: list[Derivation] = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.premises))

    @property
    def sequent(self) -> str:
        """The last sequent, `A, B |- C`."""
        return f"{', '.join(map(str, self.hypotheses))} |- {self.conclusion}".lstrip()

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in _draw(self).lines)


def derivation(
    term: Term, unrestricted: Mapping[str, Type] | None = None, linear: Mapping[str, Type] | None = None
) -> Derivation:
    """Returns the derivation of `!A1, .., !Am, B1, .., Bn |- term.type` that a term stands for.

    Args:
      term: a proof.
      unrestricted: its free unrestricted variables x_i : A_i; each is a hypothesis !A_i.
      linear: its free linear variables y_j : B_j.

    Raises:
      IllTyped: the term is not a proof in this context (see `check`).
      LinearityError: the term is not a proof in this context, because of a linear variable.
    """
    unrestricted, linear = unrestricted or {}, linear or {}
    check(term, unrestricted, linear)
    scope = {name: _Binder(Bang(of), True) for name, of in unrestricted.items()}
    scope |= {name: _Binder(of, False) for name, of in linear.items()}
    tree = _build(term, scope, None)
    for binder in scope.values():
        tree, _ = _once(tree, binder)
    return _finished(tree)


@dataclass(eq=False)
class _Binder:
    """The variable of a hypothesis; identity of this object distinguishes variables of equal names."""

    type: Type
    unrestricted: bool


@dataclass(eq=False)
class _Hypothesis:
    """One occurrence of a type on the left; its binder is unknown until a term proves it."""

    type: Type
    binder: _Binder | None = None


_SHARED = ("&R", "+L", "sum")
"""The rules whose premises have the same context."""


class _Node:
    """A derivation under construction, whose hypotheses refer to their variables."""

    def __init__(self, rule: str, hypotheses: list[_Hypothesis], conclusion: Type, *premises: "_Node"):
        self.rule = rule
        self.hypotheses = hypotheses
        self.conclusion = conclusion
        self.premises = premises
        if rule in ("zero", "topR", "0L"):
            self.absorbs = True
        elif rule in _SHARED:
            self.absorbs = all(premise.absorbs for premise in premises)
        else:
            self.absorbs = rule != "promotion" and any(premise.absorbs for premise in premises)

    def without(self, *gone: _Hypothesis) -> list[_Hypothesis]:
        return [h for h in self.hypotheses if all(h is not g for g in gone)]


# The derivation built so far below a term, with a hypothesis of the term's type, and that hypothesis.
type _Goal = tuple[_Node, _Hypothesis]


def _left(rule: str, of: Type, others: list[_Hypothesis], *premises: _Node) -> _Goal:
    """Returns a left rule and the hypothesis that it introduces."""
    new = _Hypothesis(of)
    return _Node(rule, [new, *others], premises[-1].conclusion, *premises), new


@stackless
def _build(term: Term, scope: dict[str, _Binder], goal: _Goal | None) -> "Steps[_Node]":
    """Returns the derivation of the term or, with a goal, the goal with the term for its hypothesis.

    Left rules are added to the goal from the outside in, so that a variable under eliminations needs no cut.
    """
    match term:
        case terms.LetStar():
            body = yield _build.steps(term.body, scope, goal)
            return (yield _build.steps(term.scrutinee, scope, _left("1L", One, body.hypotheses, body)))
        case terms.LetPair():
            left, right = (_Binder(of, False) for of in term.bound_types)
            body = yield _build.steps(term.body, {**scope, term.left: left, term.right: right}, goal)
            body, first = _once(body, left)
            body, second = _once(body, right)
            below = _left("(x)L", term.scrutinee.type, body.without(first, second), body)
            return (yield _build.steps(term.scrutinee, scope, below))
        case terms.LetBang():
            binder = _Binder(term.scrutinee.type, True)
            body = yield _build.steps(term.body, {**scope, term.name: binder}, goal)
            return (yield _build.steps(term.scrutinee, scope, _once(body, binder)))
        case terms.Var() | terms.App() | terms.Fst() | terms.Snd() | terms.TypeApp() | terms.Absurd():
            if goal is None:
                start = _Hypothesis(term.type)
                goal = _Node("ax", [start], term.type), start
            return (yield _eliminate.steps(term, scope, goal))
        case terms.Case(scrutinee=Term(type=Plus(left=left, right=right))):
            branches = []
            for place, of in enumerate((left, right)):
                name, body = _branch(term.branches, place, of)
                binder = _Binder(of, False)
                node = yield _build.steps(body, {**scope, name: binder}, goal and _copied(goal))
                branches.append((node, binder))
            branches = [_once(node, binder) for node, binder in branches]
            for _, own in branches:
                own.binder = None  # no part of the context that the branches share
            sides = _same_context([node for node, _ in branches])
            below = _left("+L", term.scrutinee.type, sides[0].without(branches[0][1]), *sides)
            return (yield _build.steps(term.scrutinee, scope, below))
        case terms.Sum() if goal:
            parts = yield from each(_build.steps(part, scope, _copied(goal)) for part in term.terms)
            parts = _same_context(parts)
            return _Node("sum", parts[0].hypotheses, parts[0].conclusion, *parts)
        case terms.Zero() if goal:
            below, hole = goal
            return _Node("zero", below.without(hole), below.conclusion)
    introduced = yield _introduce.steps(term, scope)
    if goal is None:
        return introduced
    below, cut = goal
    return _Node("cut", [*introduced.hypotheses, *below.without(cut)], below.conclusion, introduced, below)


@stackless
def _eliminate(term: Term, scope: dict[str, _Binder], goal: _Goal) -> "Steps[_Node]":
    node, hole = goal
    match term:
        case terms.Var():
            binder = scope[term.name]
            if not binder.unrestricted:
                hole.binder = binder
                return node
            used = _Hypothesis(binder.type, binder)
            return _Node("dereliction", [used, *node.without(hole)], node.conclusion, node)
        case terms.App():
            argument = yield _build.steps(term.argument, scope, None)
            others = [*argument.hypotheses, *node.without(hole)]
            below = _left("-oL", term.function.type, others, argument, node)
            return (yield _build.steps(term.function, scope, below))
        case terms.Fst() | terms.Snd():
            rule = "&L1" if isinstance(term, terms.Fst) else "&L2"
            below = _left(rule, term.product.type, node.without(hole), node)
            return (yield _build.steps(term.product, scope, below))
        case terms.TypeApp():
            below = _left("forallL", term.function.type, node.without(hole), node)
            return (yield _build.steps(term.function, scope, below))
        case terms.Absurd():
            below = _Hypothesis(Void)
            empty = _Node("0L", [below, *node.without(hole)], node.conclusion)
            return (yield _build.steps(term.scrutinee, scope, (empty, below)))
    raise ValueError(f"term: got {term!r}, expected a variable or an elimination")


@stackless
def _introduce(term: Term, scope: dict[str, _Binder]) -> "Steps[_Node]":
    match term:
        case terms.Star():
            return _Node("1R", [], One)
        case terms.Zero():
            return _Node("zero", [], term.of)
        case terms.Trivial():
            return _Node("topR", [], Top)
        case terms.Lam():
            binder = _Binder(term.domain, False)
            body = yield _build.steps(term.body, {**scope, term.name: binder}, None)
            body, argument = _once(body, binder)
            return _Node("-oR", body.without(argument), term.type, body)
    if isinstance(term, terms.TypeLam):  # a zero in it may accept any variable in scope
        term = apart(term, (binder.type for binder in scope.values()))
    premises = yield from each(_build.steps(child, scope, None) for child in term.children)
    match term:
        case terms.Inl() | terms.Inr() | terms.TypeLam():
            rule = {terms.Inl: "+R1", terms.Inr: "+R2", terms.TypeLam: "forallR"}[type(term)]
            return _Node(rule, premises[0].hypotheses, term.type, *premises)
        case terms.Pair():
            left, right = premises
            return _Node("(x)R", [*left.hypotheses, *right.hypotheses], term.type, left, right)
        case terms.Both() | terms.Sum():
            premises = _same_context(premises)
            rule = "sum" if isinstance(term, terms.Sum) else "&R"
            return _Node(rule, premises[0].hypotheses, term.type, *premises)
        case terms.Ket():
            point, *vectors = premises
            if vectors and isinstance(term.point, terms.Zero):
                first, *vectors = vectors
                node = _Node("codereliction", first.hypotheses, term.type, first)
            else:
                node = _Node("promotion", point.hypotheses, term.type, point)
            for tangent in vectors:
                node = _Node("deriving", [*node.hypotheses, *tangent.hypotheses], term.type, node, tangent)
            return node
    raise ValueError(f"term: got {term!r}, expected a term")


def _branch(branches: Term, place: int, of: Type) -> tuple[str, Term]:
    """Returns the variable and the body of one of the two branches of a case."""
    if isinstance(branches, terms.Both):
        function = branches.children[place]
    else:
        function = (terms.Fst, terms.Snd)[place](branches)
    x = terms.Var(fresh("x", function.names), of)
    return x.name, _applied(function, x)


@stackless
def _applied(function: Term, x: terms.Var) -> "Steps[Term]":
    """Returns the function at a variable that is new to it, without a cut if the function is normal."""
    match function:
        case terms.Lam():
            return rename(function.body, {function.name: x.name})
        case terms.Zero(of=Lolli(codomain=of)):
            return terms.Zero(of)
        case terms.Sum():
            return terms.Sum(tuple((yield from each(_applied.steps(f, x) for f in function.terms))))
        case terms.LetStar() | terms.LetPair() | terms.LetBang():
            return function.remake(
                function.bound, (function.scrutinee, (yield _applied.steps(function.body, x)))
            )
    return function(x)


def _copied(goal: _Goal) -> _Goal:
    """Returns a goal with a hypothesis of its own, since each branch of a case or a sum proves one."""
    node, hole = goal
    new = _Hypothesis(hole.type)
    return _Node(node.rule, [new, *node.without(hole)], node.conclusion, *node.premises), new


def _once(node: _Node, binder: _Binder) -> tuple[_Node, _Hypothesis]:
    """Contracts, weakens or absorbs until the derivation has exactly one hypothesis of the binder."""
    uses = [h for h in node.hypotheses if h.binder is binder]
    if not uses:
        missing = _Hypothesis(binder.type, binder)
        if binder.unrestricted:
            return _Node("weakening", [missing, *node.hypotheses], node.conclusion, node), missing
        return _absorb(node, missing), missing
    while len(uses) > 1:
        first, second, *uses = uses
        merged = _Hypothesis(binder.type, binder)
        node = _Node("contraction", [merged, *node.without(first, second)], node.conclusion, node)
        uses = [merged, *uses]
    return node, uses[0]


@stackless
def _absorb(node: _Node, missing: _Hypothesis) -> "Steps[_Node]":
    """Adds a hypothesis to the derivation, from its conclusion up to a zero, which accepts any context."""
    premises = list(node.premises)
    for place, premise in enumerate(premises):
        if premise.absorbs:
            premises[place] = yield _absorb.steps(premise, missing)
            if node.rule not in _SHARED:  # these share their context, so every premise gets it
                break
    return _Node(node.rule, [missing, *node.hypotheses], node.conclusion, *premises)


def _same_context(branches: list[_Node]) -> list[_Node]:
    """Gives every branch of a context-sharing rule one hypothesis for each variable of any branch."""
    hypotheses = [h for branch in branches for h in branch.hypotheses]
    for binder in {id(h.binder): h.binder for h in hypotheses if h.binder is not None}.values():
        branches = [_once(branch, binder)[0] for branch in branches]
    return branches


@stackless
def _finished(node: _Node) -> "Steps[Derivation]":
    premises = yield from each(_finished.steps(premise) for premise in node.premises)
    return Derivation(node.rule, tuple(h.type for h in node.hypotheses), node.conclusion, tuple(premises))


@dataclass(frozen=True)
class _Drawing:
    """Lines of equal length, and the position of the sequent in the last one."""

    lines: list[str]
    start: int
    width: int


@stackless
def _draw(tree: Derivation) -> "Steps[_Drawing]":
    gap = "   "
    drawings = yield from each(_draw.steps(premise) for premise in tree.premises)
    height = max((len(drawing.lines) for drawing in drawings), default=0)
    columns = [[" " * len(d.lines[0])] * (height - len(d.lines)) + d.lines for d in drawings]
    above = [gap.join(row) for row in zip(*columns, strict=True)]
    # The bar spans the premises' sequents and the conclusion, which are centred on it.
    left, right = 0, 0
    if drawings:
        left = drawings[0].start
        offset = sum(len(drawing.lines[0]) + len(gap) for drawing in drawings[:-1])
        right = offset + drawings[-1].start + drawings[-1].width
    text = tree.sequent
    start = (left + right - len(text)) // 2
    shift = max(0, -start)
    left, right, start = left + shift, right + shift, start + shift
    first, last = min(left, start), max(right, start + len(text))
    bar = " " * first + "-" * (last - first) + f" {tree.rule}"
    lines = [*(" " * shift + line for line in above), bar, " " * start + text]
    total = max(len(line) for line in lines)
    return _Drawing([line.ljust(total) for line in lines], start, len(text))

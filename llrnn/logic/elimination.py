r"""Cut elimination step by step, for display: every step rewrites one place of the proof by one rule.

`normalize` reaches the same normal form, faster; lets with equal subjects may be in another order. The first
of these rules that applies is taken, outermost:

    -o      (\x. t) u                          ->  t[x := u]
    1       let * = * in u                    ->  u
    (x)     let x (x) y = a (x) b in u        ->  u[x := a, y := b]
    &       fst <a, b>, snd <a, b>            ->  a, b
    +       case inl a of t, case inr b of t  ->  fst t a, snd t b
    all     (/\X. t) @A                       ->  t[X := A]
    !       let !x = !t in u                  ->  u[x := t]
    d       let !x = |v1 .. vs>_t in u        ->  the s-th derivative of u in x along v1 .. vs, at x := t
    sum     a sum or zero where the construct is linear moves out; sums in sums are flattened
    let     a let whose subject is no introduction moves out
    order   the summands of sums, the vectors of kets and independent lets are sorted, as the last step
"""

from collections.abc import Callable
from dataclasses import dataclass

from llrnn.logic import terms
from llrnn.logic.check import check
from llrnn.logic.normalize import (
    enter,
    in_order,
    let_to_move,
    linear_places,
    open_ket,
    replaced,
    total,
)
from llrnn.logic.stackless import Steps, stackless
from llrnn.logic.term import Term, apart, need_terms, with_types


@dataclass(frozen=True)
class Step:
    """One rewriting: the name of the rule, and the whole term after it."""

    rule: str
    term: Term


@dataclass(frozen=True)
class Trace:
    """The steps from a term to its normal form; `print(trace)` shows them line by line.

    Attributes:
      start: the term.
      steps: the steps in order; the last one has the normal form.
    """

    start: Term
    steps: tuple[Step, ...]

    @property
    def normal(self) -> Term:
        """The last term."""
        return self.steps[-1].term if self.steps else self.start

    def __str__(self) -> str:
        return "\n".join([f"      {self.start}", *(f"{step.rule:>5} {step.term}" for step in self.steps)])


def cut_elimination(term: Term, limit: int = 1000) -> Trace:
    """Returns the steps of cut elimination; the type and the denotation stay the same at every step.

    Raises:
      IllTyped: the term is closed and not a proof.
      LinearityError: the term is closed and not a proof, because of a linear variable.
      ValueError: the normal form needs more than `limit` steps.
    """
    need_terms(term=term)
    if not term.free:
        check(term)
    steps: list[Step] = []
    now = term
    while found := next(filter(None, (_reduced(now, rule) for rule in (_cut, _sum, _let))), None):
        if len(steps) == limit:
            raise ValueError(
                f"limit: got {limit}, expected at least the number of steps; `normalize` has none"
            )
        steps.append(found)
        now = found.term
    ordered = in_order(now)
    if ordered != now:
        steps.append(Step("order", ordered))
    return Trace(term, tuple(steps))


@stackless
def _reduced(term: Term, rule: Callable[[Term], Step | None]) -> "Steps[Step | None]":
    """Returns the outermost step by a rule, or None if there is none."""
    if found := rule(term):
        return found
    for place, child in enumerate(term.children):
        inner = yield _reduced.steps(child, rule)
        if inner:
            children = (*term.children[:place], inner.term, *term.children[place + 1 :])
            return Step(inner.rule, term.remake(term.bound, children))
    return None


def _cut(term: Term) -> Step | None:
    match term:
        case terms.App(function=terms.Lam() as function):
            return Step("-o", _substituted(function.body, {function.name: term.argument}))
        case terms.LetStar(scrutinee=terms.Star()):
            return Step("1", term.body)
        case terms.LetPair(scrutinee=terms.Pair() as pair):
            return Step("(x)", _substituted(term.body, {term.left: pair.left, term.right: pair.right}))
        case terms.Fst(product=terms.Both() as product):
            return Step("&", product.left)
        case terms.Snd(product=terms.Both() as product):
            return Step("&", product.right)
        case terms.Case(scrutinee=terms.Inl(term=a), branches=branches):
            return Step("+", terms.Fst(branches)(a))
        case terms.Case(scrutinee=terms.Inr(term=b), branches=branches):
            return Step("+", terms.Snd(branches)(b))
        case terms.TypeApp(function=terms.TypeLam() as function):
            return Step("all", with_types(function.body, {function.variable: term.of}))
        case terms.LetBang(scrutinee=terms.Ket(vectors=()) as ket):
            return Step("!", _substituted(term.body, {term.name: ket.point}))
        case terms.LetBang(scrutinee=terms.Ket() as ket):
            return Step("d", open_ket(term, ket))
    return None


def _sum(term: Term) -> Step | None:
    if isinstance(term, terms.Sum):
        flat = total(term.terms, term.type)
        return Step("sum", flat) if flat.children != term.children else None
    if isinstance(term, terms.Both):
        empty = all(isinstance(side, terms.Zero) for side in term.children)
        return Step("sum", terms.Zero(term.type)) if empty else None
    for place in linear_places(term):
        child = term.children[place]
        if isinstance(child, terms.Zero):
            return Step("sum", terms.Zero(term.type))
        if isinstance(child, terms.Sum):
            parts = [replaced([*term.children], place, summand) for summand in child.terms]
            return Step("sum", total([term.remake(term.bound, tuple(p)) for p in parts], term.type))
    return None


def _let(term: Term) -> Step | None:
    shared = isinstance(term, (terms.Both, terms.Sum))  # a let of one branch is none of the others
    moved = None if shared else let_to_move(term)
    if moved is None:
        return None
    let, names, place, rest = moved
    inside = term.remake(term.bound, tuple(replaced([*term.children], place, rest)))
    return Step("let", let.remake(names, (let.children[0], inside)))


@stackless
def _substituted(term: Term, substitution: dict[str, Term]) -> "Steps[Term]":
    """Returns the term after a substitution that captures nothing, and without any other change."""
    used = {name: new for name, new in substitution.items() if name in term.free}
    if not used:
        return term
    if isinstance(term, terms.Var):
        return used[term.name]
    if isinstance(term, terms.TypeLam):
        term = apart(term, used.values())
    bound, inner = enter(term, used)
    children = []
    for place, child in enumerate(term.children):
        last = place == len(term.children) - 1
        children.append((yield _substituted.steps(child, inner if last else used)))
    return term.remake(bound, tuple(children))

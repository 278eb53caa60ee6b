"""Properties of random well-typed terms: of plain linear logic, and with kets, sums and zeros."""

import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llrnn import logic
from llrnn.logic import (
    Absurd,
    App,
    Atom,
    Bang,
    Both,
    Case,
    ForAll,
    Fst,
    Inl,
    Inr,
    Ket,
    Lam,
    LetBang,
    LetPair,
    LetStar,
    Lolli,
    One,
    Pair,
    Plus,
    Snd,
    Star,
    Sum,
    Tensor,
    Top,
    Trivial,
    TypeApp,
    TypeLam,
    TypeVariable,
    Var,
    Void,
    With,
    Zero,
    check,
    denote,
    derivation,
    derivative,
    normalize,
    validate,
)
from llrnn.logic.term import type_variables
from llrnn.logic.types import dimension, finite_dimensional
from llrnn.logic.values import Family, PureTensors, add, coerce, ket, scale, superpose

A, B = Atom("A", 2), Atom("B", 1)
E = logic.endo(A)

pytestmark = pytest.mark.unchecked  # thousands of calls on terms of the types that other tests have
examples = settings(
    max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


class Terms:
    """A generator of random terms of a given type, with free variables as needed.

    It creates linear variables where it uses them, so that linearity holds by construction; `close` binds
    them.
    """

    def __init__(self, choose: random.Random, differential: bool):
        self.choose = choose
        self.differential = differential
        self.names = (f"v{i}" for i in itertools.count())
        self.unrestricted: dict[str, logic.Type] = {}
        self.linear: dict[str, logic.Type] = {}
        self.quantified: list[logic.Type] = []  # the type variables in scope

    def type(self, depth=1):
        kinds = ["atom"] * 4 + ["one"] * 2 + ["unit"]
        kinds += (["lolli", "tensor", "with", "bang"] * 2 + ["plus", "forall"]) * (depth > 0)
        match self.choose.choice(kinds):
            case "atom":
                return self.choose.choice([A, B, *self.quantified])
            case "one":
                return One
            case "unit":
                return self.choose.choice([Top, Void])
            case "forall":
                name = next(self.names)
                self.quantified.append(TypeVariable(name))
                body = self.type(depth - 1)
                self.quantified.pop()
                return ForAll(name, body)
            case "bang":
                return Bang(self.type(depth - 1))
            case kind:
                form = {"lolli": Lolli, "tensor": Tensor, "with": With, "plus": Plus}[kind]
                return form(self.type(depth - 1), self.type(depth - 1))

    def leaf(self, of, pool, linear):
        known = [name for name, t in pool.items() if t == of]
        if known and self.choose.random() < 0.8:
            return Var(self.choose.choice(known), of)
        if of.variables():  # a variable from outside has no bound type variable in its type
            return Absurd(self.leaf(Void, pool, linear), of)
        name = next(self.names)
        (self.linear if linear and self.choose.random() < 0.6 else self.unrestricted)[name] = of
        return Var(name, of)

    def term(self, of, depth, pool, linear):
        """Returns a term of type `of`; `pool` has the unrestricted variables, `linear` allows linear ones."""
        if depth == 0:
            return self.leaf(of, pool, linear)
        d = depth - 1
        kinds = ["introduce"] * 4 + [
            "leaf",
            "apply",
            "let pair",
            "let star",
            "let bang",
            "component",
            "case",
            "absurd",
        ]
        kinds += ["instantiate"]
        match self.choose.choice(kinds + ["sum", "zero"] * self.differential):
            case "leaf":
                return self.leaf(of, pool, linear)
            case "apply":
                s = self.type()
                return App(self.term(Lolli(s, of), d, pool, linear), self.term(s, d, pool, linear))
            case "let pair":
                s, t = self.type(), self.type(0)
                scrutinee = self.term(Tensor(s, t), d, pool, linear)
                body = self.term(Lolli(s, Lolli(t, of)), d, pool, linear)
                x, y = next(self.names), next(self.names)
                return LetPair(scrutinee, x, y, body(Var(x, s), Var(y, t)))
            case "let star":
                return LetStar(self.term(One, d, pool, linear), self.term(of, d, pool, linear))
            case "let bang":
                s = self.choose.choice([A, E, self.type()])
                scrutinee = self.term(Bang(s), d, pool, linear)
                x = next(self.names)
                return LetBang(scrutinee, x, self.term(of, d, {**pool, x: s}, linear))
            case "component":
                s = self.type()
                if self.choose.random() < 0.5:
                    return Fst(self.term(With(of, s), d, pool, linear))
                return Snd(self.term(With(s, of), d, pool, linear))
            case "case":
                s, t = self.type(), self.type(0)
                scrutinee = self.term(Plus(s, t), d, pool, linear)
                return Case(scrutinee, self.term(With(Lolli(s, of), Lolli(t, of)), d, pool, linear))
            case "absurd":
                return Absurd(self.term(Void, d, pool, linear), of)
            case "instantiate":
                # With no place for the type it is vacuous, and with one the type occurs somewhere in it.
                name, at = next(self.names), self.type()
                quantified = self.choose.choice([of, Lolli(TypeVariable(name), of)])
                function = TypeApp(self.term(ForAll(name, quantified), d, pool, linear), at)
                return function if quantified == of else App(function, self.term(at, d, pool, linear))
            case "sum":
                left, right = self.shared((of, of), d, pool, linear)
                return Sum((left, right))
            case "zero":
                return Zero(of)
        return self.introduction(of, d, pool, linear)

    def shared(self, types, depth, pool, linear):
        """Returns a term of each type, all with the same linear variables: none, or one they all apply to."""
        if linear and self.choose.random() < 0.5:
            x, s = next(self.names), self.type()
            s = One if s.variables() else s  # it is bound outside of all type variables
            self.linear[x] = s
            return [self.term(Lolli(s, of), depth, pool, False)(Var(x, s)) for of in types]
        return [self.term(of, depth, pool, False) for of in types]

    def introduction(self, of, depth, pool, linear):
        match of:
            case Lolli(Bang(s), t):
                y, x = next(self.names), next(self.names)
                return Lam(
                    y, Bang(s), LetBang(Var(y, Bang(s)), x, self.term(t, depth, {**pool, x: s}, linear))
                )
            case Lolli(s, t):
                before = set(self.linear)
                body = self.term(t, depth, pool, linear)
                fitting = [x for x, r in self.linear.items() if x not in before and x in body.free and r == s]
                if fitting:
                    x = self.choose.choice(fitting)
                    del self.linear[x]
                    return Lam(x, s, body)
                x = next(self.names)
                if self.differential and self.choose.random() < 0.5:
                    return Lam(x, s, Zero(t))
                return Lam(x, s, self.term(of, depth, pool, linear)(Var(x, s)))
            case Tensor(s, t):
                return Pair(self.term(s, depth, pool, linear), self.term(t, depth, pool, linear))
            case With(s, t):
                return Both(*self.shared((s, t), depth, pool, linear))
            case Plus(s, t):
                left = self.choose.random() < 0.5
                term = self.term(s if left else t, depth, pool, linear)
                return Inl(term, t) if left else Inr(s, term)
            case ForAll():
                name = next(self.names)
                self.quantified.append(TypeVariable(name))
                body = self.term(of.instantiate(TypeVariable(name)), depth, pool, linear)
                self.quantified.pop()
                return TypeLam(name, body)
            case Bang(s):
                count = self.choose.choice([0, 1, 1, 2]) if self.differential else 0
                vectors = tuple(self.term(s, depth, pool, linear) for _ in range(count))
                return Ket(self.term(s, depth, pool, False), vectors)
        units = {One: Star(), Top: Trivial()}
        return units[of] if of in units else self.leaf(of, pool, linear)

    def close(self, term):
        for name, of in self.linear.items():
            if name in term.free:
                term = Lam(name, of, term)
        for name, of in self.unrestricted.items():
            outer = next(self.names)
            term = Lam(outer, Bang(of), LetBang(Var(outer, Bang(of)), name, term))
        return term

    def closed(self, depth=3):
        return self.close(self.term(self.type(), depth, {}, True))


def crowded(term, names, choose):
    """Returns the term with its bound variables renamed to a few names, which hide each other.

    It is equal up to bound names: a name is only refused where a free variable of the scope has it. `names`
    has the new names of the free variables. So are type variables.
    """
    if isinstance(term, Var):
        return Var(names[term.name], term.of)
    if isinstance(term, TypeLam):
        free = [n for n in ("X", "Y") if n not in type_variables(term)]
        term = term.renamed(choose.choice(free)) if free else term
    inner, bound = dict(names), []
    if term.bound:
        taken = {names[x] for x in term.children[-1].free if x not in term.bound}
        for x in term.bound:
            free = [n for n in ("x", "y", "x1", "y1", "x2") if n not in taken]
            bound.append(choose.choice(free[:2]) if free else x)
            taken.add(bound[-1])
            inner[x] = bound[-1]
    last = len(term.children) - 1
    children = [
        crowded(child, inner if place == last else names, choose) for place, child in enumerate(term.children)
    ]
    return term.remake(tuple(bound), tuple(children))


def unnamed(of):
    """Returns the type with one name for its free type variables, which `crowded` renames."""
    return logic.substitute(of, dict.fromkeys(of.variables(), TypeVariable("X")))


class Probe:
    """Random values of a type and random linear functionals on it, independent of the code under test.

    At most `tangents` of its kets have a vector: their orders add up, and a derivative of order s turns one
    ket into one for each partition of s elements.
    """

    def __init__(self, seed, tangents=2):
        self.rng = np.random.default_rng(seed)
        self.tangents = tangents

    def array(self, *shape):
        return self.rng.uniform(0.5, 1.5, size=shape) * self.rng.choice([-1, 1], size=shape)

    def value(self, of):
        """Returns a value in the form that callers give."""
        match of:
            case Atom(_, d):
                return self.array(d)
            case With(s, t) | Plus(s, t) | Tensor(s, t):
                return self.value(s), self.value(t)
            case ForAll():
                seed = int(self.rng.integers(2**31))  # one value for a type, whenever it is asked for

                def at(a):
                    return coerce(Probe(seed, 0).value(of.instantiate(a)), of.instantiate(a))

                return Family(of, at)
            case Bang(s) if self.tangents > 0 and self.rng.random() < 0.3:
                self.tangents -= 1
                point = coerce(self.value(s), s)
                return superpose(np.array([1.0, 0.5]), [ket(point), ket(point, coerce(self.value(s), s))])
            case Bang(s):
                return self.value(s)
            case Lolli(s, t):
                if finite_dimensional(of):
                    return self.array(dimension(t), dimension(s))
                read, result = self.functional(s), coerce(self.value(t), t)
                return coerce(lambda x: scale(read(x), result), of)
        return self.array(*([0] if of in (Top, Void) else []))

    def functional(self, of):
        """Returns a linear functional; on !A it is linear in kets, not in their points."""
        match of:
            case With(s, t) | Plus(s, t):
                f, g = self.functional(s), self.functional(t)
                return lambda x: f(x[0]) + g(x[1])
            case Tensor(s, t) if not finite_dimensional(of):
                f, g = self.functional(s), self.functional(t)
                return lambda x: sum((f(a) * g(b) for a, b in coerce(x, of).terms), start=jnp.zeros(()))
            case Lolli(s, t):
                x, f = self.value(s), self.functional(t)
                return lambda g: f(coerce(g, of)(x))
            case ForAll():
                f = self.functional(of.instantiate(A))
                return lambda x: f(x[A])
            case Bang(s):
                f = self.functional(s)
                return coerce(lambda p: f(p) + 0.5 * f(p) ** 2 + 0.25, Lolli(of, One))
        w = self.array(
            *([dimension(of.left), dimension(of.right)] if isinstance(of, Tensor) else [dimension(of)])
        )
        return lambda x: jnp.sum(w * jnp.reshape(x, w.shape))


def numbers(value, of, count=2):
    return np.array([Probe(seed).functional(of)(value) for seed in range(count)])


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8 * (1 + np.abs(want).max()))


both_logics = pytest.mark.parametrize("differential", [False, True], ids=["plain", "differential"])


@both_logics
def test_the_generator_makes_terms_that_test_something(differential):
    cuts, values, constructs = 0, 0, set()
    for seed in range(60):
        term = Terms(random.Random(seed), differential).closed()
        check(term)
        assert logic.is_plain(term) or differential
        pending = [term]
        while pending:
            node = pending.pop()
            constructs.add(type(node))
            pending.extend(node.children)
        cuts += normalize(term) != term
        if seed < 20:
            values += bool(np.abs(numbers(denote(term), term.type)).max() > 1e-6)
    assert cuts > 20
    assert values > (5 if differential else 10)
    plain = {App, Both, Fst, Ket, Lam, LetBang, LetPair, LetStar, Pair, Snd, Star, Var}
    plain |= {Absurd, Case, Inl, Inr, Trivial, TypeApp, TypeLam}
    assert constructs == plain | ({Sum, Zero} if differential else set())


@both_logics
@examples
@given(seed=st.integers(0, 10**6))
def test_normalisation_keeps_the_type_and_the_denotation(differential, seed):
    choose = random.Random(seed)
    term = crowded(Terms(choose, differential).closed(), {}, choose)
    normal = normalize(term)
    assert check(normal) == check(term)
    assert normalize(normal) == normal
    assert logic.is_plain(normal) or differential
    close(numbers(denote(normal), term.type), numbers(denote(term), term.type))


@both_logics
def test_the_names_of_bound_variables_do_not_matter(differential):
    """Checking, cut elimination and derivations, with names that collide wherever they may."""
    hidden = 0
    for seed in range(150):
        choose = random.Random(seed)
        term = Terms(choose, differential).closed(depth=3 + seed % 2)
        same = crowded(term, {}, choose)
        hidden += len(same.names) < len(term.names)
        assert same == term
        assert check(same) == check(term)
        assert normalize(same) == normalize(term)
        ours, theirs = (
            [(n.rule, *map(unnamed, (n.conclusion, *n.hypotheses))) for n in derivation(t).instances()]
            for t in (same, term)
        )
        assert ours == theirs
    assert hidden > 60


@both_logics
def test_parsing_after_printing_is_the_identity(differential):
    for seed in range(150):
        choose = random.Random(seed)
        term = crowded(Terms(choose, differential).closed(depth=3 + seed % 2), {}, choose)
        text = logic.show(term, types=True)
        assert logic.parse(text) == term
        assert logic.show(logic.parse(text), types=True) == text
        types = Terms(choose, differential).type(3)
        assert (
            logic.parse_type(types.text({"A", "B"}))
            == types
            == logic.parse_type(str(types), {"A": A, "B": B})
        )


def shuffled(term, choose):
    """Returns the term with the summands of its sums and the vectors of its kets in another order."""
    children = [shuffled(child, choose) for child in term.children]
    start = 1 if isinstance(term, Ket) else 0
    if isinstance(term, (Sum, Ket)):
        children[start:] = choose.sample(children[start:], len(children) - start)
    return term.remake(term.bound, tuple(children))


def test_the_order_of_sums_does_not_matter():
    moved = 0
    for seed in range(120):
        choose = random.Random(seed)
        term = Terms(choose, True).closed(depth=4)
        other = shuffled(term, choose)
        moved += other != term
        assert normalize(other) == normalize(term)
    assert moved > 20


@both_logics
def test_the_steps_of_cut_elimination_lead_to_the_normal_form(differential):
    """Each step is a proof of the same type and has the same normal form."""
    rules = set()
    for seed in range(50):
        choose = random.Random(seed)
        term = crowded(Terms(choose, differential).closed(depth=3 + seed % 2), {}, choose)
        trace = logic.cut_elimination(term)
        assert trace.normal == normalize(term)
        for step in trace.steps[:20]:
            rules.add(step.rule)
            assert check(step.term) == check(term)
            assert normalize(step.term) == trace.normal
    assert rules >= {"-o", "1", "(x)", "&", "let"} | ({"d", "sum"} if differential else {"!"})


def eliminates_a_case(term):
    """Returns whether a case is applied, opened, or asked for a component: it may hide a cut."""
    eliminations = (App, Absurd, Case, Fst, Snd, LetStar, LetPair, LetBang, TypeApp)
    here = isinstance(term, eliminations) and isinstance(term.children[0], Case)
    return here or any(eliminates_a_case(child) for child in term.children)


@both_logics
@examples
@given(seed=st.integers(0, 10**6))
def test_derivations_are_derivations_and_normal_terms_have_none_with_cut(differential, seed):
    term = Terms(random.Random(seed), differential).closed(depth=4)
    for proof in (term, normalize(term)):
        tree = derivation(proof)
        assert (tree.hypotheses, tree.conclusion) == ((), term.type)
        validate(tree)
    assert eliminates_a_case(proof) or all(node.rule != "cut" for node in tree.instances())


@both_logics
@examples
@given(seed=st.integers(0, 10**6))
def test_the_derivative_is_jvp(differential, seed):
    terms = Terms(random.Random(seed), differential)
    point = terms.choose.choice([A, E, With(A, One)])
    body = terms.term(terms.type(), 3, {"x": point}, True)
    rest = terms.close(body)
    term = Lam("y", Bang(point), LetBang(Var("y", Bang(point)), "x", rest))
    probe = Probe(0)
    p, v = (coerce(probe.value(point), point) for _ in range(2))
    value, slope = denote(term), denote(derivative(term))
    read = probe.functional(rest.type)
    _, want = jax.jvp(lambda t: jnp.asarray(read(value(add(p, scale(t, v))))), (0.0,), (1.0,))
    close(np.asarray(read(slope(p, v))), np.asarray(want))
    assert check(derivative(term)) == Lolli(Bang(point), Lolli(point, rest.type))


def test_values_of_mixed_tensors_are_formal():
    term = Terms(random.Random(0), True).term(Tensor(Bang(A), A), 0, {}, False)
    value = denote(logic.banged(Tensor(Bang(A), A), lambda t: t))(Probe(0, 0).value(term.type))
    assert isinstance(value, PureTensors)

"""Random well-typed terms, names that collide, and random values and functionals to compare values with."""

import itertools
import random

import jax.numpy as jnp
import numpy as np

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
)
from llrnn.logic.term import type_variables
from llrnn.logic.types import dimension, finite_dimensional
from llrnn.logic.values import Family, coerce, ket, scale, superpose

A, B = Atom("A", 2), Atom("B", 1)
E = logic.endo(A)


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
    return jnp.stack([jnp.asarray(Probe(seed).functional(of)(value)) for seed in range(count)])


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8 * (1 + np.abs(want).max()))

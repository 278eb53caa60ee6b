"""Properties of random well-typed terms: of plain linear logic, and with kets, sums and zeros."""

import dataclasses
import pickle
import random
from typing import Any

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
    Bang,
    Both,
    Case,
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
    Snd,
    Star,
    Sum,
    Tensor,
    Trivial,
    TypeApp,
    TypeLam,
    Var,
    With,
    Zero,
    check,
    denote,
    derivation,
    derivative,
    normalize,
    validate,
)
from llrnn.logic.normalize import _contracted
from llrnn.logic.values import PureTensors, add, coerce, scale
from tests.llrnn.logic.random_terms import A, B, E, Probe, Terms, close, crowded, numbers, unnamed

pytestmark = pytest.mark.unchecked  # thousands of calls on terms of the types that other tests have
examples = settings(
    max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def evaluated(computations):
    """Returns the results of functions of nothing, in one program: each one's operations take long alone."""
    return jax.device_get(jax.jit(lambda: [computation() for computation in computations])())


both_logics = pytest.mark.parametrize("differential", [False, True], ids=["plain", "differential"])


@both_logics
def test_the_generator_makes_terms_that_test_something(differential):
    cuts, terms, constructs = 0, [], set()
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
        terms.append(term)
    values = evaluated([lambda term=term: numbers(denote(term), term.type) for term in terms[:20]])
    assert cuts > 20
    assert sum(np.abs(value).max() > 1e-6 for value in values) > (5 if differential else 10)
    plain = {App, Both, Fst, Ket, Lam, LetBang, LetPair, LetStar, Pair, Snd, Star, Var}
    plain |= {Absurd, Case, Inl, Inr, Trivial, TypeApp, TypeLam}
    assert constructs == plain | ({Sum, Zero} if differential else set())


@both_logics
def test_normalisation_keeps_the_type_and_the_denotation(differential):
    terms, normals = [], []
    for seed in range(20):
        choose = random.Random(seed)
        term = crowded(Terms(choose, differential).closed(), {}, choose)
        normal = normalize(term)
        assert check(normal) == check(term)
        assert normalize(normal) == normal
        assert logic.is_plain(normal) or differential
        terms.append(term)
        normals.append(normal)
    found, expected = (
        evaluated([lambda term=term: numbers(denote(term), term.type) for term in proofs])
        for proofs in (normals, terms)
    )
    for got, want in zip(found, expected, strict=True):
        close(got, want)


@both_logics
def test_the_names_of_bound_variables_do_not_matter(differential):
    """Checking, cut elimination and derivations, with names that collide wherever they may."""
    hidden = 0
    for seed in range(100):
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
    assert hidden > 40


@both_logics
def test_parsing_after_printing_is_the_identity(differential):
    for seed in range(150):
        choose = random.Random(seed)
        term = crowded(Terms(choose, differential).closed(depth=3 + seed % 2), {}, choose)
        text = logic.show(term, types=True)
        assert logic.parse(text) == term
        copied = pickle.loads(pickle.dumps(term))
        assert logic.show(copied, types=True) == text
        assert copied == term
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


def test_every_kind_of_term_is_made_of_terms():
    """Each of its parts is refused if it is something else."""
    pending: list[Any] = [Terms(random.Random(seed), differential=True).closed() for seed in range(150)]
    parts = set()
    while pending:
        term = pending.pop()
        pending += term.children
        for field in dataclasses.fields(term):
            if isinstance(getattr(term, field.name), logic.Term) and (type(term), field.name) not in parts:
                parts.add((type(term), field.name))
                with pytest.raises(ValueError, match=f"^{field.name}: got 3, expected a term"):
                    dataclasses.replace(term, **{field.name: 3})
    kinds = {kind for kind, _ in parts}
    assert kinds >= {App, Both, Case, Fst, Inl, Inr, Ket, Lam, LetBang, LetPair, LetStar, Pair, Snd}
    assert {(LetStar, "scrutinee"), (LetStar, "body"), (Case, "scrutinee")} <= parts


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
    for seed in range(30):
        choose = random.Random(seed)
        term = crowded(Terms(choose, differential).closed(depth=3 + seed % 2), {}, choose)
        trace = logic.cut_elimination(term)
        assert trace.normal == normalize(term)
        for step in trace.steps[:20]:
            rules.add(step.rule)
            assert check(step.term) == check(term)
            assert normalize(step.term) == trace.normal
    assert rules >= {"-o", "1", "(x)", "&", "let"} | ({"d", "sum"} if differential else {"!"})


@pytest.mark.parametrize("seed", [10166, 10274, 10736])
def test_every_step_of_cut_elimination_has_one_order_of_independent_lets(seed):
    choose = random.Random(seed)
    term = crowded(Terms(choose, bool(seed % 2)).closed(depth=3 + seed % 3), {}, choose)
    trace = logic.cut_elimination(term)
    assert len(trace.steps) > 3
    assert {normalize(step.term) for step in trace.steps} == {normalize(term)} == {trace.normal}


def expanded(term, choose):
    """Returns the term with some parts opened and rebuilt, such as `let !e = t in !e` for t."""
    term = term.remake(term.bound, tuple(expanded(child, choose) for child in term.children))
    if choose.random() < 0.5:
        return term
    match term.type:
        case Bang(a):
            return LetBang(term, "e", Ket(Var("e", a)))
        case Tensor(a, b):
            return LetPair(term, "e", "f", Pair(Var("e", a), Var("f", b)))
    return LetStar(term, Star()) if term.type == One else term


@both_logics
def test_contraction_up_to_eta_keeps_the_denotation(differential):
    """So that equivalent proofs have equal denotations."""
    terms, contracted, equal = [], [], 0
    for seed in range(60):
        choose = random.Random(seed)
        term = Terms(choose, differential).closed(depth=3 + seed % 2)
        other = crowded(expanded(term, choose), {}, choose)
        normal = normalize(other)
        short = _contracted(normal)
        assert check(short) == check(term)
        equal += logic.equivalent(term, other)
        if short != normal:
            terms.append(term)
            contracted.append(short)
    assert len(terms) > 10
    assert equal > 50
    found, expected = (
        evaluated([lambda term=term: numbers(denote(term), term.type) for term in proofs[:15]])
        for proofs in (contracted, terms)
    )
    for got, want in zip(found, expected, strict=True):
        close(got, want)


def eliminates_a_case(term):
    """Returns whether a case is applied, opened, or asked for a component: it may hide a cut."""
    eliminations = (App, Absurd, Case, Fst, Snd, LetStar, LetPair, LetBang, TypeApp)
    here = isinstance(term, eliminations) and isinstance(term.children[0], Case)
    return here or any(eliminates_a_case(child) for child in term.children)


@both_logics
@examples
@given(seed=st.integers(0, 10**6))
def test_derivations_are_derivations_and_normal_terms_have_none_with_cut(differential, seed):
    choose = random.Random(seed)
    term = crowded(Terms(choose, differential).closed(depth=4), {}, choose)
    for proof in (term, normalize(term)):
        tree = derivation(proof)
        assert (tree.hypotheses, tree.conclusion) == ((), term.type)
        validate(tree)
    assert eliminates_a_case(proof) or all(node.rule != "cut" for node in tree.instances())


@both_logics
def test_the_derivative_is_jvp(differential):
    slopes = []
    for seed in range(30):
        terms = Terms(random.Random(seed), differential)
        point = terms.choose.choice([A, E, With(A, One)])
        body = terms.term(terms.type(), 3, {"x": point}, True)
        rest = terms.close(body)
        term = Lam("y", Bang(point), LetBang(Var("y", Bang(point)), "x", rest))
        assert check(derivative(term)) == Lolli(Bang(point), Lolli(point, rest.type))

        def both(term=term, point=point, of=rest.type):
            probe = Probe(0)
            p, v = (coerce(probe.value(point), point) for _ in range(2))
            value, slope = denote(term), denote(derivative(term))
            read = probe.functional(of)
            _, want = jax.jvp(lambda t: jnp.asarray(read(value(add(p, scale(t, v))))), (0.0,), (1.0,))
            return jnp.asarray(read(slope(p, v))), want

        slopes.append(both)
    for got, want in evaluated(slopes):
        close(got, want)


def test_values_of_mixed_tensors_are_formal():
    term = Terms(random.Random(0), True).term(Tensor(Bang(A), A), 0, {}, False)
    value = denote(logic.banged(Tensor(Bang(A), A), lambda t: t))(Probe(0, 0).value(term.type))
    assert isinstance(value, PureTensors)

"""The encoder-decoder compared with loops over Appendix A.5, with itself token by token, and with padding."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import parameters
from folnet.encoder_decoder import Encoded
from tests.folnet import known_dropout, small
from tests.folnet.small import SIZES
from tests.folnet.small_decoders import OTHER, SUBSETS, conditional, first, method, words

pytestmark = pytest.mark.usefixtures("compiled_quickly")

D1, D2 = SIZES["hidden_size"], SIZES["relation_size"]
H, S = SIZES["num_attention_heads"], SIZES["head_size"]
DELTA = SIZES["max_distance"]
SOURCES, TARGETS = words(2, 4), words(2, 3, seed=1)
REAL = first([4, 2], 4)


class Loops:
    """The decoder for one text, in float64 loops over tokens and heads that follow the formulas."""

    def __init__(self, params: Any, layer: int, seen: np.ndarray, own: int):
        table = parameters.flatten(params["decoder"]["reasoner"][f"layers_{layer}"])
        self.weights = {name: np.asarray(array, np.float64) for name, array in table.items()}
        self.seen, self.own, self.inputs = seen, own, seen.shape[1] - own

    def map(self, name: str, x: np.ndarray) -> np.ndarray:
        """Applies a named affine map."""
        return x @ self.weights[f"{name}.weight"] + self.weights.get(f"{name}.bias", 0.0)

    def kernel(self, x: int, logits: Any) -> dict[int, float]:
        """Computes the softmax over all a that x may attend to, in input and target together."""
        powers = {a: math.exp(logits(a)) for a in np.flatnonzero(self.seen[x]).tolist()}
        return {a: power / sum(powers.values()) for a, power in powers.items()}

    def pairs(self):
        """Lists all (x, y) that have relations."""
        return [(int(x), int(y)) for x, y in np.argwhere(self.seen)]

    def read(self, name: str, part: slice, u: np.ndarray, encoder_u: np.ndarray) -> np.ndarray:
        """Projects the encoder's u_L by its projection, then the decoder's u by the operator's own."""
        inputs = self.map(f"{name}_input", encoder_u)
        own = {"join": "join.premise", "cjoin": "cjoin.kernel", "assoc": "assoc.reader"}[name]
        return np.concatenate((inputs, self.map(own, u)[:, part]))

    def join(self, u, r, encoder_u):
        premise = self.read("join", slice(None), u, encoder_u).reshape(-1, H, S)
        out = np.zeros((self.own, H, S))
        for x, h in np.ndindex(self.own, H):
            for a, k in self.kernel(x, lambda a, x=x, h=h: self.map("join.kernel", r[x, a])[h]).items():
                out[x, h] += k * premise[a, h]
        return self.map("join.writer", out.reshape(self.own, -1))

    def mu(self, r):
        out = np.zeros((self.own, H, S))
        for x, h in np.ndindex(self.own, H):
            for a, k in self.kernel(x, lambda a, x=x, h=h: self.map("mu.reader", r[x, a])[h]).items():
                out[x, h] += k * self.map("mu.reader", r[x, a])[H:]
        return self.map("mu.writer", out.reshape(self.own, -1))

    def cjoin(self, u, r, encoder_u):
        logits = self.read("cjoin", slice(None), u, encoder_u).reshape(-1, S, H)
        out = np.zeros((self.own, S, H))
        for x, s, h in np.ndindex(self.own, S, H):
            for a, k in self.kernel(x, lambda a, s=s, h=h: logits[a, s, h]).items():
                out[x, s, h] += k * self.map("cjoin.premise", r[x, a])[s]
        return self.map("cjoin.writer", out.reshape(self.own, -1))

    def assoc(self, u, encoder_u):
        kernel = self.map("assoc.reader", u)[:, : H * S].reshape(-1, H, S) / math.sqrt(S)
        premise = self.read("assoc", slice(H * S, None), u, encoder_u).reshape(-1, H, S)
        out = np.zeros((*self.seen.shape, D2))
        for x, y in self.pairs():
            out[x, y] = self.map("assoc.writer", np.asarray([kernel[x, h] @ premise[y, h] for h in range(H)]))
        return out

    def prod(self, u, r):
        kernel = self.map("prod.kernel", u).reshape(-1, H, S) / math.sqrt(S)
        out = np.zeros((*self.seen.shape, D2))
        for x, y in self.pairs():
            out[x, y] = self.map("prod.writer", kernel[x] @ self.map("prod.premise", r[x, y]))
        return out

    def trans(self, r, encoder_r):
        """Computes the two cases of A.5 as written there."""
        weight, n = self.weights["trans.reader.weight"], self.inputs
        decoder_v, encoder_v = r @ weight[:, D2:], self.map("trans_input", encoder_r)
        out = np.zeros((*self.seen.shape, D2))
        for x, y in self.pairs():
            for h in range(D2):
                kernel = self.kernel(x, lambda a, x=x, h=h: (r[x, a] @ weight[:, :D2])[h])
                of_input = [(a, k) for a, k in kernel.items() if a < n]
                of_target = [(a - n, k) for a, k in kernel.items() if a >= n]
                if y >= n:
                    out[x, y, h] = sum(k * decoder_v[a, y, h] for a, k in of_target)
                else:
                    out[x, y, h] = sum(k * encoder_v[a, y, h] for a, k in of_input)
                    out[x, y, h] += sum(k * decoder_v[a, y, h] for a, k in of_target)
        return np.where(self.seen[..., None], self.map("trans.writer", out), 0)

    def bool_unary(self, u):
        return self.map("bool_unary.clause_out", gelu(self.map("bool_unary.clause_in", u)))

    def bool_binary(self, r):
        out = np.zeros((*self.seen.shape, D2))
        for x, y in self.pairs():
            y_x = y >= self.inputs and self.seen[y - self.inputs, x + self.inputs]
            converse = r[y - self.inputs, x + self.inputs] if y_x else np.zeros(D2)
            hidden = gelu(self.map("bool_binary.clause_in", np.concatenate((r[x, y], converse))))
            out[x, y] = self.map("bool_binary.clause_out", hidden)
            out[x, y] += self.map("bool_binary.clause_skip", converse)
        return out


def gelu(x):
    return x * np.vectorize(lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2))))(x)


def norm(x):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)


def decoded(params, target, real, encoder_u, encoder_r, layers):
    """Returns u_L(x), u_L(x, y) and logits of a target."""
    inputs, length = len(real), len(target)
    seen = np.zeros((length, inputs + length), bool)
    for x, c in np.ndindex(*seen.shape):
        seen[x, c] = real[c] if c < inputs else c - inputs <= x
    tables = {k: np.asarray(v, np.float64) for k, v in params["folnet"]["embeddings"].items()}
    u, r = norm(tables["word"][target] + tables["type"][0]), np.zeros((*seen.shape, D2))
    for x, c in np.argwhere(seen):
        back = x - (c - inputs)
        number = DELTA if c < inputs else 0 if back == 0 else 2 * DELTA - min(back, DELTA - 1)
        r[x, c] = norm(tables["relative"][number])
    for number in range(layers):
        loops = Loops(params, number, seen, length)
        nu, nr = norm(u), norm(r)
        u = u + loops.join(nu, nr, encoder_u) + loops.mu(nr) + loops.cjoin(nu, nr, encoder_u)
        r = r + loops.assoc(nu, encoder_u) + loops.trans(nr, encoder_r) + loops.prod(nu, nr)
        nu, nr = norm(u), norm(r)
        u, r = u + loops.bool_unary(nu), r + loops.bool_binary(nr)
    u = norm(u)
    return u, norm(r), u @ tables["word"].T


ALL = first([3, 3], 3)
RNG = np.random.default_rng(0)
U, R = RNG.normal(size=(2, 4, D1)), RNG.normal(size=(2, D2, 4, 4))
"""What an encoder may have made of two inputs."""


def encoded(unary=U, relation=R):
    return Encoded(jnp.asarray(unary, jnp.float32), jnp.asarray(relation, jnp.float32), REAL)


def run(given=None, targets=TARGETS, real=ALL):
    """Returns outputs of a decoder of two layers with all operators; compiled once."""
    model, params = conditional(num_hidden_layers=2)
    return method(model, "decode")(params, given or encoded(), targets, real)


def test_the_appendix_in_loops():
    """Two layers with all operators, for inputs with and without padding."""
    params, out = conditional(num_hidden_layers=2)[1], run()
    for b in range(2):
        given = (np.asarray(TARGETS[b]), np.asarray(REAL[b]), U[b], np.moveaxis(R[b], 0, -1))
        u, r, logits = decoded(params, *given, layers=2)
        np.testing.assert_allclose(out.last_hidden_state[b], u, atol=1e-4)
        np.testing.assert_allclose(out.relation_hidden_state[b], r, atol=1e-4)
        np.testing.assert_allclose(out.logits[b], logits, atol=1e-4)


def test_padding_of_the_input_is_not_seen():
    """Whatever its content; real tokens are read."""
    unary, relation = U.copy(), R.copy()
    unary[1, 2:] += 1
    relation[1, :, 2:] += 1
    relation[1, :, :, 2:] -= 2
    out, other = run(), run(encoded(unary, relation))
    np.testing.assert_array_equal(out.logits, other.logits)
    np.testing.assert_array_equal(out.relation_hidden_state, other.relation_hidden_state)
    unary[:, 1] += 1
    seen = run(encoded(unary))
    assert (np.abs(np.asarray(out.logits) - seen.logits).max(axis=-1) > 1e-4).all()


def test_padding_of_the_target_is_not_seen():
    """Whatever its content, by all tokens but itself; without its mask it is."""
    some, changed = np.array(ALL), np.array(TARGETS)
    some[0, 1] = False
    changed[0, 1] = (changed[0, 1] - 3) % 19
    out, other = (
        np.asarray(run(targets=jnp.asarray(targets), real=jnp.asarray(some)).logits)
        for targets in (TARGETS, changed)
    )
    same = np.abs(out - other).max(axis=-1) == 0
    np.testing.assert_array_equal(same, [[True, False, True], [True, True, True]])
    assert np.abs(out - run().logits)[0, 2].max() > 1e-3


def test_a_state_can_be_donated():
    """No array is in it twice, also where it was not made by a compiled function."""
    model, params = conditional("j.")
    encoded = Encoded(jnp.zeros((2, 4, D1)), jnp.zeros((2, D2, 4, 4)), REAL)
    state = model.bind({"params": params}).decoder.prefill(encoded, 3)
    leaves = jax.tree.leaves(state)
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == len(leaves)
    donating = small.quickly(
        lambda state: model.apply({"params": params}, TARGETS[:, 0], state, method="step"), donate_argnums=0
    )
    donating(state)
    assert state.length.is_deleted()
    assert state.last_type.is_deleted()


def test_the_target_is_causal():
    """A later token of the target changes nothing before it."""
    for t in range(3):
        targets = np.array(TARGETS)
        targets[:, t] = (targets[:, t] - 5) % 19
        changed, out = run(targets=jnp.asarray(targets)), run()
        same = np.abs(np.asarray(out.logits) - changed.logits).max(axis=-1) == 0
        np.testing.assert_array_equal(same, np.tile(np.arange(3) < t, (2, 1)))


def test_dropout_of_the_whole_model():
    """In the encoder, in the target's base atoms and in the decoder; each place has its own key."""
    model, params = conditional("j.", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3)

    def apply(key):
        return small.apply(model, params, SOURCES, TARGETS, None, None, None, False, rngs={"dropout": key})

    assert known_dropout.trace(apply) == {
        (0.2, (2, 4, D1)): 3,
        (0.2, (2, D2, 4, 4)): 2,
        (0.3, (2, H, 4, 4)): 1,
        (0.2, (2, 3, D1)): 3,
        (0.2, (2, D2, 3, 7)): 2,
        (0.3, (2, H, 3, 7)): 1,
    }


@functools.cache
def prefill(model):
    """Returns a compiled function to the state before the first token."""
    return small.quickly(lambda p, given: model.bind({"params": p}).decoder.prefill(given, 4))


def check_steps(operators, **fields):
    model, params = conditional(operators, **fields)
    whole = np.asarray(method(model, "decode")(params, encoded(), TARGETS, ALL).logits)
    state = prefill(model)(params, encoded())
    for t in range(3):
        logits, state = method(model, "step")(params, jnp.asarray(np.asarray(TARGETS)[:, t]), state)
        np.testing.assert_allclose(logits, whole[:, t], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("operators", "fields"), [("jmc.atp", {"num_hidden_layers": 2}), ("j.", OTHER)])
def test_token_by_token(operators, fields):
    """The state contains all that later tokens need from input and target."""
    check_steps(operators, **fields)


@pytest.mark.slow
def test_token_by_token_of_subsets_of_operators():
    """Two layers, with every ninth subset and other base atoms."""
    for operators in SUBSETS[4::9]:
        check_steps(operators, num_hidden_layers=2, **OTHER)


@pytest.mark.parametrize("operators", ["j.", "c.", ".a", "m.t"])
def test_only_what_is_read_of_the_input_has_a_projection(operators):
    """One for each premise that A.5 concatenates."""
    model, _ = conditional(operators)
    names = {name.split(".")[3] for name in parameters.shapes(model) if name.startswith("decoder.")}
    want = {"j.": {"join_input"}, "c.": {"cjoin_input"}, ".a": {"assoc_input"}, "m.t": {"trans_input"}}
    assert {name for name in names if name.endswith("_input")} == want[operators]

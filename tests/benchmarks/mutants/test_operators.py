"""Each operator on small statements: exactly the changes that it should make, and no others."""

import textwrap

import pytest

from benchmarks.mutants import sites

CASES = {
    "sign": {
        "y = a - (-x)": ["y = a - (x)"],
        "y = -jnp.sum(x) + jnp.log(x)": ["y = jnp.sum(x) + jnp.log(x)", "y = -jnp.sum(x) + (-jnp.log(x))"],
        "y = -1 + f(x)": [],
    },
    "arithmetic": {
        "y = a + b * c": ["y = a - (b * c)", "y = a + b / c"],
        "y = (a - b) / c ** 2": ["y = (a - b) * (c ** 2)", "y = (a + b) / c ** 2", "y = (a - b) / c * 2"],
        "x += a % 3": ["x -= a % 3", "x += a // 3"],
        "y = [1] + a + 'b'": [],
        "y = folder / name": [],
    },
    "term dropped": {"y = a + (b - c)": ["y = (b - c)", "y = a", "y = a + (b)"], "y = a + 'b'": []},
    "factor dropped": {
        "y = scale * (a + b)": ["y = (a + b)", "y = scale"],
        "y = a / b": ["y = a"],
        "y = root / name": [],
    },
    "constant": {
        "y = x[1:, -1]": ["y = x[0:, -1]", "y = x[2:, -1]", "y = x[1:, -2]", "y = x[1:, 0]"],
        "y = 0 * 2.5 - 1e-6": ["y = 1 * 2.5 - 1e-6", "y = 0 * 1.25 - 1e-6", "y = 0 * 2.5 - 0.0"],
        "y = -1e30": ["y = 0.0"],
        "y = f(x, axis=1, strict=2, fontsize=3)": [],
        "def f(a=1): pass": [],
    },
    "default": {
        "def f(a=1, b=True, *, c=0.5, d=None): x = 3": [
            "def f(a=2, b=True, *, c=0.5, d=None): ",
            "def f(a=1, b=False, *, c=0.5, d=None): ",
            "def f(a=1, b=True, *, c=0.25, d=None): ",
        ],
        "class A: rate: float = 0.1": ["rate: float = 0.05"],
    },
    "boolean": {"y = f(x, reverse=True)": ["y = f(x, reverse=False)"], "y = zip(a, b, strict=True)": []},
    "bound by one": {
        "y = x[a:b] + x[1:-1]": ["y = x[a + 1:b] + x[1:-1]", "y = x[a:b - 1] + x[1:-1]"],
        "y = range(a, n + 1)": ["y = range(a, (n + 1) - 1)"],
        "y = n // 2": ["y = (n // 2 + 1)"],
    },
    "comparison": {
        "y = a < b <= c": ["y = a < b < c", "y = a <= b <= c"],
        "y = a == b": ["y = a != b"],
        "y = a not in b": ["y = a in b"],
        "y = a is None": [],
    },
    "checksum": {
        "y = sha256(x) == expected": ["y = True"],
        "y = digest != expected": ["y = False"],
        "y = a.shape != b.shape": [],
    },
    "logic": {
        "y = a and not b": ["y = (a or (not b))", "y = a and b"],
        "y = m & ~k": ["y = (m | (~k))", "y = m & k"],
        "y = isinstance(x, int | None)": [],
    },
    "choice": {"y = a if c else b": ["y = b if c else a"], "y = a if x is None else b": []},
    "arguments": {
        "y = f(a, b.c, 1, k=2)": ["y = f(b.c, a, 1, k=2)"],
        "y = f(x[0], y[1])": ["y = f(y[1], x[0])"],
        "y = jnp.where(m, x, y)": ["y = jnp.where(m, y, x)"],
        "y = jnp.maximum(a, b)": [],
        "y = f(a, 1)": [],
    },
    "tuple": {"a, b = f(x)": ["b, a = f(x)"], "_, d = f(x)": [], "a, b = 1, 2": []},
    "axis": {
        "y = jnp.sum(x, axis=-1) + x.sum(axis=1)": [
            "y = jnp.sum(x, axis=-2) + x.sum(axis=1)",
            "y = jnp.sum(x, axis=-1) + x.sum(axis=0)",
        ],
        "y = jnp.swapaxes(x, 0, 2) @ x.T": ["y = x @ x.T", "y = jnp.swapaxes(x, 0, 2) @ x"],
        "y = x.transpose(0, 2, 1)": ["y = x", "y = x.transpose(2, 0, 1)", "y = x.transpose(0, 1, 2)"],
        "y = jnp.moveaxis(x, 0, 1)": ["y = x"],
        "y = jnp.moveaxis(x, 0, 2)": ["y = x", "y = jnp.moveaxis(x, 2, 0)"],
    },
    "einsum": {
        'y = jnp.einsum("bi,bjk->bik", a, b)': [
            'y = jnp.einsum("bi,bjk->bki", a, b)',
            'y = jnp.einsum("bi,bjk->ibk", a, b)',
            'y = jnp.einsum("bi,bkj->bik", a, b)',
            'y = jnp.einsum("bi,jbk->bik", a, b)',
            'y = jnp.einsum("ib,bjk->bik", a, b)',
        ],
        'y = jnp.einsum("ab,c->c", a, c)': [],
        'y = "from -> to"': [],
    },
    "mask dropped": {
        "y = jnp.where(mask, x, 0)": ["y = x"],
        "y = f(q, self.mask, mask=m)": ["y = f(q, None, mask=m)", "y = f(q, self.mask, mask=None)"],
        "y = jnp.sum(mask)": [],
    },
    "keyword dropped": {
        "y = f(a, b=1, c=2)": ["y = f(a, c=2)", "y = f(a, b=1)"],
        "y = f(b=1)": ["y = f()"],
        "y = f(b=1, strict=True, dtype=d, mask=m, **k)": ["y = f(strict=True, dtype=d, mask=m, **k)"],
    },
    "cast dropped": {
        "y = x.astype(jnp.float32) + jnp.asarray(x, d)": [
            "y = x + jnp.asarray(x, d)",
            "y = x.astype(jnp.float32) + jnp.asarray(x)",
        ],
        "y = jnp.dot(a, b, preferred_element_type=jnp.float32)": ["y = jnp.dot(a, b)"],
        "y = jnp.int32(n)": ["y = n"],
    },
    "reduction": {
        "y = jnp.sum(x, axis=0)": ["y = jnp.max(x, axis=0)", "y = jnp.mean(x, axis=0)"],
        "y = x.argmax(-1)": ["y = x.argmin(-1)"],
        "y = jnp.tile(x, 2) + any(z)": ["y = jnp.repeat(x, 2) + any(z)", "y = jnp.tile(x, 2) + all(z)"],
        "y = f.sum(a, b)": [],
    },
    "update": {
        "y = x.at[0].set(1).at[1].add(2)": [
            "y = x.at[0].add(1).at[1].add(2)",
            "y = x.at[0].set(1).at[1].set(2)",
        ],
        "y = names.add(3)": [],
    },
    "initializer": {
        "y = jnp.zeros(3)": ["y = jnp.ones(3)"],
        "y = nn.initializers.lecun_normal()": ["y = nn.initializers.he_normal()"],
        "y = self.zeros": [],
    },
    "limit dropped": {
        "y = jnp.maximum(x, 1)": ["y = 1", "y = x"],
        "y = jnp.clip(x, 0, 1)": ["y = x"],
        "y = max(xs)": [],
    },
    "order": {
        "y = jnp.concatenate([a, b], axis=1)": ["y = jnp.concatenate([b, a], axis=1)"],
        "y = jnp.flip(x, 0) + x[::-1]": ["y = x + x[::-1]", "y = jnp.flip(x, 0) + x"],
        "y = sorted(x, key=k)": ["y = list(x)"],
    },
    "deterministic": {
        "y = f(x, deterministic=still)": ["y = f(x, deterministic=not still)"],
        "y = f(x, deterministic=True)": [],
    },
    "dropout dropped": {
        "y = self.dropout(x + y, deterministic=d)": ["y = (x + y)"],
        "y = nn.Dropout(0.5)(x)": ["y = x"],
        "y = Dropout(rate)": [],
    },
    "norm dropped": {"y = self.norm(x)": ["y = x"], "y = jnp.linalg.norm(x) + nn.LayerNorm(3)": []},
    "function dropped": {"y = jnp.exp(x + 1)": ["y = (x + 1)"], "y = math.exp(x)": []},
    "gradient not stopped": {"y = jax.lax.stop_gradient(x)": ["y = x"]},
    "devices not summed": {"y = lax.psum(x, 'i')": ["y = x"]},
    "check dropped": {
        "if a: raise ValueError(b)": ["pass"],
        "checks.rank('x', x, 3)": ["pass"],
        "_check(x)": ["pass"],
        "if a: b()": [],
        "f(x)": [],
    },
    "statement dropped": {
        "x += 1": ["pass"],
        "x = f(x)": ["pass"],
        "xs.append(x)": ["pass"],
        "y = f(x)": [],
        "print(x)": [],
        "self._bar.update(3)": [],
        "logging.info('x', x)": [],
    },
    "loop": {
        "for i in x:\n  if i: break": ["pass", "continue"],
        "for i in x:\n  if i: continue": ["pass", "break"],
        "def f():\n  if a: return 1": ["pass"],
        "def f():\n  if a is None: return 1": [],
    },
}
KEYS = """
def draw(key, rows):
    one, two = jax.random.split(key)
    keys = jax.random.split(jax.random.fold_in(two, rows), 3)
    return f(one), [g(keys[i]) for i in rows]
"""


def changes(operator, text):
    found = [mutant for mutant in sites.of_file("a/b.py", text) if mutant.operator == operator]
    assert all(mutant.valid(text) for mutant in found)
    return [mutant.after for mutant in found]


@pytest.mark.parametrize(
    ("operator", "text"), [(operator, text) for operator, cases in CASES.items() for text in cases]
)
def test_changes(operator, text):
    assert changes(operator, text) == CASES[operator][text]


def test_every_operator_has_a_case():
    assert {operator.name for operator in sites.OPERATORS} == {*CASES, "random key"}


def test_random_keys_are_reused_or_lose_their_data():
    assert changes("random key", KEYS) == [
        "keys = jax.random.split(two, 3)",
        "keys = jax.random.split(jax.random.fold_in(key, rows), 3)",
        "keys = jax.random.split(jax.random.fold_in(one, rows), 3)",
        "keys = jax.random.split(jax.random.fold_in(two, 0), 3)",
        "return f(key), [g(keys[i]) for i in rows]",
        "return f(keys), [g(keys[i]) for i in rows]",
        "return f(two), [g(keys[i]) for i in rows]",
        "return f(one), [g(keys[0]) for i in rows]",
    ]


def test_random_keys_never_advance():
    text = "def f(state):\n    keys, now = jax.vmap(jax.random.split)(state.keys)\n    return g(now), keys\n"
    assert changes("random key", text) == [
        "return g(keys), keys",
        "return g(state.keys), keys",
        "return g(now), now",
        "return g(now), state.keys",
    ]


def test_results_are_negated():
    text = "def f(a):\n    return True"
    assert changes("boolean", text) == ["return False"]


def test_values_that_are_returned_change_places():
    text = "def f(a):\n    return a, 2 * a"
    assert changes("tuple", text) == ["return 2 * a, a"]


def test_what_has_no_meaning_for_a_test_is_left_alone():
    text = '''
        """A docstring with 1 + 2."""
        import a, b
        __all__ = ["x"]
        Names = tuple[int, 3]

        def f(x: Float[Array, "a 3"] = None) -> Literal[1, 2]:
            """Doc."""
            if TYPE_CHECKING:
                y = 1 + 2
            logging.info("%d", 1 + 2)
            print(1 + 2)
            text = f"{1 + 2}"
            raise ValueError(f"{1 + 2}", 1 - 2)
    '''
    assert sites.of_file("a/b.py", textwrap.dedent(text)) == []


def test_comments_other_lines_and_wide_letters_stay():
    text = 's = "é→"; y = (  # one\n    a +  # two\n    b  # three é\n) - "ü→".count(c)  # four\n'
    (mutant,) = [
        one for one in sites.of_file("a/b.py", text) if one.after.endswith("d") or one.new == "a - b"
    ]
    assert mutant.apply(text) == 's = "é→"; y = (  # one\n    a - b  # three é\n) - "ü→".count(c)  # four\n'
    assert (mutant.line, mutant.operator) == (2, "arithmetic")

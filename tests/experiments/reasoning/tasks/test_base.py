"""Drawing problems of a split."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.reasoning.tasks import base


def test_the_first_that_belongs_is_taken():
    """Of candidates that do not depend on the split; if none belongs, the last of them."""
    key = jax.random.key(0)

    def candidates(number):
        of_problem = jax.random.split(key, 6)[number]
        return [
            int(jax.random.randint(jax.random.fold_in(of_problem, i), (), 0, 10))
            for i in range(base.CANDIDATES)
        ]

    def draw(key):
        return jax.random.randint(key, (), 0, 10)

    found = base.of_split(key, 6, draw, lambda value: value >= 7)
    for number, value in enumerate(np.asarray(found)):
        assert value == next(each for each in candidates(number) if each >= 7)
    none = base.of_split(key, 6, draw, lambda value: value > 10)
    assert none.tolist() == [candidates(number)[-1] for number in range(6)]
    assert len(set(none.tolist())) > 1
    assert base.of_split(key, 6, draw, lambda value: jnp.bool_(True)).tolist() == [
        candidates(number)[0] for number in range(6)
    ]

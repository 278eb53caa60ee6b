"""FOLNet whose steps of deduction share their weights: a test may take more steps than training did.

What a step has deduced must serve the next one as well as what was given. Atoms are therefore normalized
after every loop, so that a pair is read alike however long it has been what it is; and `RelationHead` finds a
relation by its likeness to the base atom of a given one, so that training makes the two alike.

Axis letters: B batch; T tokens; X, Y tokens of pairs; D1 properties; D2 relations; C classes; R rows of the
table of base atoms.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from folnet.configuration import FOLNetConfig
from folnet.embeddings import Embeddings
from folnet.layers import Reasoner
from folnet.linear import table
from folnet.model import encoder_arguments
from folnet.settings import check_kind
from kernels.normalization import normalize


class LoopedFOLNet(nn.Module):
    """The L layers of a FOLNet applied again and again to their own atoms: equation (3) with one K and one b.

    Its parameters are those of `FOLNet` with the same settings, without the pooler and the diagonal link.

    Attributes:
      config: settings; `num_hidden_layers` layers are one loop.
      num_loops: number of loops, unless a call says otherwise.
      injection: how much of the base atoms is added to the atoms before each loop, so that what was given is
        not forgotten. Both are normalized.
    """

    config: FOLNetConfig
    num_loops: int = 4
    injection: float = 0.0

    def setup(self):
        check_kind(self.config, FOLNetConfig)
        if self.config.diagonal_link:
            raise ValueError("diagonal_link: got True, expected False in a LoopedFOLNet")
        if self.injection < 0:
            raise ValueError(f"injection: got {self.injection}, expected at least 0")
        self.embeddings = Embeddings(self.config)
        self.reasoner = Reasoner(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        inputs_embeds: Float[Array, "B T D1"] | None = None,
        relation_ids: Int[Array, "B T T *K"] | None = None,
        relation_embeds: Float[Array, "B T T D2"] | None = None,
        num_loops: int | None = None,
        ahead: int | Int[Array, ""] = 0,
    ) -> list[tuple[Float[Array, "B T D1"], Float[Array, "B D2 T T"]]]:
        """Returns the normalized properties and relations after each loop.

        Args:
          input_ids: tokens.
          token_type_ids: segments, 0 by default.
          attention_mask: True at real tokens; None masks nothing.
          deterministic: False enables dropout, which needs an RNG named "dropout".
          inputs_embeds: additional properties of each token, as of `FOLNet`.
          relation_ids: relations of pairs by number, one or K per pair, -1 for none.
          relation_embeds: additional relations of each pair as vectors, as of `FOLNet`.
          num_loops: number of loops; None takes the field.
          ahead: number of loops before these, which are not returned; see `settled`.

        Raises:
          ValueError: If an argument does not fit, or ids are out of range (not checked while tracing).
        """
        loops = self.num_loops if num_loops is None else num_loops
        if loops < 1:
            raise ValueError(f"num_loops: got {loops}, expected at least 1")
        atoms: dict[str, Any] = {
            "inputs_embeds": inputs_embeds,
            "relation_ids": relation_ids,
            "relation_embeds": relation_embeds,
        }
        texts = (input_ids, token_type_ids, attention_mask)
        ids, types, mask = encoder_arguments(self.config, *texts, **atoms)
        given = self.embeddings(ids, types, **atoms, deterministic=deterministic)
        unary, relation = settled(self, given, (given, mask, deterministic), ahead)
        states = []
        for _ in range(loops):
            unary, relation = self.loop(unary, relation, given, mask, deterministic)
            states.append((unary, relation))
        return states

    def loop(
        self,
        unary: Float[Array, "B T D1"],
        relation: Float[Array, "B D2 T T"],
        given: tuple[Float[Array, "B T D1"], Float[Array, "B D2 T T"]],
        mask: Bool[Array, "B 1 1 T"] | None,
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D1"], Float[Array, "B D2 T T"]]:
        """Returns the atoms after one more loop; `given` are the base atoms."""
        if self.injection:
            eps = self.config.layer_norm_eps
            unary = normalize(unary + self.injection * given[0], eps)
            relation = normalize(relation + self.injection * given[1], eps, axis=1)
        return self.reasoner(unary, relation, mask, None, deterministic)[-1]


def settled(module: Any, state: Any, still: tuple[Any, ...], ahead: int | Int[Array, ""]) -> Any:
    """Returns the state after `ahead` calls `state = module.loop(*state, *still)`, without a gradient.

    It is the progressive loss of Bansal et al. (2022): a loss of loops that follow so many others teaches
    to leave alone what is settled.

    Args:
      module: a bound module; its last argument of `loop` is `deterministic`, and if that is False it has an
        RNG named "dropout".
      state: arrays.
      still: further arguments of `loop`.
      ahead: number of loops, which may be traced.

    Raises:
      ValueError: If `ahead` is negative (not checked while tracing).
    """
    if isinstance(ahead, int) and ahead < 0:
        raise ValueError(f"ahead: got {ahead}, expected at least 0")
    if module.is_initializing() or (isinstance(ahead, int) and ahead == 0):
        return state
    unbound, key = module.clone(), None if still[-1] else module.make_rng("dropout")

    @jax.jit  # so that the loop closes over tracers: values would be checked in it, where they cannot be
    def run(variables: Any, state: Any, arrays: Any, ahead: Any) -> Any:
        def body(count, state):
            rngs = None if key is None else {"dropout": jax.random.fold_in(key, count)}
            return unbound.apply(variables, *state, *arrays, still[-1], rngs=rngs, method="loop")

        return jax.lax.fori_loop(0, ahead, body, state)

    return run(*jax.lax.stop_gradient((module.variables, state, still[:-1])), ahead)


class RelationHead(nn.Module):
    """Logits of the relation of every pair, from the likeness of its atom to the relations' base atoms.

    With unit vectors r and w_c, the logit of class c is sharpness * r . w_c + b_c. The first R classes have
    the rows of the table of base atoms as w_c; the others have rows of their own.

    Attributes:
      config: settings of the model below.
      num_labels: C.
      sharpness: the largest logit of likeness. The smaller it is, the closer training brings the two.
    """

    config: FOLNetConfig
    num_labels: int
    sharpness: float = 7.0

    @nn.compact
    def __call__(
        self, relation: Float[Array, "B D2 X Y"], atoms: Float[Array, "R D2"]
    ) -> Float[Array, "B X Y C"]:
        """Returns logits in at least float32; `relation` is normalized, as from `LoopedFOLNet`.

        Raises:
          ValueError: If there are more rows of atoms than classes, or they are not of D2 numbers.
        """
        size, own = self.config.relation_size, self.num_labels - len(atoms)
        if atoms.shape[1:] != (size,) or own < 0:
            raise ValueError(
                f"atoms: got shape {atoms.shape}, expected at most {self.num_labels} rows of {size} numbers"
            )
        rows = jnp.concatenate([atoms, table(self, "rows", own, size)]) if own else atoms
        wide = jnp.promote_types(relation.dtype, jnp.float32)
        rows = normalize(rows.astype(wide), self.config.layer_norm_eps)
        dtype = jnp.dtype(self.config.param_dtype)
        bias: Any = self.param("bias", nn.initializers.zeros, (self.num_labels,), dtype)
        alike = jnp.einsum("bdxy,cd->bxyc", relation.astype(wide), rows) / size
        return self.sharpness * alike + bias.astype(wide)[None, None, None]

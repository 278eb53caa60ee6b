"""The settings of a FOLNet, and the configurations of the paper.

Symbols: D1 properties of a token (unary atoms), D2 relations of a pair (binary atoms), H heads of S features,
L layers, Delta the distance from which all relative positions are equal.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from folnet.affine import Activation as PlainActivation
from folnet.settings import ModelConfig, check_buckets, expect_integer, misfit

UNARY_OPERATORS: Mapping[str, str] = {"j": "join", "m": "mu", "c": "cjoin"}
"""Letters of the operators whose conclusions are unary atoms (Table 2)."""
BINARY_OPERATORS: Mapping[str, str] = {"a": "assoc", "t": "trans", "p": "prod"}
"""Letters of the operators whose conclusions are binary atoms (Table 2)."""

RelativePosition = Literal["folnet", "t5", "none"]
Activation = Literal[PlainActivation, "reglu"]
CJoin = Literal["released", "paper"]
Remat = Literal[
    "none",
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "relation_boolean",
]


@dataclasses.dataclass(frozen=True)
class FOLNetConfig(ModelConfig):
    """Settings of a FOLNet. The defaults are FOLNet Base (Table 8).

    Attributes:
      vocab_size: V, the number of tokens. The released models round 30,522 up to a multiple of eight, 30,528,
        as their parameter counts imply (the paper says 32,768).
      hidden_size: D1.
      relation_size: D2.
      num_hidden_layers: L.
      num_attention_heads: H.
      head_size: S; H * S need not equal D1.
      intermediate_size: hidden width of the unary boolean operator.
      relation_intermediate_size: hidden width of the binary boolean operator.
      operators: the mixers, in the notation of Table 3: letters out of j, m, c (unary conclusions), a dot,
        letters out of a, t, p (binary conclusions). Results are summed, and checkpoints number the mixers, in
        this order. The boolean operators are always present.
      max_distance: Delta of Appendix A.4.
      relative_position: the binary base atoms. "folnet": the paper's relative positions. "t5": the
        logarithmic buckets of T5 (Raffel et al. 2020), for row 5 of Table 3; `positions.t5_buckets` says
        which details the paper leaves open. "none": zeros.
      relative_attention_num_buckets: number of buckets for "t5".
      relative_attention_max_distance: for "t5", the distance from which all share one bucket.
      absolute_position: whether unary base atoms include a learned absolute position.
      max_position_embeddings: maximum sequence length with absolute positions.
      type_vocab_size: number of segments.
      relation_vocab_size: number of binary predicates that `relation_ids` can give with a text, in addition
        to its positions (Appendix A.4); 0 for none.
      activation: activation of the boolean operators: "gelu" (exact); "relu"; "implication", ln(1 + 2 e^z),
        equations (9) and (27); or "reglu", relu(W z + b) * (V z + c), an option of the released code.
      head_activation: activation of the masked language modelling head.
      cjoin: what cjoin contracts. "released": v(a, x), with one softmax over all tokens a. "paper": v(x, a),
        with a softmax over the tokens that x may attend to. Without a mask of pairs they differ by a
        transpose.
      diagonal_link: whether to write unary atoms onto the diagonal of the binary base atoms, and the last
        diagonal back to the last unary atoms. An option of the released code; the paper's models do not use
        it.
      hidden_dropout_prob: dropout rate of the base atoms and of each branch's summed conclusions.
      attention_probs_dropout_prob: dropout rate of the kernels of join, cjoin and trans.
      layer_norm_eps: epsilon of all normalizations.
      initializer_range: standard deviation of matrices and tables; if negative, sqrt(2 / (rows + columns)).
      num_labels: number of labels of the classification head; 1 for regression.
      problem_type: the loss of sequence classification. None: regression for one label, single-label
        classification otherwise.
      pretrain_loss: the losses the heads were pretrained with: "MLM", "NSP", "SOP", separated by dots. Only a
        record, which tells users of the sentence head what it predicts.
      labels: names of the labels, in their order; () if they have none. In config.json: `id2label`.
      foreign: JSON of the keys of config.json that belong to other programs, which saving keeps.
      dtype: name of the type to compute in. Softmax and sums use at least float32.
      param_dtype: name of the type of the parameters, of which initial values are drawn and those in a
        directory are loaded.
      remat: what the backward pass recomputes, layer by layer, to save memory: "none"; one of JAX's policies,
        "nothing_saveable" (keeps only a layer's inputs), "dots_saveable" or
        "dots_with_no_batch_dims_saveable" (keeps products over tokens, not those over pairs); or
        "relation_boolean" (keeps all but the hidden values of the binary boolean operator, the widest array).
        XLA allocates this much per layer of FOLNet Base for a text of 512 tokens in float32 on a CPU:
        1,785 MiB with "none", 955 with "relation_boolean", 74 with "dots_with_no_batch_dims_saveable", 56
        with "nothing_saveable", plus about 2,200 for the one layer being computed.
      trans_implementation: implementation of `kernels.trans`; None selects the fastest that supports the
        arguments.
    """

    model_type: ClassVar[str] = "folnet"
    positive: ClassVar[tuple[str, ...]] = (
        *ModelConfig.positive,
        "relation_size",
        "relation_intermediate_size",
    )
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "relative_position": get_args(RelativePosition),
        "activation": get_args(Activation),
        "cjoin": get_args(CJoin),
        "remat": get_args(Remat),
        **ModelConfig.choices,
    }
    switches: ClassVar[tuple[str, ...]] = (*ModelConfig.switches, "diagonal_link")

    relation_size: int = 64
    relation_intermediate_size: int = 256
    operators: str = "jmc.atp"
    max_distance: int = 64
    relative_position: RelativePosition = "folnet"
    activation: Activation = "gelu"
    cjoin: CJoin = "released"
    diagonal_link: bool = False
    remat: Remat = "none"
    trans_implementation: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a field out of range, with its value and what was expected."""
        super().__post_init__()
        expect_integer("max_distance", self.max_distance, 2)
        if self.relative_position == "t5":
            check_buckets(self.relative_attention_num_buckets, self.relative_attention_max_distance)
        _check_operators(self.operators)

    @property
    def unary_operators(self) -> tuple[str, ...]:
        """Names of the mixers with unary conclusions, in order."""
        return tuple(UNARY_OPERATORS[letter] for letter in self.operators.split(".")[0])

    @property
    def binary_operators(self) -> tuple[str, ...]:
        """Names of the mixers with binary conclusions, in order."""
        return tuple(BINARY_OPERATORS[letter] for letter in self.operators.split(".")[1])

    @property
    def num_relative_positions(self) -> int:
        """Number of rows in the table of binary base atoms."""
        return {
            "folnet": 2 * self.max_distance + 2,
            "t5": self.relative_attention_num_buckets,
            "none": 0,
        }[self.relative_position]


def _check_operators(operators: object) -> None:
    rule = "letters out of 'jmc', a dot, letters out of 'atp', such as 'jmc.atp'"
    if not isinstance(operators, str) or operators.count(".") != 1:
        raise misfit("operators", operators, rule)
    unary, binary = operators.split(".")
    for letters, mine, other, here, there in (
        (unary, UNARY_OPERATORS, BINARY_OPERATORS, "before", "after"),
        (binary, BINARY_OPERATORS, UNARY_OPERATORS, "after", "before"),
    ):
        if wrong := next((letter for letter in letters if letter not in mine), None):
            if wrong in other:
                problem = f"{wrong!r} ({other[wrong]}) belongs {there} the dot"
            elif wrong == "b":
                problem = "'b' (bool) is always present and not written"
            else:
                problem = f"{wrong!r} is not an operator"
            possible = ", ".join(f"{letter!r} ({name})" for letter, name in mine.items())
            raise misfit("operators", operators, f"only {possible} {here} the dot: {problem}")
        if len(set(letters)) != len(letters):
            raise misfit("operators", operators, "each letter once")
    if operators == ".":
        raise misfit("operators", operators, f"at least one operator: {rule}")


BASE = FOLNetConfig()
"""FOLNet Base of Table 8."""
LARGE = FOLNetConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
"""FOLNet Large of Table 8."""

_TABLE3: Mapping[int, tuple[str, int, dict[str, Any]]] = {
    3: ("j.a", 12, {"absolute_position": True, "relative_position": "none"}),
    4: ("j.a", 12, {}),
    5: ("j.a", 12, {"relative_position": "t5"}),
    6: ("jm.ap", 12, {}),
    7: ("j.a", 16, {}),
    8: ("j.a", 32, {}),
    9: ("j.a", 64, {}),
    10: ("j.at", 64, {}),
    11: ("j.atp", 64, {}),
    12: ("jm.atp", 64, {}),
    13: ("jmc.atp", 64, {}),
    14: ("jmc.atp", 12, {}),
    15: ("jmc.atp", 64, {"pretrain_loss": "MLM.SOP"}),
}


def table3(row: int) -> FOLNetConfig:
    """Returns the model of a row of Table 3, from 3 to 15, with the size of FOLNet Base.

    Rows 1 and 2 are BERT. The hidden width of the binary boolean operator is 4 * D2 in every row, as the
    parameter counts imply.

    Raises:
      ValueError: If there is no such row.
    """
    if row not in _TABLE3:
        raise ValueError(f"row: got {row!r}, expected 3 to 15 (rows 1 and 2 of Table 3 are BERT)")
    operators, width, rest = _TABLE3[row]
    return FOLNetConfig(
        operators=operators, relation_size=width, relation_intermediate_size=4 * width, **rest
    )

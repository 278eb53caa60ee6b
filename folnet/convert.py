"""Conversion between the authors' checkpoints and our parameters, by a table of names.

    config, params = convert.from_torch(their_config, their_state, model=FOLNetForPreTraining)
    their_config, their_state = convert.to_torch(config, params)

A checkpoint is a pair of files, `*.cfg` (JSON) and `*.pt`, given here as mappings.
`experiments/folnet_pretrain/convert.py` reads and writes the files.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from folnet import parameters
from folnet.configuration import BINARY_OPERATORS, UNARY_OPERATORS, FOLNetConfig
from folnet.heads import (
    FOLNetForMaskedLM,
    FOLNetForMultipleChoice,
    FOLNetForPreTraining,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
)
from folnet.model import FOLNet
from folnet.settings import ModelConfig, check_kind

Names = dict[str, tuple[str, bool]]
"""The authors' name -> our name, and whether to transpose the array."""

DATA_PARALLEL = "module."
"""Prefix that PyTorch's DataParallel puts before every name."""
TIED = "cls.heads.predictions.decoder.weight"
"""A second copy of the word embeddings, which are a single array here."""
UNUSED = ("max_span", "span_dim", "aux_length", "glob_size", "span_size", "unit_size")
"""Settings that the released model does not read unless it has operators on global atoms."""
SETTINGS: Mapping[str, str] = {
    "hidden_dropout_prob": "hidden_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "max_position_offset": "max_distance",
    "absolute_position": "absolute_position",
    "vocab_size": "vocab_size",
    "type_vocab_size": "type_vocab_size",
    "diag_link": "diagonal_link",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "head_size": "head_size",
    "num_classes": "num_labels",
}
"""Their settings that correspond to one of ours."""
HEADS: Mapping[str, tuple[str, ...]] = {
    "words": ("cls.heads.predictions.",),
    "sentence": ("cls.heads.seq_relationship.",),
    "contrast": ("sch.",),
    "classes": ("classifier.weight", "classifier.bias"),
    "spans": ("classifier.start_logits.", "classifier.end_logits."),
}
"""Prefixes of the names of each head's tensors."""
OURS = {
    "words": "predictions.bias",
    "sentence": "seq_relationship.weight",
    "classes": "classifier.weight",
    "spans": "start.weight",
}
"""One parameter of each head, which identifies it."""
WITH_WORDS = (FOLNetForPreTraining, FOLNetForMaskedLM)
REQUIRED = (
    "vocab_size",
    "num_layers",
    "mixer_ops",
    "predicate_dims",
    "intermediate_dims",
    "num_heads",
    "head_size",
)

_logger = logging.getLogger(__name__)


def from_torch(
    config: Mapping[str, Any],
    state_dict: Mapping[str, np.ndarray],
    model: type[nn.Module] = FOLNetForPreTraining,
    *,
    key: jax.Array | None = None,
) -> tuple[FOLNetConfig, dict[str, Any]]:
    """Converts a checkpoint to settings and float32 parameters.

    Tensors of heads that the class lacks are left out and logged; `left_out` lists them.

    Args:
      config: the authors' settings, from their `*.cfg`.
      state_dict: arrays by the authors' names, with or without the prefix "module.".
      model: the model class.
      key: initializes the parameters of missing heads; None makes missing heads an error.

    Raises:
      ValueError: If settings are not understood, or tensors are missing, unexpected or of another shape;
        lists all of them.
    """
    ours = from_torch_config(config)
    built = model(config=ours)
    state = _without_prefix(state_dict)
    expected = parameters.shapes(built)
    names = _names(ours, model)
    where = {name: theirs for theirs, (name, _) in names.items()}
    ours_given = {name for theirs, (name, _) in names.items() if theirs in state}
    drawn = parameters.missing_heads(expected, ours_given) if key is not None else []
    want = {
        where.get(name, name): shape[::-1] if name in where and names[where[name]][1] else shape
        for name, shape in expected.items()
        if name not in drawn
    }
    if foreign := left_out(config, state, model):
        _logger.info("left out (%s has no such head): %s", model.__name__, ", ".join(foreign))
    given = {name: np.shape(array) for name, array in state.items() if name not in foreign and name != TIED}
    lines = parameters.misfits(want, given)
    words = state.get("folnet.encoder.word_embd.weight")
    if TIED in state and words is not None and not np.array_equal(state[TIED], words):
        lines.append(
            f"{TIED}: got other values than folnet.encoder.word_embd.weight, expected the same (tied)"
        )
    parameters.complain("state_dict", built, lines)
    params: dict[str, Any] = {
        name: jnp.asarray(np.transpose(state[theirs]) if transposed else state[theirs], jnp.float32)
        for theirs, (name, transposed) in names.items()
        if theirs in given
    }
    if key is not None and drawn:
        params |= parameters.draw(built, key, drawn)
    return ours, parameters.nest({name: params[name] for name in expected})


def to_torch(config: ModelConfig, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Converts settings and parameters to the authors' form; the inverse of `from_torch`.

    Args:
      config: the settings.
      params: parameters of a model class that the released code has; their names and shapes identify it.
        Those of a token classifier, which it lacks, are taken for a text classifier's.

    Raises:
      ValueError: If the released code lacks a setting or no model has these parameters; lists all mismatches.
    """
    config = check_kind(config, FOLNetConfig)
    table = {name: np.asarray(array) for name, array in parameters.flatten(params).items()}
    heads = [head for head, name in OURS.items() if name in table]
    model = _class_with(heads, np.shape(table.get("classifier.weight", ()))[-1:], config.num_labels)
    theirs_config = to_torch_config(config)
    built = model(config=config)
    given = {name: array.shape for name, array in table.items()}
    parameters.complain("params", built, parameters.misfits(parameters.shapes(built), given))
    state = {}
    for theirs, (name, transposed) in _names(config, model).items():
        state[theirs] = np.ascontiguousarray(table[name].T if transposed else table[name])
    if model in WITH_WORDS:
        state[TIED] = state["folnet.encoder.word_embd.weight"]
    return theirs_config, state


def left_out(
    config: Mapping[str, Any], state_dict: Mapping[str, np.ndarray], model: type[nn.Module]
) -> list[str]:
    """Returns the authors' names of the tensors of heads not in `model`, which `from_torch` leaves out."""
    mine = {_head(name) for name in _names(from_torch_config(config), model)}
    heads = {name: _head(name) for name in _without_prefix(state_dict)}
    return [name for name, head in heads.items() if head is not None and head not in mine]


def class_of(config: Mapping[str, Any], state_dict: Mapping[str, np.ndarray]) -> type[nn.Module]:
    """Returns the model class of a checkpoint, judged by its tensors; `FOLNet` if it has no head."""
    state = _without_prefix(state_dict)
    scores = np.shape(state.get("classifier.weight", ()))[:1]
    return _class_with({_head(name) for name in state}, scores, config.get("num_classes", 1))


def from_torch_config(config: Mapping[str, Any]) -> FOLNetConfig:
    """Converts the authors' settings; raises ValueError listing all that are missing, unknown or unfit."""
    wrong = [f"{name}: missing" for name in REQUIRED if name not in config]
    known = sorted(to_torch_config(FOLNetConfig()))
    expected = ", ".join(known)
    wrong += [f"{name}: unknown, expected one of {expected}" for name in config if name not in known]
    _complain("config: does not fit", wrong)
    fields: dict[str, Any] = {ours: config[theirs] for theirs, ours in SETTINGS.items() if theirs in config}
    fields["attention_probs_dropout_prob"] = config.get("hidden_dropout_prob", 0.1)
    mixers = {str(arity): tuple(names or ()) for arity, names in config["mixer_ops"].items()}
    if mixers.get("0"):
        wrong.append(
            f"mixer_ops['0']: got {mixers['0']}, expected none (no paper or checkpoint has global atoms)"
        )
    sides = []
    for arity, letters in (("1", UNARY_OPERATORS), ("2", BINARY_OPERATORS)):
        known_operators = {name: letter for letter, name in letters.items()}
        side = mixers.get(arity, ())
        wrong += [
            f"mixer_ops[{arity!r}]: got {name!r}, expected only {', '.join(known_operators)}"
            for name in side
            if name not in known_operators
        ]
        sides.append("".join(known_operators.get(name, "") for name in side))
    fields["operators"] = ".".join(sides)
    for theirs, ours in (
        ("predicate_dims", ("hidden_size", "relation_size")),
        ("intermediate_dims", ("intermediate_size", "relation_intermediate_size")),
    ):
        dims = config[theirs]
        if not isinstance(dims, Sequence) or len(dims) != 3:
            wrong.append(f"{theirs}: got {dims!r}, expected three numbers, for atoms of arity 0, 1 and 2")
            continue
        if not all(isinstance(dim, int | float) and dim == dim // 1 for dim in dims[1:]):  # not inf or nan
            wrong.append(f"{theirs}: got {dims!r}, expected integers")
            continue
        fields |= dict(zip(ours, map(int, dims[1:]), strict=True))
    if "hidden_size" in config and config["hidden_size"] != fields.get("hidden_size"):
        wrong.append(
            f"hidden_size: got {config['hidden_size']}, expected {fields.get('hidden_size')} "
            "(predicate_dims[1])"
        )
    fields["relative_position"] = "folnet" if config.get("relative_position", True) else "none"
    act, boolean = config.get("hidden_act", "gelu"), config.get("boolean_type", "mlp")
    if act not in ("gelu", "relu"):
        wrong.append(f"hidden_act: got {act!r}, expected 'gelu' or 'relu'")
    if boolean not in ("mlp", "reglu"):
        wrong.append(f"boolean_type: got {boolean!r}, expected 'mlp' or 'reglu'")
    fields |= {"head_activation": act, "activation": "reglu" if boolean == "reglu" else act}
    # SCL, a contrastive loss, is used by no model of the paper and does not affect the parameters read here.
    losses = [loss for loss in str(config.get("pretrain_loss", "MLM.NSP")).split(".") if loss != "SCL"]
    fields["pretrain_loss"] = ".".join(losses)
    _complain("config: does not fit", wrong)
    try:
        return FOLNetConfig(**fields)
    except ValueError as error:
        raise ValueError(f"config: does not fit:\n  {error}") from error


def _complain(what: str, lines: Sequence[str]) -> None:
    if lines:
        raise ValueError(f"{what}:\n  " + "\n  ".join(lines))


def to_torch_config(config: FOLNetConfig) -> dict[str, Any]:
    """Converts our settings to the authors'; raises ValueError listing all that the released code lacks."""
    released = {
        "relative_position": ("folnet", "none"),
        "relation_vocab_size": (0,),
        "activation": (config.head_activation, "reglu"),
        "cjoin": ("released",),
        "max_position_embeddings": (512,) if config.absolute_position else (config.max_position_embeddings,),
        "attention_probs_dropout_prob": (config.hidden_dropout_prob,),
    }
    wrong = [
        f"{name}: got {getattr(config, name)!r}, expected {' or '.join(map(repr, possible))}"
        for name, possible in released.items()
        if getattr(config, name) not in possible
    ]
    _complain("config: the released code has no such settings", wrong)
    return {
        **{theirs: getattr(config, ours) for theirs, ours in SETTINGS.items()},
        "hidden_act": config.head_activation,
        "boolean_type": "reglu" if config.activation == "reglu" else "mlp",
        "relative_position": config.relative_position == "folnet",
        "mixer_ops": {"0": None, "1": list(config.unary_operators), "2": list(config.binary_operators)},
        "predicate_dims": [0, config.hidden_size, config.relation_size],
        "intermediate_dims": [0, config.intermediate_size, config.relation_intermediate_size],
        "hidden_size": config.hidden_size,
        "pretrain_loss": config.pretrain_loss,
        **dict.fromkeys(UNUSED, 0),
    }


# Our operator's parts -> the authors', and whether they have a bias. `reader.N` reads the atoms of arity N.
OPERATORS: Mapping[str, Mapping[str, tuple[str, bool]]] = {
    "join": {"premise": ("reader.1", True), "kernel": ("reader.2", False), "writer": ("writer", True)},
    "mu": {"reader": ("reader.2", False), "writer": ("writer", True)},
    "cjoin": {"kernel": ("kernel", False), "premise": ("premise", True), "writer": ("output", True)},
    "assoc": {"reader": ("reader.1", True), "writer": ("writer", True)},
    "trans": {"reader": ("reader.2", False), "writer": ("writer", True)},
    "prod": {"kernel": ("reader.1", True), "premise": ("reader.2", True), "writer": ("writer", True)},
}


def _names(config: FOLNetConfig, model: type[nn.Module]) -> Names:
    """Returns, for each parameter of a model class, the authors' name, ours and whether it is transposed."""
    names: Names = {
        "encoder.word_embd.weight": ("embeddings.word", False),
        "encoder.type_embd.weight": ("embeddings.type", False),
    }
    if config.absolute_position:
        names["encoder.abs_pos_embd.weight"] = ("embeddings.position", False)
    if config.relative_position == "folnet":
        names["encoder.rel_pos_embd.weight"] = ("embeddings.relative", False)
    if config.diagonal_link:
        names |= _affine("encoder.diag", "embeddings.diagonal") | _affine("diag", "diagonal")
    for layer in range(config.num_hidden_layers):
        theirs, ours = f"reasoner.layers.{layer}.deducers", f"reasoner.layers_{layer}"
        for arity, mixers in ((1, config.unary_operators), (2, config.binary_operators)):
            for i, operator in enumerate(mixers):
                mixer = f"{theirs}.0.operators.{arity}.{i}"
                for part, (name, bias) in OPERATORS[operator].items():
                    names |= _affine(f"{mixer}.{name}", f"{ours}.{operator}.{part}", bias)
        for arity, boolean in ((1, "bool_unary"), (2, "bool_binary")):
            parts = {"clause_in": "clause_in", "clause_out": "clause_out"}
            if config.activation == "reglu":
                parts |= {"clause_in": "clause_in.direct", "gate": "clause_in.gating"}
            if arity == 2:
                parts["clause_skip"] = "clause_skip"
            for part, name in parts.items():
                names |= _affine(f"{theirs}.1.operators.{arity}.0.{name}", f"{ours}.{boolean}.{part}")
    names |= _affine("dense", "pooler")
    if model is FOLNet:
        return {f"folnet.{theirs}": where for theirs, where in names.items()}
    names = {f"folnet.{theirs}": (f"folnet.{ours}", turned) for theirs, (ours, turned) in names.items()}
    if model in WITH_WORDS:
        names["cls.heads.predictions.bias"] = ("predictions.bias", False)
        names |= _affine("cls.heads.predictions.transform.dense", "predictions.transform")
    if model is FOLNetForPreTraining:
        names |= _affine("cls.heads.seq_relationship", "seq_relationship")
    if model in (FOLNetForSequenceClassification, FOLNetForMultipleChoice):
        names |= _affine("classifier", "classifier")
    if model is FOLNetForQuestionAnswering:
        for end in ("start", "end"):
            names |= _affine(f"classifier.{end}_logits.dense", end)
    return names


def _affine(theirs: str, ours: str, bias: bool = True) -> Names:
    names: Names = {f"{theirs}.weight": (f"{ours}.weight", True)}
    return names | {f"{theirs}.bias": (f"{ours}.bias", False)} if bias else names


def _head(name: str) -> str | None:
    """Returns the head a tensor of theirs belongs to; None for the encoder's and for unknown tensors."""
    return next((head for head, prefixes in HEADS.items() if name.startswith(prefixes)), None)


def _without_prefix(state_dict: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(DATA_PARALLEL): array for name, array in state_dict.items()}


def _class_with(heads: Collection[str | None], scores: tuple[int, ...], num_labels: int) -> type[nn.Module]:
    """Returns the model class with these heads and this shape of class scores."""
    if "words" in heads:
        return FOLNetForPreTraining if "sentence" in heads else FOLNetForMaskedLM
    if "spans" in heads:
        return FOLNetForQuestionAnswering
    if "classes" not in heads:
        return FOLNet
    # Multiple choice has one score per choice, classification one score per class.
    return FOLNetForMultipleChoice if scores == (1,) and num_labels > 1 else FOLNetForSequenceClassification

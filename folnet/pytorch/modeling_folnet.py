"""FOLNet (Chen, ICLR 2023) for PyTorch: the encoder with its heads, and the models that write text.

    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained("folder", trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained("folder")

For folders that logic-zoo has saved. Parameters, their names and their layout are those of the JAX model, so
that each side opens what the other has saved. Equations and tables are those of the paper. Written for
logic-zoo, which copies this file into its folders; nothing else is needed.

Axis letters: b batch; x, y, a tokens; h heads; s features of a head; d properties or relations.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput

IGNORED = -100


class FOLNetConfig(PretrainedConfig):
    """Settings; logic-zoo's `FOLNetConfig` documents them."""

    model_type = "folnet"

    def __init__(
        self,
        vocab_size=30528,
        hidden_size=768,
        relation_size=64,
        num_hidden_layers=12,
        num_attention_heads=12,
        head_size=64,
        intermediate_size=3072,
        relation_intermediate_size=256,
        operators="jmc.atp",
        max_distance=64,
        relative_position="folnet",
        relative_attention_num_buckets=32,
        relative_attention_max_distance=128,
        absolute_position=False,
        max_position_embeddings=512,
        type_vocab_size=2,
        relation_vocab_size=0,
        activation="gelu",
        head_activation="gelu",
        cjoin="released",
        diagonal_link=False,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        layer_norm_eps=1e-12,
        initializer_range=0.02,
        **others,
    ):
        own = {name: value for name, value in locals().items() if name not in ("self", "others", "__class__")}
        for name, value in own.items():
            setattr(self, name, value)
        super().__init__(**{"tie_word_embeddings": False, **others})


def normalize(values, eps, dim=-1):
    """LayerNorm without gain and bias, over one axis."""
    wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    wide = wide - wide.mean(dim, keepdim=True)
    wide = wide * torch.rsqrt(wide.square().mean(dim, keepdim=True) + eps)
    return wide.to(values.dtype)


def softmax(logits, mask):
    """The softmax over the last axis where the mask is true; rows without an entry give 0."""
    if mask is None:
        return logits.softmax(-1)
    logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return logits.softmax(-1).masked_fill(~mask, 0)


def after(given, own, dim):
    """What an input has and then what the target has itself, along an axis of tokens."""
    return own if given is None else torch.cat((given, own), dim)


def activate(values, name):
    if name == "implication":  # equations (9) and (27)
        return functional.softplus(values + math.log(2))
    return {"gelu": functional.gelu, "relu": functional.relu}[name](values)


class Affine(nn.Module):
    """A map of properties, or with `pairs` of relations, whose axis is the second."""

    def __init__(self, inputs, outputs, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, values):
        values = values @ self.weight
        return values if self.bias is None else values + self.bias

    def pairs(self, relations):
        relations = torch.einsum("bdxy,de->bexy", relations, self.weight)
        return relations if self.bias is None else relations + self.bias[:, None, None]


class Operator(nn.Module):
    """A row of Table 2.

    Arguments are u(x), u(x, y), the mask of the tokens a, and in a decoder `given`: the premise, or the
    kernel of cjoin, of an input's tokens, which come before its own.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.width = config.num_attention_heads * config.head_size

    def heads(self, values):
        return values.unflatten(-1, (self.config.num_attention_heads, self.config.head_size))

    def dropped(self, kernel):
        return functional.dropout(kernel, self.config.attention_probs_dropout_prob, self.training)


class Join(Operator):
    """u(x) <- K(x, a), v(a)."""

    def __init__(self, config):
        super().__init__(config)
        self.kernel = Affine(config.relation_size, config.num_attention_heads, bias=False)
        self.premise = Affine(config.hidden_size, self.width)
        self.writer = Affine(self.width, config.hidden_size)

    def forward(self, u, r, mask, given=None):
        kernel = self.dropped(softmax(self.kernel.pairs(r), mask))
        premise = after(given, self.heads(self.premise(u)), 1)
        return self.writer(torch.einsum("bhxa,bahs->bxhs", kernel, premise).flatten(2))


class Mu(Operator):
    """u(x) <- K(x, a), v(x, a)."""

    def __init__(self, config):
        super().__init__(config)
        self.reader = Affine(config.relation_size, config.num_attention_heads + config.head_size, bias=False)
        self.writer = Affine(self.width, config.hidden_size)

    def forward(self, u, r, mask, given=None):
        sizes = (self.config.num_attention_heads, self.config.head_size)
        logits, premise = self.reader.pairs(r).split(sizes, dim=1)
        return self.writer(torch.einsum("bhxa,bsxa->bxhs", softmax(logits, mask), premise).flatten(2))


class CJoin(Operator):
    """u(x) <- K(a), v(x, a), or as released v(a, x)."""

    def __init__(self, config, decodes):
        super().__init__(config)
        self.decodes = decodes
        self.kernel = Affine(config.hidden_size, self.width, bias=False)
        self.premise = Affine(config.relation_size, config.head_size)
        self.writer = Affine(self.width, config.hidden_size)

    def logits(self, values):
        return values.unflatten(-1, (self.config.head_size, self.config.num_attention_heads)).permute(
            0, 2, 3, 1
        )

    def forward(self, u, r, mask, given=None):
        logits, premise = after(given, self.logits(self.kernel(u)), 3), self.premise.pairs(r)
        if self.decodes:  # each x has other tokens
            kernel = self.dropped(softmax(logits[:, :, :, None], mask[:, :, None]))
            return self.writer(torch.einsum("bshxa,bsxa->bxsh", kernel, premise).flatten(2))
        kernel = self.dropped(softmax(logits, mask))
        axes = "bsxa" if self.config.cjoin == "paper" else "bsax"
        return self.writer(torch.einsum(f"bsha,{axes}->bxsh", kernel, premise).flatten(2))


class Assoc(Operator):
    """u(x, y) <- K(x), v(y)."""

    def __init__(self, config):
        super().__init__(config)
        self.reader = Affine(config.hidden_size, 2 * self.width)
        self.writer = Affine(config.num_attention_heads, config.relation_size)

    def forward(self, u, r, mask, given=None):
        kernel, premise = map(self.heads, self.reader(u).chunk(2, dim=-1))
        kernel = kernel * self.config.head_size**-0.5
        return self.writer.pairs(torch.einsum("bxhs,byhs->bhxy", kernel, after(given, premise, 1)))


class Trans(Operator):
    """u(x, y) <- K(x, a), v(a, y)."""

    def __init__(self, config):
        super().__init__(config)
        self.reader = Affine(config.relation_size, 2 * config.relation_size, bias=False)
        self.writer = Affine(config.relation_size, config.relation_size)

    def forward(self, u, r, mask, given=None):
        """An input has no relations to the target: its premise is 0 there (the two-part trans of A.5)."""
        logits, premise = self.reader.pairs(r).chunk(2, dim=1)
        if given is not None:
            given = functional.pad(given, (0, premise.shape[3] - given.shape[3]))
        return self.writer.pairs(self.dropped(softmax(logits, mask)) @ after(given, premise, 2))


class Prod(Operator):
    """u(x, y) <- K(x), v(x, y)."""

    def __init__(self, config):
        super().__init__(config)
        self.kernel = Affine(config.hidden_size, self.width)
        self.premise = Affine(config.relation_size, config.head_size)
        self.writer = Affine(config.num_attention_heads, config.relation_size)

    def forward(self, u, r, mask, given=None):
        kernel = self.heads(self.kernel(u)) * self.config.head_size**-0.5
        return self.writer.pairs(torch.einsum("bxhs,bsxy->bhxy", kernel, self.premise.pairs(r)))


class Boolean(nn.Module):
    """u(x) <- K, v(x), and for relations u(x, y) <- K, v(x, y), v(y, x)."""

    def __init__(self, config, inputs, hidden, outputs, skip=None):
        super().__init__()
        self.name = config.activation
        self.clause_in, self.clause_out = Affine(inputs, hidden), Affine(hidden, outputs)
        self.gate = Affine(inputs, hidden) if self.name == "reglu" else None
        self.clause_skip = None if skip is None else Affine(skip, outputs)

    def concluded(self, values, how):
        hidden = getattr(self.clause_in, how)(values)
        if self.gate is None:
            hidden = activate(hidden, self.name)
        else:
            hidden = functional.relu(getattr(self.gate, how)(values)) * hidden
        return getattr(self.clause_out, how)(hidden)

    def forward(self, u):
        return self.concluded(u, "forward")

    def pairs(self, r):
        """The converse of a relation to an input's tokens, which come first, is 0."""
        rows, columns = r.shape[2:]
        converse = functional.pad(r[..., columns - rows :].transpose(2, 3), (columns - rows, 0))
        return self.concluded(torch.cat((r, converse), dim=1), "pairs") + self.clause_skip.pairs(converse)


UNARY = {"j": ("join", Join), "m": ("mu", Mu), "c": ("cjoin", CJoin)}
BINARY = {"a": ("assoc", Assoc), "t": ("trans", Trans), "p": ("prod", Prod)}


class Layer(nn.Module):
    """One step of forward chaining, equation (3): the mixers, then the boolean operators.

    A decoder's layer keeps relations 0 where x may not attend to y, and may read an input (Appendix A.5).
    """

    def __init__(self, config, decodes=False, reads_input=False):
        super().__init__()
        self.config, self.decodes = config, decodes
        unary, binary = config.operators.split(".")
        self.unary = [UNARY[letter][0] for letter in unary]
        self.binary = [BINARY[letter][0] for letter in binary]
        for name, kind in [UNARY[letter] for letter in unary] + [BINARY[letter] for letter in binary]:
            self.add_module(name, CJoin(config, decodes) if kind is CJoin else kind(config))
        d1, d2 = config.hidden_size, config.relation_size
        self.bool_unary = Boolean(config, d1, config.intermediate_size, d1)
        self.bool_binary = Boolean(config, 2 * d2, config.relation_intermediate_size, d2, skip=d2)
        if reads_input:
            width = config.num_attention_heads * config.head_size
            for name in ("join", "cjoin", "assoc"):  # in one order, which optimizers go by
                if name in self.unary + self.binary:
                    self.add_module(f"{name}_input", Affine(d1, width, bias=name != "cjoin"))
            if "trans" in self.binary:
                self.trans_input = Affine(d2, d2, bias=False)

    def read_input(self, unary, relation):
        """What the operators read of an input's last atoms, by their names."""
        how = {
            "join": lambda: self.join.heads(self.join_input(unary)),
            "cjoin": lambda: self.cjoin.logits(self.cjoin_input(unary)),
            "assoc": lambda: self.assoc.heads(self.assoc_input(unary)),
            "trans": lambda: self.trans_input.pairs(relation),
        }
        return {name: read() for name, read in how.items() if name in self.unary + self.binary}

    def normalized(self, unary, relation):
        eps = self.config.layer_norm_eps
        return normalize(unary, eps), normalize(relation, eps, dim=1)

    def dropped(self, values):
        return functional.dropout(values, self.config.hidden_dropout_prob, self.training)

    def within(self, relation, mask):
        return relation.masked_fill(~mask, 0) if self.decodes else relation

    def mixed(self, names, u, r, mask, read):
        return self.dropped(sum(getattr(self, name)(u, r, mask, read.get(name)) for name in names))

    def forward(self, unary, relation, mask, encoded=None):
        u, r = self.normalized(unary, relation)
        read = {} if encoded is None else self.read_input(*encoded)
        if self.unary:
            unary = unary + self.mixed(self.unary, u, r, mask, read)
        if self.binary:
            relation = relation + self.mixed(self.binary, u, r, mask, read)
        relation = self.within(relation, mask)
        u, r = self.normalized(unary, relation)
        unary = unary + self.dropped(self.bool_unary(u))
        return unary, self.within(relation + self.dropped(self.bool_binary.pairs(r)), mask)


class Reasoner(nn.Module):
    def __init__(self, config, decodes=False, reads_input=False):
        super().__init__()
        self.config = config
        for number in range(config.num_hidden_layers):
            self.add_module(f"layers_{number}", Layer(config, decodes, reads_input))

    def forward(self, unary, relation, mask, encoded=None):
        states = [(unary, relation)]
        for layer in self.children():
            states.append(layer(*states[-1], mask, encoded))
        states[-1] = layer.normalized(*states[-1])
        return states


class Embeddings(nn.Module):
    """The base atoms of Appendix A.4."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        d1, d2 = config.hidden_size, config.relation_size
        kinds = {
            "folnet": 2 * config.max_distance + 2,
            "t5": config.relative_attention_num_buckets,
            "none": 0,
        }
        places = config.max_position_embeddings if config.absolute_position else 0
        for name, rows, width in (
            ("word", config.vocab_size, d1),
            ("type", config.type_vocab_size, d1),
            ("position", places, d1),
            ("relative", kinds[config.relative_position], d2),
            ("relation", config.relation_vocab_size, d2),
        ):
            # Not `register_parameter`, which refuses a name that PyTorch's modules have as a method.
            self._parameters[name] = nn.Parameter(torch.zeros(rows, width)) if rows else None
        self.diagonal = Affine(d1, d2) if config.diagonal_link else None

    @property
    def type(self):
        return self._parameters["type"]

    def forward(self, input_ids, token_type_ids, inputs_embeds, relation_ids, positions=None, first=True):
        """Both atoms; `positions` [b, x] for absolute ones, and `first` for those that [CLS] has alone."""
        unary = self.properties(input_ids, token_type_ids, positions)
        if inputs_embeds is not None:
            unary = unary + inputs_embeds
        relation = self.relations(token_type_ids, first).movedim(-1, 1).expand(len(unary), -1, -1, -1)
        if relation_ids is not None:
            given = relation_ids.reshape(*relation_ids.shape[:3], -1)
            rows = self.relation[given.clamp(min=0)] * (given >= 0)[..., None]
            relation = relation + rows.sum(3).movedim(-1, 1)
        return self.finished(unary, self.linked(unary, relation))

    def of_target(self, input_ids, inputs, positions=None):
        """Both atoms of a target, whose relations are to `inputs` tokens of an input and then to its own."""
        types = torch.zeros_like(input_ids)
        unary = self.properties(input_ids, types, positions)
        own = self.relations(types, first=False).movedim(-1, 1).expand(len(unary), -1, -1, -1)
        across = own.new_zeros(self.config.relation_size)
        if self.config.relative_position == "folnet":
            across = self.relative[self.config.max_distance]  # as between segments
        across = across[None, :, None, None].expand(len(unary), -1, own.shape[2], inputs)
        return self.finished(unary, torch.cat((across, self.linked(unary, own)), 3))

    def properties(self, input_ids, types, positions=None):
        unary = self.type[types]
        if input_ids is not None:
            unary = unary + self.word[input_ids]
        if self.position is not None:
            unary = unary + self.position[slice(types.shape[1]) if positions is None else positions]
        return unary

    def linked(self, unary, relation):
        if self.diagonal is None:
            return relation
        return relation + torch.diag_embed(self.diagonal(unary).transpose(1, 2))

    def finished(self, *atoms):
        eps, rate = self.config.layer_norm_eps, self.config.hidden_dropout_prob
        normal = (normalize(values, eps, dim) for values, dim in zip(atoms, (-1, 1), strict=True))
        return tuple(functional.dropout(values, rate, self.training) for values in normal)

    def relations(self, types, first):
        """The base atom of each pair before normalization, [b, x, y, d]."""
        length = types.shape[1]
        place = torch.arange(length, device=types.device)
        offset = place[None, :] - place[:, None]  # y - x
        if self.config.relative_position == "none":
            return self.word.new_zeros(1, length, length, self.config.relation_size)
        if self.config.relative_position == "t5":
            return self.relative[self.buckets(offset)][None]
        delta = self.config.max_distance
        near = torch.where(offset >= 0, offset.clamp(max=delta - 1), 2 * delta + offset.clamp(min=1 - delta))
        ids = torch.where(types[:, :, None] == types[:, None, :], near, delta)
        if not first:
            return self.relative[ids]
        ids = torch.where(((place[:, None] == 0) & (place > 0))[None], 2 * delta, ids)
        ids = torch.where(((place[:, None] > 0) & (place == 0))[None], 2 * delta + 1, ids)
        return self.relative[ids]

    def buckets(self, offset):
        """Buckets of T5 (Raffel et al. 2020), half of them for y > x."""
        count = self.config.relative_attention_num_buckets // 2
        exact, far = count // 2, self.config.relative_attention_max_distance
        distance = offset.abs()
        growth = torch.log(distance.clamp(min=1).double() / exact) / math.log(far / exact) * (count - exact)
        beyond = (exact + torch.floor(growth + 1e-9).long()).clamp(max=count - 1)
        return count * (offset > 0) + torch.where(distance < exact, distance, beyond)


class FOLNetPreTrainedModel(PreTrainedModel):
    config_class = FOLNetConfig
    base_model_prefix = "folnet"

    def _init_weights(self, module):
        spread = self.config.initializer_range
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                parameter.data.zero_()
            else:
                scale = spread if spread >= 0 else math.sqrt(2 / sum(parameter.shape))
                parameter.data.normal_(0.0, scale)


def linked_back(diagonal, unary, relation):
    """Properties with what the diagonal of a token's own relations adds to them."""
    if diagonal is None:
        return unary
    own = relation[..., relation.shape[3] - relation.shape[2] :]
    return unary + diagonal(own.diagonal(dim1=2, dim2=3).transpose(1, 2))


class Deducing(FOLNetPreTrainedModel):
    """Base atoms and L steps of deduction, without a head."""

    def __init__(self, config, decodes=False):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.reasoner = Reasoner(config, decodes)
        self.diagonal = Affine(config.relation_size, config.hidden_size) if config.diagonal_link else None

    def deduced(self, unary, relation, mask, output_hidden_states):
        """The last atoms, and the properties after all steps if they are asked for."""
        states = self.reasoner(unary, relation, mask)
        hidden = tuple(u for u, _ in states) if output_hidden_states else None
        unary, relation = states[-1]
        found = {"last_hidden_state": linked_back(self.diagonal, unary, relation), "hidden_states": hidden}
        return found, relation.movedim(1, -1)


@dataclass
class FOLNetOutput(ModelOutput):
    """The properties and relations of tokens, [b, x, d] and [b, x, y, d], and the pooled first token."""

    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    relation_hidden_state: torch.Tensor | None = None
    hidden_states: tuple | None = None


class FOLNet(Deducing):
    """The encoder, with a pooled first token."""

    def __init__(self, config):
        super().__init__(config)
        self.pooler = Affine(config.hidden_size, config.hidden_size)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        inputs_embeds=None,
        relation_ids=None,
        output_hidden_states=None,
        output_attentions=None,
        return_dict=None,
    ):
        """Without a mask, padding takes part in every softmax, as in the models that the paper released."""
        if output_attentions:
            raise ValueError(
                "output_attentions: got True, expected False (kernels are outputs of the JAX model)"
            )
        if input_ids is None and inputs_embeds is None:
            raise ValueError("input_ids, inputs_embeds: got None for both, expected at least one")
        shape = (input_ids if input_ids is not None else inputs_embeds).shape[:2]
        if token_type_ids is None:
            token_type_ids = torch.zeros(shape, dtype=torch.long, device=self.device)
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        atoms = self.embeddings(input_ids, token_type_ids, inputs_embeds, relation_ids)
        found, relation = self.deduced(*atoms, mask, output_hidden_states)
        pooled = torch.tanh(self.pooler(found["last_hidden_state"][:, 0]))
        out = FOLNetOutput(pooler_output=pooled, relation_hidden_state=relation, **found)
        return out if return_dict is not False else out.to_tuple()


def classified(logits, labels):
    """The mean cross-entropy of the labels that are not ignored; 0 without any."""
    labels = labels.masked_fill(labels == -1, IGNORED).flatten()
    total = functional.cross_entropy(
        logits.flatten(0, -2).float(), labels, ignore_index=IGNORED, reduction="sum"
    )
    return total / (labels != IGNORED).sum().clamp(min=1)


class Headed(FOLNetPreTrainedModel):
    """An encoder with heads; `heads` returns their logits by the names in `output`.

    Signatures name every argument, since the Trainer of `transformers` reads them.
    """

    def __init__(self, config):
        super().__init__(config)
        self.folnet = FOLNet(config)
        self.add_heads(config)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        inputs_embeds=None,
        relation_ids=None,
        labels=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds, relation_ids)
        out = self.folnet(*given, output_hidden_states)
        return self.answered(out, self.heads(out), (labels,), return_dict)

    def answered(self, out, logits, labels, return_dict):
        """The output of the heads, with the loss if there are labels."""
        missing = sum(label is None for label in labels)
        if 0 < missing < len(labels):
            raise ValueError("labels: got one of two, expected both or neither")
        loss = None if missing else self.loss(tuple(logits.values()), labels)
        answer = self.output(loss=loss, hidden_states=out.hidden_states, **logits)
        return answer if return_dict is not False else answer.to_tuple()

    def loss(self, logits, labels):
        return sum(map(classified, logits, labels))

    def dropped(self, values):
        return functional.dropout(values, self.config.hidden_dropout_prob, self.training)


class PredictionHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transform = Affine(config.hidden_size, config.hidden_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, unary, words):
        hidden = activate(self.transform(unary), self.config.head_activation)
        return normalize(hidden, self.config.layer_norm_eps) @ words.T + self.bias


class FOLNetForMaskedLM(Headed):
    output = MaskedLMOutput

    def add_heads(self, config):
        self.predictions = PredictionHead(config)

    def heads(self, out):
        return {"logits": self.predictions(out.last_hidden_state, self.folnet.embeddings.word)}


@dataclass
class FOLNetForPreTrainingOutput(ModelOutput):
    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple | None = None


class FOLNetForPreTraining(Headed):
    output = FOLNetForPreTrainingOutput

    def add_heads(self, config):
        self.predictions = PredictionHead(config)
        self.seq_relationship = Affine(config.hidden_size, 2)

    def heads(self, out):
        return {
            "prediction_logits": self.predictions(out.last_hidden_state, self.folnet.embeddings.word),
            "seq_relationship_logits": self.seq_relationship(out.pooler_output),
        }

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        inputs_embeds=None,
        relation_ids=None,
        labels=None,
        next_sentence_label=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds, relation_ids)
        out = self.folnet(*given, output_hidden_states)
        return self.answered(out, self.heads(out), (labels, next_sentence_label), return_dict)


class FOLNetForSequenceClassification(Headed):
    output = SequenceClassifierOutput

    def add_heads(self, config):
        self.classifier = Affine(config.hidden_size, config.num_labels)

    def heads(self, out):
        return {"logits": self.classifier(self.dropped(out.pooler_output))}

    def loss(self, logits, labels):
        (logits,), (labels,), kind = logits, labels, self.config.problem_type
        if kind == "regression" or (kind is None and self.config.num_labels == 1):
            return functional.mse_loss(logits.float(), labels.float().reshape(logits.shape))
        if kind == "multi_label_classification":
            real = (labels != -1) & (labels != IGNORED)
            losses = functional.binary_cross_entropy_with_logits(
                logits.float(), labels.float().masked_fill(~real, 0), reduction="none"
            )
            return losses.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)
        return classified(logits, labels)


class FOLNetForTokenClassification(Headed):
    output = TokenClassifierOutput

    def add_heads(self, config):
        self.classifier = Affine(config.hidden_size, config.num_labels)

    def heads(self, out):
        return {"logits": self.classifier(self.dropped(out.last_hidden_state))}


class FOLNetForMultipleChoice(Headed):
    output = MultipleChoiceModelOutput

    def add_heads(self, config):
        self.classifier = Affine(config.hidden_size, 1)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        labels=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        given = (input_ids, attention_mask, token_type_ids)
        flat = [None if values is None else values.flatten(0, 1) for values in given]
        out = self.folnet(*flat, output_hidden_states=output_hidden_states)
        logits = self.classifier(self.dropped(out.pooler_output)).reshape(input_ids.shape[:2])
        return self.answered(out, {"logits": logits}, (labels,), return_dict)


class FOLNetForQuestionAnswering(Headed):
    output = QuestionAnsweringModelOutput

    def add_heads(self, config):
        self.start, self.end = Affine(config.hidden_size, 1), Affine(config.hidden_size, 1)

    def heads(self, out):
        names = ("start_logits", "end_logits")
        return {
            name: head(out.last_hidden_state)[..., 0]
            for name, head in zip(names, (self.start, self.end), strict=True)
        }

    def loss(self, logits, labels):
        return super().loss(logits, labels) / 2

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        inputs_embeds=None,
        relation_ids=None,
        start_positions=None,
        end_positions=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds, relation_ids)
        out = self.folnet(*given, output_hidden_states)
        return self.answered(out, self.heads(out), (start_positions, end_positions), return_dict)


def causal(length, device):
    """The mask [1, 1, x, y] of y at most x."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


class FOLNetDecoder(Deducing):
    """The decoder-only model of Appendix A.5: each token deduces from itself and those before it.

    It has the paper's form of cjoin, and no distances of [CLS] alone.
    """

    def __init__(self, config):
        super().__init__(config, decodes=True)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        """Padding may be at either end of a text."""
        length = input_ids.shape[1]
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        real = (torch.ones_like(input_ids) if attention_mask is None else attention_mask).bool()
        mask = causal(length, input_ids.device) & real[:, None, None, :]
        positions = (real.long().cumsum(-1) - 1).clamp(min=0)
        unary, relation = self.embeddings(input_ids, token_type_ids, None, None, positions, first=False)
        found, _ = self.deduced(unary, relation.masked_fill(~mask, 0), mask, output_hidden_states)
        out = BaseModelOutput(**found)
        return out if return_dict is not False else out.to_tuple()


class FOLNetForCausalLM(FOLNetPreTrainedModel, GenerationMixin):
    """Language modelling from left to right. Generation reads the whole text for each word."""

    _is_stateful = False

    def __init__(self, config):
        super().__init__(config)
        self.folnet = FOLNetDecoder(config)
        self.post_init()

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **_):
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        labels=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        out = self.folnet(input_ids, attention_mask, token_type_ids, output_hidden_states)
        logits = out.last_hidden_state @ self.folnet.embeddings.word.T
        loss = None
        if labels is not None:
            following = labels[:, 1:]
            if attention_mask is not None:  # what follows padding does not count
                following = following.masked_fill(attention_mask[:, :-1] == 0, IGNORED)
            loss = classified(logits[:, :-1], following)
        answer = CausalLMOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)
        return answer if return_dict is not False else answer.to_tuple()


class FOLNetTargetDecoder(nn.Module):
    """The decoder of Appendix A.5 that reads an input; its base atoms are from the encoder's tables."""

    def __init__(self, config):
        super().__init__()
        self.reasoner = Reasoner(config, decodes=True, reads_input=True)
        self.diagonal = Affine(config.relation_size, config.hidden_size) if config.diagonal_link else None

    def forward(self, embeddings, encoded, target_ids, mask, positions=None):
        unary, relation = embeddings.of_target(target_ids, encoded[0].shape[1], positions)
        states = self.reasoner(unary, relation.masked_fill(~mask, 0), mask, encoded)
        return linked_back(self.diagonal, *states[-1]), tuple(u for u, _ in states)


class FOLNetForConditionalGeneration(FOLNetPreTrainedModel, GenerationMixin):
    """A target given an input. Generation encodes once, and reads the whole target for each word."""

    _is_stateful = False

    def __init__(self, config):
        config.is_encoder_decoder = True
        super().__init__(config)
        self.folnet = FOLNet(config)
        self.decoder = FOLNetTargetDecoder(config)
        self.post_init()

    def get_encoder(self, *_, **__):
        return self.folnet

    def prepare_inputs_for_generation(
        self, input_ids, encoder_outputs=None, attention_mask=None, decoder_attention_mask=None, **kwargs
    ):
        return {
            "decoder_input_ids": input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "encoder_outputs": encoder_outputs,
            "attention_mask": attention_mask,
        }  # `kwargs` has what the encoder alone reads, and `generate` looks for its name

    def prepare_decoder_input_ids_from_labels(self, labels):
        """Targets from their words: after the start token, all but the last; data collators call it."""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            raise ValueError("config: got no decoder_start_token_id or pad_token_id, expected both")
        targets = torch.cat((labels.new_full((len(labels), 1), start), labels[:, :-1]), 1)
        return targets.masked_fill(targets < 0, pad)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        decoder_input_ids=None,
        decoder_attention_mask=None,
        encoder_outputs=None,
        labels=None,
        output_hidden_states=None,
        return_dict=None,
    ):
        """`labels` are the words of the target at the places of their logits; -1 and -100 do not count."""
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("decoder_input_ids: got None, expected a target or labels")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            encoder_outputs = self.folnet(
                input_ids, attention_mask, token_type_ids, output_hidden_states=output_hidden_states
            )
        unary, relation = encoder_outputs.last_hidden_state, encoder_outputs.relation_hidden_state
        real = unary.new_ones(unary.shape[:2]) if attention_mask is None else attention_mask
        length = decoder_input_ids.shape[1]
        own, positions = causal(length, unary.device).expand(len(unary), -1, -1, -1), None
        if decoder_attention_mask is not None:
            own = own & decoder_attention_mask.bool()[:, None, None, :]
            positions = (decoder_attention_mask.long().cumsum(-1) - 1).clamp(min=0)
        mask = torch.cat((real.bool()[:, None, None, :].expand(-1, -1, length, -1), own), 3)
        encoded = (unary, relation.movedim(-1, 1))
        target, hidden = self.decoder(self.folnet.embeddings, encoded, decoder_input_ids, mask, positions)
        logits = target @ self.folnet.embeddings.word.T
        answer = Seq2SeqLMOutput(
            loss=None if labels is None else classified(logits, labels),
            logits=logits,
            decoder_hidden_states=hidden if output_hidden_states else None,
            encoder_last_hidden_state=unary,
            encoder_hidden_states=encoder_outputs.hidden_states,
        )
        return answer if return_dict is not False else answer.to_tuple()

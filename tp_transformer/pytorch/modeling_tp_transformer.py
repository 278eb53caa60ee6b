"""The TP-Transformer (Schlag et al., 2019) and its baseline for PyTorch, as models of sequences to sequences.

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained("folder", trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained("folder")

For folders that logic-zoo has saved. Parameters, their names and their layout are those of the JAX model, so
that each side opens what the other has saved. Equations are those of the paper. Written for logic-zoo, which
copies this file into its folders; nothing else is needed.

Axis letters: b batch; t positions of a query, s of a key; h heads; d features of a head.
"""

import math

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

IGNORED = -100


class TPTransformerConfig(PretrainedConfig):
    """Settings; logic-zoo's `EncoderDecoder` documents them. `binds_roles` is False for the Transformer."""

    model_type = "tp_transformer"
    attribute_map = {  # noqa: RUF012 -- names by which `transformers` looks for sizes
        "hidden_size": "features",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    }

    def __init__(
        self,
        vocab_size=72,
        features=512,
        filter_features=2048,
        num_heads=8,
        num_layers=6,
        dropout_rate=0.0,
        pad=0,
        start=None,
        end=None,
        binds_roles=True,
        **others,
    ):
        own = {name: value for name, value in locals().items() if name not in ("self", "others", "__class__")}
        for name, value in own.items():
            setattr(self, name, value)
        ids = {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": start}
        super().__init__(**{"tie_word_embeddings": False, "is_encoder_decoder": True, **ids, **others})


class Affine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, values):
        return values @ self.kernel + self.bias


class Norm(nn.Module):
    """LayerNorm; sums in at least float32."""

    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, values):
        wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
        scale, bias = self.scale.to(wide.dtype), self.bias.to(wide.dtype)
        return functional.layer_norm(wide, wide.shape[-1:], scale, bias, 1e-5).to(values.dtype)


class Attention(nn.Module):
    """TPMHA, equations (3) to (6): what each head retrieves times its role, or without roles alone."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        for name in ("query", "key", "value", "output", *(("role",) if config.binds_roles else ())):
            self.add_module(name, Affine(config.features, config.features))

    def heads(self, values):
        return values.unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2)

    def forward(self, cells, context, mask):
        """`mask` [b, 1, t, s] is true for keys that may be attended to; without any a query retrieves 0."""
        query, key, value = (
            self.heads(self.query(cells)),
            self.heads(self.key(context)),
            self.heads(self.value(context)),
        )
        logits = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
        weights = logits.softmax(-1).masked_fill(~mask, 0)
        filler = functional.dropout(weights, self.config.dropout_rate, self.training) @ value
        filler = filler.transpose(1, 2).flatten(2)
        return self.output(filler * self.role(cells) if self.config.binds_roles else filler)


class FeedForward(nn.Module):
    """W_g relu(W_f x + b_f) + b_g, equation (7)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.hidden = Affine(config.features, config.filter_features)
        self.output = Affine(config.filter_features, config.features)

    def forward(self, cells):
        hidden = functional.relu(self.hidden(cells))
        return self.output(functional.dropout(hidden, self.config.dropout_rate, self.training))


class Layer(nn.Module):
    """h = z + TPMHA(LN z), z' = LN(h + FF(LN h)), equation (1); in a decoder with attention to the source."""

    def __init__(self, config, decodes):
        super().__init__()
        self.config = config
        self.attentions = ("self_attention", "cross_attention") if decodes else ("attention",)
        for name in self.attentions:
            self.add_module(name, Attention(config))
            self.add_module(f"{name}_norm", Norm(config.features))
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm, self.output_norm = Norm(config.features), Norm(config.features)

    def dropped(self, values):
        return functional.dropout(values, self.config.dropout_rate, self.training)

    def forward(self, cells, *read):
        """`read` has for each attention the context, None for the cells themselves, and the mask."""
        for name, (context, mask) in zip(self.attentions, read, strict=True):
            normal = getattr(self, f"{name}_norm")(cells)
            attended = getattr(self, name)(normal, normal if context is None else context, mask)
            cells = cells + self.dropped(attended)
        return self.output_norm(cells + self.dropped(self.feed_forward(self.feed_forward_norm(cells))))


class Embedding(nn.Module):
    """Cells of symbols at positions, equation (2), and logits of cells, equation (8)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokens = nn.Parameter(torch.zeros(config.vocab_size, config.features))
        self.role = Affine(config.features, config.features) if config.binds_roles else None

    def forward(self, ids):
        features = self.config.features
        place = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float64)[:, None]
        angles = place * 1e4 ** (
            -torch.arange(0, features, 2, device=ids.device, dtype=torch.float64) / features
        )
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(self.tokens.dtype)
        e = functional.embedding(ids, self.tokens) * math.sqrt(features) + waves
        z = e if self.role is None else e * (self.role(e) + 1)
        return functional.dropout(z, self.config.dropout_rate, self.training)


class Encoder(nn.Module):
    """What `generate` calls: the embedding and the encoder's layers of a model, which keeps them."""

    main_input_name = "input_ids"

    def __init__(self, model):
        super().__init__()
        self.__dict__["model"] = model  # not a submodule, which would have every parameter twice

    def forward(self, input_ids=None, attention_mask=None, return_dict=None, **kwargs):
        real = self.model.real(input_ids, attention_mask)
        cells = self.model.embedding(input_ids)
        for number in range(self.model.config.num_layers):
            cells = getattr(self.model, f"encoder_{number}")(cells, (None, real))
        return BaseModelOutput(last_hidden_state=cells)


class EncoderDecoder(PreTrainedModel, GenerationMixin):
    """The TP-Transformer, or without roles the Transformer.

    One class for both, since `transformers` remembers one class for each kind of settings. Generation encodes
    once, and reads the whole target for each symbol.
    """

    config_class = TPTransformerConfig
    _is_stateful = False

    def __init__(self, config):
        super().__init__(config)
        self.embedding = Embedding(config)
        for number in range(config.num_layers):
            self.add_module(f"encoder_{number}", Layer(config, decodes=False))
            self.add_module(f"decoder_{number}", Layer(config, decodes=True))
        self.post_init()

    def _init_weights(self, module):
        """The embedding as released, N(0, 1/d), and all matrices uniform, whatever `initialization` says."""
        if isinstance(module, Embedding):
            module.tokens.data.normal_(0, module.tokens.shape[1] ** -0.5)
        elif isinstance(module, Affine):
            limit = module.kernel.shape[0] ** -0.5
            module.kernel.data.uniform_(-limit, limit)
            module.bias.data.uniform_(-limit, limit)
        elif isinstance(module, Norm):
            module.scale.data.fill_(1)
            module.bias.data.zero_()

    def real(self, ids, attention_mask):
        """The mask [b, 1, 1, s] of the source's symbols that are not padding."""
        there = ids != self.config.pad if attention_mask is None else attention_mask.bool()
        return there[:, None, None, :]

    def save_pretrained(self, save_directory, **options):
        """Names the architecture as logic-zoo does."""
        super().save_pretrained(save_directory, **options)
        self.config.architectures = ["TPTransformer" if self.config.binds_roles else "Transformer"]
        self.config.save_pretrained(save_directory)

    def get_encoder(self, *_, **__):
        return Encoder(self)

    def prepare_inputs_for_generation(
        self, input_ids, encoder_outputs=None, attention_mask=None, decoder_attention_mask=None, **kwargs
    ):
        return {
            "decoder_input_ids": input_ids,
            "encoder_outputs": encoder_outputs,
            "attention_mask": attention_mask,
        }

    def prepare_decoder_input_ids_from_labels(self, labels):
        """Targets from their symbols: after the start symbol, all but the last; data collators call it."""
        if self.config.start is None:
            raise ValueError("config: got no start, expected the id of the start symbol")
        targets = torch.cat((labels.new_full((len(labels), 1), self.config.start), labels[:, :-1]), 1)
        return targets.masked_fill(targets < 0, self.config.pad)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        encoder_outputs=None,
        labels=None,
        return_dict=None,
    ):
        """`labels` are the symbols of the target at the places of their logits; -100 does not count."""
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("decoder_input_ids: got None, expected a target or labels")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        encoded = encoder_outputs.last_hidden_state
        if attention_mask is None and input_ids is None:
            raise ValueError("attention_mask: got None, expected the mask of what is encoded, or input_ids")
        real, length = self.real(input_ids, attention_mask), decoder_input_ids.shape[1]
        past = torch.ones(length, length, dtype=torch.bool, device=encoded.device).tril()[None, None]
        cells = self.embedding(decoder_input_ids)
        for number in range(self.config.num_layers):
            cells = getattr(self, f"decoder_{number}")(cells, (None, past), (encoded, real))
        logits = cells @ self.embedding.tokens.T
        loss = None
        if labels is not None:
            total = functional.cross_entropy(
                logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
            )
            loss = total / (labels != IGNORED).sum().clamp(min=1)  # 0 without a symbol that counts
        answer = Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=encoded)
        return answer if return_dict is not False else answer.to_tuple()

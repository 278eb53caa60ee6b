"""Every model with dropout draws with the rows first, as keys of rows need; traced, not computed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from experiments import folnet_language, folnet_pretrain, kinship, mathematics
from experiments.folnet_language import train as language_train
from experiments.folnet_pretrain.train import make_loss
from experiments.kinship import train as kinship_train
from experiments.mathematics import train as mathematics_train
from experiments.runtime import row_keys

DROPS = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def check(init, loss, batch, rows):
    """Traces a loss with a key of rows; a draw of another shape would raise."""
    params = jax.eval_shape(init, jax.random.key(0))

    def of(params, batch):
        return loss(params, batch, row_keys.of_rows(jax.random.key(1), jnp.arange(rows)))

    assert "fry" in str(jax.make_jaxpr(of)(params, batch))


def test_tp_transformer():
    config: Any = mathematics.get_config("quick")
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, dropout_rate=0.1, num_layers=1)
    )
    problem = mathematics_train.problem(config, config.model.make())
    tokens = jnp.ones((4, 6), jnp.int32)
    check(problem["init"], problem["loss"], {"source": tokens, "target": tokens}, 4)


@pytest.mark.parametrize("name", ["jmc.atp", "bert"])
def test_kinship(name):
    config: Any = kinship.get_config("quick")
    sizes = dataclasses.replace(config.sizes, num_hidden_layers=1, **DROPS)
    config = dataclasses.replace(config, sizes=sizes, batch_size=4, model=name, baselines=())
    problem = kinship_train.problem(config, config.make(name))
    check(problem["init"], problem["loss"], kinship_train.make_batches(config)(0), 4)


def test_folnet_pretraining():
    config: Any = folnet_pretrain.get_config("quick")
    model = dataclasses.replace(config.model, num_hidden_layers=1, **DROPS)
    config = dataclasses.replace(config, model=model, batch_size=4)
    model = config.model.make(config.data.pretrain_loss)
    tokens, labels = jnp.ones((4, 8), jnp.int32), jnp.ones((4, 2), jnp.int32)
    batch = {
        **dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), tokens),
        **dict.fromkeys(("mlm_positions", "mlm_labels"), labels),
        **{"next_sentence_label": jnp.ones(4, jnp.int32), "predictions": 8.0, "sentences": 4.0},
    }
    check(lambda key: model.init(key, tokens)["params"], make_loss(config, model), batch, 4)


@pytest.mark.parametrize("preset", ["quick", "pairs"])
def test_folnets_that_write(preset):
    config: Any = folnet_language.get_config(preset)
    assert config.model.hidden_dropout_prob > 0
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, num_hidden_layers=1))
    model = config.make_model()
    batch = dict.fromkeys(("input_ids", "decoder_input_ids", "labels"), jnp.ones((4, 8), jnp.int32))
    batch |= {"attention_mask": jnp.ones((4, 8), bool)}
    check(language_train.make_init(model), language_train.make_loss(config, model), batch, 4)

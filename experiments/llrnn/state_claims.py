"""The claims about words of groups: trained to 16 steps, tested to 512."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from experiments.llrnn.claims import RATES, alone, by_length, measure
from experiments.llrnn.encoders import EncoderConfig
from experiments.llrnn.parts import TaskOptions
from experiments.runtime.claims import Claim, Comparison, Model, Run


def measure_states(run: Run) -> dict[str, Any]:
    """Measures what `measure` does and the share of sequences without an error at each length."""
    whole = {
        name.replace("error", "sequences"): part["sequences_right"]
        for name, part in run.result.results.items()
        if isinstance(part, Mapping)
    }
    return {**measure(run), **whole}


_LONG = 512
"""The length at which states are compared; training ends at 16."""


def _state_tracking(
    name: str,
    group: str,
    parameters: int,
    others: Mapping[str, tuple[EncoderConfig, int]],
    orthogonality: float = 0.0,
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
) -> Comparison:
    """Returns the comparison on words of a group.

    Args:
        name: the last part of the comparison's name.
        group: an argument of `llrnn.tasks.permutations.group`.
        parameters: of our cell.
        others: the encoder and the number of parameters of each baseline.
        orthogonality: see `Config`; for our cell, since the baselines have no operators to read.
        seeds: those that are reported.
    """
    options = TaskOptions(group=group, test_lengths=(16, 64, 256, _LONG))
    plain = dataclasses.replace(
        alone("word_problem"), task_options=options, eval_every=2000, eval_examples=64, final_examples=256
    )
    ours = dataclasses.replace(plain, orthogonality=orthogonality)
    models = [Model("second-order cell", ours, parameters, 4000, search=RATES)]
    for shown, (encoder, count) in others.items():
        config = dataclasses.replace(plain, encoder=encoder)
        models.append(Model(shown, config, count, 4000, search=RATES))
    return Comparison(
        name=f"llrnn.state_tracking.{name}",
        claims=tuple(
            Claim(
                id=f"llrnn.state_tracking.{name}{part}",
                claim=f"a second-order cell trained on words of {group} up to 16 multiplies words of 512",
                measure=f"{what} at length {_LONG}",
                value=f"train/{value}_{_LONG}",
                tests=("mean",),
                target=0.99,
            )
            for part, what, value in (
                ("", "accuracy per symbol", "accuracy"),
                (".sequences", "share of sequences without an error", "sequences"),
            )
        ),
        models=tuple(models),
        measure=measure_states,
        seeds=seeds,
        search_seeds=(100,),
        search_by="train/error_16",
        search_higher_is_better=False,
        figures=lambda runs: {
            f"llrnn/state_tracking_{name}": by_length("word_problem", runs, f"words of {group}")
        },
    )


def _of_60_elements() -> dict[str, tuple[EncoderConfig, int]]:
    """Returns the baselines of the two groups of 60 elements."""
    return {
        "LSTM": (EncoderConfig.of("lstm", 77), 63_123),
        "Transformer": (EncoderConfig.of("transformer", 64, layers=2, heads=4, hidden=84), 63_524),
        "full-matrix RNN": (EncoderConfig.of("full_matrix", 36, state=39), 63_537),
        "DeltaProduct": (EncoderConfig.of("delta_product", 64, heads=4, hidden=232), 63_356),
        "NTM, content-addressed": (EncoderConfig.of("content_ntm", 64, state=72), 63_112),
    }


CLAIMS = (
    _state_tracking(
        "parity",
        "Z2",
        2_114,
        {
            "LSTM": (EncoderConfig.of("lstm", 14, state=15), 2_096),
            "Transformer": (EncoderConfig.of("transformer", 12, layers=2, heads=2, hidden=13), 2_104),
            "full-matrix RNN": (EncoderConfig.of("full_matrix", 16, state=10), 2_118),
            "DeltaProduct": (EncoderConfig.of("delta_product", 16, heads=2, hidden=9), 2_119),
            "NTM, content-addressed": (
                EncoderConfig.of("content_ntm", 8, state=14, memory_size=8, memory_width=4),
                2_126,
            ),
        },
    ),
    _state_tracking("z60", "Z60", 63_420, _of_60_elements()),
    _state_tracking("a5", "A5", 63_420, _of_60_elements()),
    _state_tracking(
        "s5",
        "S5",
        126_840,
        {
            "LSTM": (EncoderConfig.of("lstm", 106), 127_320),
            "Transformer": (EncoderConfig.of("transformer", 64, layers=2, heads=4, hidden=300), 126_992),
            "full-matrix RNN": (EncoderConfig.of("full_matrix", 32, state=59), 126_513),
            "DeltaProduct": (EncoderConfig.of("delta_product", 64, heads=4, hidden=664), 126_824),
            "NTM, content-addressed": (EncoderConfig.of("content_ntm", 64, state=118), 127_156),
        },
        # The second try. In the first, seeds 0 to 4 without this price, two of five had errors at 512. In
        # trials with it those two seeds, and three others that are not reported, had none.
        orthogonality=0.1,
        seeds=(5, 6, 7, 8, 9),
    ),
)

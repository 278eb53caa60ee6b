"""The claims about the fifteen tasks of Deletang et al. (2022): trained to length 40, scored at 41 to 500."""

import dataclasses
from typing import Any, NamedTuple

from experiments.llrnn.claims import alone, measure
from experiments.llrnn.encoders import EncoderConfig
from experiments.llrnn.parts import CellConfig, TaskOptions
from experiments.runtime.claims import Claim, Comparison, Model, Run

STEPS = 3000
"""Updates of every run; the paper made a million, of four times as many sequences."""
NOT_COMPARED = ("Stack-RNN", "second-order cell")
"""What is only reported beside the Tape-RNN, since linear logic denotes these cells too."""
RATES = ({"lr": 1e-2}, {"lr": 3e-3}, {"lr": 1e-3})
"""The rates searched over. Of several with the least error at length 40, where it may be 0, the first is
chosen: the largest, which has come furthest, and so has the best chance to be right at longer lengths.
"""
SECOND_TRY = ("reverse_string",)
"""Tasks with seeds of a second try. The first had the rates the other way round: for the Tape-RNN it chose
1e-3, which scored .9988 in the search, although both other rates scored 1.
"""


class Sizes(NamedTuple):
    """The models of a task: their features, the Transformer's hidden width, and their numbers of parameters.

    A Stack-RNN has 65 features everywhere.
    """

    second_order: int
    lstm: int
    transformer: int
    parameters: tuple[int, int, int, int, int, int]
    tape: int = 64
    elman: int = 73


def measure_score(run: Run) -> dict[str, Any]:
    """Measures what `measure` does and the score, the mean accuracy per symbol at lengths 41 to 500."""
    return {**measure(run), "score": run.result.results["score"]}


def _task(task: str, sizes: Sizes, moves: bool, reaches: bool) -> Comparison:
    """Returns the comparison on a task.

    Args:
        task: its name in `llrnn.tasks`.
        sizes: of the models.
        moves: whether every model has a step per symbol between the question and the answer. Without one a
            tape cannot move before it answers.
        reaches: whether it is claimed that the best seed answers at least 95 %.
    """
    plain = dataclasses.replace(
        alone("length_generalization"),
        task=task,
        task_options=TaskOptions(test_lengths=(40,), computation=1 if moves else None),
        batch_size=32,
        eval_every=500,
        checkpoint_every=STEPS,
        score_examples=4,
    )

    def of_cell(name: str, features: int, **fields: Any) -> Any:
        return dataclasses.replace(plain, cell=CellConfig.of(name, features=features, **fields))

    memory = {"memory_size": 128, "memory_width": 8}
    of_tape = {**memory, "empty_symbols": 2} if moves else memory
    encoder = EncoderConfig.of("transformer", 16, layers=2, heads=2, hidden=sizes.transformer)
    configs = {
        "Tape-RNN": of_cell("tape_rnn", sizes.tape, **of_tape),
        "Stack-RNN": of_cell("stack_rnn", 65, **memory),
        "second-order cell": of_cell("second_order", sizes.second_order, update="linear", normalize=True),
        "LSTM": of_cell("lstm", sizes.lstm),
        "Elman": of_cell("elman", sizes.elman),
        "Transformer": dataclasses.replace(plain, encoder=encoder),
    }
    shown = task.replace("_", " ")
    seeds = (3, 4, 5) if task in SECOND_TRY else (0, 1, 2)
    of_score: Any = {"measure": "accuracy per symbol, mean over lengths 41 to 500", "value": "score"}
    best = Claim(
        id=f"llrnn.chomsky.{task}.best",
        claim=f"on {shown}, the best seed of a Tape-RNN answers at least 95 % at lengths 41 to 500",
        **of_score,
        tests=("threshold",),
        target=0.95,
        share=1 / 3,
        paper="1.00",
    )
    return Comparison(
        name=f"llrnn.chomsky.{task}",
        claims=(
            Claim(
                id=f"llrnn.chomsky.{task}",
                claim=f"on {shown}, a Tape-RNN generalizes to longer sequences better than an LSTM, an Elman "
                "network and a Transformer",
                **of_score,
                tests=("unpaired",),
            ),
            *((best,) if reaches else ()),
        ),
        models=tuple(
            Model(name, config, count, STEPS, search=RATES, compared=name not in NOT_COMPARED)
            for (name, config), count in zip(configs.items(), sizes.parameters, strict=True)
        ),
        measure=measure_score,
        seeds=seeds,
        search_seeds=(100,),
        search_by="train/error_40",
        search_higher_is_better=False,
    )


_ONE_BIT = Sizes(44, 36, 51, (5_839, 5_863, 5_898, 5_834, 5_769, 5_832))
_COPIED = Sizes(38, 36, 52, (5_903, 5_928, 5_854, 5_978, 5_842, 5_914))
_BINARY = Sizes(34, 36, 56, (6_191, 6_059, 5_885, 6_159, 6_145, 6_211), tape=65, elman=74)
_AT_ONCE = {
    "parity": _ONE_BIT,
    "even_pairs": _ONE_BIT,
    "cycle_navigation": Sizes(38, 36, 54, (6_098, 6_126, 5_971, 6_089, 6_064, 6_097)),
    "reverse_string": _ONE_BIT,
    "stack_manipulation": Sizes(32, 35, 54, (6_096, 6_124, 6_243, 5_988, 6_062, 6_095)),
    "modular_arithmetic": Sizes(26, 35, 58, (6_418, 6_451, 6_219, 6_480, 6_429, 6_441)),
    "modular_arithmetic_brackets": Sizes(
        24, 35, 61, (6_713, 6_581, 6_461, 6_760, 6_739, 6_671), tape=65, elman=74
    ),
    "solve_equation": Sizes(23, 34, 59, (6_610, 6_646, 6_468, 6_567, 6_648, 6_555)),
}
_AFTER_MOVES = {
    "duplicate_string": _COPIED,
    "missing_duplicate_string": Sizes(32, 35, 53, (6_031, 6_058, 6_210, 5_952, 5_988, 6_012)),
    "odds_first": _COPIED,
    "binary_addition": _BINARY,
    "binary_multiplication": _BINARY,
    "compute_sqrt": _COPIED,
    "bucket_sort": Sizes(30, 35, 56, (6_290, 6_321, 6_455, 6_200, 6_283, 6_277)),
}
_REACHED = ("reverse_string", "duplicate_string", "odds_first")
"""Where the Tape-RNN of the paper answers everything, and the networks without a memory about half."""

FIFTEEN = tuple(
    _task(task, sizes, moves, task in _REACHED)
    for moves, group in ((False, _AT_ONCE), (True, _AFTER_MOVES))
    for task, sizes in group.items()
)

_PUBLISHED = dataclasses.replace(
    alone("length_generalization"),
    task="modular_arithmetic",
    task_options=TaskOptions(test_lengths=(40, 100, 500)),
    cell=CellConfig.of("lstm", features=128),
    batch_size=64,
    lr=2e-3,
    steps=20_000,
)

# The paper's LSTM has 256 features and sees a million batches of 128; 1.3 million sequences are what takes
# six minutes of one core. In a trial with another seed it answered everything after 10,000 updates.
PUBLISHED_ARITHMETIC = Comparison(
    name="reasoning.published.modular_arithmetic",
    claims=(
        Claim(
            id="reasoning.published.modular_arithmetic",
            claim="an LSTM trained on expressions of up to 40 symbols answers those of 41 to 500 as "
            "published: every seed is within 5 points",
            measure="accuracy, mean over lengths 41 to 500",
            value="score",
            tests=("threshold",),
            target=0.95,
            paper="1.00, the best of 10 seeds and 3 learning rates",
        ),
    ),
    models=(Model("LSTM", _PUBLISHED, 71_301, _PUBLISHED.steps),),
    measure=measure_score,
    seeds=(10, 11, 12, 13, 14),
)

CLAIMS = (*FIFTEEN, PUBLISHED_ARITHMETIC)

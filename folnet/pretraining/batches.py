"""Batches of pretraining examples, each a pure function of its step."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

import logic_zoo
from folnet.pretraining.masks import Masking, max_predictions
from folnet.pretraining.pairs import (
    NO_LABEL,
    SWAPPED,
    Cut,
    Objective,
    another_document,
    check_objective,
    cut,
    segment_of,
)
from folnet.pretraining.windows import SPECIAL, Window, Windows
from folnet.settings import at_least
from folnet.tokenization import Inputs, WordPieceTokenizer

_ENDLESS = 2**40  # number of batches; also the maximum number of examples in an epoch


class PretrainingBatch(NamedTuple):
    """The inputs of a pretraining step. B examples, T tokens, P places for predictions."""

    input_ids: Int32[np.ndarray, "B T"]
    """[CLS] first [SEP] second [SEP], masked and padded."""
    token_type_ids: Int32[np.ndarray, "B T"]
    """1 in the second segment and its [SEP], 0 elsewhere, also at padding."""
    attention_mask: Bool[np.ndarray, "B T"]
    """True at tokens. The released FOLNet does not use it."""
    mlm_positions: Int32[np.ndarray, "B P"]
    """Positions to predict; 0 in unused places."""
    mlm_labels: Int32[np.ndarray, "B P"]
    """The original tokens there; -1 in unused places."""
    next_sentence_label: Int32[np.ndarray, "B"]
    """0: original, 1: swapped or from another document, -1: no task; see `pairs`."""


class PretrainingBatches:
    """The batches of a run: `batches(step)` is a function of the step and the arguments below only.

    A resumed run therefore sees the batches it would have seen without interruption. The examples of an epoch
    are a permutation of the windows, and epochs follow each other without a gap: each epoch uses each window
    once, whatever the batch size, and a batch may span two epochs.
    """

    def __init__(
        self,
        windows: Windows,
        tokenizer: WordPieceTokenizer,
        batch_size: int,
        *,
        objective: Objective = "sop",
        cut: Cut | None = None,
        mask_rate: float = 0.15,
        predictions: int | None = None,
        whole_words: bool = False,
        dynamic: bool = True,
        seed: int = 0,
        shuffle: bool = True,
        repeat: bool = True,
        process_index: int = 0,
        process_count: int = 1,
    ):
        """Plans the batches; reads at most one window.

        Args:
            windows: the prepared text.
            tokenizer: the tokenizer that produced its tokens.
            batch_size: B, the number of examples per batch over all hosts.
            objective: `sop`, `nsp`, `pair` or `single`; see `pairs`.
            cut: where windows are split in two, `middle` or `sentence`; by default the middle for `sop`, as
                released, and between sentences otherwise.
            mask_rate: fraction of the tokens to predict.
            predictions: P, the number of places for them; by default `max_predictions(T)`.
            whole_words: whether to mask whole words.
            dynamic: whether to draw an example anew in each epoch; otherwise it stays as in the first.
            seed: seed of all random choices.
            shuffle: whether to permute the windows in each epoch; otherwise they keep their order.
            repeat: whether to continue without end; otherwise there is one epoch, whose last batch may have
                empty rows.
            process_index: index of this host, which gets its rows of each batch.
            process_count: number of hosts; must divide `batch_size`.

        Raises:
            ValueError: If an argument is wrong.
        """
        self.objective: Objective = objective
        self.cut: Cut = cut or ("middle" if objective == "sop" else "sentence")
        check_objective(objective, self.cut, windows)
        if not len(windows):
            raise ValueError("windows: got none, expected at least one")
        if windows.vocabulary != tokenizer.fingerprint:
            raise ValueError(
                f"tokenizer: got vocabulary {tokenizer.fingerprint}, expected {windows.vocabulary}, the one "
                "of the windows"
            )
        if not len(tokenizer.ordinary_ids):
            raise ValueError("tokenizer: got only special tokens, expected other pieces too")
        if not 0 <= seed < 2**32:
            raise ValueError(f"seed: got {seed}, expected 0 to {2**32 - 1}")
        at_least(1, batch_size=batch_size)
        if not 0 <= process_index < process_count:
            raise ValueError(f"process_index: got {process_index}, expected 0 to {process_count - 1}")
        if batch_size % process_count:
            raise ValueError(
                f"batch_size: got {batch_size}, expected a multiple of process_count={process_count}"
            )
        self.windows, self.tokenizer, self.batch_size, self.seed = windows, tokenizer, batch_size, seed
        self.length = windows.room + SPECIAL
        """T, the number of tokens in an example."""
        self.masking = Masking(
            mask_rate, max_predictions(self.length) if predictions is None else predictions, whole_words
        )
        self._dynamic, self._repeat = dynamic, repeat
        with logic_zoo.extra("data"):
            import grain  # lazily: most users of this module only need its names

        order = grain.MapDataset.range(len(windows))
        if shuffle:
            order = order.shuffle(seed=seed)
        self._order: Any = order.repeat()  # Grain's types allow missing elements
        rows = batch_size // process_count
        self._rows = range(process_index * rows, (process_index + 1) * rows)

    def __len__(self) -> int:
        """Number of batches in an epoch; the last may extend into the next epoch or have empty rows."""
        return -(-len(self.windows) // self.batch_size)

    def examples(self, step: int) -> list[tuple[int, int]]:
        """Returns epoch and window of each non-empty row of a batch on this host; raises ValueError."""
        if step < 0 or (not self._repeat and step >= len(self)):
            last = "" if self._repeat else f" and at most {len(self) - 1}"
            raise ValueError(f"step: got {step}, expected at least 0{last}")
        positions = [step * self.batch_size + row for row in self._rows]
        if not self._repeat:
            positions = [position for position in positions if position < len(self.windows)]
        return [(position // len(self.windows), int(self._order[position])) for position in positions]

    def __call__(self, step: int | np.integer) -> PretrainingBatch:
        """Returns this host's rows of a batch; steps count from 0 over all epochs. Raises ValueError."""
        chosen = self.examples(int(step))
        windows = self.windows.take([index for _, index in chosen])
        draws = np.empty((len(self._rows), 3, self.length))
        pairs: list[tuple[np.ndarray, np.ndarray | None]] = []
        labels = np.full(len(self._rows), NO_LABEL, np.int32)
        generators = [self._generator(epoch, index) for epoch, index in chosen]
        for row, (window, rng) in enumerate(zip(windows, generators, strict=True)):
            draws[row] = rng.random((3, self.length))
            first, second, labels[row] = self._halves(window, rng)
            pairs.append((first, second))
        if self.objective == "nsp":
            self._replace(chosen, windows, generators, pairs, labels)
        draws[len(chosen) :] = 0  # rows without an example
        ids, types, mask = self._assemble(pairs)
        masked = self.masking(ids, draws, self.tokenizer)
        return PretrainingBatch(masked.input_ids, types, mask, masked.positions, masked.labels, labels)

    def _generator(self, epoch: int, index: int) -> np.random.Generator:
        """Returns an example's random generator, keyed (Philox) independently of batch and host."""
        epoch = epoch if self._dynamic else 0
        key = np.asarray([self.seed, epoch * _ENDLESS + index], np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def _halves(self, window: Window, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None, int]:
        if self.objective == "single":
            return window.tokens, None, NO_LABEL
        place = cut(window, self.cut, rng)
        first, second = window.tokens[:place], window.tokens[place:]
        if self.objective == "pair":
            return first, second, NO_LABEL
        other = int(rng.random() < SWAPPED)
        if self.objective == "sop" and other:
            first, second = second, first
        return first, second, other

    def _replace(
        self,
        chosen: list[tuple[int, int]],
        windows: list[Window],
        generators: list[np.random.Generator],
        pairs: list[tuple[np.ndarray, np.ndarray | None]],
        labels: Int32[np.ndarray, "B"],
    ) -> None:
        """Replaces the second segment in rows with label 1 by text of other documents."""
        rows = [row for row in range(len(chosen)) if labels[row] == 1]
        found = {
            row: another_document(chosen[row][1], windows[row], len(self.windows), generators[row])
            for row in rows
        }
        drawn = dict(zip(rows, self.windows.take(list(found.values())), strict=True))
        # A sentence near the end of a window may continue in the next window of its document.
        more = [row for row in rows if drawn[row].place + 1 < drawn[row].count]
        following = dict(zip(more, self.windows.take([found[row] + 1 for row in more]), strict=True))
        for row in rows:
            tokens, starts = drawn[row].tokens, drawn[row].starts.astype(np.int64)
            if row in following:
                tokens = np.concatenate([tokens, following[row].tokens])
            first = pairs[row][0]
            size = len(windows[row].tokens) - len(first)
            pairs[row] = first, segment_of(tokens, starts, size, generators[row])

    def _assemble(self, pairs: list[tuple[np.ndarray, np.ndarray | None]]) -> Inputs:
        """Adds special tokens to the pairs, and rows of padding where there are no examples."""
        first = [pair[0] for pair in pairs]
        second = None if self.objective == "single" else [pair[1] for pair in pairs if pair[1] is not None]
        inputs = self.tokenizer.assemble(first, second, length=self.length)
        if empty := len(self._rows) - len(pairs):
            filled = zip(inputs, (self.tokenizer.pad_id, 0, False), strict=True)
            inputs = Inputs(*(np.pad(a, ((0, empty), (0, 0)), constant_values=value) for a, value in filled))
        return inputs

    def __iter__(self) -> Iterator[PretrainingBatch]:
        """Iterates over the batches of the first epoch."""
        return map(self, range(len(self)))

    def dataset(
        self, steps: int | None = None, *, threads: int = 2, ahead: int = 4, workers: int = 0
    ) -> Iterable[PretrainingBatch]:
        """Returns the batches as a `grain.IterDataset`, which prefetches.

        Its iterators can save and restore their position (`get_state`, `set_state`), a small dictionary that
        is the same on all hosts. This is optional: the batch of a step is always `batches(step)`.

        Args:
            steps: number of batches; by default endless, or one epoch without `repeat`.
            threads: number of threads that read and draw.
            ahead: number of batches to prefetch.
            workers: number of additional processes for this; 0 for none. With them, Grain requires absl's
                flags to be parsed, as in a program started by `absl.app.run`.

        Raises:
            ValueError: If a number is too small.
        """
        if steps is None:
            steps = _ENDLESS if self._repeat else len(self)
        at_least(1, threads=threads, ahead=ahead)
        at_least(0, workers=workers, steps=steps)
        with logic_zoo.extra("data"):
            import grain  # lazily, since it is slow to import

        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(ahead, threads))
        batches = grain.MapDataset.range(steps).map(self.__call__).to_iter_dataset(options)
        if workers:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        return batches

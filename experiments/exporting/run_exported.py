"""Runs a model that `experiments.export` has written: with JAX, NumPy and flatbuffers, and nothing else.

    python -m experiments.exporting.run_exported agent.jaxmodel --describe
    echo '{"text": "What is 2 + 2?"}' | python -m experiments.exporting.run_exported solver.jaxmodel
    python -m experiments.exporting.run_exported agent.jaxmodel --input=boards.npz --output=answers.npz

This is one file, and imports nothing of its project: it also runs as a plain script, copied to wherever the
model is, and is part of every model, so that `python agent.jaxmodel` is the same program.

A line of standard input is a request as JSON, and a line of standard output is its answer; a request that
cannot be answered gets a line with "error", and the process goes on. `{"inputs": {NAME: array}}` is answered
by `{"outputs": {NAME: array}}`, for a batch or, without its axis, for one example; `{"text": ...}`, for a
model that reads text, by its answer as text; `"id"` is given back. From Python:

    model = load("agent.jaxmodel")
    model({"observation": boards})["logits"]
"""

import argparse
import dataclasses
import datetime
import functools
import hashlib
import json
import os
import re
import sys
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.sharding import AxisType, NamedSharding, PartitionSpec

FORMAT, FORMAT_VERSION = "jaxmodel", 1
MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"
DTYPES = {"BOOL": "bool", "BF16": "bfloat16"}
"""Names of safetensors that are not NumPy's; the others are a letter and the number of bits."""


class Refused(ValueError):
    """An artifact that cannot run here, or a request that does not fit it; the message says why."""


# ---- the file


def read_artifact(path: Path | str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the other members of an artifact, each as it was written.

    Raises:
        Refused: there is no such file, or it is damaged or not an artifact.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(members.pop(MANIFEST))
        kind = manifest["format"], manifest["format_version"]
        listed = {name: told["sha256"] for name, told in manifest["members"].items()}
    except FileNotFoundError as error:
        raise Refused(f"there is no file {path}") from error
    except Exception as error:  # what a torn archive raises depends on where it is torn
        raise Refused(f"{path} is damaged, or not an exported model: {error!r}") from error
    if kind != (FORMAT, FORMAT_VERSION):
        raise Refused(f"{path} is of format {kind}, this program reads {(FORMAT, FORMAT_VERSION)}")
    for name, wanted in listed.items():
        if name not in members or hashlib.sha256(members[name]).hexdigest() != wanted:
            raise Refused(f"{path} is damaged: {name} is not what was written (its SHA-256 differs)")
    if unknown := sorted(set(members) - set(listed)):
        raise Refused(f"{path} is damaged: its manifest does not know {unknown[0]}")
    return manifest, members


def read_weights(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file: 8 bytes of length, a JSON header, the data."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    arrays = {}
    for name, told in header.items():
        begin, end = (8 + size + offset for offset in told["data_offsets"])
        letters = told["dtype"]
        dtype = DTYPES.get(letters) or letters.replace("F", "float").replace("U", "uint").replace("I", "int")
        flat = np.frombuffer(memoryview(content)[begin:end], jax.numpy.dtype(dtype))
        arrays[name] = flat.reshape(told["shape"])
    return arrays


# ---- whether it may run here


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers to compare: "0.12.0.1" is (0, 12, 0, 1); what follows them is left out."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def check_window(told: Mapping[str, Any], *, here: str = jax.__version__, today: datetime.date) -> None:
    """Checks JAX's promise: an export runs with a JAX built up to six months later or three weeks before.

    The version that exported always runs it. A newer one, installed by the last day of the window, was built
    by then. Of an older one nothing tells when it was built, so only another release of the same 0.X.Y is
    taken. `told` is the manifest's `compatibility`.

    Raises:
        Refused: this JAX is outside; the message names both versions and the window.
    """
    made, theirs, ours = told["jax"], version_key(told["jax"]), version_key(here)
    advice = f"install jax=={made}, or export the model again"
    if ours == theirs:
        return
    if ours < theirs and ours[:3] != theirs[:3]:
        raise Refused(
            f"exported with JAX {made}, this is the older {here}; JAX promises to run what a version built "
            f"up to {told['weeks_forward']} weeks later exports, no more: {advice}"
        )
    if ours > theirs and today > datetime.date.fromisoformat(told["until"]):
        raise Refused(
            f"exported with JAX {made}, this is {here}, and the {told['months_backward']} months for which "
            f"JAX promises to run it ended on {told['until']}: {advice}"
        )


def check_surroundings(manifest: Mapping[str, Any], devices: Sequence[Any]) -> None:
    """Checks platform, chip and number of devices.

    Raises:
        Refused: the artifact is for others.
    """
    kind, backend = devices[0].device_kind, devices[0].platform
    platform = {"gpu": "rocm" if "rocm" in devices[0].client.platform_version else "cuda"}.get(
        backend, backend
    )
    if platform not in manifest["platforms"]:
        raise Refused(
            f"exported for {', '.join(manifest['platforms'])}, and this is {platform}: export it with "
            f"--platforms={platform}"
        )
    if (chips := manifest["kernels"]["chips"]) and kind not in chips:
        raise Refused(
            f"exported with kernels for {', '.join(chips)}, and this is {kind}: export it with "
            "--kernels=portable"
        )
    wanted = manifest["sharding"]["devices"]
    if wanted > 1 and len(devices) != wanted:
        axes = ",".join(f"{name}:{size}" for name, size in manifest["sharding"]["axes"].items())
        raise Refused(f"exported for {wanted} devices ({axes}), and there are {len(devices)}")


# ---- the model


@dataclasses.dataclass(frozen=True)
class Program:
    """One compiled function of an artifact, for a length (None if that is free or there is none).

    `call` and `pullback`, from weights, inputs and cotangents of the outputs to those of the weights, are
    compiled for each shape they are called with.
    """

    length: int | None
    exported: export.Exported
    call: Callable[..., Any]
    pullback: Callable[..., Any]


class Model:
    """A model that answers: its manifest, its weights by name (none if they are constants) and programs."""

    def __init__(self, manifest: dict[str, Any], members: Mapping[str, bytes], weights: bytes | None):
        """Takes what was read; see `load`."""
        self.manifest = manifest
        self.inputs = {told["name"]: told for told in manifest["inputs"]}
        self.text = make_text(manifest["text"])
        axes = manifest["sharding"]["axes"]
        self._mesh = None
        if axes:
            self._mesh = jax.make_mesh(
                tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes)
            )
        self.programs = [
            self._program(told["length"], members[told["member"]]) for told in manifest["programs"]
        ]
        arrays = read_weights(weights) if weights is not None else {}
        splits = manifest["weights"]["split"]
        self.weights = {name: self._place(array, splits.get(name, ())) for name, array in arrays.items()}

    def _program(self, length: int | None, content: bytes) -> Program:
        exported = export.deserialize(bytearray(content))

        def pullback(weights, inputs, cotangents):
            _, pull = jax.vjp(lambda weights: exported.call(weights, inputs), weights)
            return pull(cotangents)[0]

        return Program(length, exported, jax.jit(exported.call), jax.jit(pullback))

    def _place(self, array: np.ndarray, split: Sequence[str | None]) -> jax.Array:
        if self._mesh is None:
            return jax.device_put(array)
        sharding = NamedSharding(self._mesh, PartitionSpec(*split))
        # Each process of a pod has the whole array and puts its own parts on its own devices.
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs for arrays of exactly the types and shapes that the manifest says.

        An input with a default may be left out, and one with a padding value may be shorter than any of the
        lengths there are.

        Raises:
            Refused: an input that does not fit, by name.
        """
        program, arrays, room = self.prepare(inputs)
        outputs = fetch(program.call(*self.arguments(arrays)))
        return {name: self._without_padding(name, array, room) for name, array in outputs.items()}

    def gradient(self, inputs: Mapping[str, Any], cotangents: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The derivative of sum(cotangents * outputs) by each weight.

        Raises:
            Refused: the artifact has no derivative or no weights of its own; an array that does not fit.
        """
        if not self.manifest["derivative"]:
            raise Refused("exported without a derivative: export it with --derivative")
        if not self.weights:
            raise Refused("the weights are constants of the program: export it with --weights=inside")
        program, arrays, room = self.prepare(inputs)
        if room:
            raise Refused(f"length is {room[0]}, expected {room[1]}: a derivative is of no shorter text")
        arguments = self.arguments(arrays)
        outputs = jax.eval_shape(program.call, *arguments)
        if set(cotangents) != set(outputs):
            raise Refused(f"cotangents are {sorted(cotangents)}, expected {sorted(outputs)}")
        for name, array in outputs.items():
            if np.shape(cotangents[name]) != array.shape:
                raise Refused(
                    f"cotangent {name} has shape {np.shape(cotangents[name])}, expected {array.shape}"
                )
        given = {name: jax.numpy.asarray(cotangents[name], array.dtype) for name, array in outputs.items()}
        return fetch(program.pullback(*arguments, given))

    @functools.cached_property
    def batch_step(self) -> int:
        """What the number of rows is a multiple of."""
        first = next(iter(self.inputs.values()))["shape"][0]
        return 1 if isinstance(first, int) else split_symbol(first)[0]

    @functools.cached_property
    def batch_room(self) -> int | None:
        """The number of rows, if it is fixed."""
        first = next(iter(self.inputs.values()))["shape"][0]
        return first if isinstance(first, int) else None

    def arguments(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a program is called with."""
        placed = {name: self._place(array, self.inputs[name]["split"]) for name, array in arrays.items()}
        return (self.weights, placed) if self.manifest["weights"]["where"] != "constants" else (placed,)

    def prepare(
        self, inputs: Mapping[str, Any]
    ) -> tuple[Program, dict[str, np.ndarray], tuple[int, int] | None]:
        """The program for some inputs, its arguments, and, if they were padded, their length and its own."""
        given = self._checked(inputs)
        sizes = self._bind(given)
        arrays = {}
        for name, told in self.inputs.items():
            shape = [size if isinstance(size, int) else sizes[size] for size in told["shape"]]
            arrays[name] = given[name] if name in given else np.full(shape, told["default"], told["dtype"])
        program, length = self.programs[0], sizes.get("length")
        if length is None or program.length is None:
            return program, arrays, None
        program, longer = self._fitting(length)
        if longer == length:
            return program, arrays, None
        room = (length, longer)
        return program, {name: self._padded(name, array, *room) for name, array in arrays.items()}, room

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        needed = [name for name, told in self.inputs.items() if told["default"] is None]
        if unknown := [name for name in inputs if name not in self.inputs]:
            raise Refused(f"there is no input {unknown[0]!r}; there are: {', '.join(self.inputs)}")
        if missing := [name for name in needed if name not in inputs]:
            raise Refused(f"input {missing[0]!r} is missing; needed are: {', '.join(needed)}")
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        for name, array in arrays.items():
            told = self.inputs[name]
            if array.dtype != told["dtype"]:
                raise Refused(f"input {name} has type {array.dtype}, expected {told['dtype']}")
            low, high = told["range"] or (None, None)
            if low is not None and array.size and not low <= array.min() <= array.max() <= high:
                wrong = array.min() if array.min() < low else array.max()
                raise Refused(f"input {name} has the value {wrong}, expected {low} to {high}")
        return arrays

    def _bind(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The sizes that the manifest has symbols for: those of "batch", or of "4*batch"."""
        sizes: dict[str, int] = {}
        for name, array in arrays.items():
            shape = self.inputs[name]["shape"]
            known = dict(sizes)
            fits = len(shape) == array.ndim and all(
                (wanted if isinstance(wanted, int) else sizes.setdefault(wanted, size)) == size
                for wanted, size in zip(shape, array.shape, strict=True)
            )
            if not fits:
                shown = ", ".join(map(str, shape))
                told = "".join(f", with {symbol} = {size}" for symbol, size in known.items())
                raise Refused(f"input {name} has shape {list(array.shape)}, expected [{shown}]{told}")
        for expression, size in sizes.items():
            factor, symbol = split_symbol(expression)
            least, most = self.manifest["symbols"][symbol]
            if size % factor:
                raise Refused(f"{symbol} is {size}, expected a multiple of {factor}, the devices along data")
            if size < factor * least or (most is not None and size > most):
                room = f"{factor * least} or more" if most is None else f"{least} to {most}"
                raise Refused(f"{symbol} is {size}, expected {room}")
        return sizes

    def _fitting(self, length: int) -> tuple[Program, int]:
        for program in self.programs:
            if program.length is not None and program.length >= length:
                return program, program.length
        raise Refused(f"length is {length}, expected at most {self.programs[-1].length}")

    def _padded(self, name: str, array: np.ndarray, length: int, room: int) -> np.ndarray:
        told = self.inputs[name]
        if "length" not in told["shape"]:
            return array
        if told["pad"] is None:
            lengths = ", ".join(str(program.length) for program in self.programs)
            raise Refused(f"input {name} has length {length}, expected one of {lengths}: it cannot be padded")
        widths = [(0, room - length if axis == "length" else 0) for axis in told["shape"]]
        return np.pad(array, widths, constant_values=told["pad"])

    def _without_padding(self, name: str, array: np.ndarray, room: tuple[int, int] | None) -> np.ndarray:
        if room is None:
            return array
        shape = next(told["shape"] for told in self.manifest["outputs"] if told["name"] == name)
        return array[tuple(slice(room[0]) if axis == "length" else slice(None) for axis in shape)]


def fetch(arrays: Any) -> Any:
    """Arrays on this host; of several processes each gets the whole."""
    if all(array.is_fully_addressable for array in jax.tree.leaves(arrays)):
        return jax.device_get(arrays)
    from jax.experimental import multihost_utils  # pods only

    return multihost_utils.process_allgather(arrays, tiled=True)


def split_symbol(expression: str) -> tuple[int, str]:
    """A size such as "batch" or "4*batch" as its factor and its symbol."""
    *factor, symbol = expression.split("*")
    return int(factor[0]) if factor else 1, symbol


def load(path: Path | str, *, any_version: bool = False, today: datetime.date | None = None) -> Model:
    """Opens a model that was exported; weights beside the artifact are looked for in its directory.

    `any_version` tries outside the window in which JAX promises to run it.

    Raises:
        Refused: it is damaged, or not for this platform, chip, number of devices or version of JAX.
    """
    path = Path(path)
    manifest, members = read_artifact(path)
    if not any_version:
        check_window(manifest["compatibility"], today=today or datetime.datetime.now(datetime.UTC).date())
    check_surroundings(manifest, jax.devices())
    told = manifest["weights"]
    weights = members.get(WEIGHTS)
    if told["where"] == "beside":
        beside = path.with_name(told["file"])
        if not beside.is_file():
            raise Refused(f"{path} needs its weights, {beside}, and there is no such file")
        weights = beside.read_bytes()
        if hashlib.sha256(weights).hexdigest() != told["sha256"]:
            raise Refused(f"{beside} is damaged, or of another model: its SHA-256 is not the manifest's")
    try:
        return Model(manifest, members, weights)
    except Exception as error:  # JAX has its own checks of versions, and no class of errors for them
        raise Refused(f"{path}: JAX {jax.__version__} cannot read it: {error}") from error


# ---- text


class Characters:
    """Text as a row of characters between a start and an end symbol; one artifact of `tp_transformer`."""

    def __init__(self, told: Mapping[str, Any]):
        """Takes the manifest's `text`."""
        self.told = told
        self.ids = {character: told["first"] + index for index, character in enumerate(told["characters"])}
        self.characters = {number: character for character, number in self.ids.items()}

    def encode(self, texts: Sequence[str], _: Any = None) -> dict[str, np.ndarray]:
        """The model's input; Refused for a character it does not know, or an empty list."""
        rows = []
        for text in texts:
            if unknown := [character for character in text if character not in self.ids]:
                raise Refused(f"text has {unknown[0]!r}, which is not one of {self.told['characters']!r}")
            rows.append([self.told["start"], *(self.ids[character] for character in text), self.told["end"]])
        return {self.told["input"]: padded(rows, self.told["pad"])}

    def decode(self, _: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Answers: what is before the first end or padding; symbols that are no characters are shown."""
        answers = []
        for row in outputs[self.told["output"]].tolist():
            text = []
            for number in row[1:]:
                if number in (self.told["end"], self.told["pad"]):
                    break
                text.append(self.characters.get(number, "\ufffd"))
            answers.append({"text": "".join(text)})
        return answers


class WordPieces:
    """BERT's tokens, as `folnet.tokenization` has them, in plain Python."""

    LONGEST = 100  # characters of a word; longer ones are unknown
    CJK = (
        (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
        (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
    )  # fmt: skip

    def __init__(self, told: Mapping[str, Any]):
        """Takes the manifest's `text`."""
        self.told = told
        self.pieces = told["vocabulary"]
        self.ids = {piece: number for number, piece in enumerate(self.pieces)}

    def words(self, text: str) -> Iterable[str]:
        """Cleaned, lowercased and without accents if the vocabulary is, cut at spaces and punctuation."""
        cleaned = []
        for character in text:
            if character in "\t\n\r" or character.isspace():
                cleaned.append(" ")
            elif character == "\ufffd" or unicodedata.category(character)[0] == "C":
                continue
            elif any(low <= ord(character) <= high for low, high in self.CJK):
                cleaned.append(f" {character} ")
            else:
                cleaned.append(character)
        text = "".join(cleaned)
        if self.told["lowercase"]:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
            text = "".join(character.lower() for character in text)  # each alone: no final sigma
        for chunk in text.split():
            word = ""
            for character in chunk:
                is_ascii_sign = character.isascii() and not character.isalnum()
                if is_ascii_sign or unicodedata.category(character)[0] == "P":
                    yield from (word, character) if word else (character,)
                    word = ""
                else:
                    word += character
            if word:
                yield word

    def cut(self, word: str) -> list[int]:
        """The longest pieces from the left; one unknown piece if there are none."""
        found, begin = [], 0
        while begin < len(word) <= self.LONGEST:
            for end in range(len(word), begin, -1):
                number = self.ids.get(("##" if begin else "") + word[begin:end])
                if number is not None:
                    break
            else:
                break
            found.append(number)
            begin = end
        return found if begin == len(word) else [self.ids["[UNK]"]]

    def tokens(self, text: str) -> list[int]:
        """Ids of a text; `[MASK]` in it is the piece to be filled in, if the model can."""
        parts = text.split("[MASK]") if self.told["fills"] else [text]
        found: list[int] = []
        for index, part in enumerate(parts):
            found += [self.ids["[MASK]"]] * (index > 0)
            for word in self.words(part):
                found += self.cut(word)
        return found

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP]; Refused if that is too long."""
        ids, types, end = [], [], [self.ids["[SEP]"]]
        if pairs and not self.told["inputs"]["types"]:
            raise Refused("this model reads no pairs")
        for index, text in enumerate(texts):
            first = [self.ids["[CLS]"], *self.tokens(text), *(end if self.told["closes"] else [])]
            second = [*self.tokens(pairs[index]), *end] if pairs else []
            ids.append(first + second)
            types.append([0] * len(first) + [1] * len(second))
        names = self.told["inputs"]
        room = self.told["length"]
        found = {names["ids"]: padded(ids, self.ids["[PAD]"], room)}
        if names["types"]:
            found[names["types"]] = padded(types, 0, room)
        if self.told["masks_padding"]:
            found[names["mask"]] = padded([[1] * len(row) for row in ids], 0, room).astype(bool)
        return found

    def join(self, ids: Iterable[int]) -> str:
        """Pieces as text, up to the first end or padding."""
        text = ""
        for number in ids:
            piece = self.pieces[number] if number < len(self.pieces) else "[UNK]"
            if piece in ("[SEP]", "[PAD]"):
                break
            text += piece[2:] if piece.startswith("##") and text else f" {piece}"
        return text.strip()

    def decode(
        self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """For each text its outputs; of logits of words only the likeliest words of each `[MASK]`.

        Of a model that writes, what it wrote.
        """
        fills, writes = self.told["fills"], self.told["writes"]
        if writes:
            return [{"text": self.join(row)} for row in outputs[writes].tolist()]
        answers: list[dict[str, Any]] = []
        for row, ids in enumerate(inputs[self.told["inputs"]["ids"]]):
            answer: dict[str, Any] = {name: array[row] for name, array in outputs.items() if name != fills}
            if fills:
                answer["masks"] = []
                for place in np.flatnonzero(ids == self.ids["[MASK]"]):
                    logits = outputs[fills][row, place, : len(self.pieces)].astype(np.float64)
                    shares = np.exp(logits - logits.max())
                    shares /= shares.sum()
                    best = np.argsort(-shares, kind="stable")[:5]
                    answer["masks"].append(
                        [[self.pieces[number], round(float(shares[number]), 6)] for number in best]
                    )
            answers.append(answer)
        return answers


def make_text(told: Mapping[str, Any] | None) -> Characters | WordPieces | None:
    """What turns text into inputs and outputs into text; None for models without text."""
    return None if told is None else {"characters": Characters, "wordpieces": WordPieces}[told["kind"]](told)


def padded(rows: Sequence[Sequence[int]], pad: int, length: int | None = None) -> np.ndarray:
    """Rows as one array, int32, filled up to the longest or to a length; Refused if one is longer."""
    longest = max(map(len, rows))
    if length is not None and longest > length:
        raise Refused(f"text has {longest} tokens, expected at most {length}")
    found = np.full((len(rows), length or longest), pad, np.int32)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found


# ---- requests


def answer(model: Model, request: Any) -> dict[str, Any]:
    """Answers a request: an object with "text" (and "pair") or "inputs"; its "id" is given back.

    Raises:
        Refused: the request does not fit the model.
    """
    if not isinstance(request, dict) or ("text" in request) == ("inputs" in request):
        raise Refused('a request is {"inputs": {NAME: array}} or {"text": text}, with an "id" if you like')
    if unknown := sorted(set(request) - {"text", "pair", "inputs", "id"}):
        raise Refused(f"a request has no {unknown[0]!r}")
    echo = {"id": request["id"]} if "id" in request else {}
    if "text" in request:
        return echo | _answer_text(model, request["text"], request.get("pair"))
    if not isinstance(request["inputs"], dict):
        raise Refused("inputs must be an object {NAME: array}")
    arrays, single = from_json(model, request["inputs"])
    outputs = in_even_batches(model, arrays)
    return echo | to_json(model, {name: array[0] for name, array in outputs.items()} if single else outputs)


def _answer_text(model: Model, text: Any, pair: Any) -> dict[str, Any]:
    if model.text is None:
        raise Refused("this model reads no text; give it inputs")
    single = isinstance(text, str)
    texts, pairs = ([text], None if pair is None else [pair]) if single else (text, pair)
    for name, value in (("text", texts), ("pair", pairs)):
        if name == "pair" and value is None:
            continue
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            raise Refused(f"{name} must be a string or a list of strings")
    if pairs is not None and (isinstance(model.text, Characters) or len(pairs) != len(texts)):
        raise Refused("pair must be as many strings as text, and of a model that reads pairs")
    inputs = model.text.encode(texts, pairs)
    answers = model.text.decode(inputs, in_even_batches(model, inputs))
    answers = [one if "text" in one else to_json(model, one) for one in answers]
    return answers[0] if single else {"answers": answers}


def in_even_batches(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs, from a batch filled up to a power of two (in steps of the devices) by its first row.

    JAX compiles a program for every shape: so there are few.
    """
    batch = rows_of(inputs)
    wanted = model.batch_room or model.batch_step
    while wanted < batch and not model.batch_room:
        wanted *= 2
    if wanted < batch:
        raise Refused(f"there are {batch} rows, expected at most {wanted}")
    filled = {
        name: np.concatenate([array, np.repeat(array[:1], wanted - batch, 0)])
        for name, array in inputs.items()
    }
    return {name: array[:batch] for name, array in model(filled).items()}


def rows_of(inputs: Mapping[str, np.ndarray]) -> int:
    """The size of the first axis, which all inputs share; Refused if they do not, or have nothing."""
    counts = {array.shape[0] if array.ndim else 0 for array in inputs.values()}
    if len(counts) != 1 or counts == {0}:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
        raise Refused(f"inputs must have as many rows each, and some; got {shapes or 'none'}")
    return counts.pop()


def from_json(model: Model, given: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], bool]:
    """JSON's lists as arrays of the types wanted, and whether they were one example without a batch."""
    arrays, single = {}, set()
    for name, value in given.items():
        if name not in model.inputs:
            raise Refused(f"there is no input {name!r}; there are: {', '.join(model.inputs)}")
        told = model.inputs[name]
        dtype = np.dtype(jax.numpy.dtype(told["dtype"]))
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise Refused(f"input {name} has rows of different lengths") from error
        kinds = {"b": "biu", "i": "iu", "u": "iu"}.get(dtype.kind, "iuf")
        if array.dtype.kind not in kinds:
            raise Refused(f"input {name} is not an array of {dtype}")
        if dtype.kind in "iub" and array.size and (array.astype(dtype) != array).any():
            raise Refused(f"input {name} has numbers that {dtype} has not")
        single.add(array.ndim == len(told["shape"]) - 1)
        arrays[name] = array.astype(dtype)
    if single == {True}:
        return {name: array[None] for name, array in arrays.items()}, True
    return arrays, False


def to_json(model: Model, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs as lists, with the label of the greatest logit where the manifest has labels."""
    told = {one["name"]: one for one in model.manifest["outputs"]}
    found: dict[str, Any] = {"outputs": {}}
    for name, value in outputs.items():
        if name not in told:
            found[name] = value
            continue
        array = plain(np.asarray(value))
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Refused(f"output {name} has numbers that are not finite, which JSON cannot say")
        found["outputs"][name] = array.tolist()
        if labels := told[name]["labels"]:
            best = np.argmax(array, axis=-1)
            found.setdefault("labels", {})[name] = (
                np.asarray(labels, object)[best].tolist() if best.ndim else labels[int(best)]
            )
    return found


def plain(array: np.ndarray) -> np.ndarray:
    """bfloat16, which NumPy's files and JSON do not know, as float32."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def serve(model: Model, requests: Iterable[str], out: Any) -> None:
    """Answers each line; what is wrong with one is its answer."""
    for line in requests:
        if not line.strip():
            continue
        echo: dict[str, Any] = {}
        try:
            request = json.loads(line)
            if isinstance(request, dict) and "id" in request:
                echo = {"id": request["id"]}
            reply = answer(model, request)
        except ValueError as error:  # of JSON, and Refused
            reply = echo | {"error": str(error)}
        except Exception as error:  # of XLA: out of memory, for one; the next request may be smaller
            reply = echo | {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply, allow_nan=False) + "\n")
        out.flush()


def read_arrays(source: Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file.

    Raises:
        OSError: it cannot be read.
        Refused: it is damaged, or none.
    """
    with source.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
                raise ValueError(f"{strange[0]} is no array")
            return arrays
        except Exception as error:  # what a torn archive raises depends on where it is torn
            raise Refused(f"{source}: damaged, or not an .npz file ({error!r})") from error


def answer_file(model: Model, source: Path, target: Path, batch: int) -> int:
    """Answers a file of arrays (.npz, with the batch as first axis) or of requests (.jsonl), and counts them.

    The answers go to a file of the same kind, written whole or not at all; `batch` rows of arrays are
    answered at once.

    Raises:
        Refused: a file that cannot be read, or does not fit.
    """
    if source.suffix != target.suffix or source.suffix not in (".npz", ".jsonl"):
        raise Refused(f"--input={source} and --output={target} must both be .npz, or both .jsonl")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if source.suffix == ".jsonl":
            with source.open(encoding="utf-8") as lines, temporary.open("w", encoding="utf-8") as out:
                requests = [line for line in lines if line.strip()]
                serve(model, requests, out)
            count = len(requests)
        else:
            arrays = read_arrays(source)
            count = rows_of(arrays)
            batch = model.batch_room or -(-min(batch, count) // model.batch_step) * model.batch_step
            parts = []
            for begin in range(0, count, batch):
                part = {name: array[begin : begin + batch] for name, array in arrays.items()}
                parts.append(in_even_batches(model, part))
            joined: Any = {name: plain(np.concatenate([part[name] for part in parts])) for name in parts[0]}
            with temporary.open("wb") as out:
                np.savez(out, **joined)
        temporary.replace(target)
    except (OSError, ValueError) as error:
        raise error if isinstance(error, Refused) else Refused(f"{source}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; 2 if the artifact or the files cannot be used."""
    parser = argparse.ArgumentParser(description="Runs a model that was exported with JAX.")
    inside = not Path(__file__).is_file()  # of an artifact that is run itself
    if not inside:
        parser.add_argument("artifact", type=Path, help="the .jaxmodel file")
    parser.add_argument("--input", type=Path, help="arrays (.npz) or requests (.jsonl) to answer")
    parser.add_argument("--output", type=Path, help="where the answers go")
    parser.add_argument("--batch", type=int, default=256, help="rows of arrays at once")
    parser.add_argument(
        "--describe", action="store_true", help="print the manifest, without loading the model"
    )
    parser.add_argument("--any-version", action="store_true", help="try outside of JAX's window")
    values = parser.parse_args(arguments)
    artifact = Path(sys.argv[0]) if inside else values.artifact
    if (values.input is None) != (values.output is None) or values.batch < 1:
        parser.error("--input and --output go together, and --batch is 1 or more")
    try:
        if values.describe:
            manifest, _ = read_artifact(artifact)
            if "vocabulary" in (manifest["text"] or {}):  # thirty thousand lines, of most models
                manifest["text"]["vocabulary"] = f"{len(manifest['text']['vocabulary'])} pieces"
            print(json.dumps(manifest, indent=1))
            return 0
        model = load(artifact, any_version=values.any_version)
        if values.input:
            print(
                f"{values.output}: {answer_file(model, values.input, values.output, values.batch)} answered"
            )
        else:
            serve(model, sys.stdin, sys.stdout)
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

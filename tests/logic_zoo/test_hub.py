"""Models on a hub: uploaded to and downloaded from a server on this machine that speaks its protocol."""

import base64
import hashlib
import http.server
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest

from folnet import FOLNetForMaskedLM
from folnet.tokenization import WordPieceTokenizer
from logic_zoo import hub
from tests.folnet import small
from tests.tp_transformer.small import draw
from tp_transformer import TPTransformer
from tp_transformer.mathematics import Vocabulary

library: Any = pytest.importorskip("huggingface_hub")
import huggingface_hub.constants as constants  # noqa: E402 -- only where the library is

SHA = "0" * 40
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmn")


class Hub(http.server.ThreadingHTTPServer):
    """Models by name, as files; a model named "user/private" may not be written."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    """The requests that downloading and uploading make."""

    server: Hub  # pyrefly: ignore

    def do_HEAD(self) -> None:
        self._file(self.path)

    def do_GET(self) -> None:
        described = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", self.path.split("?")[0])
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self.path.split("?")[0])
        self.server.asked.append(self.path)
        if described and described[1] in self.server.models and described[2] in ("main", "v1", SHA):
            files = [{"rfilename": name} for name in self.server.models[described[1]]]
            self._say({"id": described[1], "sha": SHA, "siblings": files})
        elif tree and tree[1] in self.server.models:
            entries = self.server.models[tree[1]].items()
            self._say(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in entries
                ]
            )
        else:
            self._file(self.path)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}"
            if given["name"] == "private":
                self._say({"error": "no right"}, 403)
                return
            self.server.models.setdefault(name, {})
            self._say({"url": f"http://{self.headers['Host']}/{name}", "name": name})
        elif "/preupload/" in self.path:
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            self._say({"files": files})
        elif found := re.match(r"/api/models/([^/]+/[^/]+)/commit/", self.path):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    data = base64.b64decode(line["value"]["content"])
                    self.server.models[found[1]][line["value"]["path"]] = data
            self._say(
                {"commitOid": SHA, "commitUrl": f"http://{self.headers['Host']}/{found[1]}/commit/{SHA}"}
            )
        else:
            self._say({"error": "nothing here"}, 404)

    def _file(self, path: str) -> None:
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        data = None if found is None else self.server.models.get(found[1], {}).get(found[3])
        if data is None:
            self._say({"error": "nothing here"}, 404)
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def _say(self, answer: Any, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch, tmp_path) -> Iterator[Hub]:
    """A hub without models, and an empty cache."""
    running = Hub()
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{running.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def test_a_model_goes_to_the_hub_and_comes_back(server):
    """With its tokenizer, at a revision too; code stays on the hub, and the second time nothing is loaded."""
    model = FOLNetForMaskedLM(small.config(operators="j."))
    params = small.draw(model)
    tokenizer = WordPieceTokenizer(PIECES, lowercase=False)
    address = model.push_to_hub(params, "user/model", tokenizer=tokenizer, message="First")
    assert address == f"{constants.ENDPOINT}/user/model"
    assert {"config.json", "model.safetensors", "modeling_folnet.py", "vocab.txt"} <= set(
        server.models["user/model"]
    )
    found, again = FOLNetForMaskedLM.from_pretrained("user/model", revision="v1")
    assert found == model
    chex.assert_trees_all_equal(again, params)
    same = WordPieceTokenizer.from_pretrained("user/model")
    assert same.fingerprint == tokenizer.fingerprint
    directory = hub.directory_of("user/model")
    assert not (directory / "modeling_folnet.py").exists()
    before = len(server.asked)
    hub.directory_of("user/model")
    assert not [path for path in server.asked[before:] if "/resolve/" in path]


def test_what_the_hub_has_not_or_refuses_is_one_line(server, tmp_path):
    with pytest.raises(
        ValueError, match=r"user/other: got neither a directory nor a model on http://127\S+ \("
    ) as error:
        FOLNetForMaskedLM.from_pretrained("user/other")
    assert "\n" not in str(error.value)
    server.models["user/model"] = {"config.json": b"{}"}
    with pytest.raises(ValueError, match=r"user/model: got neither .* at revision 'v2'"):
        hub.directory_of("user/model", "v2")
    with pytest.raises(ValueError, match="user/private: refused by http"):
        hub.push(tmp_path, "user/private", message="", private=True)
    with pytest.raises(ValueError, match="name: got 'model', expected \"user/model\""):
        hub.push(tmp_path, "model", message="", private=False)


def test_without_a_network_what_was_loaded_is_there(server, monkeypatch):
    server.models["user/model"] = {"config.json": b"{}"}
    first = hub.directory_of("user/model")
    server.shutdown()
    server.server_close()
    assert hub.directory_of("user/model") == first
    with pytest.raises(ValueError, match="user/other: got neither a directory nor a model"):
        hub.directory_of("user/other")


def test_a_directory_is_no_model_on_the_hub(tmp_path, monkeypatch):
    """Also one with such a name; what is no name of a model is a path."""
    (tmp_path / "user" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert hub.directory_of("user/model") == Path("user/model")
    assert hub.directory_of("/nowhere/user/model") == Path("/nowhere/user/model")
    with pytest.raises(ValueError, match="revision: got 'v1', expected None with the directory"):
        hub.directory_of("user/model", "v1")
    with pytest.raises(ValueError, match=r"nowhere.config\.json: got no such file"):
        FOLNetForMaskedLM.from_pretrained("nowhere")


def test_the_library_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"user/model: no such .* pip install huggingface_hub"):
        hub.directory_of("user/model")


def test_parameters_that_do_not_fit_are_not_sent(server):
    model = FOLNetForMaskedLM(small.config(operators="j."))
    with pytest.raises(ValueError, match="params: does not fit"):
        model.push_to_hub({"a": np.zeros(1)}, "user/model")
    assert not server.models


def test_a_tp_transformer_with_its_characters(server):
    symbols = Vocabulary("0123456789+")
    sizes = {"vocab_size": symbols.size, "features": 8, "filter_features": 8, "num_heads": 2, "num_layers": 1}
    model = TPTransformer(**sizes, **symbols.special_ids)
    params = draw(model)
    model.push_to_hub(params, "user/sums", symbols)
    found, again = TPTransformer.from_pretrained("user/sums")
    assert found == model.clone(dtype=None)
    chex.assert_trees_all_equal(again, params)
    assert Vocabulary.load("user/sums") == symbols

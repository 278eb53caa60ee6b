"""What a model sends to a hub, without one; `tests/logic_zoo/test_hub.py` has a hub."""

from typing import Any

import chex
import pytest


def check(monkeypatch: pytest.MonkeyPatch, hub: Any, model: Any, params: Any) -> None:
    """Checks that a model pushes the directory that it saves, with the name and the options given."""
    sent = {}

    def push(directory, name, **how):
        found, again = type(model).from_pretrained(directory)
        sent[name] = (found == model, how)
        chex.assert_trees_all_equal(again, params)
        return "there"

    monkeypatch.setattr(hub, "push", push)
    assert model.push_to_hub(params, "user/model", message="new", private=True) == "there"
    assert sent == {"user/model": (True, {"message": "new", "private": True})}

"""The settings of a model in a directory, and the messages about parameters that do not fit."""

import json

import pytest

from logic_zoo import folders


def test_there_and_back(tmp_path):
    """The type and the class are apart from the settings, which may be anything that JSON holds."""
    folders.write(tmp_path / "new", "kind", "Class", {"width": 3, "names": ["a"]}, b"weights")
    assert (tmp_path / "new" / folders.WEIGHTS_FILE).read_bytes() == b"weights"
    found = folders.read(tmp_path / "new", ("other", "kind"), "a model")
    assert found == ("kind", "Class", {"width": 3, "names": ["a"]})


@pytest.mark.parametrize("classes", [None, [], 3, {"a": 1}])
def test_the_class_may_be_unknown(tmp_path, classes):
    described = {"model_type": "kind", "architectures": classes}
    (tmp_path / "config.json").write_text(json.dumps(described))
    assert folders.read(tmp_path, ("kind",), "a model") == ("kind", "", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "config.json: got no such file, expected the settings of a model"),
        ("{", "config.json: got a damaged file"),
        ("[]", r"config.json: got model_type \[\], expected 'kind' or 'other'"),
        ('{"model_type": "third"}', "config.json: got model_type 'third', expected 'kind' or 'other'"),
    ],
)
def test_what_is_not_a_models_settings_is_named(tmp_path, text, message):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        folders.read(tmp_path, ("kind", "other"), "a model")


class Base: ...


class First(Base): ...


class Second(First): ...


class Newest(Base): ...


Newest.__name__ = "Second"


def test_classes_are_found_with_those_derived_from_them():
    """At any depth, the class itself first; of two of a name the newest, unless one is the other's base."""
    assert list(folders.kinds(Base)) == ["Base", "First", "Second"]
    assert folders.kinds(Base) == {"Base": Base, "First": First, "Second": Newest}
    assert folders.kinds(First) == {"First": First, "Second": Second}
    assert folders.family(First) == {"object", "Base", "First", "Second"}
    assert folders.family(Newest) == {"object", "Base", "Second"}


def test_misfits_are_all_listed():
    lines = folders.misfits({"a": (1,), "b": (2,), "c": (3,)}, {"b": (2,), "c": (4,), "d": (5,)})
    assert lines == [
        "a: missing, expected (1,)",
        "d: got (5,), expected no such parameter",
        "c: got shape (4,), expected (3,)",
    ]
    with pytest.raises(ValueError, match=r"^file: does not fit list:\n  a: missing.*\n  d: got.*\n  c: got"):
        folders.complain("file", [], lines)
    folders.complain("file", [], [])

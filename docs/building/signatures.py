"""Prepares what mkdocstrings shows of the code.

Flax's modules and dataclasses get the signature that their fields make, as griffe does for plain
dataclasses. In docstrings, brackets that are mathematics, such as <q, k>, |x> or f[i](j), stay characters
instead of becoming tags and links.
"""

import re

import griffe

SECTION = re.compile(r"\s*(Args|Attributes|Returns|Raises|Yields):\s*$")
CODE = re.compile(r"(`+[^`]*`+)")

FLAX = {"flax.linen.Module", "flax.linen.RNNCellBase", "flax.struct.PyTreeNode"}
DECORATORS = {"flax.struct.dataclass", "chex.dataclass"}


def _fields(cls: griffe.Class) -> dict[str, griffe.Parameter] | None:
    """Returns the parameters of a class and its bases; None unless it is one of flax's classes."""
    found, known = {}, bool({decorator.callable_path for decorator in cls.decorators} & DECORATORS)
    for base in cls.resolved_bases:
        inherited = _fields(base) if base.is_class else None
        if inherited is not None:
            found, known = {**found, **inherited}, True
    paths = {getattr(base, "canonical_path", str(base)) for base in cls.bases}
    if not known and not any(
        path in FLAX or path.endswith(("nn.Module", "nn.RNNCellBase")) for path in paths
    ):
        return None
    for name, member in cls.members.items():
        field = member.is_attribute and member.annotation is not None and not name.startswith("_")
        if not field or "property" in member.labels or "ClassVar" in str(member.annotation):
            continue
        default, value = member.value, str(member.value or "")
        if "field(" in value:
            arguments = {argument.name: argument.value for argument in getattr(value, "arguments", [])}
            default = arguments.get("default")
            if "default_factory=" in value or "default=" in value:
                default = "..."
        kind = griffe.ParameterKind.positional_or_keyword
        found[name] = griffe.Parameter(name, annotation=member.annotation, kind=kind, default=default)
    return found


def as_text(docstring: str) -> str:
    """Returns a docstring whose brackets, outside of code, are characters and not markup."""
    lines, code, section = [], False, False
    for line in docstring.splitlines():
        section = section or bool(SECTION.match(line))
        fence = line.lstrip().startswith("```")
        code ^= fence
        if not (code or fence or (line.startswith("    ") and not section)):
            parts = CODE.split(line)
            parts[::2] = [
                re.sub(r"(\[|(?<!\*)\*)(?=[^\s*])", r"\\\1", part.replace("<", "&lt;")) for part in parts[::2]
            ]
            line = "".join(parts)
        lines.append(line)
    return "\n".join(lines)


class Readable(griffe.Extension):
    """Adds `__init__` to classes whose fields are their arguments, and escapes docstrings."""

    def on_instance(self, *, obj: griffe.Object, **_) -> None:
        """Visits each object once, when it has been read."""
        if obj.docstring is not None:
            obj.docstring.value = as_text(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        """Visits all classes of a package, when all of it is known."""
        self._visit(pkg)

    def _visit(self, obj: griffe.Object) -> None:
        for member in list(obj.members.values()):
            if member.is_alias:
                continue
            if member.is_class:
                fields = None if "__init__" in member.members else _fields(member)
                if fields is not None:
                    self._give(member, fields)
                self._visit(member)
            elif member.is_module:
                self._visit(member)

    def _give(self, cls: griffe.Class, fields: dict[str, griffe.Parameter]) -> None:
        this = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        init = griffe.Function("__init__", lineno=0, endlineno=0, parent=cls, returns="None")
        init.parameters = griffe.Parameters(this, *fields.values())
        cls.set_member("__init__", init)

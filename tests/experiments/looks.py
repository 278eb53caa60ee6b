"""What figures show and how they are drawn, for `tests.recorded`: whatever changes a picture is noticed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Colormap, is_color_like, to_hex
from matplotlib.figure import Figure
from matplotlib.spines import Spine
from matplotlib.text import Text

PROPERTIES = (
    "alpha", "array", "clim", "cmap", "color", "edgecolor", "extent", "facecolor", "fill", "fontsize",
    "fontweight", "ha", "hatch", "height", "interpolation", "label", "linestyle", "linewidth", "marker",
    "markersize", "offsets", "position", "rotation", "segments", "text", "texts", "va", "visible",
    "width", "xdata", "xlabel", "xlim", "xscale", "xy", "ydata", "ylabel", "ylim", "yscale", "zorder",
)  # fmt: skip
USUAL = {"fontweight": "normal", "rotation": 0.0, "visible": True, "fill": True}
"""Properties that are not recorded where they have these values."""
TOLERANCE = 2e-3
"""Of numbers in a record of looks."""
FEW = 12
"""Longer arrays are recorded by their shape, mean and extremes; of more alike artists their number."""


def _plain(value: Any) -> Any:
    """Returns a property as JSON has it."""
    if isinstance(value, Artist):
        return described_artist(value)
    if isinstance(value, Colormap):
        return value.name
    if value is None or isinstance(value, bool | str):
        return value
    if is_color_like(value) and not isinstance(value, float | int):
        return to_hex(value, keep_alpha=True).removesuffix("ff")
    if isinstance(value, Sequence) and any(isinstance(part, Artist | str) or part is None for part in value):
        return [_plain(part) for part in value]
    try:
        array = np.ma.filled(np.ma.asarray(value, float), np.nan)
    except (TypeError, ValueError):  # of parts of several lengths, or no numbers
        return [_plain(part) for part in value] if isinstance(value, Sequence) else str(value)
    if array.size > FEW:
        some = array[np.isfinite(array)]
        return [list(array.shape), float(some.mean()), float(some.min()), float(some.max())]
    return array.tolist()


def described_artist(artist: Artist) -> dict[str, Any]:
    """Returns the properties of one artist that can be seen."""
    found: dict[str, Any] = {"type": type(artist).__name__}
    for name in PROPERTIES:
        if (getter := getattr(artist, f"get_{name}", None)) is not None:
            found[name] = _plain(getter())
    return {
        name: value
        for name, value in found.items()
        if value not in (None, [], "", USUAL.get(name)) and not str(value).startswith("_child")
    }


def described(figure: Figure) -> list[dict[str, Any]]:
    """Returns the figure's size, and its axes and what stands in them."""
    found: list[dict[str, Any]] = [{"type": "Figure", "inches": list(figure.get_size_inches())}]
    for parent in (figure, *figure.axes):
        if isinstance(parent, Axes):
            titles = [parent.get_title(where) for where in ("left", "center", "right")]
            found.append(described_artist(parent) | {"titles": titles})
        parts: dict[str, list[Artist]] = {}
        for part in parent.get_children():
            if part is not parent.patch and not _is_frame(part):
                parts.setdefault(type(part).__name__, []).append(part)
        for name, alike in parts.items():
            found += [described_artist(part) for part in alike[:FEW]]
            found += [{"type": name, "more": len(alike) - FEW}] if len(alike) > FEW else []
    return found


def _is_frame(part: Artist) -> bool:
    return isinstance(part, Axes | Axis | Spine) or (isinstance(part, Text) and not part.get_text())

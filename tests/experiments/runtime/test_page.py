"""Pages of stops, and their tables as text."""

from experiments import runtime
from experiments.runtime import page
from tests.experiments.pages import read_page


def written(tmp_path, *stops):
    path = page.write(tmp_path / "index.html", stops, title="A & B", introduction="1 < 2")
    return path.read_text(encoding="utf-8")


def test_a_section_per_stop_in_order_with_links_to_them(tmp_path):
    stops = [
        runtime.Stop(
            f"{name}: about it", f"why {name}", [{"x": "1"}], {tmp_path / name / "f.png": "seen"}, "but",
            {"go on": f"run {name}"},
        )
        for name in ("first", "second")
    ]  # fmt: skip
    text = written(tmp_path, *stops)
    found = read_page(text)
    assert found.images == ["first/f.png", "second/f.png"]
    assert found.links == ["#1", "#2", "first/f.png", "second/f.png"]
    assert text.index('id="1"') < text.index("first: about it") < text.index('id="2"')
    assert [word for word in found.words if word.startswith("run ")] == ["run first", "run second"]
    assert {"first", "second", "why first", "go on", "seen", "but", "A & B", "1 < 2"} <= set(found.words)


def test_a_stop_without_commands_has_no_list_of_them(tmp_path):
    assert "<dl>" not in written(tmp_path, runtime.Stop("t", "m", [{"x": "1"}], {}, "c"))


def test_text_is_escaped(tmp_path):
    stop = runtime.Stop(
        "a < b", "m & n", [{"<x>": "<i>"}], {tmp_path / "f.png": 'say "hi"'}, "<c>", {"<p>": "<q>"}
    )
    text = written(tmp_path, stop)
    for shown in ("a &lt; b", "&lt;x&gt;", "&lt;i&gt;", 'alt="say &quot;hi&quot;"', "&lt;c&gt;", "&lt;q&gt;"):
        assert shown in text
    assert "<p><" not in text.partition("<dl>")[2]


def test_a_table_is_aligned_and_long_cells_take_several_lines(monkeypatch):
    rows = [{"model": "a", "score": "1.0"}, {"model": "longer", "score": ""}]
    assert page.table(rows) == "model   score\n------  -----\na       1.0\nlonger"
    monkeypatch.setattr(page, "WIDEST", 7)
    rows = [{"story": "one two three", "n": "1"}, {"story": "four", "n": "2"}]
    assert page.table(rows) == "story    n\n-------  -\none two  1\nthree\nfour     2"


def test_the_report_has_everything_but_figures(tmp_path):
    stop = runtime.Stop("title", "meaning", [{"x": "1"}], {tmp_path / "f.png": "seen"}, "caveat")
    assert page.report([stop, stop]) == "\n".join(["\ntitle\nx\n-\n1\nmeaning\n(caveat)"] * 2)

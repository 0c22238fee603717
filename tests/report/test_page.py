"""The page is one file that needs nothing else, says what the terminal says, and holds every figure."""

from html.parser import HTMLParser

import numpy as np
from rich.table import Table
from rich.text import Text

from optimize import report
from optimize.cli.explain import EXPLAIN, resolve
from optimize.report.figures_plan import front
from optimize.report.page import fragment, page
from optimize.report.screen import new_console, new_table, say

PNG = b"\x89PNG not drawn"
_EMPTY = {"img", "meta", "br"}


class Checked(HTMLParser):
    """Tags that close in order; words and sources that were seen."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.open, self.words, self.sources, self.tags = [], [], [], []
        self.feed(content.decode())
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_parts_become_text_tables_and_figures():
    table = new_table("name", "s")
    table.add_row("matmuls", "1.5")
    table.add_row("step", "2.5", style="bold")
    rows = [("a", 1.0, "free text"), ("b", 2.5, "more of it")]
    parts = ["a < b & c", Text("head", "bold"), "two\nlines", table, (("x", "y", "z"), rows), PNG, ("a caption", PNG)]
    seen = Checked(page("a <title>", [("first", parts), ("nothing", [])]))
    assert {"a < b & c", "two\nlines", "matmuls", "2.5", "free text", "a caption", "a <title>"} <= set(seen.words)
    assert "nothing" not in seen.words
    assert [tag for tag in seen.tags if tag in ("table", "img", "pre")] == ["pre", "table", "table", "img", "img"]
    assert '<td class="right">1.5</td>' in fragment([table])
    assert '<td class="right">2.5</td><td>more of it</td>' in fragment(parts)
    assert fragment(["`--gap` is < 1"]) == "<p><code>--gap</code> is &lt; 1</p>"


def test_nothing_is_better_in_both_than_the_front():
    gib, step = np.random.default_rng(3).uniform(size=(2, 200))
    found = front(gib, step)
    better = (gib[:, None] <= gib[None]) & (step[:, None] <= step[None])
    assert set(found) == set(np.flatnonzero(better.sum(0) == 1))
    assert (np.diff(gib[found]) > 0).all()
    assert (np.diff(step[found]) < 0).all()


def test_what_a_screen_shows_is_kept_and_not_printed(capsys):
    def show() -> None:
        console = new_console()
        say(console, "long " * 60, "bold")
        console.print()
        console.print(new_table("a"))
        print("flags\nof a launcher")

    text, table, printed = report.kept(show)
    assert isinstance(text, Text)
    assert isinstance(table, Table)
    assert (len(text), text.style, table.columns[0].header) == (300, "bold", "a")
    assert printed == "flags\nof a launcher"
    assert capsys.readouterr() == ("", "")
    show()
    assert capsys.readouterr().out.count("\n") > 4


def test_the_page_of_an_answer_needs_no_other_file():
    inputs = resolve({"model": "llama3-8b", "cluster": "h100", "accelerators": 64})
    answer = EXPLAIN.run(inputs)
    content, shown = EXPLAIN.as_json(inputs, answer), report.kept(lambda: EXPLAIN.show(inputs, answer))
    seen = Checked(report.page_of("explain", content, shown, {"step_time.png": PNG, "step_time.svg": b"<svg/>"}))
    assert all(source.startswith(("data:", "#")) for source in seen.sources)
    words = " ".join(seen.words)
    for word in ("matmuls", "of step", "peak", "would make the step", "plan.tensor", "result.json"):
        assert word in words
    assert seen.tags.count("img") == 1

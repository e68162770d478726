"""The page: the answer first, what qualifies it folded; for every width, printer and reader."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

from sweeps.findings.analysis import analyse
from sweeps.findings.unjudged import with_unjudged
from sweeps.report.drawing import Drawing
from sweeps.report.figures import figures
from sweeps.report.headline import headline
from sweeps.report.html import render
from sweeps.report.merits import merits
from sweeps.report.page import Content, page
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.golden.cases import quickstart, race_with_eliminated
from tests.golden.frozen import words_of_page
from tests.sweeps.report.chunk_sweep import write_chunk_sweep
from tests.sweeps.systems.test_load import write_sweep

WINDOWS = [(w, s) for w in (50, 75, 100, 150, 200, 250) for s in (25, 50, 75, 100, 150) if s <= w]
THIRTY = [("FirstP", 150, 150)] + [("MaxP", *one) for one in WINDOWS[:14]]
THIRTY += [("AvgP long name of a method", *one) for one in WINDOWS[:15]]
"""Cells, half of them with names that are too long for a figure."""
TELEPHONE = 372
"""Pixels of a page of 400 beside its margins."""


def found(folder: Path) -> Content:
    analysis = with_unjudged(analyse(with_interpolated(load_sweep(folder), "")))
    return Content(analysis, figures(analysis))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Content:
    return found(quickstart(tmp_path_factory.mktemp("small") / "sweep"))


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Content:
    first = {"nDCG@10": 0.34, "RR@10": 0.2}
    folder = tmp_path_factory.mktemp("thirty") / "sweep"
    facts: dict[str, Any] = {"first_stage": first, "log": True, "effect": 0.03}
    return found(write_sweep(folder, kinds=THIRTY, num_queries=40, **facts))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[Content]:
    """A race, and aggregations to serve."""
    folder = tmp_path_factory.mktemp("others")
    facts: dict[str, Any] = {"sweep": "serving", "measures": ("nDCG@10",), "trained": False}
    one = write_chunk_sweep(folder / "serving", kinds=[("maxp", 80, 40)], num_queries=12, **facts)
    return [found(race_with_eliminated(folder / "race")), found(one)]


class Elements(HTMLParser):
    """The elements of a page in their order, each with the elements around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.all: list[tuple[str, dict[str, str | None], list[dict[str, str | None]]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        around = [own for _, own in self.open]
        self.all.append((tag, dict(attrs), around))
        if tag not in ("meta", "br", "path", "use", "rect"):
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def named(self, *tags: str) -> list[tuple[str, dict[str, str | None]]]:
        return [(tag, own) for tag, own, _ in self.all if tag in tags]


def above(text: str) -> list[str]:
    """The words that stand above the table."""
    body = text[text.index("<body") :]
    return words_of_page(body[: body.index("<table")]).split()


def test_the_answer_opens_the_page_in_sixty_words(small: Content) -> None:
    text = page(small)
    said = headline(small.analysis)
    words = above(text)
    assert len(words) <= 60, words
    assert said.sentence in " ".join(words)
    order = ["nDCG@10 on test", "Gain over BM25, allowing for the choice", "Cost", "Next"]
    order += ["Systems", "Gain over BM25", "Reliability", "Every seed", "Queries", "Reproduce"]
    places = [text.index(f">{words}<") for words in order]
    assert places == sorted(places)


def test_the_merits_are_those_of_the_choice(small: Content) -> None:
    said = headline(small.analysis)
    assert said.mean is not None and said.mean_alone is not None
    mean, gain, cost = merits(small.analysis, said)
    assert (mean.value, mean.detail) == (f"{said.mean:.3f}", f"{said.mean_alone:.3f} without BM25")
    assert gain.value == f"{small.analysis.gain_after_choice:+.3f}"
    assert (cost.value, cost.unit) == ("2", "seconds to evaluate a run")


def test_a_smoke_test_has_no_merits(small: Content) -> None:
    analysis = small.analysis
    about = replace(analysis.sweep.about, smoke_test=True)
    smoke = replace(analysis, sweep=replace(analysis.sweep, about=about))
    assert merits(smoke, headline(smoke)) == []


def test_the_findings_are_folded_in_two_tables(small: Content, thirty: Content) -> None:
    for content in (small, thirty):
        text = page(content)
        folded = text[text.index(">Reliability<") :]
        assert content.findings and all(html.escape(row.name) in folded for row in content.findings)
        assert 'href="http' not in folded


def test_the_figure_has_the_best_first_its_equals_shaded_and_costs_beside_it(
    small: Content,
) -> None:
    analysis, shown = small.analysis, small.figures[0]
    axes = shown.figure.axes[0]
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    means = {row.label + " (baseline)" * row.is_baseline: row.mean("nDCG@10")
             for row in analysis.rows if row.label != "BM25"}  # fmt: skip
    assert labels == sorted(means, key=lambda label: -means[label])
    members = analysis.best_set and [analysis.sweep.label(one) for one in analysis.best_set.members]
    shaded = [labels[round(patch.get_y() + 0.5)] for patch in axes.patches]
    assert shaded == members
    bold = [tick.get_text() for tick in axes.get_yticklabels() if tick.get_fontweight() == "bold"]
    assert bold == [analysis.sweep.label(headline(analysis).system)]
    drawn = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    dots = [x for line in drawn for x in line]
    zero = next(row.mean("nDCG@10") for row in analysis.rows if row.label == "BM25")
    seeds = [v for row in analysis.rows[1:] for v in row.seed_means["nDCG@10"].values()]
    assert sorted(dots) == pytest.approx(sorted(value - zero for value in seeds))
    assert [text.get_text() for text in axes.texts].count("2") == len(labels)
    assert all(label.removesuffix(" (baseline)") in shown.description for label in labels)


def boxes(shown: Drawing) -> Iterator[tuple[str, Any]]:
    """The texts of a figure with the boxes that they take, in its picture."""
    figure = shown.figure
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                tick.label1.set_visible(low <= tick.get_loc() <= high and tick.label1.get_visible())
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip():
            yield text.get_text(), Text.get_window_extent(text)  # without its arrow


def test_no_label_touches_another_with_thirty_systems(
    small: Content, thirty: Content, others: list[Content]
) -> None:
    assert len(thirty.analysis.cells) == 30
    for findings in (small, thirty, *others):
        for shown in findings.figures:
            own = [*boxes(shown)]
            whole = shown.figure.bbox
            for text, box in own:
                inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= whole.x1 and box.y1 <= whole.y1
                assert inside, (shown.name, text, box, whole)
            for (text, box), (other, around) in combinations(own, 2):
                assert not box.overlaps(around), (shown.name, text, other)
        assert findings.figures[0].figure.get_figwidth() * 72 <= TELEPHONE


def test_headings_are_in_order_and_all_pictures_and_cells_are_named(
    small: Content, thirty: Content, others: list[Content]
) -> None:
    for findings in (small, thirty, *others):
        elements = Elements(page(findings))
        levels = [int(tag[1]) for tag, _ in elements.named("h1", "h2", "h3", "h4")]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(later <= level + 1 for level, later in pairwise(levels))
        assert len(elements.named("main")) == 1
        pictures = elements.named("svg", "img")
        assert pictures and all(own.get("aria-label") for _, own in pictures)
        cells = elements.named("th")
        assert cells and all(own.get("scope") for _, own in cells)
        for tag, _, around in elements.all:
            if tag in ("table", "svg"):
                region = around[-1]
                assert region.get("class") == "scroll" and region.get("tabindex") == "0"
                assert region.get("role") == "region" and region.get("aria-label")


def test_the_page_needs_no_script(small: Content) -> None:
    """What a script adds, it adds to the page: nothing is hidden, and nothing calls it."""
    text = re.sub(r"(?s)<script>.*?</script>", "", page(small))
    assert not re.search(r"<button|<script|<link|\son\w+=|https?://(?!www.w3)", text)
    style = text[text.index("<style>") : text.index("</style>")]
    alone = [rule for rule in re.findall(r"([^{}]*)\{[^{}]*display: none", style)]
    assert all(".none" in rule or ".queries" in rule for rule in alone)


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    shares = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_the_contrast_of_wcag_aa_in_the_light_in_the_dark_and_on_paper() -> None:
    assert contrast("#000", "#fff") == pytest.approx(21)
    text = render("page.html", title="", answer="", notes=[], facts=[], sections=[])
    palettes = [dict(re.findall(r"--(\w+): (#\w+)", part))
                for part in re.findall(r":root \{([^}]*)\}", text)]  # fmt: skip
    assert len(palettes) == 3 and len({own["paper"] for own in palettes}) == 2
    grounds = {"paper": "ink soft mark lost", "shade": "ink soft mark lost", "band": "ink"}
    for own in palettes:
        for ground, inks in grounds.items():
            for ink in inks.split():
                assert contrast(own[ink], own[ground]) >= 4.5, (ink, own[ink], own[ground])

"""The results table in its five formats, and the caption that explains it."""

import csv
import dataclasses
import io
import re
from xml.etree import ElementTree

import pytest

from rank_core.stats.compare import CellComparison
from sweeps.findings.analysis import analyse
from sweeps.report.caption import caption, notes
from sweeps.report.html import table_part
from sweeps.report.results import (
    results_csv,
    results_table,
)
from sweeps.report.table import csv_text, latex, markdown, table, table_row, terminal_lines
from sweeps.store.sweep_file import Cell
from sweeps.systems.load import load_sweep
from sweeps.systems.system import System
from tests.sweeps.systems.test_load import write_sweep

NAN = float("nan")


SLOTS = ["firstp"]


def render_markdown(rows, slots=SLOTS, **settings):
    return markdown(results_table(rows, slots=slots, **settings))


def render_latex(rows, label="", slots=SLOTS, **settings):
    return latex(results_table(rows, slots=slots, **settings), label)


def render_html(rows, **settings):
    return table_part(results_table(rows, slots=SLOTS, **settings))


def comparison(system, *, delta=0.02, p_queries=0.001, p_both=0.2, **changes):
    settings = dict(measure="nDCG@10", system=system, baseline="firstp", delta=delta)
    settings |= dict(relative_gain=delta / 0.4, mean_system=0.4 + delta, mean_baseline=0.4)
    settings |= dict(p_queries=p_queries, p_queries_adjusted=p_queries, p_seeds=0.1, p_both=p_both)
    settings |= dict(p_both_adjusted=p_both, p_moderated=NAN, df_both=6.5, se_both=0.01)
    settings |= dict(ci_low=delta - 0.02, ci_high=delta + 0.02, se_queries=0.008)
    settings |= dict(ci_queries_low=delta - 0.016, ci_queries_high=delta + 0.016)
    settings |= dict(num_seeds_system=3, num_seeds_baseline=3, num_queries=43, family_size=2)
    settings |= dict(correction="holm", wins=30, ties=3, losses=10)
    return CellComparison(**(settings | changes))


def row(label, mean, *comparisons, group="", used=3, launched=3, measures=("nDCG@10",), cell=None):
    """A system whose three seeds deviate by .004, with comparisons by the letters a, b, ..."""
    means = {seed: mean + 0.004 * (seed - (used - 1) / 2) for seed in range(used)}
    fates = {seed: "done" if seed < used else "failed" for seed in range(launched)}
    return System(
        Cell(cell or label, label, group),
        dict.fromkeys(measures, means),
        fates,
        is_baseline=not comparisons,
        tests={name: dict(zip("abc", comparisons, strict=False)) for name in measures},
    )


BASE = row("firstp", 0.4)


def lines_of(text):
    return [[part.strip() for part in line.split("|")[1:-1]] for line in text.splitlines()[2:]]


TINY = {"delta": -0.00001, "ci_low": -0.0301, "ci_high": -0.00004, "p_both": 0.0004}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"delta": 0.02041}, ["+0.020 [0.000, 0.040]", ".200"]),
        # A single run has the test of the queries; a tiny number keeps its sign honest.
        ({"p_both": NAN, "ci_low": NAN, "ci_high": NAN}, ["+0.020 [0.004, 0.036]†", ".001†"]),
        (TINY, ["+0.000 [−0.030, 0.000]", "<.001"]),
    ],
)
def test_a_markdown_row_shows_the_whole_comparison_rounded(changes, shown):
    text = render_markdown([BASE, row("maxp", 0.42041, comparison("maxp", **changes))])
    base, own = lines_of(text)
    assert own[:2] == ["maxp", "3/3"] and own[2].startswith("**0.420**<sup>")
    assert own[2].endswith("</sup> ± 0.004") and own[3:] == shown
    assert base == ["firstp", "3/3", "0.400 ± 0.004", "", ""]
    assert text.splitlines()[0] == "| system | seeds | nDCG@10 | Δ [95% CI] | p |"


@pytest.mark.parametrize(
    ("changes", "letter"),
    [
        ({"p_queries": 0.2, "p_both": 0.3}, ""),
        ({"p_queries": 0.049, "p_both": 0.3}, "a"),
        ({"p_queries": 0.001, "p_both": 0.04}, "A"),
        ({"p_queries": 0.001, "p_both": 0.3, "delta": -0.02}, "a↓"),
        ({"p_queries": 0.001, "p_both": 0.01, "delta": -0.02}, "A↓"),
        ({"p_queries": 0.2, "p_both": 0.3, "delta": -0.02}, ""),
        ({"p_queries": 0.001, "p_both": NAN}, "a"),
    ],
)
def test_the_letter_says_which_test_and_which_direction(changes, letter):
    text = render_markdown([BASE, row("maxp", 0.42, comparison("maxp", **changes))])
    assert "".join(re.findall("<sup>(.*?)</sup>", text)) == letter


def test_bold_marks_all_means_that_are_best_after_rounding_and_no_nan():
    rows = [row("x", 0.41049), row("y", 0.4104), row("z", 0.40951), row("lost", NAN)]
    text = render_markdown(rows)
    assert re.findall(r"\*\*(.*?)\*\*", text) == ["0.410", "0.410", "0.410"]
    assert re.findall(r"\*\*(.*?)\*\*", render_markdown(rows, digits=4)) == ["0.4105"]
    assert "| lost | 3/3 | — |" in text


@pytest.mark.parametrize("measures", [("nDCG@10",), ("nDCG@10", "RR@10")])
def test_latex_is_a_balanced_table_with_equal_columns_that_escapes_its_words(measures):
    rows = [row("a_b & 50% $x^2 #{1}~\\", 0.4, measures=measures)]
    rows.append(row("[maxp]*", 0.4, comparison("x"), group="SplitP", measures=measures))
    text = render_latex(rows, caption="100% Δ ± SD", label="tab:main")
    assert r"a\_b \& 50\% \$x\textasciicircum{}2 \#\{1\}\textasciitilde{}\textbackslash{} &" in text
    # No label is the argument of the line before.
    assert r"\caption{100\% $\Delta$" in text and "\n{[}maxp]{*} & 3/3" in text
    assert text.isascii() and r"\label{tab:main}" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\bottomrule")] == [1, 1]
    unescaped = text.replace(r"\{", "").replace(r"\}", "")
    assert unescaped.count("{") == unescaped.count("}")
    body = [
        line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    # The further measures have no test.
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {3 + len(measures)}


def test_a_group_has_its_own_line_where_it_starts():
    rows = [row("bm25", 0.3), *(row(name, 0.4, group="FirstP") for name in ("bert", "electra"))]
    rows.append(row("max", 0.43, group="SplitP"))
    first_column = [line[0] for line in lines_of(render_markdown(rows))]
    assert first_column == ["bm25", "*FirstP*", "bert", "electra", "*SplitP*", "max"]
    text = render_latex(rows)
    assert text.count(r"\multicolumn{5}{l}{\textit{") == 2 and text.count(r"\midrule") == 3


def test_latex_keeps_the_width_of_absent_letters():
    rows = [
        BASE,
        row("maxp", 0.42, comparison("maxp", p_both=0.01)),
        row("sump", 0.38, comparison("sump", p_both=0.01, delta=-0.02)),
    ]
    superscripts = re.findall(r"\$\^\{(.*?)\}\$", render_latex(rows))
    assert superscripts == [
        r"\hphantom{\mathrm{A}\downarrow}",
        r"\mathrm{A}\hphantom{\downarrow}",
        r"\mathrm{A}\downarrow",
    ]
    without = [BASE, row("maxp", 0.42, comparison("maxp", p_queries=0.5, p_both=0.5))]
    assert "hphantom" not in render_latex(without)


def test_csv_holds_every_field_unrounded_and_reads_back():
    found = comparison("maxp", delta=1 / 3, p_both=1e-30)
    rows = [BASE, row("maxp", 2 / 3, found, group="SplitP", used=2, launched=5)]
    base, system = csv.DictReader(io.StringIO(results_csv(rows)))
    assert float(system["delta"]) == 1 / 3 and float(system["mean"]) == pytest.approx(2 / 3)
    assert float(system["p_both"]) == 1e-30
    assert (system["group"], system["seeds_used"], system["seeds_launched"]) == ("SplitP", "2", "5")
    fields = {field.name for field in dataclasses.fields(CellComparison)}
    assert fields - {*base} == {"family", "test"}, "objects, whose text no program can read"
    assert (base["is_baseline"], base["delta"]) == ("True", "")
    assert float(base["mean"]) == pytest.approx(0.4)


def test_notes_follow_the_caption_and_are_comments_in_latex():
    shown = results_table([BASE], caption="Mean.", notes=["Split test.", "Ties: by doc_id."])
    assert markdown(shown).endswith("\n\nMean.\n\nSplit test. Ties: by doc_id.\n")
    before, _, after = latex(shown).partition(r"\begin{table")
    assert all(line.startswith("% ") for line in before.splitlines()) and "Ties" not in after


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
def test_the_caption_explains_what_the_runs_allow(tmp_path, seeds):
    changes = {"alpha": 0.01, "correction": "none" if len(seeds) == 1 else "holm"}
    folder = write_sweep(
        tmp_path, seeds=seeds, num_queries=43, fates={(1, 1): "collapsed"}, **changes
    )
    analysis = analyse(load_sweep(folder))
    text, below = caption(analysis), " ".join(notes(analysis))
    several = len(seeds) > 1
    for part in (
        f"over {len(seeds)} training run{'s' * several} per system on 43 queries",
        "a/A: FirstP; p < 0.01; Holm over 4"
        if several
        else "a: FirstP; p < 0.01; not corrected for",
    ):
        assert part in text, part
    assert ("99% interval" in text) == ("upper case" in text) == several == ("†" not in text)
    used = 5 * len(seeds)
    assert f"{used} of {used} launched trials used; 0 failed, 1 collapsed" in below
    assert ("nested in systems" in below) == several and "Split test." in below


def test_html_is_a_well_formed_table_with_equal_columns():
    found = comparison("maxp", p_both=0.01, delta=-0.02)
    rows = [BASE, row("<max> & co", 0.38, found, group="SplitP")]
    text = render_html(rows, caption="p < .05")
    assert "&lt;max&gt; &amp; co" in text and '<p class="caption">p &lt; .05</p>' in text
    note = ' <span class="deviation">± 0.004</span>'
    assert f'<b>0.400</b><span class="letter"></span>{note}' in text
    assert f'0.380<span class="letter">A↓</span>{note}' in text
    lines = [
        line for line in text.splitlines() if line.startswith("<tr>") and "colspan" not in line
    ]
    assert {line.count("</td>") + line.count("</th>") for line in lines} == {5}
    ElementTree.fromstring(text)


def test_a_terminal_gets_aligned_columns_and_what_is_not_defined_is_an_empty_field():
    rows = [("maxp", "0.42", ""), table_row("a", "12.5", "x")]
    assert terminal_lines(table(("system", "mean", "p"), rows)) == [
        "system  mean  p",
        "---------------",
        "maxp    0.42",
        "a       12.5  x",
    ]
    assert csv_text(["a", "b", "c"], [(NAN, None, 1 / 3)]) == f"a,b,c\n,,{1 / 3!r}\n"

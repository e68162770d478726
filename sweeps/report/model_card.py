"""The README.md of an exported model: its use, its test, and its origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rank_core.models import model_class
from rank_core.ranking.interpolation import FirstStageMix
from rank_core.settings.config import TrialConfig
from sweeps.findings.analysis import Analysis
from sweeps.report.headline import headline
from sweeps.report.results import paper_table
from sweeps.report.table import markdown
from sweeps.terminal.escape import markdown_code, markdown_text, yaml_value
from sweeps.terminal.notation import interval_text, signed

SMOKE_TEST = "its sweep was a smoke test, of few queries, candidates and steps"
NOT_MEASURED = "not_measured"
"""The key of a model's origin that says how it computes scores where its trial did otherwise."""


@dataclass(frozen=True)
class CardFacts:
    """The facts of a card beside its sweep's table."""

    config: TrialConfig
    about: Mapping[str, Any]  # the model's origin, as in `ranker.json`
    is_cross_encoder: bool
    export_command: str
    first_stage: FirstStageMix | None = None  # of a system "+BM25"
    license: str = ""  # of the backbone, by its own card
    encoder: str = ""  # what the backbone is, in words
    scored: str = ""  # how others score its encoder with its head, in words
    repository: str = ""  # ORG/NAME on the Hugging Face Hub, if the card is for it


def model_card(analysis: Analysis, facts: CardFacts) -> str:
    """The card as Markdown, with metadata for a model hub at its top."""
    about, sweep = facts.about, analysis.sweep
    parts = [
        _metadata(analysis, facts),
        "# "
        + markdown_text(
            f"{about['label']}, from the sweep {sweep.about.sweep} over "
            f"{about['collection']['name']}"
        ),
        markdown_text(_description(facts)),
        markdown_text(f"{about['description']}.") if about.get("description") else "",
        f"**Not for use: {SMOKE_TEST}.**" if sweep.about.smoke_test else "",
        f"**Not measured as this folder computes it, {about[NOT_MEASURED]}.** All values below are "
        "the trial's."
        if NOT_MEASURED in about
        else "",
        "## Use",
        _usage(facts),
        "## Tested",
        markdown_text(f"The choice of the sweep: {headline(analysis).text}"),
        markdown(paper_table(analysis)).strip(),
        markdown_text(_run_choice(analysis, facts)),
        "## Data and origin",
        "\n".join(f"- {line}" for line in _origin(analysis, facts)),
        "## Made by",
        markdown_code("\n".join(filter(None, [about["command"], facts.export_command])), "bash"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _metadata(analysis: Analysis, facts: CardFacts) -> str:
    """What a model hub reads: origin, and the tested mean as a result."""
    about, sweep = facts.about, analysis.sweep
    library = "sentence-transformers" if facts.is_cross_encoder else "ranksweep"
    base = about["backbone"]["name"]
    lines = ["---", f"library_name: {library}", "pipeline_tag: text-ranking"]
    lines += [f"license: {yaml_value(facts.license)}"] * bool(facts.license)
    lines += ["base_model:", f"- {yaml_value(base)}"] * (
        facts.encoder == base
    )  # a hub knows no folder
    lines += ["datasets:"]
    lines += [f"- {yaml_value(about['collection']['name'])}", "tags:", "- ranksweep", "- reranker"]
    lines += ["- cross-encoder"] * facts.is_cross_encoder
    rows = {row.cell.label: row for row in (*analysis.interpolated, *analysis.cells)}
    row = rows.get(about["label"])
    if row is not None and row.num_used and NOT_MEASURED not in about:
        of = f"{sweep.primary} on {sweep.split}"
        of += f", mean of {row.num_used} seeds" if row.num_used > 1 else ""
        for c in (*analysis.primary, *analysis.interpolated_comparisons):
            if c.system == row.cell.cell and c.measure == sweep.primary:
                of += f"; from {sweep.label(c.baseline)} {signed(c.delta)} {interval_text(c)}"
        name, value = about["collection"]["name"], round(row.mean(sweep.primary), 4)
        result = {
            "task": {"type": "text-ranking"},
            "dataset": {"name": name, "type": name},
            "metrics": [{"type": sweep.primary, "name": of, "value": value}],
        }
        index = [{"name": about["label"], "results": [result]}]
        lines.append(f"model-index: {yaml_value(index)}")
    return "\n".join([*lines, "---"])


def _description(facts: CardFacts) -> str:
    config, mix = facts.config, facts.first_stage
    kind, cut = model_class(config.model.name), config.chunking
    chunks = 1 if kind.first_chunk_only else cut.max_chunks
    most = cut.window + (chunks - 1) * cut.stride if chunks else cut.max_document_tokens
    windows = "" if chunks == 1 else f", in windows of {cut.window} tokens with stride {cut.stride}"
    text = (
        f"{kind.label} ({kind.paper}) over {facts.encoder}. It reranks documents "
        f"for a query. It reads up to {cut.max_query_tokens} query tokens and the first "
        f"{min(most, cut.max_document_tokens):,} tokens of a document (title, line break, text)"
        f"{windows}."
    )
    if mix is None:
        return text
    weights = f"{mix.alpha:g} x model + {1 - mix.alpha:g} x {mix.first_stage}"
    return (
        f"{text} Its score is {weights}, both {mix.normalise} normalised within a query; the "
        f"weight was chosen on dev. Without the scores of {mix.first_stage} it ranks by the model "
        "alone."
    )


def _usage(facts: CardFacts) -> str:
    call = "reranker.rank(query, [text_1, text_2])   # [Ranked(doc_id=1, score=...), ...]"
    if facts.config.model.name == "birch" or facts.first_stage:
        call = "reranker.rerank(run, queries, documents)   # run has the first stage's scores"
    lines = ["```python", "import ranksweep", "", 'reranker = ranksweep.Reranker.load("FOLDER")']
    text = "\n".join([*lines, call, "```"])
    if facts.repository:
        fetch = markdown_code(f"hf download {facts.repository} --local-dir FOLDER", "bash")
        text = f"{fetch}\n\n{text}\n\nThe sweep's report is `report/index.html`."
    cut = facts.config.chunking
    if not facts.is_cross_encoder:
        return f"{text}\n\n{markdown_text(facts.scored)}" if facts.scored else text
    text += "\n\nIt is also a `CrossEncoder` of sentence-transformers (5.4 or later), "
    if not model_class(facts.config.model.name).first_chunk_only:
        return text + (
            "which scores chunks: `serving.json` says how to cut a document and how to combine the "
            "scores of its chunks (docs/export.md)."
        )
    return text + (
        f"with the same scores for queries of at most {cut.max_query_tokens} tokens and texts of "
        f"at most {cut.window}; beside a shorter query a `CrossEncoder` reads a few more tokens of "
        "a longer text."
    )


def _run_choice(analysis: Analysis, facts: CardFacts) -> str:
    sweep, about = analysis.sweep, facts.about
    values = ", ".join(f"{name} {value:.4f}" for name, value in about["test"].items())
    it = "its trial" if NOT_MEASURED in about else "it"
    mix, of_model = facts.first_stage, about.get("test_alone", {})
    model = ", ".join(f"{name} {value:.4f}" for name, value in of_model.items())
    alone = f", without the scores of {mix.first_stage} {model}" if mix and model else ""
    return (
        f"The table has the means over all seeds. This folder holds the model of seed "
        f"{about['seed']}, {about['chosen']} ({sweep.primary} on dev {about['dev']:.4f}); on "
        f"{sweep.split} {it} has {values}{alone}."
    )


def _origin(analysis: Analysis, facts: CardFacts) -> list[str]:
    sweep, about = analysis.sweep, facts.about
    collection, backbone = about["collection"], about["backbone"]
    numbers = sweep.about.collection.get("num_queries", {})
    queries = ", ".join(f"{number} {name}" for name, number in numbers.items())
    return [
        f"collection {markdown_text(str(collection['name']))}, "
        f"content hash `{collection['content_hash']}`: "
        f"{sweep.about.collection.get('num_documents', '?')} documents; queries: {queries}",
        f"backbone {markdown_text(str(backbone['name']))}, "
        f"content hash `{backbone['content_hash']}`",
        f"trial `{about['trial']}`: the last 12 digits before its seed are the hash of every "
        "setting, the collection's and the backbone's contents",
        "versions: "
        + ", ".join(markdown_text(f"{name} {text}") for name, text in about["versions"].items()),
    ]

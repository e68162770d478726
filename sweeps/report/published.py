"""Values of published tables, shown beside ours and never tested.

A table is transcribed whole, as it is printed. A column is matched with a collection and a measure,
a row with a model and its encoder, only where it is known that they are the same. Unknown are the
field of the topics of KeyB's Robust04 and GOV2, and the aggregator of its PARADE; and no collection
of ours reports on MS MARCO dev or pools three years of TREC DL. What follows from other cells is
checked by tests/sweeps/report/test_published.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sweeps.report.analysis import Analysis
from sweeps.report.load import Sweep
from sweeps.report.table import Cell, Table, wrapped
from sweeps.store.sweep_file import Cell as SweepCell

Values = Mapping[str, str]
"""{measure: a value as it is printed}."""

_BERT = "bert-base-uncased"
_ELECTRA = "google/electra-base-discriminator"
_DEBERTA = "microsoft/deberta-v3-base"
_ROBERTA = "roberta-base"
_LONGFORMER = "allenai/longformer-base-4096"
_BIGBIRD = "google/bigbird-roberta-base"
_JINA = "jinaai/jina-embeddings-v2-base-en"
_MOSAIC = "mosaicml/mosaic-bert-base-seqlen-2048"
_ANY = "any encoder"
_OTHER = ""  # a system of which no model and encoder here is the same


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed: `columns` {heading: (collection, measure), if it is one of ours}, `rows`
    (label, model, encoder, cells, further settings); "-": no value."""

    paper: str
    table: str
    columns: Mapping[str, tuple[str, str] | None]
    rows: tuple[tuple[Any, ...], ...]
    reading: str = ""

    @property
    def source(self) -> str:
        """`Boytsov et al. 2022, Table 4`."""
        return f"{self.paper}, {self.table}"

    def cells(self, row: str) -> Values:
        """{heading: value} of a row."""
        texts = next(texts for label, _, _, texts, *_ in self.rows if label == row)
        return dict(zip(self.columns, texts.split(), strict=True))


_MSM, _DL = "MS MARCO dev MRR", "DL 2019-2021 nDCG@10"
_DL19, _DL20, _DL21 = (f"DL 20{year} nDCG@10" for year in (19, 20, 21))
_TITLE, _DESC = "Robust04 title nDCG@20", "Robust04 description nDCG@20"
_OURS = {
    _DL19: ("msmarco-doc", "nDCG@10"),
    _DL20: ("msmarco-doc-dl20", "nDCG@10"),
    _DL21: ("msmarco-doc-v2-dl21", "nDCG@10"),
    _TITLE: ("robust04-title", "nDCG@20"),
    _DESC: ("robust04-desc", "nDCG@20"),
    "GOV2 title nDCG@20": ("gov2-title", "nDCG@20"),
    "GOV2 description nDCG@20": ("gov2-desc", "nDCG@20"),
    "MQ2007 nDCG@20": ("gov2-mq2007", "nDCG@20"),
    "MQ2008 nDCG@20": ("gov2-mq2008", "nDCG@20"),
    "DL 2019 MAP": ("msmarco-doc", "AP"),
}


def _columns(*headings: str) -> dict[str, tuple[str, str] | None]:
    return {heading: _OURS.get(heading) for heading in headings}


_2021, _2022 = "Zhang, Yates and Lin 2021", "Boytsov et al. 2022"
_BIAS, _KEYB = "Boytsov et al., positional bias", "Li et al., key blocks"
_SLIDING = {"chunking.window": 150, "chunking.stride": 100}

TABLES = (
    PublishedTable(
        _2021,
        "Table 2",
        _columns(_TITLE, _DESC, "GOV2 title nDCG@20", "GOV2 description nDCG@20"),
        (
            ("BERT", "maxp", _BERT, ".4767 .5303 .5175 .5480"),
            ("BERT-large", "maxp", "bert-large-uncased", ".4875 .5448 .5161 .5420"),
            ("ELECTRA", "maxp", _ELECTRA, ".4959 .5480 .4841 .5152"),
            ("RoBERTa", "maxp", _ROBERTA, ".4938 .5489 .4679 .5370"),
            ("ALBERT", _OTHER, _OTHER, ".4632 .5400 .5354 .5459"),
            ("BERT pFT", _OTHER, _OTHER, ".4857 .5476 .5473 .5788"),
            ("ELECTRA pFT", _OTHER, _OTHER, ".5225 .5741 .5624 .6062"),
        ),
        reading="MaxP, as which Table 5 of Boytsov et al. quotes its row BERT; pFT is fine-tuned "
        "on MS MARCO first",
    ),
    PublishedTable(
        _2022,
        "Table 4",
        _columns(_MSM, _DL19, _DL20, _DL21, _DL, _TITLE, _DESC),
        (
            ("BM25", "bm25", _ANY, "- .548 .538 .549 .545 - -"),
            ("AvgP", "avg-cls", _BERT, ".389 .659 .596 .664 .642 .478 .531"),
            ("FirstP (BERT)", "firstp", _BERT, ".394 .631 .598 .660 .632 .475 .527"),
            ("FirstP (Longformer)", "firstp", _LONGFORMER, ".404 .657 .616 .654 .643 .483 .540"),
            ("FirstP (ELECTRA)", "firstp", _ELECTRA, ".417 .652 .642 .686 .662 .492 .552"),
            ("MaxP", "maxp", _BERT, ".392 .648 .615 .665 .644 .488 .544", _SLIDING),
            ("SumP", "sump", _BERT, ".390 .642 .607 .662 .639 .486 .538", _SLIDING),
            ("CEDR-DRMM", "cedr-drmm", _BERT, ".385 .639 .592 .651 .629 .466 .533"),
            ("CEDR-KNRM", "cedr-knrm", _BERT, ".379 .637 .599 .651 .630 .483 .535"),
            ("CEDR-PACRR", "cedr-pacrr", _BERT, ".395 .640 .615 .667 .643 .496 .549"),
            ("Neural Model1", "neural-model1", _BERT, ".398 .660 .620 .666 .650 .484 .537"),
            ("PARADE Attn", "parade-attn", _BERT, ".416 .647 .626 .677 .652 .503 .556", _SLIDING),
            ("PARADE Attn (ELECTRA)", "parade-attn", _ELECTRA,
             ".431 .675 .653 .705 .680 .523 .581", _SLIDING),
            ("PARADE Avg", "parade-avg", _BERT, ".392 .656 .617 .660 .646 .483 .534", _SLIDING),
            ("PARADE Max", "parade-max", _BERT, ".405 .652 .626 .680 .655 .489 .548", _SLIDING),
            ("PARADE Transf-RAND-L3", "parade-transformer-l3", _BERT,
             ".344 .591 .531 .547 .555 .379 .411", _SLIDING),
            ("PARADE Transf-PRETR-L6", "parade-transformer-pretrained", _BERT,
             ".406 .658 .618 .680 .655 .510 .560", _SLIDING),
            ("PARADE Transf-PRETR-Q-L6", "parade-transformer-query", _BERT,
             ".408 .651 .619 .673 .650 .498 .561", _SLIDING),
            ("LongP (Longformer)", "longp", _LONGFORMER, ".412 .676 .628 .693 .668 .500 .568"),
            ("LongP (BigBird)", "longp", _BIGBIRD, ".397 .655 .618 .675 .651 .452 .477"),
        ),
        reading="means of 3 seeds; windows of 150, stride 100 (its row of Table 8)",
    ),
    PublishedTable(
        _BIAS,
        "Table 1",
        _columns(_MSM, _DL, _TITLE, _DESC),
        (
            ("FirstP (BERT)", "firstp", _BERT, ".394 .632 .475 .527"),
            ("FirstP (Longformer)", "firstp", _LONGFORMER, ".404 .643 .483 .540"),
            ("FirstP (ELECTRA)", "firstp", _ELECTRA, ".417 .662 .492 .552"),
            ("FirstP (DEBERTA)", "firstp", _DEBERTA, ".415 .672 .534 .596"),
            ("FirstP (BigBird)", "firstp", _BIGBIRD, ".408 .656 .507 .560"),
            ("FirstP (JINA)", "firstp", _JINA, ".422 .654 .488 .532"),
            ("FirstP (MOSAIC)", "firstp", _MOSAIC, ".423 .643 .453 .538"),
            ("FirstP (TinyLLAMA)", _OTHER, _OTHER, ".395 .615 .431 .473"),
            ("FirstP (E5)", _OTHER, _OTHER, ".380 .641 .438 .429"),
            ("AvgP", "avg-cls", _BERT, ".389 .642 .478 .531"),
            ("MaxP", "maxp", _BERT, ".392 .644 .488 .544", _SLIDING),
            ("MaxP (ELECTRA)", "maxp", _ELECTRA, ".414 .659 .502 .563", _SLIDING),
            ("MaxP (DEBERTA)", "maxp", _DEBERTA, ".402 .671 .535 .609", _SLIDING),
            ("SumP", "sump", _BERT, ".390 .639 .486 .538", _SLIDING),
            ("CEDR-DRMM", "cedr-drmm", _BERT, ".385 .629 .466 .533"),
            ("CEDR-KNRM", "cedr-knrm", _BERT, ".379 .630 .483 .535"),
            ("CEDR-PACRR", "cedr-pacrr", _BERT, ".395 .643 .496 .549"),
            ("Neural Model1", "neural-model1", _BERT, ".398 .650 .484 .537"),
            ("PARADE Attn", "parade-attn", _BERT, ".416 .652 .503 .556", _SLIDING),
            ("PARADE Attn (ELECTRA)", "parade-attn", _ELECTRA, ".431 .680 .523 .581", _SLIDING),
            ("PARADE Attn (DEBERTA)", "parade-attn", _DEBERTA, ".422 .688 .549 .615", _SLIDING),
            ("PARADE Avg", "parade-avg", _BERT, ".392 .646 .483 .534", _SLIDING),
            ("PARADE Max", "parade-max", _BERT, ".405 .655 .489 .548", _SLIDING),
            ("PARADE Transf-RAND-L2", "parade-transformer", _BERT,
             ".419 .655 .488 .548", _SLIDING),
            ("PARADE Transf-RAND-L2 (ELECTRA)", "parade-transformer", _ELECTRA,
             ".433 .670 .523 .574", _SLIDING),
            ("PARADE Transf-PRETR-L6", "parade-transformer-pretrained", _BERT,
             ".402 .643 .494 .554", _SLIDING),
            ("LongP (Longformer)", "longp", _LONGFORMER, ".412 .668 .500 .568"),
            ("LongP (BigBird)", "longp", _BIGBIRD, ".397 .651 .452 .477"),
            ("LongP (JINA)", "longp", _JINA, ".416 .665 .503 .558"),
            ("LongP (MOSAIC)", "longp", _MOSAIC, ".421 .664 .456 .570"),
            ("LongP (TinyLLAMA)", _OTHER, _OTHER, ".402 .608 .452 .505"),
            ("LongP (E5)", _OTHER, _OTHER, ".353 .649 .439 .434"),
        ),
        reading="means of 3 seeds",
    ),
    PublishedTable(
        _BIAS,
        "Table 5",
        _columns(_TITLE, _DESC),
        (
            ("Zhang et al. FirstP", "firstp", _BERT, ".449 .510"),
            ("Zhang et al. MaxP", _OTHER, _OTHER, ".477 .530"),
            ("Zhang et al. MaxP (ELECTRA)", _OTHER, _OTHER, ".523 .574"),
        ),
        reading="values that it quotes of Zhang, Yates and Lin 2021",
    ),
    PublishedTable(
        _BIAS,
        "Table 6",
        _columns(_MSM, _DL, _TITLE, _DESC),
        tuple(
            (f"{number} chunks", "parade-attn", _BERT, texts,
             {**_SLIDING, "chunking.max_chunks": number})
            for number, texts in enumerate(
                (
                    ".401 .637 .476 .527",
                    ".408 .653 .499 .544",
                    ".406 .648 .505 .557",
                    ".412 .654 .504 .558",
                    ".409 .652 .502 .556",
                    ".411 .653 .504 .554",
                ),
                start=1,
            )
        ),
        reading="PARADE Attn over the first chunks",
    ),
    PublishedTable(
        _KEYB,
        "main results",
        _columns("Robust04 nDCG@20", "GOV2 nDCG@20", "MQ2007 nDCG@20", "MQ2008 nDCG@20"),
        (
            ("Vanilla BERT", "firstp", _BERT, ".4678 .4764 .5620 .5697"),
            ("CEDR-KNRM", "cedr-knrm", _BERT, ".4803 .4769 .5601 .5674"),
            ("Random Select", "keyb", _BERT, ".4688 .4853 .5775 .5611",
             {"model.selector": "random"}),
            ("KeyB(vBERT)TF-IDF", "keyb", _BERT, ".4884 .5269 .5864 .5755",
             {"model.selector": "tfidf"}),
            ("KeyB(vBERT)BM25", "keyb", _BERT, ".4941 .5199 .5824 .5788",
             {"model.selector": "bm25"}),
            ("KeyB(vBERT)BinB", "keyb", _BERT, ".4958 .5295 .5969 .5788",
             {"model.selector": "learned-shared"}),
            ("PARADE", _OTHER, _OTHER, ".5017 .5466 .5950 .5799"),
            ("PARADE5", _OTHER, _OTHER, ".4761 .5053 .5851 .5716"),
            ("KeyB(PARADE5)TF-IDF", "keyb-parade", _BERT, ".4989 .5352 .5998 .5851",
             {"model.selector": "tfidf"}),
            ("KeyB(PARADE5)BM25", "keyb-parade", _BERT, ".5040 .5624 .6021 .5812",
             {"model.selector": "bm25"}),
            ("KeyB(PARADE5)BinB", "keyb-parade", _BERT, ".4967 .5379 .5978 .5835",
             {"model.selector": "learned-shared"}),
            ("KeyB(PARADE5)BinB2", "keyb-parade", _BERT, ".5058 .5591 .6005 .5837",
             {"model.selector": "learned-separate"}),
        ),
        reading="for each measure the epoch that was best in it on validation",
    ),
    PublishedTable(
        _KEYB,
        "Table 11",
        _columns(_DL19, "DL 2019 MAP"),
        (
            ("BM25", "bm25", _ANY, ".488 .234"),
            ("TK", "tk", _ANY, ".594 .252"),
            ("TKL", "tkl", _ANY, ".644 .277"),
            ("RoBERTa FirstP", "firstp", _ROBERTA, ".588 .233"),
            ("RoBERTa MaxP", "maxp", _ROBERTA, ".630 .246"),
            ("PARADE", _OTHER, _OTHER, ".655 .280"),
            ("QDS-Transformer", "qds", _LONGFORMER, ".667 .278"),
            ("IDCM", "idcm", _ANY, ".679 .273"),
            ("KeyB(vBERT)BM25", "keyb", _BERT, ".678 .277", {"model.selector": "bm25"}),
            ("KeyB(vBERT)BinB", "keyb", _BERT, ".707 .281", {"model.selector": "learned-shared"}),
            ("KeyB(PARADE5)BM25", "keyb-parade", _BERT, ".672 .280", {"model.selector": "bm25"}),
            ("KeyB(PARADE5)BinB", "keyb-parade", _BERT, ".676 .277",
             {"model.selector": "learned-shared"}),
            ("KeyB(PARADE5)BinB2", "keyb-parade", _BERT, ".678 .279",
             {"model.selector": "learned-separate"}),
        ),
    ),
)  # fmt: skip


def published(sweep: Sweep) -> dict[str, dict[str, list[str]]]:
    """{cell: {measure: ["value (source)", ...]}} of the systems that a published table has for this
    collection and measure, the tables in the order of `TABLES`."""
    values: dict[str, dict[str, list[str]]] = {}
    for cell in sweep.cells:
        for table in TABLES:
            for label, model, encoder, _, *settings in table.rows:
                if not _is_same(sweep, cell, model, encoder, settings[0] if settings else {}):
                    continue
                for heading, value in table.cells(label).items():
                    collection, measure = table.columns[heading] or ("", "")
                    if collection == sweep.collection.get("name") and measure in sweep.measures:
                        own = values.setdefault(cell.cell, {}).setdefault(measure, [])
                        own += [f"{value} ({table.source})"] * (value != "-")
    return values


def _is_same(
    sweep: Sweep, cell: SweepCell, model: str, encoder: str, settings: Mapping[str, Any]
) -> bool:
    """True if a cell is a row's system; windows that are not swept are taken to be the row's."""
    own = cell.settings.get("model.backbone", sweep.backbone.get("name"))
    return (
        cell.settings.get("model.name") == model
        and encoder in (own, _ANY)
        and all(
            cell.settings.get(name, value if name in _SLIDING else None) == value
            for name, value in settings.items()
        )
    )


def beside(shown: Table, analysis: Analysis) -> Table:
    """A table of the systems in the order of `analysis.rows`, with a column of published values
    with `--published`, where there are any."""
    if not analysis.published:
        return shown
    rows = [
        replace(line, cells=(*line.cells, Cell(_text(analysis, row.cell))))
        for line, row in zip(shown.rows, analysis.rows, strict=True)
    ]
    words = f"{shown.caption} Published: values of other people's runs, never tested."
    return replace(
        shown,
        heading=(*shown.heading, "published"),
        rows=tuple(rows),
        align=f"{shown.align}l",
        caption=words.strip(),
    )


def published_lines(analysis: Analysis) -> list[str]:
    """The lines of a terminal; none without `--published`."""
    if analysis.published is None:
        return []
    sweep = analysis.sweep
    if not analysis.published:
        places = dict.fromkeys(
            " ".join(place) for table in TABLES for place in table.columns.values() if place
        )
        collection = sweep.collection.get("name", "this collection")
        return wrapped(
            f"No published value is known for a system of this sweep on {collection} "
            f"({', '.join(sweep.measures)}); known are {', '.join(places)}."
        )
    values = [
        f"Published, {sweep.label(cell)}: {_text(analysis, cell)}." for cell in analysis.published
    ]
    return [line for text in [*values, "Not tested: other runs."] for line in wrapped(text)]


def _text(analysis: Analysis, cell: str) -> str:
    """`nDCG@10 .647 (Boytsov et al. 2022, Table 4)`, several separated by commas."""
    values = (analysis.published or {}).get(cell, {})
    return "; ".join(f"{measure} {value}" for measure, own in values.items() for value in own)

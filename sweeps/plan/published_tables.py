"""The tables of papers (`published_tables.toml`), whose values reports show beside ours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rank_core.parsing import parsed_toml

ANY = "any encoder"


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed: `columns` {heading: (collection, measure), if it is one of ours, and
    settings of its trials}, `rows` (label, model, encoder, cells, further settings); "-": no
    value."""

    source: str  # `Boytsov et al. 2022, Table 4`
    columns: Mapping[str, Sequence[Any]]
    rows: Sequence[Sequence[Any]]

    def cells(self, row: str) -> dict[str, str]:
        """{heading: value} of a row."""
        texts = next(texts for label, _, _, texts, *_ in self.rows if label == row)
        return dict(zip(self.columns, texts.split(), strict=True))

    def systems(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(label, settings) of the rows that are systems of ours."""
        for label, model, encoder, _, *more in self.rows:
            if model:
                backbone = {} if encoder == ANY else {"model.backbone": encoder}
                yield label, {"model.name": model, **backbone, **(more[0] if more else {})}


_CONTENT = parsed_toml(Path(__file__).with_suffix(".toml").read_bytes(), __name__)
TABLES = tuple(
    PublishedTable(
        f"{printed['paper']}, {printed['table']}",
        {heading: _CONTENT["columns"].get(heading, ("", "")) for heading in printed["columns"]},
        printed["rows"],
    )
    for printed in _CONTENT["tables"]
)

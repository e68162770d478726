"""What a use of a system costs, by the names of `--objective` and `--at-most`; two of the costs are
measured in its trials."""

from collections.abc import Iterable, Mapping

from sweeps.store.records import Records
from sweeps.store.scores import read_scores

TOKENS, MILLISECONDS, MEMORY = "tokens_per_document", "ms_per_query", "peak_memory"
COST_UNITS: Mapping[str, str] = {
    TOKENS: "encoder tokens per document",
    MILLISECONDS: "ms per query",
    MEMORY: "MiB of memory at the peak",
}
"""{cost: its unit}. The tokens are known before a trial runs."""
MEASURED = (MILLISECONDS, MEMORY)
MEBIBYTE = 2**20


def measured_costs(records: Records, names: Iterable[str], *, folds: int = 0) -> dict[str, float]:
    """{cost: mean over finished trials of one cell}, measured on their machines; `folds` as in
    `evaluation.folds`."""
    names = [*names]
    scores = read_scores(records, names)
    sizes = {
        str(split): int(own["query_id"].nunique())
        for split, own in scores.groupby("split", observed=True)
    }
    facts = [records.state(name).facts for name in names]
    milliseconds = [
        1000 * float(own["eval_seconds"]) / _num_ranked(records, name, sizes, folds)
        for name, own in zip(names, facts, strict=True)
    ]
    memory = [float(own["peak_memory_bytes"]) / MEBIBYTE for own in facts]
    return {
        MILLISECONDS: sum(milliseconds) / len(names),
        MEMORY: sum(memory) / len(names),
    }


def _num_ranked(records: Records, name: str, sizes: Mapping[str, int], folds: int) -> float:
    """The queries that a trial ranked: those of test once, those of dev at each validation."""
    validations = sum(report["dev"] is not None for report in records.history(name)) or 1
    # Each query is in dev of one fold.
    return sizes.get("test", 0) + validations * sizes.get("dev", 0) / max(folds, 1)

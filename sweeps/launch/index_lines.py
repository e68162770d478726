"""What a plan says of the indexes of an embedding model: sizes, shared chunks, what is left out."""

from collections.abc import Iterator

from rank_core.models import model_class
from rank_core.models.dense import embedding_model
from rank_core.retrieval.index import memory_bytes
from sweeps.plan.plan import Plan, PlanLine
from sweeps.plan.trial_cost import index_of, unread_tokens
from sweeps.systems.chunk_sizes import USUAL, usual_label
from sweeps.terminal.text import count


def index_lines(plan: Plan) -> Iterator[PlanLine]:
    """The vectors and bytes of the smallest and the largest index, the tokens to embed, and the
    common chunk sizes that the model does not read; nothing for other sweeps."""
    cells = [c for c in plan.cells if model_class(c.config.model.name).retrieves]
    if not cells:
        return
    indexes = {cell.label: index_of(cell.config, cell.inputs) for cell in cells}
    ordered = sorted(indexes, key=lambda label: indexes[label].num_bytes)
    some = indexes[ordered[0]]
    about = "" if some.whole else "about "
    if about:
        yield (
            "sample",
            f"{some.index.cuts.num_documents:,} of {some.documents:,} documents are "
            "cut for this plan, spread over all lengths: the sizes of the indexes are estimates",
        )
    for label in dict.fromkeys((ordered[0], ordered[-1])):
        index = indexes[label]
        size = f"{about}{index.vectors:,} vectors, {index.num_bytes:,} bytes in "
        size += f"{index.index.stored} ({label})"
        larger = f"; larger than half of this machine's memory of {memory_bytes():,} bytes: it is "
        larger += "searched from the disk"
        yield "index", size + (larger if index.searched_bytes > memory_bytes() / 2 else "")
    alone = sum(index.encoder_tokens for index in indexes.values())
    unread = sum(unread_tokens((c.cell, c.config, c.inputs) for c in cells).values())
    yield (
        "embedding",
        f"{about}{count(unread)} encoder tokens to read; each index alone: "
        f"{count(alone)}. The difference is due to chunks that several indexes share or that are "
        "already stored",
    )
    model = embedding_model(cells[0].config, "cpu")
    yield from (("model", note) for note in model.notes)
    longest = model.max_window
    if out := [usual_label(*usual) for usual in USUAL if usual[0] > longest]:
        yield (
            "left out",
            f"{', '.join(out)}, in common use: the model reads windows of up to {longest} tokens",
        )

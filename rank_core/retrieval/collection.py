"""The chunks of a collection by its name, and the relevant text of its queries."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from rank_core.data.load import load_collection
from rank_core.data.spans import relevant_spans, spans_file
from rank_core.data.titles import title_lengths
from rank_core.errors import BadInput
from rank_core.records import Collection
from rank_core.retrieval.cuts import CutTable, Cutting, WholeDocument, cut_documents
from rank_core.retrieval.evidence import Place
from rank_core.settings.config import TrialConfig


def cuts_of(
    name: str,
    collection: Collection,
    tokenizer: object,
    cutting: Cutting,
    only: Sequence[str] | None = None,
) -> CutTable:
    """The chunks of a collection's documents, or of those with the ids of `only`. Raises `BadInput`
    where each shall have a title and no document has one."""
    documents = chosen_documents(collection, only)
    titles: Mapping[str, int] = {}
    digest = getattr(collection.documents, "content_hash", collection.content_hash)
    if not isinstance(cutting, WholeDocument) and cutting.title:
        titles = titles_of(name, digest)
        if not titles:
            raise BadInput(
                f"chunking.title needs a collection whose documents have titles, and "
                f"{collection.name} has none that are kept apart from the text; leave it out"
            )
        joined = " ".join(f"{doc_id} {length}" for doc_id, length in titles.items())
        digest += hashlib.sha256(joined.encode()).hexdigest()[:16]
    if only is not None:
        digest += hashlib.sha256("\n".join(only).encode()).hexdigest()[:16]
    return cut_documents(documents, titles, tokenizer, cutting, digest)


def chosen_documents(collection: Collection, only: Sequence[str] | None) -> Mapping[str, str]:
    """The documents with the ids of `only`; None: all."""
    if only is None:
        return collection.documents
    return {doc_id: collection.documents[doc_id] for doc_id in only}


def has_titles(name: str) -> bool:
    """Whether documents of a collection have titles apart from their texts."""
    collection = load_collection(name)
    digest = getattr(collection.documents, "content_hash", collection.content_hash)
    return bool(titles_of(name, digest))


@lru_cache(maxsize=4)
def titles_of(name: str, content_hash: str) -> Mapping[str, int]:
    """{doc_id: characters of the title with which its text begins} of the documents that have a
    title, read once for the contents of a collection."""
    return title_lengths(name)


def evidence_of(name: str, collection: Collection) -> Mapping[str, list[Place]]:
    """{query_id: its relevant text}, empty where a collection has no spans."""
    found: dict[str, list[Place]] = {}
    if path := spans_file(name, collection):
        for query_id, doc_id, start, end in relevant_spans(path, collection):
            found.setdefault(query_id, []).append(Place(doc_id, start, end))
    return found


def asked_evidence(config: TrialConfig, collection: Collection) -> Mapping[str, list[Place]]:
    """`evidence_of`, as `evaluation.evidence` asks. Raises `BadInput` where it is asked for and
    nothing is known of it."""
    asked = config.evaluation.evidence
    known = {} if asked == "no" else evidence_of(config.collection, collection)
    if asked == "yes" and not known:
        raise BadInput(
            f"evaluation.evidence=yes needs the places of relevant text, and {collection.name} has "
            "no spans.jsonl.gz or spans.jsonl beside its documents with spans of relevant "
            "documents; see "
            "docs/data.md, or leave the setting out"
        )
    return known

"""An exported model that ranks documents: texts in, ranked lists out, with the same computation as
in its trial."""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core.arguments import (
    flag,
    got,
    is_frame,
    is_number,
    one_text,
    optional,
    path,
    place,
    takes,
    text,
    unwrapped,
    whole,
)
from rank_core.chunking.batches import PairEncoder, batch_tokens_on, tokenize_queries
from rank_core.chunking.token_store import tokenize
from rank_core.data import given
from rank_core.data.readers import frame_documents
from rank_core.encoders.backbones import EXPORT_FILE, load_tokenizer
from rank_core.encoders.copies import kept
from rank_core.errors import BadInput, shown
from rank_core.export.folder import ExportedModel, read_model
from rank_core.export.served import served_model
from rank_core.files import file_sha256
from rank_core.machine import autocast_type, device_of, trial_device
from rank_core.models.key_blocks import KnownFrequencies
from rank_core.models.passage_scores import Birch
from rank_core.models.runtimes import use_runtime
from rank_core.process_state import usual
from rank_core.ranking.encode import Work, weight_copies
from rank_core.ranking.final_runs import best_sentences, interpolate
from rank_core.ranking.rerank import rerank
from rank_core.ranking.scorer import require_finite
from rank_core.records import Run
from rank_core.settings.config import RUNTIMES, runtime_of
from rank_core.settings.training import PRECISIONS

_Entries: TypeAlias = dict[str | int, Any]
_MARGIN = 64  # tokens behind those that are read, so that a cut text has the same ones before
_CHARACTERS = 16  # of a token, more than most have
DOCUMENTS_AT_ONCE = 1024  # tokenised together and kept in memory


class Ranked(NamedTuple):
    """A document of a ranked list: its id, or its place in the input list, and its score.

    Examples:
        >>> import ranksweep
        >>> reranker = ranksweep.Reranker.load("model")
        >>> reranker.rank("how to sort a list", ["Return the day", "Sort a list in place"])[0]
        Ranked(doc_id=1, score=...)
    """

    doc_id: str | int
    score: float


@dataclass(frozen=True)
class _Origin:
    """Where a reranker was loaded from, and as what."""

    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    file: Path  # names all others by their hashes, or says how the model is served
    content_hash: str = ""  # of a published model
    state: str = field(init=False)  # of the file when it was read

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", file_sha256(self.file))


def _again(cls: "type[Reranker]", origin: _Origin) -> "Reranker":
    """A reranker loaded again; raises `BadInput` where another one stands in its place by now."""
    load = cls.load if origin.file.name == EXPORT_FILE else cls.serve
    loaded = load(*origin.arguments, **origin.options)
    if loaded._origin != origin:
        raise BadInput(f"{origin.arguments[0]} changed after the reranker was loaded from it")
    return loaded


def _documents(name: str, value: Any) -> _Entries:
    """{doc_id or place: text} of the documents of one query."""
    value = unwrapped(value)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise BadInput(
            "rank needs one query and several documents: a list or {doc_id: text}, got "
            f"{got(value)} as {name}"
        )
    if is_frame(value):
        return cast(_Entries, frame_documents(value, name))
    return given.entries(name, value)


def _is_finite(score: object) -> bool:
    return is_number(score) and math.isfinite(score)


runtime_of_caller = one_text("a runtime", ("", *RUNTIMES), lower=True)
precision_of = one_text("a precision", ("", *PRECISIONS), lower=True)
_top = optional(whole(least=0))


class Reranker:
    """A ranker with its tokenizer and chunking. `about` holds its origin.

    Examples:
        >>> import ranksweep
        >>> reranker = ranksweep.Reranker.load("model")  # a folder of `ranksweep export`
        >>> reranker
        <Reranker: maxp>
    """

    def __init__(
        self,
        exported: ExportedModel,
        device: str | torch.device | None,
        precision: str,
        runtime: str = "",
    ) -> None:
        self.config, self.backbone, self.about = exported.config, exported.backbone, exported.about
        asked = {"training.precision": precision, "evaluation.runtime": runtime}
        config = self.config.override({name: word for name, word in asked.items() if word})
        if device is None:
            device = trial_device() if runtime_of(config) == "torch" else "cpu"
        device = torch.device(device)
        self._exported = exported
        self._model = exported.model.to(device)
        self._autocast = autocast_type(config.training.precision, device)
        use_runtime(self._model, config, self.backbone, self._autocast, folder=self.backbone.folder)
        self._tokenizer = load_tokenizer(self.backbone.folder)
        # All of this stays as it is, for any number of threads. transformers would remove
        # truncation and padding at the first call, while another may be reading.
        backend = self._tokenizer.backend_tokenizer
        if backend.truncation or backend.padding:
            backend.no_truncation()
            backend.no_padding()
        with torch.inference_mode():
            self._copies = weight_copies(self._model, self._autocast)
        self._tokens, self._counting = 0, threading.Lock()
        self._origin: _Origin | None = None

    @classmethod
    @takes(
        folder=path,
        device=optional(device_of),
        precision=precision_of,
        runtime=runtime_of_caller,
        trust_code=flag,
    )
    @usual()
    def load(
        cls,
        folder: Path | str,
        *,
        device: str | torch.device | None = None,
        precision: str = "",
        runtime: str = "",
        trust_code: bool = False,
    ) -> "Reranker":
        """The reranker in an exported folder, on a GPU if there is one, in the precision of its
        training unless `precision` is fp32, bf16, fp16 or int8, computed by the folder's runtime
        unless `runtime` is torch or openvino (extra `openvino`). A model from outside the package
        is the class of a module that the caller has imported; `trust_code` imports it from the
        folder's `code/`, which runs it. It has no
        effect on a model of the package, whose folder has no code to run.

        Raises `BadInput` if the folder is not an exported model, or names such a class and neither
        holds.

        Examples:
            >>> import ranksweep
            >>> ranksweep.Reranker.load("model", device="cpu").config.chunking.window
            64
        """
        loaded = cls(read_model(folder, trust_code=trust_code), device, precision, runtime)
        more = {"device": device, "precision": precision, "runtime": runtime}
        file = Path(folder).absolute() / EXPORT_FILE
        loaded._origin = _Origin((file.parent,), more | {"trust_code": trust_code}, file)
        return loaded

    @classmethod
    @takes(
        model=place,
        setting=path,
        device=optional(device_of),
        precision=precision_of,
        runtime=runtime_of_caller,
    )
    @usual()
    def serve(
        cls,
        model: str | Path,
        setting: Path | str,
        *,
        device: str | torch.device | None = None,
        precision: str = "",
        runtime: str = "",
    ) -> "Reranker":
        """A published reranker (a folder or a Hugging Face id) as `serving.json` says, with the
        depth of its measurement. Raises `BadInput` for a file of another model or tokenizer, a file
        that was changed into what it cannot be, and a model without a trained head.

        Examples:
            >>> import ranksweep
            >>> ranksweep.Reranker.serve("tiny-docs", "model/serving.json").config.model.name
            'maxp'
        """
        served = cls(served_model(str(model), setting), device, precision, runtime)
        more = {"device": device, "precision": precision, "runtime": runtime}
        named = Path(model).absolute() if Path(model).is_dir() else model
        file = Path(setting).absolute()
        served._origin = _Origin((named, file), more, file, served.backbone.content_hash)
        return served

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, in this process or another one, is loaded again from where this one was: its
        pickle has no weights."""
        if self._origin is None:
            raise TypeError("only a Reranker of load or serve can be pickled or copied")
        return _again, (type(self), self._origin)

    @property
    def description(self) -> str:
        """The system in a line: its trial, and its test beside the first stage.

        Examples:
            >>> import ranksweep
            >>> ranksweep.Reranker.load("model").description  # of a model without a test: its name
            'maxp'
        """
        return str(self.about.get("description") or self.config.model.name)

    def __repr__(self) -> str:
        return f"<Reranker: {self.description}>"

    @property
    def needs_first_stage(self) -> bool:
        """True where there is no model without the first stage's scores: Birch.

        Examples:
            >>> import ranksweep
            >>> ranksweep.Reranker.load("model").needs_first_stage
            False
        """
        return bool(self._exported.interpolation)

    @property
    def mixes_first_stage(self) -> bool:
        """True for a system "+BM25", whose model alone ranks where no such scores are given.

        Examples:
            >>> import ranksweep
            >>> ranksweep.Reranker.load("model").mixes_first_stage
            False
        """
        return bool(self._exported.first_stage)

    @takes(query=text, documents=_documents, first_stage=optional(given.entries), top=_top)
    def rank(
        self,
        query: str,
        documents: Sequence[str] | Mapping[str, str],
        *,
        first_stage: Sequence[float] | Mapping[str, float] | None = None,
        top: int | None = None,
    ) -> list[Ranked]:
        """The documents by falling score, only the first `top` if set. Documents are {doc_id:
        text}, or a list of texts, identified by their places; a Series has its labels as ids, a
        data frame the columns doc_id and text. `first_stage` has their scores in the same form,
        for a system that `mixes_first_stage`, whose model alone ranks without them, and one that
        `needs_first_stage`, which raises `BadInput` without them.

        Examples:
            >>> import ranksweep
            >>> reranker = ranksweep.Reranker.load("model")
            >>> texts = {"d1": "Return the day of the week", "d2": "Sort a list in place"}
            >>> [ranked.doc_id for ranked in reranker.rank("how to sort a list", texts)]
            ['d2', 'd1']
        """
        texts, of_first_stage = cast(_Entries, documents), cast(_Entries | None, first_stage)
        if self.needs_first_stage and first_stage is None:
            raise BadInput(
                "this system has no score without the first stage's: pass first_stage=[...], "
                "or {doc_id: score} for named documents, or call rerank with a run"
            )
        scores = dict.fromkeys(texts, 0.0) if of_first_stage is None else of_first_stage
        if scores and {*map(type, texts)} != {*map(type, scores)}:
            form = "a list of scores, as documents are a list"
            if str in map(type, texts):
                form = "{doc_id: score}, as documents are {doc_id: text}"
            raise BadInput(f"first_stage must have the form of the documents: {form}")
        if texts.keys() != scores.keys() or not all(map(_is_finite, scores.values())):
            raise BadInput(
                f"first_stage must have a finite score for each of the {len(texts)} documents, got "
                f"{shown([*scores.values()])}"
            )
        of_id = {str(doc_id): doc_id for doc_id in texts}
        run: Run = {"": {doc_id: float(scores[of_id[doc_id]]) for doc_id in of_id}}
        by_id = {doc_id: texts[of_id[doc_id]] for doc_id in of_id}
        depth, alone = max(1, len(texts)), of_first_stage is None
        [ranked] = self.rerank(run, {"": query}, by_id, depth=depth, model_alone=alone).values()
        return [Ranked(of_id[doc_id], score) for doc_id, score in ranked.items()][:top]

    @takes(
        run=given.run,
        queries=given.query_texts,
        documents=given.document_texts,
        depth=optional(whole(least=1)),
        depth_only=flag,
        model_alone=flag,
    )
    @usual()
    def rerank(
        self,
        run: Run,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        *,
        depth: int | None = None,
        depth_only: bool = False,
        model_alone: bool = False,
    ) -> Run:
        """{query_id: {doc_id: score}} with the first `depth` candidates of each query of `run`, by
        their scores, in the model's order; by default as many as the trial ranked. Ties are broken
        by doc_id, equal scores of `run` by their order in it. A
        system interpolated with the first stage uses the scores of `run`. The candidates that the
        model does not read follow in the order of `run`, with scores that fall below the others;
        `depth_only` leaves them out. With `model_alone` an interpolated system ranks by its model.

        `queries` and `documents` are texts by id; they may have more than the run. Each may be a
        data frame too (query_id, doc_id, score; query_id, text; doc_id, text), the texts a Series
        with their ids as labels.

        Examples:
            >>> import ranksweep
            >>> reranker = ranksweep.Reranker.load("model")
            >>> texts = {"d1": "Return the day of the week", "d2": "Sort a list in place"}
            >>> bm25 = {"q1": {"d1": 7.5, "d2": 2.5}}
            >>> list(reranker.rerank(bm25, {"q1": "how to sort a list"}, texts)["q1"])
            ['d2', 'd1']
        """
        depth = self.config.evaluation.depth if depth is None else depth
        for query_id in run:
            _checked("query", query_id, queries)
        reranked: Run = {}
        for some in _blocks(run, depth):
            scored = self._rerank(some, queries, documents, depth)
            mix = None if model_alone else self._exported.first_stage
            reranked |= mix(scored, some) if mix else scored
        if depth_only:
            return reranked
        return {query_id: _followed(reranked[query_id], run[query_id]) for query_id in run}

    def _rerank(
        self, run: Run, queries: Mapping[str, str], documents: Mapping[str, str], depth: int
    ) -> Run:
        self._model.compile_layers(self._tokens)
        work = Work()
        ranked = (doc_id for of_query in run.values() for doc_id in of_query)
        pairs = self._pairs({name: _checked("document", name, documents) for name in ranked})
        limit = self.config.chunking.max_query_tokens
        before = self.backbone.layout.before_query
        tokens = tokenize_queries(self._tokenizer, [queries[q] for q in run], limit, before)
        options: dict[str, Any] = {
            "queries": dict(zip(run, tokens, strict=True)),
            "candidates": run,
            "depth": depth,
            "batch_tokens": self.config.evaluation.batch_tokens
            or batch_tokens_on(self._model.device),
            "autocast": self._autocast,
            "work": work,
        }
        weights = self._exported.interpolation
        with kept(self._copies):
            if weights:
                assert isinstance(self._model, Birch)
                scored = interpolate(best_sentences(self._model, pairs, **options), run, weights)
            else:
                scored = rerank(self._model, pairs, **options)
        with self._counting:
            self._tokens += work.tokens
        return require_finite(scored)

    def _read_tokens(self, texts: list[str], before: str) -> list[list[int]]:
        """The tokens of each text, at least as many as are read of a document. Only the beginning
        of a long text is tokenised: the time of an answer follows from what is read."""
        limit = self.config.chunking.max_document_tokens + _MARGIN
        length = _CHARACTERS * limit
        ids = tokenize(self._tokenizer, [_beginning(one, length) for one in texts], before)
        for i, one in enumerate(texts):
            part = length
            # Of long words, or of white space.
            while len(ids[i]) < limit and len(_beginning(one, part)) < len(one):
                part *= 8
                [ids[i]] = tokenize(self._tokenizer, [_beginning(one, part)], before)
        return ids

    def _pairs(self, texts: Mapping[str, str]) -> PairEncoder:
        before = self.backbone.layout.before_text
        ids = self._read_tokens([*texts.values()], before) if texts else []
        arrays: list[NDArray[np.int32]] = [np.asarray(tokens, np.int32) for tokens in ids]
        tokens = KnownFrequencies(zip(texts, arrays, strict=True))
        tokens.frequencies = self._exported.frequencies
        return type(self._model).reader(self.config, self.backbone, tokens)  # type: ignore[arg-type]


def _beginning(whole: str, length: int) -> str:
    """The words within the first characters of a text; the whole text where a word is longer."""
    if len(whole) <= length:
        return whole
    part = whole[:length]
    words = part[: len(part) - len(part.split()[-1])] if part[-1:].strip() else part
    return words if words.strip() else whole


def _blocks(run: Run, depth: int) -> Iterator[Run]:
    """Parts of a run whose documents fit in memory together."""
    some: Run = {}
    doc_ids: set[str] = set()
    for query_id, ranked in run.items():
        some[query_id] = dict(list(ranked.items())[:depth])
        doc_ids |= some[query_id].keys()
        if len(doc_ids) >= DOCUMENTS_AT_ONCE:
            yield some
            some, doc_ids = {}, set()
    if some:
        yield some


def _followed(read: Mapping[str, float], ranked: Mapping[str, float]) -> dict[str, float]:
    """The documents that were read, and behind them the others of a ranked list in its order."""
    lowest = min(read.values(), default=0.0)
    step = max(1.0, 1e-6 * abs(lowest))  # which a reader in single precision still tells apart
    rest = [doc_id for doc_id in ranked if doc_id not in read]
    return {**read, **{doc_id: lowest - step * i for i, doc_id in enumerate(rest, start=1)}}


def _checked(kind: str, name: str, texts: Mapping[str, str]) -> str:
    """A text; raises `BadInput` for what a tokenizer cannot read."""
    text, what = texts.get(name), f"{kind} {shown(name)}".removesuffix(" ''")  # of `rank`
    if not isinstance(text, str):
        raise BadInput(f"{what} of the run must have a text, got {shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} must be valid Unicode, without half of a surrogate pair") from None
    return text

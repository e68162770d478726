"""The examination of environment and data, one line per finding. Nothing is launched; the cache
gets what every sweep needs: the collection and its tokens."""

import argparse
import logging
import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.data.folder import DECLARED
from rank_core.data.folds import FEW_QUERIES
from rank_core.data.groups import document_clusters, share_documents
from rank_core.data.judged import (
    depth_note,
    judged_depth,
    num_without_relevant,
    without_relevant_note,
)
from rank_core.data.overlap import KEEP_APART, seen_by, shared_groups, shared_texts
from rank_core.data.store import DocumentStore, num_ranked
from rank_core.data.transforms.expression import base_of
from rank_core.errors import BadInput
from rank_core.evaluate import check_measures
from rank_core.first_stage.languages import (
    ENGLISH,
    LANGUAGES,
    OF_LANGUAGE,
    UNDETERMINED,
    languages_fitting,
    script_counts,
)
from rank_core.lines import VisibleLog, beside, put
from rank_core.models import model_class
from rank_core.models.checks import check_model
from rank_core.models.reading import configured
from rank_core.records import SPLITS, Collection, Split
from rank_core.retrieval.collection import evidence_of
from rank_core.settings.config import Evaluation, TrialConfig, parse_setting
from sweeps.commands.doctor.finding import Diagnosis, exit_code, machine, print_finding, verdict
from sweeps.commands.run import sweep_of
from sweeps.plan.experiment import Experiment, suited
from sweeps.plan.options import absolute, absolute_folder, named_collection, typed_settings
from sweeps.plan.trial_cost import chunk_statistics, cut_queries, planned_steps
from sweeps.terminal.text import numbered

CUT = ("chunking.window", "chunking.stride")
LOW_RECALL = 0.7
SAMPLED_TEXTS, SAMPLED_LETTERS = 200, 2000
FEW_LANGUAGES = 3


def examine(arguments: argparse.Namespace) -> int:
    """Print the findings and return the exit code."""
    logged = logging.StreamHandler()
    logged.setFormatter(VisibleLog("... %(message)s"))
    logging.basicConfig(handlers=[logged], level=logging.WARNING)
    logging.getLogger("rank_core.cache").setLevel(logging.INFO)  # once, for minutes
    asked = asked_of(arguments)
    trains = asked.config.training.num_epochs > 0 and model_class(asked.config.model.name).trains
    sections = {"environment": machine(trains=trains), "data": _data(asked, trains=trains)}
    findings: list[Diagnosis] = []
    for title, section in sections.items():
        put(title)
        for finding in section:
            print_finding(finding)
            findings.append(finding)
    put(verdict(findings))
    return exit_code(findings)


class Examined(NamedTuple):
    """What shall be examined."""

    config: TrialConfig
    experiment: Experiment | None  # the sweep that was named
    typed: frozenset[str]  # the settings of the command line


def asked_of(arguments: argparse.Namespace) -> Examined:
    """The settings of `--collection`, `--backbone` and words such as chunking.window=150, for the
    sweep that is named first. Raises `BadInput` for one without trials."""
    words, experiment = list(arguments.settings), None
    if words and "=" not in words[0]:
        name = words.pop(0)
        try:
            found = sweep_of(name)
        except BadInput as error:
            raise BadInput(f"{error}; settings are section.setting=value") from None
        if isinstance(found, ModuleType):
            raise BadInput(f"{name} trains no trials: `ranksweep run {name}` examines its own data")
        experiment = found[0]
    config = _config(arguments, words, experiment)
    return Examined(config, experiment, frozenset(word.partition("=")[0] for word in words))


def _config(
    arguments: argparse.Namespace, words: Sequence[str], experiment: Experiment | None
) -> TrialConfig:
    settings: dict[str, Any] = {}
    if arguments.collection is not None:
        settings["collection"] = named_collection(arguments.collection, arguments.fields)
    if arguments.backbone is not None:
        settings["model.backbone"] = absolute_folder(arguments.backbone)
    for name, value in typed_settings(words).items():
        if name in settings:
            raise BadInput(f"{name} is set twice, also by its flag; set it once")
        settings[name] = parse_setting(name, absolute(name, value))
    usual = {**experiment.defaults, **experiment.settings} if experiment else {}
    config = configured({**usual, **settings})
    check_measures(config.evaluation.measures)
    return config


def _data(asked: Examined, *, trains: bool) -> Iterator[Diagnosis]:
    """The findings on a collection as a sweep reads it, which trains or not; inputs that it would
    refuse are an error with its message."""
    config, experiment = asked.config, asked.experiment
    try:
        what = f"{config.collection} and its tokens for {config.model.backbone}"
        beside(f"... reading {what}")
        inputs = load_inputs(config.collection, config.model.backbone)
        collection = inputs.collection
        check_measures(config.evaluation.measures, [s.qrels for s in collection.splits.values()])
        if experiment:
            if not trains:  # no sweep reads what it does not train on
                splits = {name: s for name, s in collection.splits.items() if name != "train"}
                collection = replace(collection, splits=splits)
                inputs = replace(inputs, collection=collection)
            point = experiment.grid(config, inputs.backbone).points[0]
            point = {name: value for name, value in point.items() if name not in asked.typed}
            config = config.override(point)
        elif not asked.typed & {*CUT}:  # a sweep's default for this backbone
            config = config.override(suited(config, inputs.backbone))
        kind = model_class(config.model.name)
        yield from _sizes(inputs, trains=trains if experiment else None)
        limit = config.chunking.max_query_tokens
        cut, number = cut_queries(inputs, limit)
        if cut and not kind.retrieves:
            yield Diagnosis(
                "warning" if cut > number / 20 else "note",
                f"{cut:,} of {number:,} queries have more than {limit} tokens",
                "the model does not read their ends",
                "raise chunking.max_query_tokens",
            )
        yield from unread_letters(config.collection, collection)
        for name, split in collection.splits.items():
            if not kind.retrieves:
                yield recall(name, split, config.evaluation, _texts_alone(collection))
            yield from what_judgments_tell(name, split, collection.first_stage or "the first stage")
        yield from gaps(collection)
        yield from shared_queries(collection)
        yield from shared_subjects(collection)
        yield from clustered_queries(collection)
        if kind.retrieves:
            yield from evidence(config, collection)
        if kind.trains:
            yield coverage(config, inputs)
        steps = planned_steps(config, inputs) if "train" in collection.splits else None
        if steps and steps.remedy:
            what, why = f"training: {steps.text}", "next to nothing is learned"
            yield Diagnosis("warning", what, why, steps.remedy)
        check_model(config, inputs.backbone)
    except BadInput as error:
        yield Diagnosis("error", str(error))


def evidence(config: TrialConfig, collection: Collection) -> Iterator[Diagnosis]:
    """The finding on the places of relevant text, by which an index is measured within a reader's
    budget."""
    places = evidence_of(config.collection, collection)
    for name, split in collection.splits.items():
        number = sum(query_id in places for query_id in split.queries)
        what = f"{name}: the place of the answer is known for {number:,} of {len(split.queries):,}"
        if number:
            yield Diagnosis("ok", f"{what} queries")
        else:
            why = "how much of the evidence a reader gets is not measured"
            remedy = "spans.jsonl beside the documents (docs/data.md)"
            yield Diagnosis("note", f"{what} queries", why, remedy)


def _sizes(inputs: Inputs, *, trains: bool | None) -> Iterator[Diagnosis]:
    """The findings on the numbers of documents and queries; `trains`: whether the sweep that is
    asked for trains, None where none is."""
    collection, lengths = inputs.collection, inputs.tokens.lengths()
    queries = ", ".join(f"{len(split.queries):,} {n}" for n, split in collection.splits.items())
    yield Diagnosis(
        "ok",
        f"{collection.name} {collection.content_hash}: {len(collection.documents):,} documents "
        f"(mean {lengths.mean():,.0f}, median {np.median(lengths):,.0f}, longest {lengths.max():,} "
        f"tokens of {inputs.backbone.name}); queries: {queries}",
    )
    read = [name for name in SPLITS if trains is not False or name != "train"]
    if absent := [name for name in read if name not in collection.splits]:
        used = "trains on train, if it trains (chunk_size and serving do not), and chooses on dev"
        if trains is not None:
            used = "trains on train and chooses on dev" if trains else "chooses on dev"
        yield Diagnosis(
            "error" if trains else "note" if absent == ["train"] else "warning",
            f"no {' and no '.join(absent)} split",
            f"a sweep {used}",
            "divide the judgments by `ranksweep split`, or test all queries with "
            "evaluation.folds=5",
        )
    few = {name: len(split.queries) for name, split in collection.splits.items() if name != "train"}
    few = {name: number for name, number in few.items() if number < FEW_QUERIES}
    if few:
        yield Diagnosis(
            "warning",
            f"{' and '.join(f'{number} {name}' for name, number in few.items())} queries",
            "too few to detect real differences",
            "judge more queries, or test all of them with evaluation.folds=5",
        )


def recall(
    name: str, split: Split, evaluation: Evaluation, texts: Container[str] = frozenset()
) -> Diagnosis:
    """The finding on the candidates of a split. No first stage can find `texts`, which are no
    documents of the collection: training reads them as they are."""
    judged = [_relevant(split, query_id) for query_id in split.queries]
    if sum(map(len, judged)) and all(doc_id in texts for of_query in judged for doc_id in of_query):
        what = f"{name}: the relevant texts are not documents of the collection"
        if name == "train":
            return Diagnosis("ok", what)
        why = "no candidate can be relevant, so every measure is 0"
        return Diagnosis("error", what, why, "name them by the ids that the documents have")
    longest = max((num_ranked(split.candidates, query_id) for query_id in split.queries), default=0)
    recall = found_share(split, evaluation.depth, texts)
    number = numbered(min(evaluation.depth, longest), "candidate")
    result = f"{name}: {recall:.1%} of relevant documents are among {number}"
    if recall >= LOW_RECALL:
        return Diagnosis("ok", result)
    larger = ", or a larger evaluation.depth" if longest > evaluation.depth else ""
    return Diagnosis(
        "error" if recall == 0 else "warning",
        result,
        "a reranker cannot find documents that the first stage missed",
        "a better first stage ('COLLECTION|first-stage(by=rm3,tune=R@100)', or its run as "
        f"SPLIT/NAME.run){larger}",
    )


def what_judgments_tell(name: str, split: Split, ranker: str) -> Iterator[Diagnosis]:
    """The findings on judgments of what a first stage showed, as clicks are, and on queries of
    which they say nothing. Training uses both."""
    if name == "train":
        return
    if depth := judged_depth(split.qrels, split.candidates):
        yield Diagnosis(
            "warning",
            f"{name}: {depth_note(depth, ranker)}",
            "a system that brings other documents to the top is measured as worse",
            "judge the first documents of other systems as well",
        )
    if number := num_without_relevant(split.qrels):
        note = without_relevant_note(number, len(split.qrels))
        yield Diagnosis("note", f"{name}: {note}", "they shrink all means and differences alike")


def unread_letters(name: str, collection: Collection) -> Iterator[Diagnosis]:
    """The finding on texts whose letters are not of the language that BM25 reads them as; `name` is
    the collection's as given."""
    language = LANGUAGES[collection.language or ENGLISH]
    if collection.first_stage not in OF_LANGUAGE or not language.scripts:
        return
    texts = islice(collection.documents.values(), SAMPLED_TEXTS)
    scripts = script_counts(text[:SAMPLED_LETTERS] for text in texts)
    strange = scripts.total() - sum(scripts[script] for script in language.scripts)
    if strange <= scripts.total() / 2:
        return
    codes = languages_fitting(scripts)
    if len(codes) > FEW_LANGUAGES:
        code, choices = "CODE", "the code of their language"
    else:
        code = (codes or [UNDETERMINED])[0]
        fitting = [*codes, UNDETERMINED]
        choices = ", ".join(f"{code} for {LANGUAGES[code].name}" for code in fitting)
    yield Diagnosis(
        "warning",
        f"{strange / scripts.total():.0%} of the letters are of no script of {language.name}, the "
        "language in which BM25 reads the texts",
        "it can neither stem nor divide their words",
        f"'{base_of(name)}|first-stage(language={code})', or "
        f'{{"language": "{code}"}} in the folder\'s {DECLARED} ({choices})',
    )


def _relevant(split: Split, query_id: str) -> set[str]:
    return {d for d, grade in split.qrels.get(query_id, {}).items() if grade > 0}


def _texts_alone(collection: Collection) -> frozenset[str]:
    """The ids of texts of training files that are not documents of the collection."""
    first = len(collection.documents) - collection.unranked
    return (
        frozenset(islice(collection.documents, first, None)) if collection.unranked else frozenset()
    )


def gaps(collection: Collection) -> Iterator[Diagnosis]:
    """The findings on empty documents, and on relevant documents that the collection lacks."""
    documents = collection.documents
    empty = documents.num_blank() if isinstance(documents, DocumentStore) else 0
    if empty:
        what = f"{empty:,} of {len(documents):,} documents are empty"
        yield Diagnosis("note", what, "a model has nothing to read there")
    for name, split in collection.splits.items():
        relevant = {doc_id for query_id in split.queries for doc_id in _relevant(split, query_id)}
        if absent := sorted(doc_id for doc_id in relevant if doc_id not in documents):
            yield Diagnosis(
                "note",
                f"{name}: {len(absent):,} of {len(relevant):,} relevant documents are missing, "
                f"such as {absent[0]}",
                "measures count them as not found",
            )


def found_share(split: Split, depth: int, texts: Container[str] = frozenset()) -> float:
    """Share of a query's relevant documents, without `texts`, that are among its first `depth`
    candidates, averaged over the queries that have any."""
    shares = []
    for query_id in split.queries:
        if relevant := {doc_id for doc_id in _relevant(split, query_id) if doc_id not in texts}:
            first = list(split.candidates.get(query_id, ()))[:depth]
            shares.append(len(relevant.intersection(first)) / len(relevant))
    return sum(shares) / max(1, len(shares))


def shared_queries(collection: Collection) -> Iterator[Diagnosis]:
    """The findings on dev queries that are in train, and test queries that are in either: texts
    that are equal except in case and white space. Such a query measures nothing."""
    queries = {name: split.queries for name, split in collection.splits.items()}
    for name, earlier, same in shared_texts(queries):
        yield Diagnosis(
            "warning",
            f"{name}: {len(same):,} of {len(queries[name]):,} queries with the text of a "
            f"{earlier} query, such as {same[0]}",
            "a model may have learned their answers",
            f"remove them from {earlier}",
        )


def shared_subjects(collection: Collection) -> Iterator[Diagnosis]:
    """The findings on groups of queries and relevant documents that training shares with others."""
    if groups := shared_groups(collection.splits):
        yield Diagnosis(
            "warning",
            f"{len(groups):,} groups have queries in several splits, such as {groups[0]}",
            "a model is tested on what it was trained on",
            "`ranksweep split --group` keeps a group in one split",
        )
    seen = seen_by([collection])
    if seen and not seen.is_high:
        yield Diagnosis("ok", seen.text)
    elif seen:
        yield Diagnosis("warning", seen.text, "a model may know them from training", KEEP_APART)


def clustered_queries(collection: Collection) -> Iterator[Diagnosis]:
    """The finding on test queries that share relevant documents: their scores may be correlated,
    and a test that treats them as independent finds too much."""
    test = collection.splits.get("test")
    clusters = document_clusters(test.qrels) if test else {}
    if test is None or not (together := share_documents(clusters)):
        return
    sizes, total = Counter(clusters.values()), len(clusters)
    # Kish's design effect of a mean over clusters, whose queries have equal scores at most.
    most = sum(size**2 for size in sizes.values()) / total
    yield Diagnosis(
        "warning",
        f"{together:,} of {total:,} test queries share a relevant document with another one "
        f"({len(sizes):,} clusters)",
        "tests that treat them as independent find differences too often: design effect up to "
        f"{most:.1f}, standard errors up to {math.sqrt(most) - 1:.0%} larger",
        "--clusters auto tests over these clusters"
        + ", --clusters group over the groups of the queries" * bool(test.groups),
    )


def coverage(config: TrialConfig, inputs: Inputs) -> Diagnosis:
    """The finding on the text that a configuration reads: its window, stride, limits and model."""
    chunking = config.chunking
    statistics = chunk_statistics(config, inputs)
    lengths, limit = inputs.tokens.lengths(), chunking.max_document_tokens
    longer = float((lengths > limit).mean())
    most, longest = map(int, np.quantile(lengths, (0.95, 1), method="higher"))
    enough = f"{longest} reads all of them whole"
    if limit < most < longest:
        enough = f"{most} reads 95% of them whole, {longest} all"
    name = (
        f"{config.model.name}, window {chunking.window}, stride {chunking.stride}, "
        f"max_document_tokens {limit}"
    )
    return Diagnosis(
        "ok" if statistics.coverage == 1 else "note",
        f"{name}: {statistics.chunks_per_document:.1f} chunks per document (most "
        f"{statistics.max_chunks}), {1 - statistics.coverage:.1%} of all tokens are never seen",
        f"{longer:.1%} of documents are longer than max_document_tokens" if longer else "",
        f"chunking.max_document_tokens={enough}" if longer else "",
    )

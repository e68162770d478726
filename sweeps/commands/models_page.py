"""The text of docs/models.md: every ranking system with its paper and what differs from it."""

import inspect
import sys
from collections import Counter
from collections.abc import Iterator

from rank_core.models import MODELS, model_class
from rank_core.models.ranker import Ranker
from sweeps.plan.profiles import PROFILES, Profile

INTRODUCTION = """# Models

The ranking systems of ranksweep, made by `make docs` from `rank_core/models`. `--model NAME`
selects one, or `module:Class` of your own ([extending](extending.md)). `ranksweep models --backbone
bert-base-uncased` adds the number of parameters and of encoder tokens per document. Each part says
what the model computes and where it differs from the paper or its published code."""

BEYOND_PROFILES = """## Papers' hyperparameters

`--profile NAME` sets the hyperparameters of a paper. `ranksweep models --profile NAME` prints each
beside the reference's own name for it. What a profile does not reproduce:"""

NOT_BUILT = """## Not built

* **MIR** (Fu et al. 2022): no public code is known to us, and Boytsov et al., who name it, report
no number for it. Nothing could show whether an implementation is correct.
* **Transformer-XH** (Zhao et al. 2020): in the paper the [CLS] vectors of passages attend to each
other by scaled dot products; the code uses a graph network with other weights, and ranks no
documents."""

REFERENCES = {
    "Abdul-Jaleel et al. 2004": "UMass at TREC 2004: Novelty and HARD. TREC 2004",
    "Boytsov & Kolter 2021": "Exploring Classic and Neural Lexical Translation Models for "
    "Information Retrieval. ECIR 2021, arXiv:2102.06815",
    "Boytsov et al. 2022": "Understanding Performance of Long-Document Ranking Models through "
    "Comprehensive Evaluation and Leaderboarding. arXiv:2207.01262v1",
    "Boytsov et al. 2025": "Positional Bias in Long-Document Ranking: Impact, Assessment, and "
    "Mitigation. IJCNLP-AACL 2025, arXiv:2207.01262v4",
    "Dai & Callan 2019": "Deeper Text Understanding for IR with Contextual Neural Language "
    "Modeling. SIGIR 2019, arXiv:1905.09217",
    "Gao & Callan 2022": "Long Document Re-ranking with Modular Re-ranker. SIGIR 2022, "
    "arXiv:2205.04275",
    "Hofstätter et al. 2020a": "Interpretable & Time-Budget-Constrained Contextualization for "
    "Re-Ranking. ECAI 2020, arXiv:2002.01854",
    "Hofstätter et al. 2020b": "Local Self-Attention over Long Text for Efficient Document "
    "Retrieval. SIGIR 2020, arXiv:2005.04908",
    "Hofstätter et al. 2021": "Intra-Document Cascading: Learning to Select Passages for Neural "
    "Document Ranking. SIGIR 2021, arXiv:2105.09816",
    "Hui et al. 2018": "Co-PACRR: A Context-Aware Neural IR Model for Ad-hoc Retrieval. WSDM "
    "2018, arXiv:1706.10192",
    "Jiang et al. 2020": "Long Document Ranking with Query-Directed Sparse Transformer. Findings "
    "of EMNLP 2020, arXiv:2010.12683",
    "Li et al. 2020": "PARADE: Passage Representation Aggregation for Document Reranking. "
    "arXiv:2008.09093",
    "Li et al. 2023": "The Power of Selecting Key Blocks with Local Pre-ranking for Long Document "
    "Information Retrieval. TOIS 41(3), 2023, arXiv:2111.09852",
    "MacAvaney et al. 2019": "CEDR: Contextualized Embeddings for Document Ranking. SIGIR 2019, "
    "arXiv:1904.07094",
    "Pang et al. 2017": "DeepRank: A New Deep Architecture for Relevance Ranking in Information "
    "Retrieval. CIKM 2017, arXiv:1710.05649",
    "Robertson & Zaragoza 2009": "The Probabilistic Relevance Framework: BM25 and Beyond. "
    "Foundations and Trends in Information Retrieval 3(4), 2009",
    "Sun et al. 2023": "Is ChatGPT Good at Search? Investigating Large Language Models as "
    "Re-Ranking Agents. EMNLP 2023, arXiv:2304.09542",
    "Yilmaz et al. 2019": "Cross-Domain Modeling of Sentence-Level Evidence for Document "
    "Retrieval. EMNLP-IJCNLP 2019",
    "Zhang, Yates & Lin 2021": "Comparing Score Aggregation Approaches for Document Retrieval "
    "with Pretrained Transformers. ECIR 2021",
    "Zhu et al. 2024": "LongEmbed: Extending Embedding Models for Long Context Retrieval. EMNLP "
    "2024, arXiv:2404.12096",
}
"""{paper as in models and profiles: title, venue and arXiv number}."""


def models_page() -> str:
    """The text of docs/models.md."""
    sections: dict[str, list[str]] = {}
    for name in MODELS:
        sections.setdefault(model_class(name).family, []).append(name)
    parts = [INTRODUCTION]
    for family, names in sections.items():
        parts += [f"## {family[0].upper()}{family[1:]}", _table(names), *_texts(names)]
    parts.append(BEYOND_PROFILES)
    parts += [_differences(name, profile) for name, profile in PROFILES.items() if profile.settings]
    parts += [NOT_BUILT, "## Papers"]
    parts.append("\n".join(f"* {paper}: {title}." for paper, title in REFERENCES.items()))
    return "\n\n".join(parts) + "\n"


def _table(names: list[str]) -> str:
    lines = ["| model | in tables | paper | settings of its own |", "|---|---|---|---|"]
    for name in names:
        kind = model_class(name)
        options = ", ".join(f"`model.{option}`" for option in kind.options)
        lines.append(f"| `{name}` | {kind.label} | {kind.paper} | {options} |")
    return "\n".join(lines)


def _texts(names: list[str]) -> Iterator[str]:
    """The descriptions of models; before them, once, those of their modules, each in the family
    with most of its models."""
    families: dict[str, Counter[str]] = {}
    for name in MODELS:
        families.setdefault(_modules(name)[0], Counter())[model_class(name).family] += 1
    seen: set[str] = set()
    for name in names:
        family = model_class(name).family
        for module in _modules(name):
            home = families[module].most_common(1)[0][0] if module in families else family
            if home == family and module not in seen:
                seen.add(module)
                yield inspect.cleandoc(sys.modules[module].__doc__ or "")
        yield f"**{name}**: {inspect.getdoc(model_class(name))}"


def _modules(name: str) -> list[str]:
    """The modules of a model and of the rankers that it builds on, its own first."""
    modules = dict.fromkeys(base.__module__ for base in model_class(name).__mro__)
    models = [module for module in modules if module.startswith("rank_core.models.")]
    return [module for module in models if module != Ranker.__module__]


def _differences(name: str, profile: Profile) -> str:
    sentences = [*profile.not_the_same, *(f"By hand: {text}" for text in profile.by_hand)]
    return "\n".join([f"**{name}** ({profile.source}):", "", *(f"* {text}" for text in sentences)])

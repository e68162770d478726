"""Folders of made texts in German and Chinese, whose queries say what is relevant in other words.

A German query has other forms of the words than its document. A Chinese text has no spaces, and its
words are pairs of a few characters, each of which is in most texts.
"""

import json

GERMAN = {  # forms of a query: forms of a document
    "Haus": "Häuser Häusern Hauses",
    "Brücke": "Brücken",
    "Kind": "Kinder Kindern Kindes",
    "Straße": "Straßen",
    "Zeitung": "Zeitungen",
    "Nachricht": "Nachrichten",
    "Wohnung": "Wohnungen",
    "Krankheit": "Krankheiten",
    "Wissenschaft": "Wissenschaften wissenschaftlich",
    "Freund": "Freunde Freunden Freundes",
    "Lehrer": "Lehrern Lehrers",
    "schnell": "schnelle schnellen schnelles",
    "alt": "alte alten altes alter",
    "günstig": "günstige günstigen günstiges",
    "grün": "grüne grünen grüner",
    "wandern": "wandert wanderte",
    "kaufen": "kaufte kaufst",
    "suchen": "suchte suchst",
    "Versicherung": "Versicherungen",
    "Entscheidung": "Entscheidungen",
    "Maschine": "Maschinen",
    "Garten": "Gartens",
    "Tisch": "Tische Tischen Tisches",
    "Fluss": "Flusses",
}
CHARACTERS = "学生活动物理论文习作家人体育化会议计算法想大小中国水火电力行车站长"
CHINESE = [first + second for first in CHARACTERS for second in CHARACTERS if first != second]
LENGTH = {"de": 4, "zh": 25}  # words of a text
FILLERS = {"de": "und der die das mit von für auf".split(), "zh": list("的了在是和")}


def write_folder(folder, language, rng, documents=300, queries=40, declared=True):
    """A folder of random texts, its test queries of three words of a document each."""
    texts, asked = {}, {}
    for number in range(documents):
        words = [
            str(word)
            for word in rng.choice(sorted(WORDS[language]), LENGTH[language], replace=False)
        ]
        length = int(rng.integers(6, 14))
        more = [str(word) for word in rng.choice(FILLERS[language], length)]
        texts[f"d{number:03d}"] = JOINED[language](rng, words, more)
        if number < queries:
            asked[f"q{number}"] = SPACE[language].join(words[:3])
    write(folder, texts, asked, language if declared else "")


def _german(rng, words, more):
    forms = [str(rng.choice(GERMAN[word].split())) for word in words]
    return " ".join(str(word) for word in rng.permutation(forms + more))


def _chinese(rng, words, more):
    return "".join(str(word) for word in rng.permutation(words + more)) + "。"


WORDS = {"de": GERMAN, "zh": CHINESE}
JOINED = {"de": _german, "zh": _chinese}
SPACE = {"de": " ", "zh": ""}


def write(folder, texts, queries, language):
    """A folder with a test split, query n of which is answered by document n alone."""
    (folder / "test").mkdir(parents=True)
    rows = [json.dumps({"doc_id": name, "text": text}) for name, text in texts.items()]
    (folder / "docs.jsonl").write_text("\n".join(rows))
    lines = [f"{name}\t{text}" for name, text in queries.items()]
    (folder / "test" / "queries.tsv").write_text("\n".join(lines))
    judged = zip(queries, texts, strict=False)
    (folder / "test" / "qrels.trec").write_text("\n".join(f"{q} 0 {d} 1" for q, d in judged))
    if language:
        (folder / "ranksweep.json").write_text(json.dumps({"language": language}))

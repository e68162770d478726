"""Index terms of texts in any language: words, stems by Snowball, bigrams, subwords.

English is Lucene's (`analysis`). In every other language the words are those of the same Unicode
boundaries, in lower case, with full-width letters made narrow and half-width katakana wide. A word
is stemmed by Snowball's algorithm of the language, if there is one. Chinese, Japanese and Korean
characters that touch each other become overlapping bigrams, as in Lucene's CJKAnalyzer, whose stop
words those three languages have; the others have none, because BM25 weighs frequent words little.
Thai, Lao, Khmer and Burmese become bigrams as well, of characters as a reader sees them (a
consonant with its marks): Lucene would divide Thai into words by a dictionary of Java.

With a tokenizer, the terms are its tokens of each white-space token, in lower case.
"""

import functools
import importlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple

from rank_core.errors import BadInput, nearest, shown
from rank_core.first_stage.analysis import (
    FOLLOW,
    HAN,
    MAX_WORD_LENGTH,
    SOUTH_EAST_ASIAN,
    STOP_WORDS,
    lower_case,
    terms_of,
    word_matches,
    word_pattern,
)
from rank_core.first_stage.subwords import content_hash, subword_terms

ENGLISH, UNDETERMINED = "en", "und"
RECIPE = "languages 1"


class Language(NamedTuple):
    """A language: its English name, Snowball's algorithm (empty: no stems), and its scripts as
    the names of Unicode characters begin, that which marks it first (empty: any)."""

    name: str
    stems: str = ""
    scripts: tuple[str, ...] = ("LATIN",)


LANGUAGES: dict[str, Language] = {
    "ar": Language("Arabic", "arabic", ("ARABIC",)),
    "ca": Language("Catalan", "catalan"),
    "cs": Language("Czech", "czech"),
    "da": Language("Danish", "danish"),
    "de": Language("German", "german"),
    "el": Language("Greek", "greek", ("GREEK",)),
    ENGLISH: Language("English", "porter"),
    "eo": Language("Esperanto", "esperanto"),
    "es": Language("Spanish", "spanish"),
    "et": Language("Estonian", "estonian"),
    "eu": Language("Basque", "basque"),
    "fa": Language("Persian", "persian", ("ARABIC",)),
    "fi": Language("Finnish", "finnish"),
    "fr": Language("French", "french"),
    "ga": Language("Irish", "irish"),
    "hi": Language("Hindi", "hindi", ("DEVANAGARI",)),
    "hu": Language("Hungarian", "hungarian"),
    "hy": Language("Armenian", "armenian", ("ARMENIAN",)),
    "id": Language("Indonesian", "indonesian"),
    "it": Language("Italian", "italian"),
    "ja": Language("Japanese", "", ("HIRAGANA", "KATAKANA", "CJK")),
    "km": Language("Khmer", "", ("KHMER",)),
    "ko": Language("Korean", "", ("HANGUL", "CJK")),
    "lo": Language("Lao", "", ("LAO",)),
    "lt": Language("Lithuanian", "lithuanian"),
    "my": Language("Burmese", "", ("MYANMAR",)),
    "ne": Language("Nepali", "nepali", ("DEVANAGARI",)),
    "nl": Language("Dutch", "dutch"),
    "no": Language("Norwegian", "norwegian"),
    "pl": Language("Polish", "polish"),
    "pt": Language("Portuguese", "portuguese"),
    "ro": Language("Romanian", "romanian"),
    "ru": Language("Russian", "russian", ("CYRILLIC",)),
    "sr": Language("Serbian", "serbian", ("CYRILLIC", "LATIN")),
    "st": Language("Sesotho", "sesotho"),
    "sv": Language("Swedish", "swedish"),
    "ta": Language("Tamil", "tamil", ("TAMIL",)),
    "th": Language("Thai", "", ("THAI",)),
    "tr": Language("Turkish", "turkish"),
    UNDETERMINED: Language("any other language", "", ()),
    "yi": Language("Yiddish", "yiddish", ("HEBREW",)),
    "zh": Language("Chinese", "", ("CJK",)),
}
"""{ISO 639-1 code: language}, and `und` for words without stems."""


def language_code(code: str, where: str) -> str:
    """The known code that a code such as `de`, `zh-CN` or `pt_BR` stands for. Raises `BadInput`
    for an unknown one; `where` names its place."""
    known = code.strip().lower().replace("_", "-").partition("-")[0]
    if known in LANGUAGES:
        return known
    by_name = {language.name.lower(): own_code for own_code, language in LANGUAGES.items()}
    near = by_name.get(known) or next(iter(nearest(known, LANGUAGES, 1, cutoff=0.6)), "")
    hint = f"; did you mean {near}? Known" if near else "; known"
    raise BadInput(
        f"{where}: unknown language {shown(code)}{hint}: {', '.join(LANGUAGES)}; "
        f"{UNDETERMINED} is for any other, words without stems"
    )


OF_LANGUAGE = ("BM25", "BM25+RM3")
"""The first stages, by their names in tables, that read texts as of the collection's language."""


def other_than_english(language: str) -> str:
    """A code as it counts in the hash of a collection: empty for English, declared or not."""
    return "" if language == ENGLISH else language


@dataclass(frozen=True)
class TextAnalysis:
    """How texts become index terms: as those of a language (a code of `LANGUAGES`; empty:
    English), or by the tokenizer of a folder, file or Hugging Face id."""

    language: str = ""
    tokenizer: str = ""

    @property
    def is_english(self) -> bool:
        """True for Lucene's English analysis."""
        return not other_than_english(self.language) and not self.tokenizer

    def terms(self) -> Callable[[str], list[str]]:
        """A function from a white-space token to its index terms."""
        if self.tokenizer:
            return subword_terms(self.tokenizer)
        return terms_of if self.is_english else terms_in(self.language)

    def recipe(self) -> str:
        """All that the terms depend on besides the texts; empty for English."""
        if self.tokenizer:
            return f"{RECIPE}, subwords {content_hash(self.tokenizer)}"
        if self.is_english:
            return ""
        stems = LANGUAGES[self.language].stems
        snowball = f", {stems} of snowballstemmer {version('snowballstemmer')}" if stems else ""
        return f"{RECIPE}, {self.language}{snowball}"


LUCENE_ENGLISH = TextAnalysis()

CJK_STOP_WORDS = STOP_WORDS | {"s", "t", "www"}
"""Lucene, CJKAnalyzer."""


def terms_in(language: str) -> Callable[[str], list[str]]:
    """A function from a white-space token to its index terms in a language other than English."""
    stem, lower = _stemmer(language), _lower_turkish if language == "tr" else lower_case
    stop_words = CJK_STOP_WORDS if "CJK" in LANGUAGES[language].scripts else frozenset()

    def terms(piece: str) -> list[str]:
        if piece.isascii() and piece.isalnum() and len(piece) <= MAX_WORD_LENGTH:
            word = lower(piece)
            return [] if word in stop_words else [stem(word)]
        found: list[str] = []
        touching, end = "", -1  # characters for bigrams, and where they end
        for match in word_matches(piece, word_pattern(runs=True)):
            if _is_cjk(match):
                if match.start() != end:
                    found += bigrams(touching)
                    touching = ""
                touching, end = touching + narrowed(match[0]), match.end()
                continue
            found += bigrams(touching)
            touching = ""
            if match.lastgroup == SOUTH_EAST_ASIAN:
                found += bigrams(_clusters().findall(match[0]))
            elif (word := lower(narrowed(match[0]))) not in stop_words:
                found.append(stem(word))
        return found + bigrams(touching)

    return terms


def bigrams(characters: str | list[str]) -> list[str]:
    """The overlapping pairs of characters; a single one is a term of its own."""
    if len(characters) == 1:
        return [characters[0]]
    return [first + second for first, second in pairwise(characters)]


def _is_cjk(match: Any) -> bool:
    """True for a run of ideographs and hiragana, and for a word of katakana or hangul alone."""
    if match.lastgroup is not None:
        return match.lastgroup == HAN
    return match[0][0] > "\u10ff" and _syllables().fullmatch(match[0]) is not None


@functools.cache
def _syllables() -> Any:
    import regex

    hangul = r"[\p{Script=Hangul}&&\p{WB=ALetter}]"
    pattern = rf"(?:\p{{WB=Katakana}}{FOLLOW})++|(?:{hangul}{FOLLOW})++"
    return regex.compile(pattern, regex.VERSION1)


@functools.cache
def _clusters() -> Any:
    import regex

    return regex.compile(r"\X")


def _stemmer(language: str) -> Callable[[str], str]:
    name = LANGUAGES[language].stems
    if not name:
        return lambda word: word
    # Its own function would take PyStemmer's stems where that is installed: of another version.
    module = importlib.import_module(f"snowballstemmer.{name}_stemmer")
    stemmed = getattr(module, f"{name.capitalize()}Stemmer")().stemWord

    def stem(word: str) -> str:
        plain = word.replace("’", "'")  # Snowball takes French l' away, but not l’
        if language == "ca" and plain[1:2] == "'" and plain[0] in "ldmnst":
            plain = plain[2:]
        return stemmed(plain) or plain

    return stem


def _lower_turkish(word: str) -> str:
    return lower_case(word.replace("I", "ı").replace("İ", "i"))


_NARROW = {
    code: unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0xFF01, 0xFF5F), *range(0xFF65, 0xFFA0))
}


def narrowed(word: str) -> str:
    """The word with full-width ASCII made narrow and half-width katakana wide, as by Lucene's
    CJKWidthFilter."""
    if word.isascii() or not ("\uff01" <= max(word) and _half_width().search(word)):
        return word
    return str(_voiced().sub(_composed, word)).translate(_NARROW)


def _composed(match: Any) -> str:
    """A syllable and its half-width voice mark as one character, where there is one."""
    pair = unicodedata.normalize("NFKC", match[0])
    return pair if len(pair) == 1 else match[0]


@functools.cache
def _half_width() -> Any:
    import regex

    return regex.compile(r"[\uFF01-\uFF5E\uFF65-\uFF9F]")


@functools.cache
def _voiced() -> Any:
    import regex

    return regex.compile(r"[\u30A6-\u30FD\uFF66-\uFF9D][\uFF9E\uFF9F]")


def script_counts(texts: Iterable[str]) -> Counter[str]:
    """The number of letters of each script, named as the names of its characters begin."""
    counts = Counter(character for text in texts for character in text if character.isalpha())
    scripts: Counter[str] = Counter()
    for character, number in counts.items():
        name = unicodedata.name(unicodedata.normalize("NFKC", character)[0], "")
        scripts[name.replace("-", " ").partition(" ")[0]] += number
    return scripts


def languages_fitting(scripts: Counter[str]) -> list[str]:
    """The codes of the languages with more than half of these letters, some of them of the
    language's first script, the best first."""

    def letters(code: str) -> int:
        return sum(scripts[script] for script in LANGUAGES[code].scripts)

    fitting = [
        code
        for code, language in LANGUAGES.items()
        if letters(code) > scripts.total() / 2 and scripts[language.scripts[0]]
    ]
    return sorted(fitting, key=lambda code: (-letters(code), len(LANGUAGES[code].scripts)))

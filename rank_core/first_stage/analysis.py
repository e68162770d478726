"""Index terms of a text, as in Lucene's English analysis, without Java.

The chain is that of Anserini's DefaultEnglishAnalyzer, the default of Anserini and Pyserini:
Unicode word boundaries, removal of possessive 's, lower case, 33 stop words, Porter stems.
"""

import functools
import re
import string
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

from rank_core.first_stage.porter import stem

# Lucene, EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with".split()
)

MAX_WORD_LENGTH = 255  # characters; StandardTokenizer cuts a longer word into several

# Characters that Lucene's Unicode (9, for emoji 11) classifies unlike the `regex` package. Those
# assigned since then follow the newer one.
_LETTERS_SINCE = r"\u00B8\u02E5-\u02EB\u0558\u055A\u058A\uA708-\uA716"
_PICTOGRAPHS_THEN = (
    r"\u2388\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2763-\u2767"
    r"\U0001F000-\U0001F0FF\U0001F260-\U0001F265\U0001F300-\U0001F3FA\U0001F400-\U0001F53D"
    r"\U0001F546-\U0001F64F\U0001F680-\U0001F6FF"
)

# No word extends across it; the narrow no-break space joins words, as `_` does.
_WHITE_SPACE = re.compile(r"[^\S\u202F]+")
# Not part of a word at the ends of a piece of ASCII.
_MARKS = string.punctuation.replace("_", "")

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(dict[Key, Value]):
    """A cache of a function's results by argument."""

    def __init__(self, function: Callable[[Key], Value]) -> None:
        self._function = function

    def __missing__(self, key: Key) -> Value:
        value = self[key] = self._function(key)
        return value


def lucene_analyser() -> Callable[[str], list[str]]:
    """A function from a text to its index terms, cached per white-space token."""
    known = Memo(terms_of)
    return lambda text: list(chain.from_iterable(map(known.__getitem__, pieces_of(text))))


def pieces_of(text: str) -> list[str]:
    """The white-space tokens of a text, which `terms_of` analyses separately."""
    return text.split() if "\u202f" not in text else _WHITE_SPACE.split(text)


def terms_of(piece: str) -> list[str]:
    """The index terms of a white-space token."""
    if piece.isascii():
        word = piece.strip(_MARKS)
        words = [word] if word.isalnum() and len(word) <= MAX_WORD_LENGTH else _words(piece)
    else:
        words = _words(piece)
    return [term for word in words if (term := _term(word))]


_stem = functools.lru_cache(maxsize=1 << 16)(stem)  # words occur in many tokens


def _term(word: str) -> str | None:
    """The index term of a word; None for a stop word."""
    if word[-1] in "sS" and word[-2:-1] in ("'", "’", "＇"):
        word = word[:-2]
    # Letter by letter, as Java's Character.toLowerCase: no final sigma, no combining dot after İ.
    word = word.lower() if word.isascii() else "".join(letter.lower()[0] for letter in word)
    return None if word in STOP_WORDS else _stem(word)


def _words(piece: str) -> list[str]:
    words = []
    pattern = _word_pattern()
    match = pattern.search(piece)
    while match:
        if len(match[0]) > MAX_WORD_LENGTH:
            match = pattern.search(piece, match.start(), match.start() + MAX_WORD_LENGTH)
        words.append(match[0])
        match = pattern.search(piece, match.end())
    return words


@functools.cache
def _word_pattern() -> Any:
    """The word boundaries of Unicode Standard Annex 29, as in Lucene's StandardTokenizer.

    Letters, digits and katakana form words; `_` joins all of them, a single `.`, `:` or quote joins
    letters, a single `.`, `,`, `;` or quote joins digits. Ideographs and hiragana are single words,
    runs of South East Asian scripts and emoji sequences are one word each.
    """
    import regex

    follow = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*+"
    letter = rf"[[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]--[{_LETTERS_SINCE}]]"
    digit = r"[\p{WB=Numeric}０-９]"
    hebrew = r"\p{WB=Hebrew_Letter}"
    join = rf"(?:\p{{WB=ExtendNumLet}}{follow})"
    between_letters = r"[\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}]"
    between_digits = r"[\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}]"
    block = rf"""(?: (?: \p{{WB=Katakana}}{follow} )++
        | (?: {hebrew}{follow} (?: "{follow}(?={hebrew}) | '{follow} )
            | {letter}{follow} (?: {between_letters}{follow}(?={letter}) )?+
            | {digit}{follow} (?: {between_digits}{follow}(?={digit}) )?+
          )++ )"""
    presented = r"[[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]--[\uFE0E\uFE0F]]*"
    pictograph = rf"[\p{{Extended_Pictographic}}{_PICTOGRAPHS_THEN}]"
    emoji = rf"""(?: \u200D* {pictograph} {presented} \uFE0F?
        | (?: \u200D* \p{{Emoji_Modifier_Base}} {presented} )? \p{{Emoji_Modifier}} {presented} )"""
    return regex.compile(
        rf"""{join}*+ {block} (?: {join}++ {block} )* {join}*
        | [0-9#*] {presented} \uFE0F? \u20E3 {presented}
        | (?: \p{{WB=Regional_Indicator}} {follow} ){{2}}
        | {emoji} (?: (?: \u200D {emoji} )+ | [\U000E0020-\U000E007E]+ \U000E007F )?
        | (?: \p{{LB=SA}} {follow} )++
        | [\p{{Script=Han}}\p{{Script=Hiragana}}] {follow}
        """,
        regex.VERBOSE | regex.VERSION1,
    )

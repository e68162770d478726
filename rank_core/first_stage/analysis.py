"""Index terms of an English text, as in Lucene's analysis, without Java.

The chain is that of Anserini's DefaultEnglishAnalyzer, the default of Anserini and Pyserini:
Unicode word boundaries, removal of possessive 's, lower case, 33 stop words, Porter stems.

The stemmer is the author's own program, which differs from his paper (M. F. Porter, An algorithm
for suffix stripping, Program 14(3), 1980): words of one or two letters are kept, `-bli` becomes
`-ble` (not only `-abli`) and `-logi` becomes `-log`. Without that (as in Snowball's `porter`)
`psychology` and `psychological` have different stems and `us` becomes `u`.
"""

import functools
import re
import string
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

# Suffixes are tried in this order; the first match decides, even if it changes nothing.
_STEP_2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "logi": "log",
}
_STEP_3 = {
    "icate": "ic",
    "ative": "",
    "alize": "al",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_STEP_4 = tuple(
    "al ance ence er ic able ible ant ement ment ent sion tion ou ism ate iti ous ive ize".split()
)
# One call of endswith() with all suffixes is much faster than one per suffix.
_SUFFIXES_2, _SUFFIXES_3 = tuple(_STEP_2), tuple(_STEP_3)

_SHAPES = defaultdict(lambda: "c", {ord(vowel): "v" for vowel in "aeiou"})


def stem(word: str) -> str:
    """The stem of a lower-case word; letters other than a to z count as consonants."""
    if word and max(word) > "\uffff":  # two characters in Java
        units = word.encode("utf-16-be")
        pairs = "".join(
            chr(high << 8 | low) for high, low in zip(units[::2], units[1::2], strict=True)
        )
        return stem(pairs).encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    if len(word) < 3:
        return word
    word = _without_plural(word)
    word = _without_past_or_gerund(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2, _SUFFIXES_2)
    word = _replaced(word, _STEP_3, _SUFFIXES_3)
    word = _without_last_suffix(word)
    return _tidied(word)


def _shape(word: str) -> str:
    """`c` for each consonant and `v` for each vowel; y is a vowel after a consonant."""
    if "y" not in word:
        return word.translate(_SHAPES)
    shape = ""
    for letter in word:
        if letter in "aeiou" or (letter == "y" and shape.endswith("c")):
            shape += "v"
        else:
            shape += "c"
    return shape


def _measure(word: str) -> int:
    """The paper's m: the number of vowel-consonant sequences."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """The paper's *o: ends in consonant, vowel, consonant, the last not w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _without_past_or_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    suffix = next((suffix for suffix in ("ed", "ing") if word.endswith(suffix)), None)
    if suffix is None or "v" not in _shape(word.removesuffix(suffix)):
        return word
    word = word.removesuffix(suffix)
    # Step 1b: conflat(ed) -> conflate, troubl(ing) -> trouble, siz(ed) -> size; hopp(ing) -> hop,
    # but fall(ing) -> fall; fil(ing) -> file.
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and _shape(word).endswith("c"):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _replaced(word: str, rules: dict[str, str], suffixes: tuple[str, ...]) -> str:
    if not word.endswith(suffixes):
        return word
    suffix = next(suffix for suffix in suffixes if word.endswith(suffix))
    rest = word.removesuffix(suffix)
    return rest + rules[suffix] if _measure(rest) > 0 else word


def _without_last_suffix(word: str) -> str:
    if not word.endswith(_STEP_4):
        return word
    suffix = next(suffix for suffix in _STEP_4 if word.endswith(suffix))
    # -ion is removed only after s or t, which stay.
    rest = word[: -len(suffix)] if suffix[-3:] != "ion" else word[:-3]
    return rest if _measure(rest) > 1 else word


def _tidied(word: str) -> str:
    """Removes a final e, and one l of two, if the stem is long enough."""
    measure = _measure(word)
    if word.endswith("e") and (measure > 1 or (measure == 1 and not _ends_short(word[:-1]))):
        word = word[:-1]
    return word[:-1] if word.endswith("ll") and measure > 1 else word


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

REPEATED_LENGTH = 128
"""White-space tokens up to this length are cached: longer ones, such as the sentences of a script
without spaces, do not occur again."""

Value = TypeVar("Value")


class Memo(dict[str, Value]):
    """A cache of a function's results by white-space token."""

    def __init__(self, function: Callable[[str], Value]) -> None:
        self._function = function

    def __missing__(self, piece: str) -> Value:
        value = self._function(piece)
        if len(piece) <= REPEATED_LENGTH:
            self[piece] = value
        return value


def analyser(terms: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A function from a text to its index terms, by the terms of a white-space token."""
    known = Memo(terms)
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
    word = word.lower() if word.isascii() else lower_case(word)
    return None if word in STOP_WORDS else _stem(word)


def lower_case(word: str) -> str:
    """The word letter by letter, as by Java's Character.toLowerCase: no final sigma, no combining
    dot after İ."""
    return "".join(letter.lower()[0] for letter in word)


def _words(piece: str) -> list[str]:
    return [match[0] for match in word_matches(piece, word_pattern())]


def word_matches(piece: str, pattern: Any) -> list[Any]:
    """The matches of a `word_pattern` in a white-space token. Words, but no runs of a script
    without spaces, are cut at `MAX_WORD_LENGTH`."""
    matches = []
    match = pattern.search(piece)
    while match:
        if len(match[0]) > MAX_WORD_LENGTH and match.lastgroup is None:
            match = pattern.search(piece, match.start(), match.start() + MAX_WORD_LENGTH)
        matches.append(match)
        match = pattern.search(piece, match.end())
    return matches


FOLLOW = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*+"
"""The marks that belong to the character before them."""
HAN, SOUTH_EAST_ASIAN = "han", "south_east_asian"


@functools.cache
def word_pattern(*, runs: bool = False) -> Any:
    """The word boundaries of Unicode Standard Annex 29, as in Lucene's StandardTokenizer.

    Letters, digits and katakana form words; `_` joins all of them, a single `.`, `:` or quote joins
    letters, a single `.`, `,`, `;` or quote joins digits. Ideographs and hiragana are single words,
    runs of South East Asian scripts and emoji sequences are one word each. With `runs`, a run of
    ideographs and hiragana is one match too, and these two groups are named.
    """
    import regex

    follow = FOLLOW
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
    # Without the mark of repetition 々, which is a letter.
    syllable = r"[[\p{Script=Han}\p{Script=Hiragana}]--\p{WB=ALetter}]"
    han, asian = (f"?P<{HAN}>", f"?P<{SOUTH_EAST_ASIAN}>") if runs else ("?:", "?:")
    return regex.compile(
        rf"""{join}*+ {block} (?: {join}++ {block} )* {join}*
        | [0-9#*] {presented} \uFE0F? \u20E3 {presented}
        | (?: \p{{WB=Regional_Indicator}} {follow} ){{2}}
        | {emoji} (?: (?: \u200D {emoji} )+ | [\U000E0020-\U000E007E]+ \U000E007F )?
        | ({asian} (?: \p{{LB=SA}} {follow} )++ )
        | ({han} (?: {syllable} {follow} ){"++" if runs else ""} )
        """,
        regex.VERBOSE | regex.VERSION1,
    )

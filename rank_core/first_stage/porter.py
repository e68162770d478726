"""Porter's stemmer as in Lucene: the author's own program, which differs from his paper.

M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980. The differences: words of one
or two letters are kept, `-bli` becomes `-ble` (not only `-abli`) and `-logi` becomes `-log`.
Without them (as in Snowball's `porter`) `psychology` and `psychological` have different stems and
`us` becomes `u`.
"""

from collections import defaultdict

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


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word).endswith("c")


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
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double(word):
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

"""A small tokenizer of given texts, for backbones of tests and for the shipped one."""

from collections import Counter

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

ENDINGS = r"(?<=[a-z]{3})(?:ing|ed|es|e|s)\b"
"""The endings that are cut off a word, where three letters are left."""


def train_tokenizer(
    texts: list[str], vocabulary: int, *, stems: bool = False
) -> PreTrainedTokenizerFast:
    """A lower-casing WordPiece tokenizer whose vocabulary is drawn from `texts`; with `stems` it
    reads `closes`, `closed` and `closing` as the one word `clos`.

    The library's own trainer gives another vocabulary in every process (ties fall as its hash maps
    happen to be ordered), which would give every machine another backbone; ours is a function of
    the texts.
    """
    tokenizer = Tokenizer(
        models.WordPiece(vocab={token: i for i, token in enumerate(SPECIAL)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    if stems:
        cut = normalizers.Replace(Regex(ENDINGS), "")
        tokenizer.normalizer = normalizers.Sequence([normalizers.BertNormalizer(), cut])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    words: Counter[str] = Counter()
    for text in texts:
        normal = tokenizer.normalizer.normalize_str(text)
        words.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
    tokens = [*SPECIAL, *_word_pieces(words, vocabulary - len(SPECIAL))]
    tokenizer.model = models.WordPiece(
        vocab={token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, SPECIAL.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _word_pieces(words: Counter[str], size: int) -> list[str]:
    """Every character, alone and within a word, then the most frequent words, beginnings and
    endings; a word counts in full, a part of it only if it does something for other words too."""
    pieces: Counter[str] = Counter()
    letters: set[str] = set()
    for word, count in words.items():
        letters.update(word)
        pieces[word] += count
        for cut in range(2, len(word) - 1):
            pieces[word[:cut]] += 1
            pieces[f"##{word[cut:]}"] += 1
    alphabet = sorted(letters) + [f"##{letter}" for letter in sorted(letters)]
    ranked = sorted(pieces.keys() - set(alphabet), key=lambda piece: (-pieces[piece], piece))
    return (alphabet + ranked)[:size]

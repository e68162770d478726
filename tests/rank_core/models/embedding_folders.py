"""Small embedding models as sentence-transformers saves them."""

import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from tests.contracts.small_backbones import write_again, write_backbone
from tests.rank_core.encoders.test_published_heads import forget

PROMPTS = {"query": "w30 w31 w32 ", "document": "w33 "}
CHAINS = {
    "mean": {"pooling": "mean"},
    "cls": {"pooling": "cls"},
    "last token": {"pooling": "lasttoken"},
    "weighted mean": {"pooling": "weightedmean"},
    "mean sqrt": {"pooling": "mean_sqrt_len_tokens"},
    "max": {"pooling": "max"},
    "mean and cls": {"pooling": ("mean", "cls")},
    "Normalize": {"normalize": True},
    "Dense": {"dense": True},
    "Dense, Normalize": {"dense": True, "normalize": True},
    "LayerNorm": {"norm": True},
    "prompts": {"prompts": PROMPTS},
    "prompts by CLS": {"prompts": PROMPTS, "pooling": "cls"},
    "prompts left out": {"prompts": PROMPTS, "include_prompt": False},
    "default prompt": {"prompts": PROMPTS | {"other": "w7 "}, "default_prompt_name": "other"},
    "passage prompt": {"prompts": {"query": "w30 ", "passage": "w31 "}},
    "truncate_dim": {"truncate_dim": 5, "normalize": True},
    "max_seq_length": {"max_seq_length": 11},
    "dot": {"similarity_fn_name": "dot"},
    "euclidean": {"similarity_fn_name": "euclidean"},
    "manhattan": {"similarity_fn_name": "manhattan"},
}


def encoder(folder, kind="bert"):
    """Writes a small encoder whose tokenizer writes special tokens around a text."""
    write_again(("encoder", kind), lambda made: make_encoder(kind, made), folder)
    forget()
    return str(folder)


def make_encoder(kind, folder):
    write_backbone(kind, folder)
    names = ["input_ids", "attention_mask"]
    tokenizer = AutoTokenizer.from_pretrained(folder, model_input_names=names)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.pad_token = "<pad>"  # which the rows of sentence-transformers need
    tokenizer.save_pretrained(folder)


def saved(library, folder, kind="bert", **facts):
    """A folder that sentence-transformers saved."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    torch.manual_seed(4)
    first = Transformer(encoder(folder / "encoder", kind))
    first.max_seq_length = facts.pop("max_seq_length", first.max_seq_length)
    size, mode = 16, facts.pop("pooling", "mean")
    modules = [first, Pooling(size, mode, include_prompt=facts.pop("include_prompt", True))]
    width = modules[1].get_embedding_dimension()
    if facts.pop("dense", False):
        modules.append(Dense(width, 12, activation_function=torch.nn.GELU()))
    if facts.pop("norm", False):
        modules.append(LayerNorm(width))
    if facts.pop("normalize", False):
        modules.append(Normalize())
    library.SentenceTransformer(modules=modules, device="cpu", **facts).save(
        str(folder / "model"), create_model_card=False
    )
    forget()
    return str(folder / "model")

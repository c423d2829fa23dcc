"""Problems that construct a model of Hugging Face's, described without its weights and, if need be, without the Hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}),
    "facebook/bart-large": ("bart", {}),
    "google/bigbird-roberta-base": ("big_bird", {}),
    "google/electra-small-discriminator": ("electra", {}),
    "EleutherAI/gpt-neo-2.7B": (
        "gpt_neo",
        {"hidden_size": 2560, "num_layers": 32, "num_heads": 20, "attention_types": [[["global", "local"], 16]]},
    ),
    "facebook/opt-1.3b": (
        "opt",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "ffn_dim": 8192,
            "word_embed_proj_dim": 2048,
        },
    ),
    "google/reformer-enwik8": (
        "reformer",
        {
            "attention_head_size": 128,
            "attn_layers": ["local", "local", "lsh", "local"] * 3,
            "axial_pos_embds_dim": [256, 768],
            "axial_pos_shape": [128, 512],
            "feed_forward_size": 4096,
            "hidden_size": 1024,
            "is_decoder": True,
            "max_position_embeddings": 65536,
            "num_attention_heads": 8,
            "num_buckets": 512,
            "num_hashes": 4,
            "vocab_size": 258,
        },
    ),
}
"""The architectures of KernelBench's level 4: the kind, and where it differs from the kind's own defaults."""


@contextmanager
def described(text: str) -> Iterator[None]:
    """While a problem of that text is loaded and counted: no weights are read, and what is not in the cache is taken
    from CONFIGS. Never while one is judged.
    """
    if "transformers" not in text:
        yield
        return
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError:
        # The problem's own import says so.
        yield
        return
    from_cache = AutoConfig.from_pretrained

    def config(name: str, **options: Any) -> Any:
        if name not in CONFIGS:
            return from_cache(name, **options)
        try:
            return from_cache(name, local_files_only=True)
        except (OSError, ValueError):
            kind, differing = CONFIGS[name]
            return AutoConfig.for_model(kind, **differing)

    def model(name: str, config: Any, **_: Any) -> Any:
        return AutoModelForCausalLM.from_config(config)

    verbosity, from_weights = logging.get_verbosity(), AutoModelForCausalLM.from_pretrained
    logging.set_verbosity_error()
    AutoConfig.from_pretrained, AutoModelForCausalLM.from_pretrained = config, model
    try:
        yield
    finally:
        AutoConfig.from_pretrained, AutoModelForCausalLM.from_pretrained = from_cache, from_weights
        logging.set_verbosity(verbosity)

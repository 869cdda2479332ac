"""Makes a tiny llama with random weights and serves it with MLX's own HTTP server, on the CPU.

    python engine_mlx.py FOLDER

Runs in the engine's own environment. Prints its base URL as the first line, and ends with its
standard input. The weights come from a seed; the end of an answer has a row of zeros, so that a
greedy answer goes on to its limit.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

os.environ["MLX_DISABLE_COMPILE"] = "1"  # else it looks for a C++ compiler at its first token

import mlx.core as mx  # type: ignore[import-not-found]  # only in the engine's own environment
from tokenizers import (  # type: ignore[import-not-found]  # only in the engine's own environment
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)

WIDTH, LAYERS, HEADS, INNER = 32, 2, 2, 64
CONTEXT = 4096
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
END = "</s>"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def write_tokenizer(folder: Path) -> int:
    """All bytes, and syllables of two letters, as a byte pair encoding; how many tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = list(itertools.product(CONSONANTS, VOWELS))
    tokens = [END, *alphabet, *(c + v for c, v in pairs)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": TEMPLATE,
        "model_max_length": CONTEXT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return len(tokens)


def write_model(folder: Path) -> None:
    """Write a model as Hugging Face lays it out; the same weights every time."""
    size = write_tokenizer(folder)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": size,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(7)
    out = mx.random.normal((size, WIDTH)) * 0.1
    syllables = mx.arange(size) >= size - len(CONSONANTS) * len(VOWELS)
    weights = {
        "model.embed_tokens.weight": mx.random.normal((size, WIDTH)) * 0.1,
        "model.norm.weight": mx.ones((WIDTH,)),
        "lm_head.weight": mx.where(syllables[:, None], out, mx.zeros_like(out)),
    }
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (WIDTH, WIDTH),
        "self_attn.v_proj": (WIDTH, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.up_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER),
    }
    for layer in range(LAYERS):
        block = f"model.layers.{layer}"
        for name, shape in shapes.items():
            weights[f"{block}.{name}.weight"] = mx.random.normal(shape) * 0.1
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{block}.{name}.weight"] = mx.ones((WIDTH,))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def main() -> None:
    folder = Path(sys.argv[1]) / "tiny-mlx"
    folder.mkdir(exist_ok=True)
    write_model(folder)
    port = free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(folder)]
    own = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder)}
    with subprocess.Popen(
        [*command, "--port", str(port), "--log-level", "ERROR"],
        env=os.environ | own,
        stdin=subprocess.DEVNULL,
    ) as server:
        try:
            while server.poll() is None and not answers(port):
                time.sleep(0.05)
            print(f"http://127.0.0.1:{port}/v1", flush=True)  # noqa: T201 - the test reads it
            sys.stdin.read()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

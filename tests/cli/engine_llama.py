"""Makes a tiny llama with random weights and serves it with llama.cpp's own HTTP server.

    python engine_llama.py FOLDER

Runs in the engine's own environment. Prints its base URL as the first line, and ends with its
standard input. The weights come from a seed, so that the same prompt gets the same answer
everywhere; the rows of all tokens but the syllables are zero, so that a greedy answer is text of
whole characters and never ends before its limit.
"""

from __future__ import annotations

import itertools
import socket
import sys
from pathlib import Path
from typing import Any

import gguf  # type: ignore[import-not-found]  # only in the engine's own environment
import numpy as np
import xllamacpp  # type: ignore[import-not-found]  # only in the engine's own environment

WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 128
CONTEXT = 2048  # tokens of each of the SLOTS
SLOTS = 4
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
# The kinds of a token in the file format.
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def vocabulary() -> list[tuple[str, int]]:
    """Three special tokens, all bytes, and syllables of two letters: prompts mix the last two."""
    special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    plain = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    syllables = [(c + v, NORMAL) for c, v in itertools.product(CONSONANTS, VOWELS)]
    return special + plain + syllables


def write_model(path: Path) -> None:
    """Write the model file; the same bytes every time."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = vocabulary()
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    for name, weights in tensors([kind for _, kind in tokens]):
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(kinds: list[int]) -> list[tuple[str, Any]]:
    """Every weight by its name in the file."""
    chance = np.random.default_rng(7)

    def drawn(*shape: int) -> Any:
        return (chance.standard_normal(shape) * 0.1).astype(np.float32)

    flat = np.ones(WIDTH, np.float32)
    out = drawn(len(kinds), WIDTH)
    out[[kind != NORMAL for kind in kinds]] = 0
    named = [
        ("token_embd.weight", drawn(len(kinds), WIDTH)),
        ("output_norm.weight", flat),
        ("output.weight", out),
    ]
    for block in range(LAYERS):
        named += [
            (f"blk.{block}.attn_norm.weight", flat),
            (f"blk.{block}.attn_q.weight", drawn(WIDTH, WIDTH)),
            (f"blk.{block}.attn_k.weight", drawn(WIDTH, WIDTH)),
            (f"blk.{block}.attn_v.weight", drawn(WIDTH, WIDTH)),
            (f"blk.{block}.attn_output.weight", drawn(WIDTH, WIDTH)),
            (f"blk.{block}.ffn_norm.weight", flat),
            (f"blk.{block}.ffn_gate.weight", drawn(INNER, WIDTH)),
            (f"blk.{block}.ffn_up.weight", drawn(INNER, WIDTH)),
            (f"blk.{block}.ffn_down.weight", drawn(WIDTH, INNER)),
        ]
    return named


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def main() -> None:
    model = Path(sys.argv[1]) / "tiny.gguf"
    write_model(model)
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {"tiny"}
    params.n_ctx = CONTEXT * SLOTS
    params.n_parallel = SLOTS
    params.cpuparams.n_threads = 1
    params.verbosity = 0
    params.port = free_port()
    server = xllamacpp.Server(params)
    print(server.listening_address + "/v1", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.read()


if __name__ == "__main__":
    main()

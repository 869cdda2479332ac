"""What makes a model fast, on one GPU: size, precision, prompt, length of the answer, batch.

    python benchmarks/factors.py [--quick]

Needs PyTorch and an NVIDIA GPU, which Lightgate itself does not; it measures the machine and not
Lightgate, so that docs/explain/what-makes-llms-fast.md has figures of its own. The models are
decoders of Llama's shape with random weights: times depend on shapes, not on what the weights say.
One step of decoding is a CUDA graph, so that the times are the GPU's.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any, NamedTuple

CONTEXT = 512  # tokens that are in the cache while a token is made


class Shape(NamedTuple):
    """The shape of a decoder."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    words: int = 128_256

    @property
    def parameters(self) -> float:
        """Weights in billions, the table of words once."""
        head = self.width // self.heads
        attention = self.width * self.width * 2 + self.width * head * self.kv_heads * 2
        layer = attention + 3 * self.width * self.inner
        return (self.layers * layer + self.words * self.width) / 1e9


SHAPES = {
    "1B": Shape(16, 2048, 8192, 32, 8),
    "3B": Shape(28, 3072, 8192, 24, 8),
    "8B": Shape(32, 4096, 14336, 32, 8),
    "32B": Shape(64, 5120, 27648, 40, 8),
}


class Decoder:
    """A decoder with random weights; `kind` is the precision of its weights."""

    def __init__(self, torch: Any, shape: Shape, kind: str) -> None:
        self.torch, self.shape, self.kind = torch, shape, kind
        self.dtype = torch.float32 if kind == "float32" else torch.bfloat16
        head = shape.width // shape.heads
        out = (shape.heads + 2 * shape.kv_heads) * head
        sizes = ((out, shape.width), (shape.width, shape.width), (2 * shape.inner, shape.width))
        self.layers = [
            [self._weight(*size) for size in (*sizes, (shape.width, shape.inner))]
            for _ in range(shape.layers)
        ]
        self.words = self._weight(shape.words, shape.width)
        self.one = torch.ones((), device="cuda")

    def _weight(self, rows: int, columns: int) -> Any:
        made = self.torch.randn(rows, columns, device="cuda", dtype=self.dtype) * 0.02
        return made.to(self.torch.float8_e4m3fn) if self.kind == "float8" else made

    def times(self, x: Any, weight: Any) -> Any:
        """Multiply; eight-bit weights take at least sixteen rows."""
        torch = self.torch
        if self.kind != "float8":
            return x @ weight.t()
        rows = x.shape[0]
        if rows % 16:
            x = torch.nn.functional.pad(x, (0, 0, 0, 16 - rows % 16))
        made = torch._scaled_mm(  # noqa: SLF001 - the only way to it
            x.to(torch.float8_e4m3fn), weight.t(), self.one, self.one, out_dtype=torch.bfloat16
        )
        return made[:rows]

    def forward(self, x: Any, caches: list[Any], batch: int, at: int) -> Any:
        """Put `x` (batch x tokens rows) through all layers behind `at` cached tokens."""
        torch, shape = self.torch, self.shape
        head, tokens = shape.width // shape.heads, x.shape[0] // batch
        groups = (shape.heads, shape.kv_heads, shape.kv_heads)
        for (attend, back, up, down), (keys, values) in zip(self.layers, caches, strict=True):
            found = self.times(self._norm(x), attend).view(batch, tokens, -1, head).transpose(1, 2)
            q, k, v = found.split(groups, dim=1)
            keys[:, :, at : at + tokens].copy_(k)
            values[:, :, at : at + tokens].copy_(v)
            seen = torch.nn.functional.scaled_dot_product_attention(
                q,
                keys[:, :, : at + tokens],
                values[:, :, : at + tokens],
                is_causal=tokens > 1,
                enable_gqa=True,
            )
            x = x + self.times(seen.transpose(1, 2).reshape(batch * tokens, -1), back)
            gate, plain = self.times(self._norm(x), up).chunk(2, dim=-1)
            x = x + self.times(torch.nn.functional.silu(gate) * plain, down)
        return self.times(self._norm(x.view(batch, tokens, -1)[:, -1]), self.words)

    def _norm(self, x: Any) -> Any:
        return self.torch.nn.functional.rms_norm(x, (self.shape.width,))

    def caches(self, batch: int, tokens: int) -> list[Any]:
        """Empty caches of keys and values."""
        head = self.shape.width // self.shape.heads
        size = (batch, self.shape.kv_heads, tokens, head)
        return [
            tuple(self.torch.zeros(size, device="cuda", dtype=self.dtype) for _ in range(2))
            for _ in range(self.shape.layers)
        ]


def milliseconds(torch: Any, work: Any, rounds: int) -> float:
    """The median time of a piece of work on the GPU."""
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(sorted(times)[len(times) // 2])


def step_ms(torch: Any, model: Decoder, batch: int, rounds: int = 30) -> float:
    """The time in which every request of a batch gets one token."""
    x = torch.randn(batch, model.shape.width, device="cuda", dtype=model.dtype)
    caches = model.caches(batch, CONTEXT + 1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model.forward(x, caches, batch, CONTEXT)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model.forward(x, caches, batch, CONTEXT)
    return milliseconds(torch, graph.replay, rounds)


def prefill_ms(torch: Any, model: Decoder, tokens: int, rounds: int = 10) -> float:
    """The time until a prompt of so many tokens has been read."""
    x = torch.randn(tokens, model.shape.width, device="cuda", dtype=model.dtype)
    caches = model.caches(1, tokens)
    for _ in range(2):
        model.forward(x, caches, 1, 0)
    return milliseconds(torch, lambda: model.forward(x, caches, 1, 0), rounds)


def sizes(torch: Any, names: list[str]) -> None:
    print("\n| size, weights | precision | GB | ms per token | tok/s of one stream |")
    print("|---|---|---|---|---|")
    for name in names:
        for kind in ("float32", "bfloat16", "float8") if name == "8B" else ("bfloat16",):
            model = Decoder(torch, SHAPES[name], kind)
            width = {"float32": 4, "bfloat16": 2, "float8": 1}[kind]
            took = step_ms(torch, model, 1)
            billions = SHAPES[name].parameters
            print(
                f"| {name}, {billions:.1f} billion | {kind} | {billions * width:.1f} |"
                f" {took:.2f} | {1000 / took:.0f} |",
                flush=True,
            )
            del model
            torch.cuda.empty_cache()


def batches(torch: Any, model: Decoder, counts: list[int]) -> None:
    print("\n| requests in the batch | ms per token | tok/s of one | tok/s of all | batch_eff |")
    print("|---|---|---|---|---|")
    alone = None
    for count in counts:
        took = step_ms(torch, model, count)
        alone = took if alone is None else alone
        print(
            f"| {count} | {took:.2f} | {1000 / took:.0f} | {1000 * count / took:,.0f} |"
            f" {alone / took:.2f} |",
            flush=True,
        )
        torch.cuda.empty_cache()


def lengths(torch: Any, model: Decoder, prompts: list[int], answers: list[int]) -> None:
    print("\n| prompt, tokens | ms until it is read |")
    print("|---|---|")
    for tokens in prompts:
        print(f"| {tokens:,} | {prefill_ms(torch, model, tokens):.1f} |", flush=True)
    read, step = prefill_ms(torch, model, CONTEXT), step_ms(torch, model, 1)
    print(f"\n| answer, tokens | s to the last one, {CONTEXT} in | tok/s over the whole time |")
    print("|---|---|---|")
    for tokens in answers:
        whole = (read + tokens * step) / 1000
        print(f"| {tokens} | {whole:.2f} | {tokens / whole:.0f} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the two smallest models only")
    given = parser.parse_args()
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        print("This needs PyTorch.", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("This needs an NVIDIA GPU.", file=sys.stderr)
        return 2
    torch.set_grad_enabled(False)
    step_ms(torch, Decoder(torch, SHAPES["1B"], "bfloat16"), 1)  # warms the GPU up
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    names = ["1B", "3B"] if given.quick else list(SHAPES)
    sizes(torch, names)
    model = Decoder(torch, SHAPES["3B" if given.quick else "8B"], "bfloat16")
    batches(torch, model, [1, 2, 4, 8, 16, 32, 64, 128, 256])
    lengths(torch, model, [128, 512, 2048, 8192], [100, 500, 2000])
    return 0


if __name__ == "__main__":
    sys.exit(main())

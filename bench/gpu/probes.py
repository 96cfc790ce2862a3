"""Single limits of a GPU: memory, products of matrices by format and rows, attention, and what a kernel costs beside its work."""
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, scaled_dot_product_attention

from gpu.shapes import LAYERS
from gpu.timing import captured, seconds

GIB, MIB = 1 << 30, 1 << 20
BEYOND_CACHES = 256 * MIB  # of matrices that take turns
COPIED = tuple(size * MIB for size in (4, 16, 32, 64, 128, 512, 2048, 8192))  # bytes
PROMPT = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]  # the faster one first
CACHE = [SDPBackend.FLASH_ATTENTION]  # divides a long cache among processors
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
GROUP = 128  # numbers that share a scale, of 4-bit codes
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
PROMPTS = (512, 2048, 8192, 32768)
CACHES = ((1, 2048), (1, 8192), (1, 32768), (16, 2048), (16, 8192), (64, 2048), (256, 2048))  # (sequences, tokens of each)

Product = Callable[[], torch.Tensor]


def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device="cuda", dtype=torch.float32) * scale).to(torch.bfloat16)


def copies() -> Iterator[tuple[int, float]]:
    """(bytes of a buffer, bytes read and written a second)"""
    for size in COPIED:
        source = torch.ones(size, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        yield size, 2 * size / seconds(partial(target.copy_, source))


def bf16(out: int, inner: int, rows: int) -> Product:
    w, x = normal(out, inner, scale=inner**-0.5), normal(rows, inner)
    return lambda: linear(x, w)


def fp8(out: int, inner: int, rows: int) -> Product:
    """Rows and rows of the matrix have a scale each; rounding is not in it."""
    top = torch.finfo(torch.float8_e4m3fn).max

    def rounded(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scales = numbers.float().abs().amax(dim=1, keepdim=True) / top
        return (numbers.float() / scales).to(torch.float8_e4m3fn), scales

    (w, of_w), (x, of_x) = rounded(normal(out, inner, scale=inner**-0.5)), rounded(normal(rows, inner))
    return lambda: torch._scaled_mm(x, w.t(), of_x, of_w.t(), out_dtype=torch.bfloat16, use_fast_accum=True)


def int8(out: int, inner: int, rows: int) -> Product:
    """Into int32, without scales."""
    w = torch.randint(-127, 128, (out, inner), dtype=torch.int8, device="cuda")
    x = torch.randint(-127, 128, (rows, inner), dtype=torch.int8, device="cuda")
    return lambda: torch._int_mm(x, w.t())


def int4(out: int, inner: int, rows: int) -> Product:
    """Codes with bf16 rows (torch's tinygemm kernels)."""
    bits = torch.randint(0, 256, (out, inner // 2), dtype=torch.uint8, device="cuda")
    w, x = torch._convert_weight_to_int4pack(bits, 8), normal(rows, inner)
    scales = normal(inner // GROUP, out, 2, scale=0.01)
    return lambda: torch._weight_int4pack_mm(x, w, GROUP, scales)


FORMATS: dict[str, tuple[Callable[[int, int, int], Product], float]] = {  # and bytes of a number, scales with it
    "bf16": (bf16, 2), "fp8": (fp8, 1), "int8": (int8, 1), "int4": (int4, 0.5 + 4 / GROUP)}

LEAST_ROWS = {"int8": 32}  # torch takes no fewer than 17


def rows_of(form: str) -> list[int]:
    return [rows for rows in ROWS if rows >= LEAST_ROWS.get(form, 1)]


def right() -> float:
    """How far a product in bf16 is from the same in float64: the norm of the difference over that of the result."""
    w, x = normal(512, 1024), normal(96, 1024)
    found, exact = linear(x, w).double(), x.double() @ w.double().t()
    return float((found - exact).norm() / exact.norm())


def products(form: str, layer: str, rows: int) -> tuple[float, float]:
    """(operations a second, bytes of matrices a second) of a layer's four products, one after another, found in no cache."""
    make, width = FORMATS[form]
    size = sum(out * inner for out, inner in LAYERS[layer])
    turns = max(1, round(BEYOND_CACHES / (size * width)))
    work = [make(out, inner, rows) for _ in range(turns) for out, inner in LAYERS[layer]]

    def all_of_them() -> None:
        for each in work:
            each()

    taken = seconds(all_of_them) / turns
    return 2 * rows * size / taken, size * width / taken


def prompts() -> Iterator[tuple[int, float]]:
    """(tokens, operations a second) of causal attention over a prompt."""
    for count in PROMPTS:
        q, (k, v) = normal(1, HEADS, count, HEAD_DIM), (normal(1, KV_HEADS, count, HEAD_DIM) for _ in range(2))
        operations = 4 * HEADS * HEAD_DIM * count * (count + 1) / 2
        yield count, operations / seconds(partial(attention, q, k, v, causal=True))


def caches() -> Iterator[tuple[int, int, float]]:
    """(sequences, tokens of each, bytes of keys and values a second) of one row a sequence."""
    for count, depth in CACHES:
        num_bytes = 2 * 2 * count * depth * KV_HEADS * HEAD_DIM
        turns = max(1, round(BEYOND_CACHES / num_bytes))
        q = normal(count, HEADS, 1, HEAD_DIM)
        kept = [[normal(count, KV_HEADS, depth, HEAD_DIM) for _ in range(2)] for _ in range(turns)]
        yield count, depth, num_bytes * turns / seconds(partial(_attend, q, kept))


def _attend(q: torch.Tensor, kept: list[list[torch.Tensor]]) -> None:
    for k, v in kept:
        attention(q, k, v)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """[B, heads, rows, dim]; keys and values have fewer heads."""
    grouped = q.shape[1] != k.shape[1]
    if q.dtype == torch.float32:
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    with sdpa_kernel(PROMPT if causal else CACHE, set_priority=True):
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def kernel_s(chained: int = 500) -> float:
    """That a kernel with next to nothing to do takes within a graph, after one that it waits for."""
    some = torch.ones(4096, dtype=torch.bfloat16, device="cuda")

    def chain() -> None:
        for _ in range(chained):
            some.add_(1)

    return seconds(chain) / chained


def token_s(times: int = 200) -> float:
    """From the launch of a graph with one small kernel until the host has the number that it made."""
    some = torch.zeros(1, dtype=torch.int64, device="cuda")
    graph = captured(lambda: some.add_(1))
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        graph.replay()
        some.item()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def host_copies() -> dict[str, float]:
    """Bytes a second between memories, of 1 GiB that is pinned."""
    here, there = torch.empty(GIB, dtype=torch.uint8).pin_memory(), torch.empty(GIB, dtype=torch.uint8, device="cuda")
    found = {}
    for name, target, source in (("to_device", there, here), ("from_device", here, there)):
        taken = []
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - begin)
        found[name] = GIB / statistics.median(taken)
    return found

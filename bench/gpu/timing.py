"""Seconds of work on a GPU, without what the host takes to hand it over: it is captured into a CUDA graph, and replays are timed."""
import statistics
from collections.abc import Callable

import torch

WINDOW_S = 0.03  # that replays are timed for, one after another
WINDOWS = 5


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of what `work` does, after three calls that leave kernels compiled and workspaces taken."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def seconds(work: Callable[[], object]) -> float:
    """Median over windows of the time of one call."""
    graph = captured(work)
    graph.replay()
    once = _window(graph, 1)
    replays = max(1, min(1000, round(WINDOW_S / once)))
    _window(graph, replays)
    return statistics.median(_window(graph, replays) for _ in range(WINDOWS))


def _window(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / replays

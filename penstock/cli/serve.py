"""`penstock serve [MODEL]`: the OpenAI-compatible server."""
import contextlib
import os
import sys

from penstock.cli.options import takes
from penstock.cli.progress import LoadingBar
from penstock.core.config import EngineConfig, ServerConfig


@takes(ServerConfig, EngineConfig)
def serve(server: ServerConfig, engine: EngineConfig) -> None:
    """Serve a model over OpenAI's HTTP API."""
    from penstock.serve import run

    with LoadingBar(f"loading {engine.model}") as progress:
        run.serve(engine, server, say=say, progress=progress)


def say(line: str) -> None:
    """To whoever reads stdout. A full disk, or nobody there, does not keep the server from serving."""
    try:
        print(line, flush=True)
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"warning: stdout takes nothing more: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # also what is buffered

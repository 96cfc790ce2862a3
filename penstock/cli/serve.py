"""`penstock serve [MODEL]`: the OpenAI-compatible server."""
from penstock.cli.options import takes
from penstock.cli.progress import LoadingBar
from penstock.core.config import EngineConfig, ServerConfig


@takes(ServerConfig, EngineConfig)
def serve(server: ServerConfig, engine: EngineConfig) -> None:
    """Serve a model over OpenAI's HTTP API."""
    from penstock.serve import run

    with LoadingBar(f"loading {engine.model}") as progress:
        run.serve(engine, server, say=lambda line: print(line, flush=True), progress=progress)

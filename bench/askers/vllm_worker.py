"""Runs `vllm bench serve` once for each line of its input: a JSON list of arguments in, a JSON object of its result out. The first line out
says that it is ready.

For an interpreter that has vLLM; it sees nothing of Penstock.
"""
import argparse
import json
import os
import sys


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what it prints is for the log
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as serve

    print("ready", file=out, flush=True)
    for line in sys.stdin:
        parser = argparse.ArgumentParser()
        add_cli_args(parser)
        try:
            told = serve(parser.parse_args(json.loads(line)))
            told = {name: float(value) for name, value in told.items() if isinstance(value, (int, float))}
        except (Exception, SystemExit) as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), file=out, flush=True)


if __name__ == "__main__":
    main()

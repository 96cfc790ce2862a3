"""The `penstock` command: one file per command, each of which parses, calls one function and prints.

Only the command that was asked for is imported, and it imports what it runs when it runs: a cold start is part of the first token's time.
Exit status: 0 done, 1 failed, 2 wrong usage (core/errors.py tells them apart), 130 interrupted. An error is one sentence on stderr;
PENSTOCK_DEBUG=1 adds the traceback.
"""
import atexit
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

COMMANDS = {  # name -> "module:function", in the order of the help
    "serve": "penstock.cli.serve:serve",
    "chat": "penstock.cli.chat:chat",
    "generate": "penstock.cli.generate:generate",
    "info": "penstock.cli.info:info",
    "limits": "penstock.cli.limits:limits",
    "plan": "penstock.cli.plan:plan",
    "tune": "penstock.cli.tune:tune",
    "doctor": "penstock.cli.doctor:doctor",
    "bench": "penstock.cli.bench:bench",
    "explain": "penstock.cli.explain:explain",
    "train-heads": "penstock.cli.train_heads:train_heads",
}


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it stays open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to stop
    status = run(sys.argv[1:] if args is None else args)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C while Python ends must not change the status
    sys.exit(status)


def run(args: Sequence[str]) -> int:
    """Runs the command line -> its exit status."""
    try:
        from penstock.cli.app import invoke  # here: whoever presses Ctrl-C while it is imported is to get the same status

        return invoke(args)
    except KeyboardInterrupt:
        return 130

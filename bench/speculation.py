#!/usr/bin/env python3
"""What each proposer gains and costs: tokens per second relative to plain decoding, at 1 to 64 requests at once.

    python bench/speculation.py --text FILE... [--model brook] [--propose ngram auto ...] [--concurrency 1 8 64] [--record]
    python bench/speculation.py --echo qwen3-0.6b --folder DIR --quant int4 --propose ngram auto --concurrency 1
    python bench/speculation.py --echo qwen3-4b --folder DIR --quant int4 --workloads tell --drafter qwen3-0.6b --agree 0.8
                                --propose draft_model:k=4 eagle:k=4,depth=4,width=1 --concurrency 1

An engine with a proposer and one without answer the same requests in turns of a few hundredths of a second; in every second round the one
without goes first. Ratios are of such a pair's rates, and the median and the lowest are reported. Even identical engines differ, by where
their memory lies: `--propose plain` compares a second engine without a proposer with the first, `--restarts` rebuilds all engines that many
times, and the interval of the median comes from resampling those. `--switched` measures what that hides, a percent or less: one engine
answers all requests with its drafter and without, one after the other, in every second round without first. Its rounds are independent, so
the interval is that of their order; `plain` is the same engine without a drafter both times. It also reports the share of the time that the
drafter itself took, which is all that drafting costs where nothing is drafted, and far steadier than rates. Every answer is compared with
plain decoding's: one token that differs is an error.
Workloads from --text: `story` (nothing to copy), `copy` (edits, quotes, JSON echoes) and `mixed` (both, together with sampled answers, of
many lengths, some arriving later). With --echo, which makes a model of a large shape in --folder whose answers are known beforehand:
`quote` (repeat a page), `edit` (correct a page with every tenth token changed) and `tell` (nothing to copy).
With --drafter, `draft_model` gets a smaller model there and `eagle` a head, which guess the share --agree of the next tokens right: this
shows what drafts that good are worth, not how good drafts are. Greedy except for a third of `mixed`; no end of text.
The last line is JSON; `--record` keeps it in bench/results, one --concurrency after another, with the day's earlier rows that were
measured in the same way.
"""
import argparse
import itertools
import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drafts import echo, partners, prompts
from drafts.switch import Switch
from drafts.turns import Ask, Ran, run
from versus.arguments import RECORD, Parser, amount, new_folder, said, text_file, whole
from versus.engines import check_engine, check_words
from versus.record import RESULTS, digest, keep_rows, named, slug, today

from penstock.compute.decoding.control import controllers
from penstock.compute.models.load.hub import Source
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.errors import RequestError, UsageError
from penstock.serve.engine.build import build, find, understand
from penstock.serve.engine.describe import describe
from penstock.serve.engine.engine import Engine
from penstock.serve.engine.machine import processor
from penstock.serve.engine.resolve import AUTO
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.measure.statistics import distribution, grouped_distribution

OF_TEXT, OF_ECHO = ("story", "copy", "mixed"), ("quote", "edit", "tell")  # workloads
USUAL = 2  # of each, the first
PLAIN = "plain"  # of --propose: none, in an engine of its own
MADE = ("draft_model", "eagle")  # of --propose: what is made with --drafter
PROPOSE, CONCURRENCY, AGREE = ("ngram", "suffix", "auto"), (1, 2, 4, 8, 16, 32, 64), 0.8
LENGTH = 1024  # tokens that a request has room for
NEW = 128  # tokens of an answer
SECONDS = 1.0  # that a measurement takes at least, by its number of requests


@dataclass(frozen=True, slots=True)
class Row:
    workload: str
    propose: str
    concurrency: int
    ratio: float  # of plain tokens a second, prompts included, the median of the rounds
    least: float
    low: float | None  # the true median lies between these with 95 % confidence; None after a single start, or few rounds of one engine
    high: float | None
    decode_ratio: float  # the same of the time after each answer's first token
    share: float | None  # of the time that the drafter took, the median of the rounds; only of one engine
    share_high: float | None  # the true median is below it with 97.5 % confidence
    tokens_per_draft_pass: float | None
    drafted: int
    accepted: int


@dataclass(slots=True)
class Found:
    """What a proposer gave with one workload, a list for each start of the engines."""

    ratios: list[list[float]] = field(default_factory=list)
    decoding: list[list[float]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    drafting: Drafting | None = None  # of the last round
    independent: bool = False  # rounds

    def row(self, workload: str, propose: str, concurrency: int) -> Row:
        assert self.drafting is not None
        ratios = [*itertools.chain(*self.ratios)]
        middle = dict((distribution(ratios) if self.independent else grouped_distribution(self.ratios)).percentiles)[50]
        share = dict(distribution(self.shares).percentiles)[50] if self.shares else None
        return Row(workload, propose, concurrency, middle.value, min(ratios), middle.low, middle.high,
                   statistics.median(itertools.chain(*self.decoding)), share.value if share else None, share.high if share else None,
                   self.drafting.tokens_per_draft_pass, self.drafting.num_drafted,
                   self.drafting.num_accepted)


def told(row: Row) -> str:
    rate = f"{row.tokens_per_draft_pass:.2f}" if row.tokens_per_draft_pass else "-"
    within = f"95 % within {row.low:4.2f} to {row.high:4.2f}, " if row.low is not None else ""
    share = f", drafter {row.share:.2%} of the time" if row.share is not None else ""
    return (f"{row.workload:6} {row.concurrency:3} at once  {row.propose:34} {row.ratio:5.2f} x plain ({within}least {row.least:4.2f}), "
            f"decode {row.decode_ratio:4.2f}{share}  tokens a pass with drafts {rate}, drafted {row.drafted}, accepted {row.accepted}")


def sweep(engines: dict[str, Engine], make: prompts.Asks, concurrency: int, args: argparse.Namespace, found: dict[str, Found]) -> None:
    """One start. `engines`: by what they draft with; "" is plain. Raises ValueError where an answer differs from plain decoding's."""
    count = concurrency
    while run({"": engines[""]}, make(count))[""].seconds < SECONDS:
        count *= 2
    for name in found:  # memory is touched, and `auto` has seen what steps cost
        run({name: engines[name]}, make(count))
    for each in found.values():
        each.ratios.append([])
        each.decoding.append([])
    for number in range(args.rounds):
        for name, each in found.items():
            requests = make(count)
            if args.switched:
                with_drafts, plain, share = switches(engines[name], requests, number)
                each.shares.append(share)
            else:
                with_drafts, plain = turns(engines, name, requests, number)
            if with_drafts.answers != plain.answers:
                raise ValueError(f"{name} answers otherwise than plain decoding at {concurrency} requests at once")
            each.ratios[-1].append(with_drafts.tokens_per_s / plain.tokens_per_s)
            each.decoding[-1].append(with_drafts.decode_tokens_per_s / plain.decode_tokens_per_s)
            each.drafting = with_drafts.drafting


def turns(engines: dict[str, Engine], name: str, requests: list[Ask], number: int) -> tuple[Ran, Ran]:
    """With drafts and without: two engines."""
    ran = run({one: engines[one] for one in (("", name) if number % 2 else (name, ""))}, requests)
    return ran[name], ran[""]


def switches(engine: Engine, requests: list[Ask], number: int) -> tuple[Ran, Ran, float]:
    """The same of one engine, and the share of its time that its drafter took."""
    switch = Switch(engine)
    ran = {drafts: switch.run(requests, drafts) for drafts in ((False, True) if number % 2 else (True, False))}
    switch.on()
    return ran[True][0], ran[False][0], ran[True][1]


def config_of(model: str, name: str, concurrency: int, args: argparse.Namespace) -> EngineConfig:
    """Of the engine that drafts by `name`; "": plain."""
    return EngineConfig(model=model, backend=args.backend, quant=args.quant, max_num_seqs=concurrency, max_model_len=LENGTH,
                        threads=args.threads, prefix_cache=False,
                        propose=None if name in ("", PLAIN) else f"{name}{args.given.get(name, '')}",
                        draft_control=controllers.PATIENT if name in ("", PLAIN) else args.draft_control)


def measure(model: str, workloads: dict[str, prompts.Asks], concurrency: int, args: argparse.Namespace) -> list[Row]:
    found = {name: {each: Found(independent=args.switched) for each in args.propose} for name in workloads}
    for number in range(args.restarts):
        names = ["", *args.propose]
        engines = {name: build(config_of(model, name, concurrency, args)).engine for name in (reversed(names) if number % 2 else names)}
        for name, make in workloads.items():
            try:
                sweep(engines, make, concurrency, args, found[name])
            except (ValueError, RequestError) as error:
                raise SystemExit(f"{name}: {error}") from None
        del engines  # before the next are made
    rows = [each.row(workload, name, concurrency) for workload, by_name in found.items() for name, each in by_name.items()]
    print(*map(told, rows), sep="\n", flush=True)
    return rows


def keep(record: dict[str, Any], path: Path) -> None:
    """With the rows of the file at `path` that this run did not measure, if that was made in the same way."""
    way = [name for name in record if name not in ("date", "rows")]
    keep_rows(record, path, way, key, lambda rows: {"rows": sorted(rows, key=lambda row: row["concurrency"])})


def key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["workload"], row["propose"], row["concurrency"]


def telling(args: argparse.Namespace) -> tuple[str, dict[str, prompts.Asks]]:
    """The model, and what it can be asked."""
    encode = Tokenizer.load(find(EngineConfig(model=args.model)).source.path).encode
    stories, copies = prompts.story(encode, args.text), prompts.copying(encode, args.text)
    return args.model, dict(zip(OF_TEXT, (prompts.greedy(stories, args.new), prompts.greedy(copies, args.new),
                                          prompts.mixed(stories, copies, args.new, LENGTH)), strict=True))


def echoing(args: argparse.Namespace) -> tuple[str, dict[str, prompts.Asks]]:
    """The same of one that is made."""
    folder = args.folder / args.echo
    made = echo.make(folder, args.echo, tokenizer())
    asks = (prompts.echoing(made, changed=0.0), prompts.echoing(made, changed=0.1), prompts.fresh(made))
    return str(folder), dict(zip(OF_ECHO, (prompts.greedy(each, args.new) for each in asks), strict=True))


def drafting(args: argparse.Namespace) -> dict[str, str]:
    """By what --propose says: the options that name what is made to draft for the model."""
    found = {}
    for name in args.propose:
        kind, _, options = name.partition(":")
        if kind == "draft_model":
            given = f"model={partners.model(args.folder, args.drafter, tokenizer(), args.agree)}"
        elif kind == "eagle":
            given = f"path={partners.head(args.folder / args.echo, args.agree)}"
        else:
            continue
        found[name] = f",{given}" if options else f":{given}"
    return found


def tokenizer() -> Path:
    """The folder of the tokenizer that a made model gets."""
    return Path(find(EngineConfig()).source.path)


def make_parser() -> Parser:
    made, shapes = Parser(__doc__), sorted(echo.SHAPES)
    made.add_argument("--text", type=text_file, nargs="+", metavar="FILE", help="texts to make prompts from, in paragraphs; UTF-8")
    made.add_argument("--model", type=said, help="a folder, a GGUF file or a hub name; default: brook")
    made.add_argument("--echo", choices=shapes, help="make a model of this shape, instead of --model and --text")
    made.add_argument("--folder", type=new_folder, help="folder for the models of --echo and --drafter (gigabytes), which are reused")
    made.add_argument("--drafter", choices=shapes, help="with --echo: shape of the model for draft_model; eagle's head is made too")
    made.add_argument("--agree", type=amount(above=0, most=1),
                      help=f"share of the tokens that the drafters of --drafter guess right; default: {AGREE}")
    made.add_argument("--propose", type=said, nargs="+", default=[*PROPOSE], metavar="NAME[:KEY=VALUE,...]",
                      help=f"proposers, each compared with plain decoding; {PLAIN}: a second one without; default: {' '.join(PROPOSE)}")
    made.add_argument("--concurrency", type=whole(), nargs="+", default=[*CONCURRENCY],
                      help=f"numbers of requests at once; default: {' '.join(map(str, CONCURRENCY))}")
    made.add_argument("--workloads", nargs="+", choices=[*OF_TEXT, *OF_ECHO],
                      help=f"workloads; default: {' '.join(OF_TEXT[:USUAL])}, with --echo {' '.join(OF_ECHO[:USUAL])}")
    made.add_argument("--quant", type=said, default="none", help="weight format of all engines, as for penstock; default: %(default)s")
    made.add_argument("--new", type=whole(8), default=NEW, help="tokens per answer; default: %(default)s")
    made.add_argument("--rounds", type=whole(), default=5, help="rounds in which everything is measured once; default: %(default)s")
    made.add_argument("--threads", type=whole(), help="threads of all engines; default: as many as they choose for the model")
    made.add_argument("--backend", type=said, default=AUTO,
                      help="backend of all engines, as for penstock: cpu:kernels=avx512_vnni takes other kernels; default: %(default)s")
    made.add_argument("--draft-control", choices=controllers.NAMES, default=controllers.PATIENT,
                      help="of all proposers, as for penstock; default: %(default)s")
    made.add_argument("--restarts", type=whole(), default=1, help="how often all engines are rebuilt; default: %(default)s")
    made.add_argument("--switched", action="store_true", help="measure one engine with its drafter and without")
    made.add_argument("--record", action="store_true", help=RECORD)
    return made


def check(args: argparse.Namespace) -> None:
    """What one option says of another, and defaults that hang on others. Raises UsageError."""
    known, drafted = OF_ECHO if args.echo else OF_TEXT, [name for name in args.propose if name.partition(":")[0] in MADE]
    args.workloads = args.workloads or [*known[:USUAL]]
    for wrong, why in (
        (args.echo and (args.model or args.text), "--echo makes its model and prompts: leave out --model and --text"),
        (args.echo and not args.folder, "--echo needs --folder: where its model is made"),
        (not args.echo and (args.folder or args.drafter), "--folder and --drafter are for what --echo makes: name its shape"),
        (not args.echo and not args.text, "--text names the files that prompts are made of"),
        (args.agree is not None and not args.drafter, "--agree says how often what --drafter makes is right: name its shape"),
        (args.drafter and not drafted, f"--drafter makes what {' and '.join(MADE)} draft with: name one of them with --propose"),
        (unknown := [name for name in args.workloads if name not in known],
         f"the workloads {'of' if args.echo else 'without'} --echo are {', '.join(known)}, not {', '.join(unknown)}"),
    ):
        if wrong:
            raise UsageError(why)
    args.model, args.agree = args.model or "brook", AGREE if args.agree is None else args.agree
    if not args.echo:
        for lengths, users, least in ((prompts.TOLD, ("story", "mixed"), max(args.concurrency)), (prompts.COPIED, ("copy", "mixed"), 1)):
            if set(users) & set(args.workloads):
                prompts.check(args.text, lengths, least)


def ready(args: argparse.Namespace) -> tuple[str, dict[str, prompts.Asks]]:
    """The model, and the workloads. Raises PenstockError where an engine cannot be made or has no room for a request."""
    args.given = {}
    if args.echo:  # before gigabytes are made
        shape = understand(Source(args.echo, args.folder / args.echo, echo.SHAPES[args.echo]))
        for name in ("", *args.propose):
            check_words(config_of(args.echo, name, 1, args), shape)
    make = echoing if args.echo else telling
    model, makers = make(args)
    if args.drafter:
        args.given = drafting(args)
    for name, concurrency in itertools.product(("", *args.propose), args.concurrency):
        check_engine(config_of(model, name, concurrency, args))
    asked = [ask for name in args.workloads for ask in makers[name](max(args.concurrency))]
    if max(len(ask.prompt) + (ask.params.max_tokens or 0) for ask in asked) > LENGTH:
        room = LENGTH - max(len(ask.prompt) for ask in asked)
        most = room // (2 if "mixed" in args.workloads else 1)
        raise UsageError(f"a request has room for {LENGTH:,} tokens, its prompt included: --new {args.new:,} must be at most {most:,}")
    model, makers = make(args)  # prompts begin anew
    return model, {name: makers[name] for name in args.workloads}


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    with parser.refusing():
        check(args)
        model, workloads = ready(args)
    record, rows = described(model, args), list[Row]()
    for concurrency in args.concurrency:
        rows += measure(model, workloads, concurrency, args)
        record |= {"date": today(), "rows": [asdict(row) for row in rows]}
        if args.record:  # what fails later takes nothing with it
            keep(record, RESULTS / f"{today()[:10]}-{slug(processor().model)}-speculation-{of(args)}.json")
    print(json.dumps(record))


def described(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """A record without its rows: how they are measured."""
    texts = {} if args.echo else {"texts": [f"{path.name} {digest(path.read_bytes())}" for path in args.text]}
    return {"bench": "speculation", "model": args.echo or args.model, "quant": args.quant, "machine": processor().model, "date": today(),
            **({"drafter": args.drafter, "agree": args.agree} if args.drafter else {}),
            **({} if args.backend == AUTO else {"backend": args.backend}),
            **({} if args.draft_control == controllers.PATIENT else {"draft_control": args.draft_control}), **texts,
            "threads": describe(EngineConfig(model=model, threads=args.threads)).threads, "new": args.new, "rounds": args.rounds,
            "restarts": args.restarts, "switched": args.switched}


def of(args: argparse.Namespace) -> str:
    """The end of a record's name."""
    usual = [*(OF_ECHO if args.echo else OF_TEXT)[:USUAL]]
    others = ("" if args.workloads == usual else "-" + "-".join(args.workloads)) + "-switched" * args.switched
    others += f"-agree-{args.agree:g}" * bool(args.drafter) + f"-new-{args.new}" * (args.new != NEW)
    others += "" if args.threads is None else f"-threads-{args.threads}"
    others += "" if args.backend == AUTO else f"-{slug(args.backend)}"
    others += "" if args.draft_control == controllers.PATIENT else f"-{args.draft_control}"
    others += named(make_parser().others(args, ("rounds", "restarts")))
    return f"{Path(args.echo or args.model).name}-{args.quant}{others}"


if __name__ == "__main__":
    main()

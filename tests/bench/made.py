"""Made-up samples, rows and contestants."""
from versus.contest import Entry, Measured, Roof, Sample
from versus.points import Point
from versus.rows import Row

OURS = Entry("penstock", "int8", "", 8, "bf16", ours=True)
SLOW = Entry("rival", "Q8", "plain", 8, "int8")
FAST = Entry("rival", "Q8", "repacked", 8, "int8")
ROOF = Roof(40e9, {"bf16": 5e11, "int8": 1e12})
DECODE = Point("decode", 2048)


def sample(entry: Entry, tokens_per_s: float, round_number: int = 0, point: Point = DECODE, **figures: float) -> Sample:
    return Sample(entry, point, round_number, Measured(tokens_per_s, figures), ROOF)


def row(engine: str, tokens_per_s: float, share: float = 0.5, **fields: object) -> Row:
    told = {"model": "m", "question": "decode", "size": 0, "format": "int8", "setting": "", "bits": 8, "ours": engine == "penstock",
            "rounds": 3, "spread": 1.0, "bytes_per_s": 40e9} | fields
    return Row(engine=engine, tokens_per_s=tokens_per_s, share=share, **told)

"""What `penstock bench` and `penstock tune` are asked to ask."""
import json
from pathlib import Path

import pytest

from penstock.cli.bench import BenchOptions, make_job
from penstock.cli.tune import TuneOptions, dataset_of
from penstock.core.config import EngineConfig
from penstock.study.measure.writers import IdWriter

SAID = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
FILES = [
    ("jsonl", '{"prompt": [5, 6]}\n{"prompt": [7]}'), ("sharegpt", json.dumps(SAID)), ("sharegpt", json.dumps([SAID])),
    ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,9,2"),
    ("burstgpt", "Timestamp,Request tokens,Response tokens\n5,9,2"),
    ("mooncake", '{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}')]


@pytest.mark.parametrize(("name", "text"), FILES)
def test_a_file_is_read_once(tmp_path: Path, name: str, text: str) -> None:
    """Traces are large, and a pipe has nothing left to read the second time."""
    file = tmp_path / "asked"
    file.write_text(text)
    bench = make_job(BenchOptions(dataset=f"{name}:path={file}"), EngineConfig(model="http://box")).dataset
    tune, _ = dataset_of(TuneOptions(dataset=f"{name}:path={file}"))
    file.unlink()
    one, two, three, other = (list(make(IdWriter(), seed).sessions()) for make, seed in (
        (bench, "s"), (bench, "s"), (tune, "s"), (bench, "t")))
    assert one and one == two == three and (one == other) is (name in ("jsonl", "sharegpt")), "prompts that are made up are another seed's"

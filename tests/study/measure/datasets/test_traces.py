import json
from pathlib import Path

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.datasets import TABLE
from penstock.study.measure.datasets.azure import seconds
from penstock.study.measure.load import Session, Turn
from penstock.study.measure.writers import IdWriter

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,480,10
2023-11-16 18:17:04.0319601,318,8
2023-11-16 18:17:05.0781490,11,27"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
MOON = [(0, 1200, 5, [0, 1, 2]), (27, 1536, 6, [0, 1, 3]), (3000, 600, 7, [9, 10])]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "azure").write_text(AZURE)
    (tmp_path / "burst").write_text(BURST)
    rows = ({"timestamp": at, "input_length": i, "output_length": o, "hash_ids": ids} for at, i, o, ids in MOON)
    (tmp_path / "moon").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def read(text: str) -> tuple[list[Session], list[str]]:
    dataset, options = TABLE.parse(text)
    made = dataset(options, IdWriter(), "seed")
    return list(made.sessions()), made.notes()


def shapes(sessions: list[Session]) -> list[tuple[float, int, int | None]]:
    return [(round(session.at_s or 0.0, 4), len(session.turns[0].prompt or ""), session.turns[0].num_output) for session in sessions]


def test_azure(files: Path) -> None:
    sessions, notes = read(f"azure:path={files / 'azure'}")
    assert shapes(sessions) == [(0.0, 480, 10), (0.052, 318, 8), (1.0982, 11, 27)] and not notes


def test_azure_stamps_with_and_without_a_fraction() -> None:
    assert seconds("2023-11-16 18:17:04.5000000", "x") - seconds("2023-11-16 18:17:04", "x") == 0.5
    with pytest.raises(UsageError, match="TIMESTAMP"):
        seconds("yesterday", "file:7")


@pytest.mark.parametrize("stamp", ["2023-11-16 18:17:04.25", "2023-11-16T18:17:04.2500000Z", "2023-11-16 18:17:04.250000+00:00",
                                   "2023-11-16 20:17:04.25+02:00", "2023-11-16 16:47:04.25-0130", "2023-11-16 17:17:04.25-01"])
def test_azure_stamps_of_one_moment(stamp: str) -> None:
    assert seconds(stamp, "x") == 1700158624.25


def test_a_line_of_more_fields_than_headings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "azure").write_text(AZURE + ",5\n")
    with pytest.raises(UsageError, match="azure:4 has 4 fields under 3 headings"):
        read(f"azure:path={tmp_path / 'azure'}")


def test_burstgpt_leaves_failures_out_and_says_so(files: Path) -> None:
    sessions, notes = read(f"burstgpt:path={files / 'burst'}")
    assert shapes(sessions) == [(0.0, 472, 18), (113.0, 417, 276)]
    assert notes == ["requests of the trace that were left out: 1 without a prompt or an answer"]


def prompts(sessions: list[Session]) -> list[tuple[int, ...]]:
    return [turn.prompt for turn in (session.turns[0] for session in sessions) if isinstance(turn, Turn) and isinstance(turn.prompt, tuple)]


def test_mooncake_prompts_share_what_their_ids_share(files: Path) -> None:
    sessions, _ = read(f"mooncake:path={files / 'moon'}")
    assert shapes(sessions) == [(0.0, 1200, 5), (0.027, 1536, 6), (3.0, 600, 7)]
    one, two, three = prompts(sessions)
    assert one[:1024] == two[:1024] and one[1024:1040] != two[1024:1040] and one[:16] != three[:16]


def test_scaled_prompts_share_as_much(files: Path) -> None:
    sessions, _ = read(f"mooncake:path={files / 'moon'},scale=0.125")
    one, two, _ = prompts(sessions)
    assert len(one) == 150 and one[:128] == two[:128] and one[128:] != two[128:150] and sessions[0].turns[0].num_output == 1


@pytest.mark.parametrize(("scale", "small"), [(0.008, 4), (0.03125, None), (0.125, None), (1, None)])
def test_blocks_that_are_scaled_below_those_of_a_prefix_cache_are_told_of(files: Path, scale: float, small: int | None) -> None:
    _, notes = read(f"mooncake:path={files / 'moon'},scale={scale}")
    assert [note for note in notes if "--block-size" in note] == ([] if small is None else [
        f"blocks of 512 tokens that requests share became {small}: a prefix cache with larger blocks (16 tokens by default; `--block-size "
        f"{small}` makes them as small) finds only what fills them"])
    assert not read(f"azure:path={files / 'azure'},scale={scale}")[1]


def test_a_cut_of_a_trace(files: Path) -> None:
    assert shapes(read(f"azure:path={files / 'azure'},start=0.05,seconds=1")[0]) == [(0.002, 318, 8)]
    sessions, notes = read(f"azure:path={files / 'azure'},max_input=400,max_output=20")
    assert shapes(sessions) == [(0.052, 318, 8)]
    assert notes == ["requests of the trace that were left out: 1 with a prompt of more than max_input=400 tokens, "
                     "1 with an answer of more than max_output=20 tokens"]
    assert read(f"azure:path={files / 'azure'},start=0.05,seconds=1")[1] == [
        "requests of the trace that were left out: 1 before start=0.05, 1 after seconds=1"]


@pytest.mark.parametrize(("text", "told"), [
    ("azure:path={}/azure,max_input=4", "3 with a prompt of more than max_input=4 tokens"),
    ("azure:path={}/azure,max_input=400,max_output=7",
     "1 with a prompt of more than max_input=400 tokens, 2 with an answer of more than max_output=7 tokens"),
    ("azure:path={}/azure,start=9", "3 before start=9"), ("mooncake:path={}/moon,start=0.02,seconds=0.001", "1 before .*, 2 after .*"),
    ("burstgpt:path={}/burst,start=1,seconds=100", "1 before start=1, 1 without a prompt or an answer, 1 after seconds=100"),
])
def test_a_trace_of_which_nothing_is_left_is_told(files: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"has no requests but those that are left out: {told}$"):
        read(text.format(files))


def test_a_trace_without_a_line_is_told(files: Path) -> None:
    (files / "none").write_text(AZURE.splitlines()[0])
    with pytest.raises(UsageError, match="/none has no requests$"):
        read(f"azure:path={files / 'none'}")


@pytest.mark.parametrize(("text", "word"), [
    ("azure:path={}/burst", "no azure trace.*'TIMESTAMP'"), ("burstgpt:path={}/azure", "no burstgpt trace"),
    ("mooncake:path={}/azure", "JSON"), ("azure:path={}/azure,scale=0", "scale"),
    ("azure:path={}/azure,start=-1", "start of a trace must be 0 or more and finite, not -1"),
    ("azure:path={}/azure,start=nan", "start must be a finite number"), ("azure:path={}/azure,seconds=-2", "seconds of a trace .* not -2"),
    ("azure:path={}/azure,max_output=-2", "max_output of a trace"),
    ("azure", "path=FILE"),
])
def test_what_is_no_such_trace_is_refused(files: Path, text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        read(text.format(files))


@pytest.mark.parametrize("line", ['{"timestamp": 1}', '{"timestamp": 1, "input_length": 3, "output_length": -1}', "[]",
                                  '{"timestamp": 1, "input_length": 3, "output_length": 1, "hash_ids": ["a"]}',
                                  f'{{"timestamp": 1, "input_length": {10**400}, "output_length": 1}}', "[" * 100_000])
def test_mooncake_lines_are_checked(tmp_path: Path, line: str) -> None:
    (tmp_path / "moon").write_text(line)
    with pytest.raises(UsageError, match="moon:1"):
        read(f"mooncake:path={tmp_path / 'moon'}")


@pytest.mark.parametrize(("blocks", "said"), [
    ("", "hash_ids are a list of whole numbers, not None"), (', "hash_ids": null', "not None"), (', "hash_ids": []', "2 for 700, not 0"),
    (', "hash_ids": [0]', "hash_ids are one for each 512 tokens, 2 for 700, not 1")])
def test_mooncake_prompts_have_all_of_their_ids(tmp_path: Path, blocks: str, said: str) -> None:
    whole = '{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [0]}'
    (tmp_path / "moon").write_text(f'{whole}\n{{"timestamp": 2, "input_length": 700, "output_length": 1{blocks}}}\n')
    with pytest.raises(UsageError, match=f"moon:2: .*{said}"):
        read(f"mooncake:path={tmp_path / 'moon'}")


def test_parts_of_tokens_are_refused(tmp_path: Path) -> None:
    (tmp_path / "moon").write_text('{"timestamp": 1.5, "input_length": 10.5, "output_length": 1, "hash_ids": [0]}')
    with pytest.raises(UsageError, match="moon:1: tokens are whole numbers, not input_length 10.5"):
        read(f"mooncake:path={tmp_path / 'moon'}")


def test_a_field_that_is_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "azure").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,many,1\n")
    with pytest.raises(UsageError, match="azure:2: ContextTokens"):
        read(f"azure:path={tmp_path / 'azure'}")


@pytest.mark.parametrize(("fields", "said"), [
    ("nan,g,10,2", "Timestamp must be a number of seconds, not 'nan'"), ("inf,g,10,2", "Timestamp"), ("7,g,10.5,2", "Request tokens"),
    ("7,g,10,nan", "Response tokens"), ("7,g,1e999,2", "Request tokens"),
    ("7,g,1e300,2", "Request tokens must be a whole number from 0 to 1e\\+15, not '1e300'"), (f"7,g,{10**200},2", "Request tokens")])
def test_numbers_of_burstgpt_are_finite_and_tokens_whole(tmp_path: Path, fields: str, said: str) -> None:
    (tmp_path / "burst").write_text(f"Timestamp,Model,Request tokens,Response tokens\n3,g,10.0,2\n{fields}\n")
    with pytest.raises(UsageError, match=f"burst:3: {said}"):
        read(f"burstgpt:path={tmp_path / 'burst'}")


def test_a_prompt_longer_than_anybody_reads_is_refused_before_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "burst").write_text("Timestamp,Model,Request tokens,Response tokens\n1,g,1000000000000,1\n")
    with pytest.raises(UsageError, match="1,000,000,000,000 tokens is more than the most that can be made, 16,777,216"):
        read(f"burstgpt:path={tmp_path / 'burst'}")


@pytest.mark.parametrize("text", ["a" * 200_000, f"Timestamp,Request tokens,Response tokens\n3,{'1' * 200_000},2"])
def test_a_field_that_is_too_long_for_a_csv_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "burst").write_text(text)
    with pytest.raises(UsageError, match="burst.* is no .*burstgpt trace: field larger than field limit"):
        read(f"burstgpt:path={tmp_path / 'burst'}")

"""Self-consistency: what is extracted, who wins, and that no pattern can hold up the server."""
import errno
import subprocess
from pathlib import Path

import pytest

from penstock.core.errors import RequestError
from penstock.serve.scorers import extraction
from penstock.serve.scorers.allowed import Allowed
from penstock.serve.scorers.contract import Candidate, Host, Ranked
from penstock.serve.scorers.extraction import extract
from penstock.serve.scorers.votes import MAX_WIDTH, Votes, VotesOptions, width

HOST = Host("self_consistency", Allowed(()))


def rank(pattern: str | None, *candidates: tuple[str, float]) -> list[Ranked]:
    return Votes(VotesOptions(pattern), HOST).rank("", [Candidate(text, (logprob,)) for text, logprob in candidates])


def test_the_likeliest_of_the_largest_group_wins() -> None:
    ranked = rank(r"= (\d+)", ("so = 4", -3.0), ("it = 5", -0.1), ("thus = 4", -1.0), ("= 4", -2.0))
    assert [each.place for each in ranked] == [2, 3, 0, 1]
    assert ranked[0].score.value == 3.0 and ranked[0].score.details == {"extracted": "4", "votes": {"4": 3, "5": 1}}
    assert [each.score.details for each in ranked[1:]] == [{"extracted": "4"}, {"extracted": "4"}, {"extracted": "5"}]


def test_of_groups_of_one_size_the_likelier_answer_wins() -> None:
    ranked = rank(r"\d", ("1", -2.0), ("2", -0.5), ("2", -9.0), ("1", -1.0))
    assert ranked[0].place == 1 and ranked[0].score.value == 2.0


def test_an_answer_without_a_match_has_no_vote() -> None:
    ranked = rank(r"\d", ("none", -0.1), ("nothing", -0.2), ("7", -5.0))
    assert [each.place for each in ranked] == [2, 0, 1]
    assert ranked[1].score.value == 0.0 and ranked[1].score.details == {"extracted": None}


def test_where_nothing_matches_the_likeliest_answer_wins() -> None:
    ranked = rank(r"\d", ("a", -2.0), ("b", -1.0))
    assert ranked[0].place == 1 and ranked[0].score.details == {"extracted": None, "votes": {}}


def test_without_a_pattern_the_whole_answer_counts() -> None:
    assert rank(None, (" yes\n", -3.0), ("no", -0.1), ("yes", -2.0))[0].place == 2


@pytest.mark.parametrize(("pattern", "text", "found"), [
    (r"\d+", "1 then 22 then 333.", "333"), (r"(\d)\d*", "12 34", "3"), (r"<b>(.*?)</b>", "<b> x </b>", "x"), (r"a|(b)", "b a", None),
    (r"Ä(ß|€)", "Ä€", "€"), (r"(?s)answer:(.*)", "answer: a\nb ", "a\nb"), ("x", "", None)])
def test_the_last_match_counts(pattern: str, text: str, found: str | None) -> None:
    assert extract(pattern, [text], 5.0) == [found]


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?P<x>", "a{3,1}", "(?a)(?u)x"])
def test_what_is_no_pattern_is_refused_before_anything_is_generated(pattern: str) -> None:
    with pytest.raises(RequestError, match=r"^self_consistency\.extract is no regular expression: ") as raised:
        Votes(VotesOptions(pattern), HOST)
    assert (raised.value.status, raised.value.param) == (400, "self_consistency.extract")


def test_a_pattern_that_is_too_long_is_refused() -> None:
    with pytest.raises(RequestError, match="has 257 characters; at most 256"):
        Votes(VotesOptions("a" * 257), HOST)


@pytest.mark.parametrize(("pattern", "wide"), [
    ("(?i)" + "[\0-\uffff]" * 50, 50 << 16), ("(?i)[" + "".join(f"\0-{chr(0xFFFF - at)}" for at in range(5)) + "]", (5 << 16) - 10),
    (r"[^-\0-\uffff]" * 5, 5 << 16), (r"[\x00-\U0010ffff]" * 5, 5 * (0x10000 - ord("0"))),
    (r"[\\uffff-\uffff]" * 5, 5 * (0x10000 - ord("f"))), (r"[\\U0010ffff-\N{LATIN SMALL LETTER A}]" * 5, 5 * (0x10000 - ord("f")))])
def test_a_pattern_that_takes_long_to_compile_is_refused(pattern: str, wide: int) -> None:
    """While it is compiled, nobody else is answered."""
    with pytest.raises(RequestError, match=f"has ranges with {wide} characters in all; at most {MAX_WIDTH} are taken") as raised:
        Votes(VotesOptions(pattern), HOST)
    assert (raised.value.status, raised.value.param) == (400, "self_consistency.extract")


@pytest.mark.parametrize(("pattern", "wide"), [
    ("(?i)" + "[a-z0-9]" * 31, 0), ("[\u3040-\u309f\u30a0-\u30ff\u4e00-\u9fff]", 96 + 96 + 20992),
    (r"([\u4e00-\u9fff]+)" * 12, 12 * 20992), ("[一-龥]+" * 7, 7 * 20902), ("[а-яё]+" * 30, 30 * 32), ("果-答", ord("答") - ord("果") + 1),
    ("[\U0001f300-\U0001f5ff\U0001f600-\U0001f64f]" * 12, 0), (r"[\U0001F300-\U0001FAFF]" * 10, 0), (r"[\xa0-\xff\0-\377\w-]", 0)])
def test_ranges_of_letters_are_taken(pattern: str, wide: int) -> None:
    assert width(pattern) == wide <= MAX_WIDTH and Votes(VotesOptions(pattern), HOST).waits_for


def break_search(monkeypatch: pytest.MonkeyPatch, folder: Path, how: str) -> None:
    """What the process does instead of searching."""
    program = Path(extraction.__file__).read_text("utf-8").replace('re.compile(asked["pattern"])', f"__import__('builtins') and {how}")
    (folder / "program.py").write_text("import os, time\n" + program, "utf-8")
    monkeypatch.setattr(extraction, "__file__", str(folder / "program.py"))


@pytest.mark.parametrize(("how", "told", "status"), [
    ("os.kill(os.getpid(), 9)", r"^the process that searches for self_consistency\.extract was ended by signal 9; the machine", 503),
    ("sys.exit(1)", "ended with status 1", 503),
    ("'x' * (2 << 30)", r"^self_consistency\.extract needed more than 1024 MiB of memory on 1 answers; write", 400)])
def test_what_ended_a_search_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str, told: str, status: int) -> None:
    break_search(monkeypatch, tmp_path, how)
    with pytest.raises(RequestError, match=told) as raised:
        rank("a", ("a", -1.0))
    assert (raised.value.status, raised.value.param) == (status, "self_consistency.extract")


def test_a_pattern_is_not_blamed_for_a_machine_that_is_busy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    break_search(monkeypatch, tmp_path, "time.sleep(60)")
    monkeypatch.setattr("penstock.serve.scorers.votes.SECONDS", 0.02)
    with pytest.raises(RequestError, match=r"extract could not compute for 0\.02 s within 0\.2 s; the machine .* too busy") as raised:
        rank("a", ("a", -1.0))
    assert raised.value.status == 503


def test_a_search_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork(*given: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fork)
    told = r"^the process that searches for self_consistency\.extract could not be started: Resource temporarily unavailable; the machine"
    with pytest.raises(RequestError, match=told) as raised:
        rank("a", ("a", -1.0))
    assert (raised.value.status, raised.value.param) == (503, "self_consistency.extract")


def test_a_pattern_that_takes_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.scorers.votes.SECONDS", 0.3)
    with pytest.raises(RequestError, match=r"took longer than 0\.3 s on 2 answers") as raised:
        rank("(a+)+$", ("a" * 60 + "b", -1.0), ("a", -1.0))
    assert raised.value.status == 400

import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from llguidance import LLParserLimits

from penstock.compute.decoding.grammar import matcher as module
from penstock.compute.decoding.grammar.matcher import EVERYTHING, Matcher
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import END, MARK, OTHER_END, SIZE, TOKENS, Tokens, allowed, compiler, matcher_of, places

COMPILER = compiler()
WORDS = COMPILER.vocabulary.width // 32
SCHEMA = Wanted(json={
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"],
    "additionalProperties": False})


def at(text: str, wanted: Wanted = SCHEMA, **params: object) -> Matcher:
    matcher = matcher_of(COMPILER, wanted, **params)
    matcher.take(TOKENS.encode(text))
    return matcher


def masks_of(num: int) -> np.ndarray:
    return np.zeros((num, WORDS), dtype=np.uint32)


def test_it_ends_where_nothing_may_follow_and_what_is_behind_does_not_count() -> None:
    matcher = matcher_of(COMPILER, SCHEMA)
    ids = TOKENS.encode('{"name": "a", "age": 10}')
    assert matcher.take(ids[:-1]) == len(ids) - 1 and matcher.ended is None
    assert matcher.take([ids[-1], END, 5]) == 1 and matcher.ended == "stop"
    assert matcher.take([5]) == 0 and matcher.forced() == [] and matcher.allowed([5], None) == []


def test_the_end_of_text_is_allowed_only_where_the_grammar_may_end() -> None:
    wanted = Wanted(regex="a+")
    assert END not in allowed(at("", wanted)) and allowed(at("aa", wanted)) == [ord("a"), END]
    matcher = at("aa", wanted)
    assert matcher.take([END]) == 1 and matcher.ended == "stop"
    early = at("", wanted)
    early.take([END])
    assert early.ended == "abort"


def test_tokens_without_a_text_and_special_ones_are_never_allowed() -> None:
    inside = set(allowed(at('{"name": "', SCHEMA)))
    assert inside.isdisjoint({END, OTHER_END, MARK, *range(SIZE - 5, SIZE)}) and TOKENS.encode("king")[0] in inside


def test_special_stop_tokens_end_an_answer_where_the_end_of_text_may() -> None:
    wanted = Wanted(regex="a+")
    stops = {"stop_token_ids": (OTHER_END, ord("b"))}
    assert allowed(at("", wanted, **stops)) == [ord("a")] and allowed(at("a", wanted, **stops)) == [ord("a"), END, OTHER_END]
    matcher = at("a", wanted, **stops)
    assert matcher.take([OTHER_END, 5]) == 1 and matcher.ended == "stop"


def test_with_ignore_eos_an_answer_goes_on_as_long_as_it_can() -> None:
    wanted = Wanted(regex="a{1,2}(?:b|c)?")
    assert allowed(at("a", wanted, ignore_eos=True)) == [ord("a"), ord("b"), ord("c")]
    matcher = at("aab", wanted, ignore_eos=True)
    assert matcher.ended == "stop"


def test_a_model_without_an_end_of_text_ends_where_the_grammar_does() -> None:
    made = compiler(Tokens(ends=()))
    matcher = matcher_of(made, Wanted(regex="ab?"))
    matcher.take([ord("a")])
    assert matcher.ended is None and [token for token in allowed(matcher, made.vocabulary.width) if token < SIZE] == [ord("b")]
    assert matcher.take([ord("b")]) == 1 and matcher.ended == "stop"


def test_what_must_come_next_is_spelled_as_the_tokenizer_would() -> None:
    forced = at("").forced()
    assert TOKENS.decode(forced) in ("{", '{"') or TOKENS.decode(forced) == ""
    assert TOKENS.decode(at('{"').forced()).startswith("name")
    assert at('{"name": "').forced() == []


def test_asking_leaves_its_place_as_it_is() -> None:
    matcher = at('{"name": "the')
    before = allowed(matcher)
    drafts = TOKENS.encode(' old king", "age": 1')
    matcher.forced()
    matcher.allowed(drafts, None)
    matcher.fill_along(drafts, None, masks_of(len(drafts) + 1))
    tree = (ord('"'), ord(","), ord("x"), ord("y"))
    matcher.allowed(tree, (-1, 0, -1, 2))
    matcher.fill_along(tree, (-1, 0, -1, 2), masks_of(5))
    assert allowed(matcher) == before and matcher.ended is None


def test_a_drafts_mask_is_that_of_going_there() -> None:
    rng = random.Random(1)
    text = '{"name": "old king", "age": 1'
    for _ in range(30):
        cut = rng.randrange(len(text))
        drafts = TOKENS.encode(text[cut:])[: rng.randint(1, 6)]
        found = masks_of(len(drafts) + 1)
        at(text[:cut]).fill_along(drafts, None, found)
        for done in range(len(drafts) + 1):
            there, wanted = at(text[:cut]), masks_of(1)
            there.take(drafts[:done])
            there.fill(wanted[0])
            assert (found[done] == wanted[0]).all()


def test_behind_a_draft_that_is_forbidden_or_an_end_nothing_is_said() -> None:
    found = masks_of(4)
    at('{"name": ').fill_along([ord('"'), 10, ord("a")], None, found)
    assert (found[2:] == EVERYTHING).all() and not (found[1] == EVERYTHING).all()
    at("a", Wanted(regex="a+")).fill_along([END, ord("a")], None, found[:3])
    assert (found[1:3] == EVERYTHING).all()


def random_tree(rng: random.Random, texts: list[str]) -> tuple[list[int], list[int]]:
    """The tokens of some texts as one tree, parents before children, in no other order."""
    nodes: dict[tuple[int, ...], int] = {}
    for text in texts:
        ids = TOKENS.encode(text)
        for end in range(1, len(ids) + 1):
            nodes.setdefault(tuple(ids[:end]), len(nodes))
    paths = list(nodes)
    rng.shuffle(paths)
    paths.sort(key=len)
    place = {path: at for at, path in enumerate(paths)}
    return [path[-1] for path in paths], [place.get(path[:-1], -1) for path in paths]


def path_to(tokens: list[int], parents: list[int], end: int) -> list[int]:
    path: list[int] = []
    while end >= 0:
        path.insert(0, tokens[end])
        end = parents[end]
    return path


@pytest.mark.parametrize("seed", range(4))
def test_a_tree_is_followed_branch_by_branch(seed: int) -> None:
    before = '{"name": "'
    tokens, parents = random_tree(random.Random(seed), ['the", "age": 1', 'the", "x', 'old king"}', 'old", "age', '\n'])
    found = masks_of(len(tokens) + 1)
    at(before).fill_along(tokens, parents, found)
    kept = at(before).allowed(tokens, parents)
    for end in range(len(tokens)):
        there, path = at(before), path_to(tokens, parents, end)
        fits = there.take(path) == len(path) and there.ended is None
        assert (end in kept) is fits
        if fits:
            wanted = masks_of(1)
            there.fill(wanted[0])
            assert (found[end + 1] == wanted[0]).all()


def test_of_a_chain_what_is_allowed_is_kept_up_to_the_first_that_is_not() -> None:
    drafts = [*TOKENS.encode('the", "age": 1'), ord("x"), ord("1")]
    assert at('{"name": "').allowed(drafts, None) == list(range(len(drafts) - 2))
    assert at("a", Wanted(regex="a+")).allowed([ord("a"), END, ord("a")], None) == [0]


def test_a_grammar_that_becomes_too_complex_aborts_the_answer_and_looking_ahead_does_not() -> None:
    """The longer the text, the more ways there are in which it may have been meant."""
    matcher = matcher_of(COMPILER, Wanted(grammar='start: x*\nx: "a" | "a" x? "a"'))
    ahead, taken = TOKENS.encode("a" * 30), 0
    while matcher.ended is None and taken < 2000:
        if taken % 100 == 0:
            matcher.fill_along(ahead, None, masks_of(len(ahead) + 1))
        now = allowed(matcher)
        taken += matcher.take([ord("a") if ord("a") in now else END])
    assert matcher.ended == "abort" and taken > 100


def test_nothing_is_drafted_where_masks_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = at('{"')
    assert matcher.forced() and matcher.allowed(TOKENS.encode("name"), None) == [0]
    monkeypatch.setattr(module, "SLOW_S", -1.0)
    matcher.fill(masks_of(1)[0])
    assert matcher.slow and matcher.forced() == [] and matcher.allowed(TOKENS.encode("name"), None) == []
    assert matcher.take(TOKENS.encode("name")) == 1 and matcher.ended is None


def test_an_answer_ends_whose_mask_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = at('{"')
    monkeypatch.setattr(module, "MOST_S", -1.0)
    matcher.fill(masks_of(1)[0])
    assert matcher.ended is None
    assert matcher.take(TOKENS.encode("name")) == 1 and matcher.ended == "abort"


@pytest.mark.parametrize("parents", [None, (-1, -1)])
@pytest.mark.parametrize(("chosen", "ended"), [("the", None), ("a", None), ("k", None), ("aw", "abort"), ("ak", "abort")])
def test_a_slow_mask_behind_a_draft_counts_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch, parents: tuple[int, ...] | None, chosen: str, ended: str | None
) -> None:
    """Without drafts it would not have been computed."""
    matcher = at('{"name": "')
    times = iter([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])  # before and after each mask
    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=lambda: next(times)))
    matcher.fill_along([ord("a"), ord("k")], parents, masks_of(3))
    tokens = TOKENS.encode(chosen)
    assert matcher.take(tokens) == len(tokens) and matcher.ended == ended
    monkeypatch.undo()
    if ended is None:
        matcher.fill(masks_of(1)[0])
        assert matcher.take([ord("k")]) == 1 and matcher.ended is None


def test_a_lexer_that_is_full_of_other_answers_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer comes to states of its own; all of a grammar share them."""
    monkeypatch.setattr(Vocabulary, "_limits", LLParserLimits(max_lexer_states=150, verbose_errors=False))
    made, rng = compiler(), random.Random(3)
    wanted = Wanted(regex="[ab]*a[ab]{12}")
    beside = matcher_of(made, wanted)
    beside.take(TOKENS.encode("ab"))
    for number in range(40):
        matcher = matcher_of(made, wanted)
        for _ in range(10):
            drafts = [rng.choice(b"ab") for _ in range(3)]
            masks, tree = masks_of(4), None if number % 2 else (-1, -1, 0)
            matcher.fill_along(drafts, tree, masks)
            letters = sum(masks[:, ord("a") >> 5] >> (ord("a") & 31) & masks[:, ord("b") >> 5] >> (ord("b") & 31) & 1)
            assert letters == 4 and matcher.allowed(drafts, tree) == [0, 1, 2]
            matcher.take(drafts[:1])
            assert matcher.ended is None
    assert {ord("a"), ord("b")} <= set(allowed(beside)) and beside.take(TOKENS.encode("ab" * 10)) == 20 and beside.ended is None
    assert beside._lexer > 3


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_lexer_that_fills_up_anywhere_changes_no_mask(monkeypatch: pytest.MonkeyPatch, is_tree: bool) -> None:
    """Within a draft, or while a mask is made of what is forced, nothing tells of it but that less is allowed."""
    wanted = Wanted(json={
        "type": "object", "required": ["name", "the old king"], "additionalProperties": False, "properties": {
            "name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "minimum": -12345, "maximum": 999999},
            "the old king": {"enum": ["the king", "the old", "the name"]}, "true": {"type": "string", "pattern": "^[a-z]{2,4}$"}}})
    COMPILER.compile(wanted)
    monkeypatch.setattr(Vocabulary, "_limits", LLParserLimits(max_lexer_states=120, verbose_errors=False))
    made, rng = compiler(), random.Random(1)
    for _ in range(50):
        matcher, beside, drafts = matcher_of(made, wanted), matcher_of(COMPILER, wanted), list[int]()
        while len(drafts) < 40 and beside.ended is None:
            choices = [token for token in allowed(beside) if token != END]
            drafts += rng.choices(choices, [TOKENS.weights[token] for token in choices])
            beside.take(drafts[-1:])
        masks, expected = masks_of(1 + len(drafts)), masks_of(1 + len(drafts))
        matcher.fill_along(drafts, range(-1, len(drafts) - 1) if is_tree else None, masks)
        matcher_of(COMPILER, wanted).fill_along(drafts, None, expected)
        assert np.array_equal(masks, expected)
    assert matcher._lexer > 10


@pytest.mark.parametrize("limit", [60, 72, 76, 88])
def test_a_lexer_that_fills_up_within_a_token_is_begun_anew(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(Vocabulary, "_limits", LLParserLimits(max_lexer_states=limit, verbose_errors=False))
    matcher, rng = matcher_of(compiler(), Wanted(regex="[a-z ]*e[a-z ]{12}")), random.Random(0)
    allowed(matcher)
    words = TOKENS.encode("the old king name age the true false")
    assert matcher.take([rng.choice(words) for _ in range(60)]) == 60 and matcher.ended is None
    assert matcher._lexer == 1


def test_the_time_in_which_a_lexer_is_begun_anew_is_no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer is read again, which its mask does not take."""
    now, go_on = [0.0], Matcher._go_on

    def slowly(self: Matcher, *args: Any) -> None:
        now[0] += 1
        go_on(self, *args)

    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=lambda: now[0]))
    monkeypatch.setattr(Matcher, "_go_on", slowly)
    monkeypatch.setattr(Vocabulary, "_limits", LLParserLimits(max_lexer_states=60, verbose_errors=False))
    made, rng = compiler(), random.Random(3)
    for _ in range(20):
        matcher = matcher_of(made, Wanted(regex="[ab]*a[ab]{12}"))
        for _ in range(10):
            matcher.fill(masks_of(1)[0])
            assert not matcher.slow and matcher.take([rng.choice(b"ab")]) == 1 and matcher.ended is None
    assert now[0] > 2


MANY = json.dumps({"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(400)}})
BEFORE = "a" * 20  # more than is tried of a new grammar


def limited(monkeypatch: pytest.MonkeyPatch, grammar: str, **limits: int) -> Any:
    """Makes matchers of a grammar, by llguidance's other limits, behind BEFORE and a text."""
    monkeypatch.setattr(Vocabulary, "_limits", LLParserLimits(verbose_errors=False, **limits))
    monkeypatch.setattr(module, "SLOW_S", 1e9)
    made, wanted = compiler(), Wanted(grammar=f'start: "{BEFORE}" {grammar}')

    def behind(text: str) -> Matcher:
        matcher = matcher_of(made, wanted)
        matcher.take([*BEFORE.encode(), *text.encode()])
        return matcher

    return behind


@pytest.mark.parametrize("limit", [{"max_items_in_row": 100}, {"step_max_items": 150}])
def test_what_is_too_complex_behind_one_draft_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]) -> None:
    behind = limited(monkeypatch, f'("x" /[a-z]{{3}}/ | "{{" %json {MANY})?', **limit)
    drafts, parents = [*b'{x{a"'], [-1, -1, 0, 1, 2]
    matcher, found, wanted = behind(""), masks_of(6), masks_of(1)
    assert {0, 1, 3} <= set(matcher.allowed(drafts, parents))
    matcher.fill_along(drafts, parents, found)
    for row, text in ((0, ""), (2, "x"), (4, "xa")):
        behind(text).fill(wanted[0])
        assert (found[row] == wanted[0]).all()
    assert matcher.take([*b"xab"]) == 3 and matcher.ended is None
    matcher.fill_along([*b"c"], None, found)
    assert places(found[0]) == [*b"abcdefghijklmnopqrstuvwxyz"] and matcher.take([*b"c"]) == 1 and matcher.ended == "stop"


@pytest.mark.parametrize("drafts", [[], [*b"{"], [*b"b{"]])
def test_where_no_mask_is_found_the_end_is_none_that_the_model_chose_with_drafts_or_without(
    monkeypatch: pytest.MonkeyPatch, drafts: list[int]
) -> None:
    behind = limited(monkeypatch, f'"b" ("{{" | "{{" %json {MANY})?', step_max_items=150)
    matcher, found = behind("b{"[: 2 - len(drafts)]), masks_of(3)
    if drafts:
        matcher.fill_along(drafts, None, found)
    else:
        matcher.fill(found[0])
    assert places(found[len(drafts)]) == [END]
    assert matcher.take([*drafts, END]) == len(drafts) + 1 and matcher.ended == "abort"
    other = behind("b")
    other.fill_along([*b"{"], None, found)
    assert other.take([END]) == 1 and other.ended == "stop"


def test_a_lexer_that_one_answer_has_spent_is_begun_anew_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = r"T: /x[a-z]+/ | /z([a-z]{1,30} ?){0,100}[.]/ & /(?s:.{0,3000})/ & /(.{0,20}e.{0,20})*/"
    behind = limited(monkeypatch, f"T\n{terminal}", step_lexer_fuel=5000)
    beside, matcher = behind("x"), behind("")
    for token in b"zabe":
        if matcher.ended is None:
            allowed(matcher)
            matcher.take([token])
    assert matcher.ended == "abort"
    for other in (beside, behind("x")):
        assert ord("y") in allowed(other) and other.take([*b"y", END]) == 2 and other.ended == "stop"

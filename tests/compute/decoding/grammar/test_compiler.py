import gc
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
from llguidance import LLParserLimits

from penstock.compute.decoding.grammar import compiler as module
from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.compute.decoding.grammar.stack import deeply
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.types import SamplingParams
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import END, TOKENS, allowed, compiler, matcher_of


def test_one_grammar_is_compiled_once_however_it_is_written() -> None:
    made = compiler()
    first = made.compile(Wanted(json={"type": "integer"}))
    assert made.compile(Wanted(json='{"type": "integer"}')) is first and made.compile(Wanted(json={"type": "number"})) is not first
    assert made.compile(Wanted(choice=["a", "b", "a"])) is made.compile(Wanted(choice=("a", "b")))
    assert made.compile(Wanted(json={"type": "integer"}, disable_any_whitespace=True)) is not first


def test_the_order_of_keys_is_part_of_a_schema() -> None:
    made = compiler()
    a, b = ({"type": "object", "properties": {name: {"const": 1} for name in names}, "required": ["a", "b"]} for names in ("ab", "ba"))
    assert made.compile(Wanted(json=a)) is not made.compile(Wanted(json=b))


def test_those_that_were_not_used_for_longest_are_forgotten_unless_somebody_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3 * module.OVERHEAD + 1000)
    made = compiler()
    held = made.compile(Wanted(choice=["held"]))
    first = made.checked(Wanted(choice=["first"]))
    made.compile(first)
    for number in range(5):
        made.compile(Wanted(choice=[f"another {number}"]))
    gc.collect()
    assert made.known(first) is None and made.known(held.wanted) is held
    assert len(made._kept) <= 3 and made._kept_size <= module.KEPT
    assert made._kept_size == sum(each.size + module.OVERHEAD for each in made._kept.values())


def test_a_sequence_that_comes_back_is_taken_to_where_it_was() -> None:
    made = compiler()
    params = SamplingParams(structured_outputs=made.checked(Wanted(regex="abc")))
    matcher = made.matcher(params, [ord("a"), ord("b")])
    assert matcher.take([ord("c")]) == 1 and matcher.ended == "stop"


def test_parameters_are_prepared() -> None:
    made = compiler()
    assert made.prepare(SamplingParams(n=2)) == (SamplingParams(n=2), None)
    params, compiled = made.prepare(SamplingParams(structured_outputs=Wanted(choice=["a"])))
    assert params.structured_outputs == Wanted(choice=("a",)) and compiled is not None and compiled.wanted is params.structured_outputs


def test_many_threads_may_ask_at_once() -> None:
    made = compiler()
    found: list[Compiled] = []
    asked = [Wanted(regex=f"[a-{end}]+") for end in "bcdefgh"]

    def ask() -> None:
        found.extend([made.compile(each) for each in asked])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 * len(asked) and {each.wanted for each in found} == {made.checked(each) for each in asked}
    assert {id(each) for each in found} == {id(each) for each in made._kept.values()}


def test_of_two_that_were_compiled_at_once_the_first_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made, wanted = compiler(), Wanted(regex="[a-z]+")
    compile_it = made._compile

    def beside(*given: Any) -> Compiled:
        monkeypatch.setattr(made, "_compile", compile_it)
        first.append(made.compile(wanted))
        return compile_it(*given)

    first: list[Compiled] = []
    monkeypatch.setattr(made, "_compile", beside)
    second = made.compile(wanted)
    assert second is first[0] and made.known(made.checked(wanted)) is second
    del second
    first.clear()
    gc.collect()
    assert made.known(made.checked(wanted)) is not None


def test_a_grammar_that_takes_long_to_compile_is_not_compiled_again_for_answers_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_S", -1.0)
    monkeypatch.setattr(Vocabulary, "_limits", LLParserLimits(verbose_errors=False, step_lexer_fuel=5000))
    terminal = r"T: /x[a-z]+/ | /z([a-z]{1,30} ?){0,100}[.]/ & /(?s:.{0,3000})/ & /(.{0,20}e.{0,20})*/"
    made, wanted = compiler(), Wanted(grammar=f'start: "{"a" * 20}" T\n{terminal}')
    first = made.compile(wanted)
    beside, matcher = matcher_of(made, wanted), matcher_of(made, wanted)
    matcher.take([*b"a" * 20, *b"z"])
    assert allowed(matcher) == [END] and matcher.take([END]) == 1 and matcher.ended == "abort"  # it has spent the lexer of all
    assert allowed(beside) == [END] and made.known(first.wanted) is None
    second = made.compile(wanted)
    assert second is not first and made.compile(wanted) is second and made._kept_size == second.size + module.OVERHEAD
    assert allowed(matcher_of(made, wanted)) == [ord("a")]


def test_a_tokenizer_that_adds_a_space_spells_the_text_all_the_same() -> None:
    class Spaced(type(TOKENS)):  # type: ignore[misc]
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return [ord(" "), *super().encode(text)]

    made = compiler(Spaced())
    matcher = made.matcher(SamplingParams(structured_outputs=made.checked(Wanted(choice=["the king of old times", "thx"]))))
    matcher.take(TOKENS.encode("the"))
    assert matcher.take(matcher.forced()) > 3


def test_parameters_can_be_compared_and_hashed_once_they_are_checked() -> None:
    made = compiler()
    assert len({made.checked(Wanted(json={"enum": [1]})), made.checked(Wanted(json='{"enum": [1]}'))}) == 1


def chain(number: int) -> str:
    return "start: r0\n" + "\n".join(f'r{at}: "x" r{at + 1} | "a"' for at in range(number)) + f'\nr{number}: "z"'


DEEP = {
    "a constant": Wanted(json='{"const":' + "[" * 900 + "1" + "]" * 900 + "}"),
    "references": Wanted(json={"$ref": "#/$defs/a0", "$defs": {
        **{f"a{at}": {"type": "array", "items": {"$ref": f"#/$defs/a{at + 1}"}} for at in range(5000)}, "a5000": {}}}),
    "rules": Wanted(grammar=chain(4_900)),
}


@pytest.mark.parametrize("name", DEEP)
def test_what_is_nested_deeper_than_the_usual_stack_holds_is_compiled(name: str) -> None:
    """In a process of its own, which an overflow would end."""
    code = ("import sys, pickle; from tests.compute.decoding.grammar.tokens import compiler; "
            "print(compiler().compile(pickle.load(sys.stdin.buffer)).size)")
    ran = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(DEEP[name]), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()[-2000:]
    assert int(ran.stdout) > 5000


def test_errors_of_deep_work_are_passed_on() -> None:
    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        deeply(fail)
    before = threading.stack_size()
    assert deeply(lambda: threading.current_thread().name) == "penstock-grammar" and threading.stack_size() == before

import pytest

from penstock.core.errors import RequestError, UsageError
from penstock.core.types import SamplingParams, SeqResult, Status, StepResult
from penstock.decide.kv.blocks import IntegrityError
from penstock.decide.scheduler.limits import Limits
from tests.decide.builders import VOCAB, Rig, make_seq
from tests.fakes import continuation


def expect(seq, num_new=None):
    """That the sequence came to exactly what it comes to alone."""
    num_new = seq.max_len - seq.num_prompt if num_new is None else num_new
    assert seq.tokens[seq.num_prompt :] == continuation(seq.tokens[: seq.num_prompt], num_new, VOCAB)


def test_one_request_from_prompt_to_length():
    rig = Rig()
    seq = make_seq(7, range(5), 3)
    rig.scheduler.add(seq)
    assert (rig.scheduler.num_waiting, rig.scheduler.num_running) == (1, 0)
    plan, outputs = rig.step()
    (planned,) = plan.seqs
    assert (planned.start, planned.tokens, planned.samples, planned.num_output) == (0, (0, 1, 2, 3, 4), True, 0)
    assert planned.new.prompt == (0, 1, 2, 3, 4) and planned.new.output == ()
    assert outputs[0].tokens == tuple(seq.tokens[5:]) and outputs[0].finish_reason is None
    assert seq.status is Status.RUNNING and seq.num_computed == 5 and seq.todo() == 1
    plan, _ = rig.step()
    assert plan.seqs[0].start == 5 and plan.seqs[0].new is None and plan.seqs[0].num_output == 1
    _, outputs = rig.step()
    assert outputs[0].finish_reason == seq.finish_reason == "length"
    assert seq.status is Status.FINISHED and seq.block_ids == () and rig.kv.num_used == 0
    assert not rig.scheduler.has_work() and rig.scheduler.schedule() is None
    assert (seq.first_scheduled_s, seq.first_token_s) == (0.0, 0.0)
    expect(seq)


def test_the_runner_is_told_who_finished_in_the_next_plan():
    rig = Rig()
    rig.run(make_seq(0, range(5), 1))
    rig.scheduler.add(make_seq(1, range(5), 2))
    plan, _ = rig.step()
    assert plan.finished == (0,)
    plan, _ = rig.step()
    assert plan.finished == ()


def test_a_long_prompt_is_computed_in_chunks_and_does_not_hold_up_decoding():
    rig = Rig(budget=6)
    short, long = make_seq(0, range(4), 8), make_seq(1, range(100, 120), 2)
    rig.scheduler.add(short)
    rig.step()
    rig.scheduler.add(long)
    chunks = []
    while long.num_output == 0:
        plan, _ = rig.step()
        assert plan.num_tokens <= 6
        assert plan.seqs[0].seq_id == 0 and len(plan.seqs[0].tokens) == 1
        chunks.append(len(plan.seqs[1].tokens))
    assert chunks == [5, 5, 5, 5]
    rig.run()
    expect(short), expect(long)


def test_the_budget_goes_to_prompts_in_order():
    rig = Rig(budget=10)
    rig.scheduler.add(make_seq(0, range(7), 2))
    rig.scheduler.add(make_seq(1, range(50, 57), 2))
    plan, _ = rig.step()
    assert [(p.seq_id, len(p.tokens), p.samples) for p in plan.seqs] == [(0, 7, True), (1, 3, False)]
    plan, _ = rig.step()
    assert [(p.seq_id, len(p.tokens), p.samples) for p in plan.seqs] == [(0, 1, True), (1, 4, True)]


def test_at_most_max_num_seqs_run():
    rig = Rig(max_num_seqs=2)
    for i in range(4):
        rig.scheduler.add(make_seq(i, [i] * 3, 2))
    plan, _ = rig.step()
    assert len(plan.seqs) == 2 and rig.scheduler.num_waiting == 2
    rig.run()


def test_drafts_are_verified_together_and_change_nothing_but_the_number_of_steps():
    plain, drafting = Rig(), Rig(num_drafts=3)
    one, other = make_seq(0, range(6), 20), make_seq(0, range(6), 20)
    plain.run(one)
    drafting.run(other)
    assert one.tokens == other.tokens
    assert len(drafting.runner.plans) < len(plain.runner.plans)
    counters = drafting.scheduler.counters
    assert other.num_output == 20 and 0 < counters.accepted_tokens < counters.drafted_tokens


def test_drafts_never_run_past_the_length_or_the_budget():
    rig = Rig(num_drafts=5, budget=4)
    seqs = [make_seq(i, [i] * 3, 7) for i in range(3)]
    for seq in seqs:
        rig.scheduler.add(seq)
    while rig.scheduler.has_work():
        plan, _ = rig.step()
        assert plan.num_tokens <= 4
        for planned in plan.seqs:
            assert planned.start + len(planned.tokens) < rig.scheduler.kv.num_tokens
            assert planned.num_output + planned.num_drafts + 1 <= 7
    for seq in seqs:
        expect(seq)


def test_drafts_give_way_before_anybody_loses_blocks():
    rig = Rig(num_blocks=4, num_drafts=4)
    one, two = make_seq(0, range(7), 2), make_seq(1, range(20, 27), 2)
    rig.run(one, two)
    assert rig.scheduler.counters.preemptions == 0
    expect(one), expect(two)


def test_tree_drafts_are_planned_with_their_parents():
    rig = Rig(budget=5)
    rig.scheduler.add(make_seq(0, [1, 2, 3], 20))
    plan = rig.scheduler.schedule()
    found = SeqResult(0, tokens=(4,), drafts=(5, 6, 7, 8, 9), draft_parents=(-1, -1, 0, 0, 1))
    rig.scheduler.commit(plan, StepResult(plan.step_id, (found,)))
    planned = rig.scheduler.schedule().seqs[0]
    assert planned.tokens == (4, 5, 6, 7, 8) and planned.num_drafts == 4 and planned.draft_parents == (-1, -1, 0, 0)


EOS = continuation([5, 6, 7], 10, VOCAB)[4]


@pytest.mark.parametrize(
    ("params", "reason", "num_output", "stop_token_id"),
    [
        (SamplingParams(), "stop", 5, None),
        (SamplingParams(ignore_eos=True), "length", 10, None),
        (SamplingParams(ignore_eos=True, stop_token_ids=(EOS,)), "stop", 5, EOS),
        (SamplingParams(stop_token_ids=(EOS,)), "stop", 5, None),
        (SamplingParams(min_tokens=5), "stop", 5, None),
        (SamplingParams(min_tokens=6), "length", 10, None),
    ],
)
@pytest.mark.parametrize("num_drafts", [0, 4])
def test_stop_tokens(params, reason, num_output, stop_token_id, num_drafts):
    tokens = continuation([5, 6, 7], 10, VOCAB)
    assert tokens.count(EOS) == 1
    rig = Rig(num_drafts=num_drafts)
    seq = make_seq(0, [5, 6, 7], 10, params=params, eos_token_ids=(EOS,))
    outputs = rig.run(seq)
    assert (seq.finish_reason, seq.num_output, seq.stop_token_id) == (reason, num_output, stop_token_id)
    assert seq.tokens[3:] == tokens[:num_output] == [token for output in outputs for token in output.tokens]


def test_no_new_tokens_may_be_asked_for():
    rig = Rig()
    seq = make_seq(0, range(6), 0)
    (output,) = rig.run(seq)
    assert output.tokens == () and output.finish_reason == "length" and seq.num_output == 0


def test_logprobs_end_with_the_tokens():
    rig = Rig(num_drafts=4)
    seq = make_seq(0, range(6), 9, params=SamplingParams(logprobs=0))
    outputs = rig.run(seq)
    assert [entry.token_id for output in outputs for entry in output.logprobs] == seq.tokens[6:]


def test_embeddings_end_with_the_prompt():
    rig = Rig(budget=4)
    seq = make_seq(0, range(10), 0, wants_embedding=True)
    (output,) = rig.run(seq)
    assert output.embedding is not None and output.finish_reason == seq.finish_reason == "stop" and output.tokens == ()
    assert rig.kv.num_used == 0 and seq.num_output == 0 and seq.first_token_s is not None


def test_a_prompt_in_the_cache_is_not_computed_again():
    rig = Rig(budget=32)
    rig.run(make_seq(0, range(12), 2))
    again = make_seq(1, range(12), 2)
    rig.scheduler.add(again)
    plan, _ = rig.step()
    assert plan.seqs[0].start == 11 and plan.copies == ((plan.copies[0][0], plan.seqs[0].block_ids[2]),)
    rig.run()
    assert again.num_cached == 12
    expect(again)


@pytest.mark.parametrize("when", ["waiting", "planned", "executed", "between steps"])
def test_finish_frees_everything_at_once(when):
    rig = Rig()
    seq, other = make_seq(0, range(8), 20), make_seq(1, range(30, 38), 6)
    if when != "waiting":
        rig.scheduler.add(seq)
        rig.step()
    rig.scheduler.add(other)
    if when == "waiting":
        rig.scheduler.add(seq)
        rig.scheduler.finish(0, "abort")
    elif when == "between steps":
        rig.scheduler.finish(0, "abort")
    else:
        plan = rig.scheduler.schedule()
        if when == "planned":
            rig.scheduler.finish(0, "abort")
        result = rig.runner.execute(plan)
        if when == "executed":
            rig.scheduler.finish(0, "stop")
        outputs = rig.scheduler.commit(plan, result)
        assert [output.seq_id for output in outputs] == [1]
    rig.scheduler.check_integrity()
    assert seq.block_ids == () and seq.status is Status.FINISHED and seq.finish_reason in ("abort", "stop")
    rig.scheduler.finish(0, "abort")
    rig.run()
    expect(other)
    assert rig.kv.num_used == 0


def test_a_runner_that_learns_is_told_what_was_written():
    rig = Rig()
    rig.scheduler.ended.with_outputs = True
    seqs = [make_seq(0, range(5), 1), make_seq(1, range(20, 25), 3)]
    rig.run(*seqs)
    rig.scheduler.add(make_seq(2, range(5), 2))
    lost = rig.scheduler.schedule()
    assert lost.finished == (1,) and lost.outputs == (tuple(seqs[1].tokens[5:]),) and len(lost.outputs[0]) == 3
    plan, _ = rig.step()  # the other was never committed
    assert (plan.finished, plan.outputs) == (lost.finished, lost.outputs)
    plan, _ = rig.step()
    assert (plan.finished, plan.outputs) == ((), ())


def test_sequences_of_a_search_are_no_answers_to_learn_from():
    rig = Rig()
    rig.scheduler.ended.with_outputs = True
    for seq in (make_seq(0, range(5), 3, held=True), make_seq(1, range(20, 25), 3)):
        rig.scheduler.add(seq)
    rig.step()
    rig.scheduler.append(0, 7)
    rig.scheduler.finish(0, "stop")
    rig.scheduler.finish(1, "abort")
    finished, outputs = rig.scheduler.ended.told()
    assert finished == (0, 1) and outputs[0] == () and len(outputs[1]) == 1


def test_a_step_that_failed_is_planned_again():
    rig = Rig()
    rig.run(make_seq(0, range(8), 1))
    seqs = [make_seq(1, range(8), 4), make_seq(2, range(70, 75), 4)]
    rig.scheduler.add(seqs[0])
    rig.scheduler.add(seqs[1])
    lost = rig.scheduler.schedule()
    assert lost.copies and lost.finished == (0,)
    rig.scheduler.finish(2, "abort")
    rig.scheduler.check_integrity()
    plan, outputs = rig.step()
    assert plan.copies == lost.copies and plan.finished[0] == 0 and [output.seq_id for output in outputs] == [1]
    with pytest.raises(ValueError, match="not in flight"):
        rig.scheduler.commit(lost, StepResult(lost.step_id, ()))
    rig.run()
    expect(seqs[0])


def test_results_must_belong_to_the_plan():
    rig = Rig()
    rig.scheduler.add(make_seq(0, range(3)))
    plan = rig.scheduler.schedule()
    with pytest.raises(ValueError, match="is not its result"):
        rig.scheduler.commit(plan, StepResult(99, ()))
    with pytest.raises(ValueError, match="planned sequences"):
        rig.scheduler.commit(plan, StepResult(plan.step_id, ()))
    with pytest.raises(ValueError, match="0 drafts in the step, but 2 tokens"):
        rig.scheduler.commit(plan, StepResult(plan.step_id, (SeqResult(0, tokens=(1, 2)),)))


@pytest.mark.parametrize(
    ("seq", "param", "message"),
    [
        (make_seq(0, []), "prompt", "the prompt is empty"),
        (make_seq(0, range(129), 1), "prompt", "129 tokens, but the KV cache holds 128"),
        (make_seq(0, range(128), 1, held=True), "prompt", "128 tokens, but the KV cache holds 128, one of which a search needs"),
        (make_seq(0, range(100), 30), "max_tokens", "up to 29 new ones would"),
        (make_seq(0, range(100), 29, held=True), "max_tokens", "up to 28 new ones would"),
    ],
)
def test_what_can_never_fit_is_refused_with_what_would(seq, param, message):
    rig = Rig(num_blocks=32)
    with pytest.raises(RequestError, match=message) as refused:
        rig.scheduler.add(seq)
    assert refused.value.param == param and refused.value.status == 400
    assert not rig.scheduler.has_work()


def test_what_just_fits_is_served():
    rig = Rig(num_blocks=8)
    seqs = [make_seq(i, [i] * n, 33 - n) for i, n in enumerate((1, 16, 32))]
    rig.run(*seqs)
    for seq in seqs:
        expect(seq)


def test_marks_need_the_prefix_cache():
    with pytest.raises(RequestError, match="switched off") as refused:
        Rig(prefix_cache=False).scheduler.add(make_seq(0, range(8), marks=[(4, 1.0)]))
    assert refused.value.param == "cache_control"


def test_marks_are_counted():
    rig = Rig()
    seqs = [make_seq(i, range(10), 2, marks=[(9, 60.0)]) for i in range(2)]
    rig.run(seqs[0])
    rig.run(seqs[1])
    assert [(seq.num_mark_created, seq.num_mark_read) for seq in seqs] == [(8, 0), (0, 8)]


def test_a_sequence_is_added_once():
    rig = Rig()
    rig.scheduler.add(make_seq(0, range(3)))
    with pytest.raises(ValueError, match="known already"):
        rig.scheduler.add(make_seq(0, range(3)))


@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens"])
def test_limits_below_one_are_refused(name):
    with pytest.raises(UsageError, match=f"{name} must be at least 1, not 0"):
        Limits(**{"max_num_seqs": 1, "max_num_batched_tokens": 1, name: 0})


def test_what_the_cache_was_asked_for_and_had_is_counted():
    rig = Rig()
    rig.run(make_seq(0, range(9), 4))
    rig.run(make_seq(1, range(9), 2))
    assert (rig.kv.num_queried, rig.kv.num_hit) == (18, 8)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda rig, seq: rig.scheduler._waiting.push(seq, 0.0), "two queues"),
        (lambda rig, seq: rig.kv.free(seq), "wrong one"),
        (lambda rig, seq: setattr(seq, "status", Status.WAITING), "in another queue"),
        (lambda rig, seq: setattr(rig.waiting, "num_computed", 1), "waits with"),
        (lambda rig, seq: setattr(seq, "max_len", 1), "tokens computed"),
    ],
)
def test_integrity_check_sees_damage(damage, message):
    rig = Rig(max_num_seqs=1)
    seq = make_seq(0, range(3), 9)
    rig.waiting = make_seq(1, range(3), 9)
    rig.scheduler.add(seq)
    rig.scheduler.add(rig.waiting)
    rig.step()
    damage(rig, seq)
    with pytest.raises(IntegrityError, match=message):
        rig.scheduler.check_integrity()

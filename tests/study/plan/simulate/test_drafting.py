"""Drafts in the twin: what is drawn, what it gives, and that the real controller has its say."""
from dataclasses import replace

import pytest

from penstock.compute.decoding.control.contract import Always
from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.errors import UsageError
from penstock.study.plan.simulate.call import Call
from penstock.study.plan.simulate.drafting import ProposerModel, proposer_model
from penstock.study.plan.simulate.twin import Pace, Twin

BOUND_BY_WEIGHTS = Fitted((1, 64), (0.010, 0.011), 0.0, 0.0, 0.0, 0.0)
BOUND_BY_ROWS = Fitted((1, 64), (0.001, 0.064), 0.0, 0.0, 0.0, 0.0)
CONFIG = EngineConfig(max_num_seqs=4, max_num_batched_tokens=64, kv_tokens=4096, propose="ngram", draft_control="always")
ASKED = [Call(0.0, (range(1 << 24, (1 << 24) + 20),), 400)]


def tpot(config, timer, proposer):
    twin = Twin(config, Pace(timer, proposer=proposer))
    sample = twin.run(ASKED)[0]
    assert sample.num_output == 400
    return sample.tpot_s, twin.census


@pytest.mark.parametrize(("acceptance", "per_pass"), [((1.0, 1.0, 1.0), 4.0), ((0.5,), 1.5), ((0.8, 0.4), 2.2), ((0.0,), 1.0)])
def test_what_drafts_give_follows_from_their_acceptance(acceptance, per_pass):
    found, _ = tpot(CONFIG, BOUND_BY_WEIGHTS, ProposerModel(acceptance))
    step = BOUND_BY_WEIGHTS.of_rows(1 + len(acceptance))
    assert found == pytest.approx(step / per_pass, rel=0.08)


@pytest.mark.parametrize("length", [1, 2, 5, 30])
def test_an_open_answer_ends_among_accepted_drafts(length):
    call = replace(ASKED[0], num_output=length, is_open=True)
    sample = Twin(CONFIG, Pace(BOUND_BY_WEIGHTS, proposer=ProposerModel((1.0, 1.0, 1.0)))).run([call])[0]
    assert (sample.num_output, sample.finish_reason) == (length, "stop")


def test_a_proposer_that_seldom_has_anything_gives_less_and_asking_costs():
    often, seldom, dear = (tpot(CONFIG, BOUND_BY_WEIGHTS, proposer)[0] for proposer in (
        ProposerModel((1.0,) * 3), ProposerModel((1.0,) * 3, proposal_rate=0.25), ProposerModel((1.0,) * 3, propose_s=0.005)))
    assert often < seldom < BOUND_BY_WEIGHTS.of_rows(1) and dear == pytest.approx(often + 0.005 / 4, rel=0.05)


def test_the_controller_stops_drafts_that_do_not_pay_and_keeps_those_that_do():
    plain, _ = tpot(replace(CONFIG, propose=None), BOUND_BY_ROWS, None)
    controlled = replace(CONFIG, draft_control="patient")
    always, _ = tpot(CONFIG, BOUND_BY_ROWS, ProposerModel((0.2,) * 4))
    stopped, _ = tpot(controlled, BOUND_BY_ROWS, ProposerModel((0.2,) * 4))
    assert always > 2 * plain and stopped < 1.1 * plain
    good, _ = tpot(controlled, BOUND_BY_WEIGHTS, ProposerModel((0.9, 0.8, 0.7)))
    assert good < 0.5 * BOUND_BY_WEIGHTS.of_rows(1)


@pytest.mark.parametrize(("lengths", "in_lockstep"), [((40, 40, 40, 40), True), ((40, 47, 54, 61), False)])
def test_the_controller_is_told_whose_answers_end_together(monkeypatch, lengths, in_lockstep):
    loads = []
    monkeypatch.setattr(Always, "begin_step", lambda self, now, load: loads.append(load))
    asked = [Call(0.0, (range(count << 24, (count << 24) + 8),), length) for count, length in enumerate(lengths, 1)]
    Twin(CONFIG, Pace(BOUND_BY_WEIGHTS, proposer=ProposerModel((0.0,)))).run(asked)
    assert {load.in_lockstep for load in loads if load.num_seqs == len(lengths)} == {in_lockstep}


def test_a_proposer_is_modelled_from_measured_drafts():
    seen = Drafting(passes=50, tokens=100, drafted=(50, 40), accepted=(30, 20))
    found = proposer_model(seen, 150)
    assert found.acceptance == (0.6, 0.5) and found.proposal_rate == pytest.approx(0.5)
    assert proposer_model(Drafting(2, 4, (2, 2), (1, 2)), 4).acceptance == (0.5, 0.5)


def test_a_proposer_of_which_nothing_is_known_is_refused_by_name():
    with pytest.raises(UsageError, match="ngram"):
        Twin(CONFIG, Pace(BOUND_BY_WEIGHTS))


def test_a_controller_that_there_is_none_of_is_refused_and_not_another_played():
    with pytest.raises(UsageError, match="unknown draft controller 'priced'; known: patient, always"):
        Twin(replace(CONFIG, draft_control="priced"), Pace(BOUND_BY_WEIGHTS, proposer=ProposerModel((0.0,))))

"""Steps of a real scheduler around a runner without a model, seen through a watch as the engine's thread shows them."""
from penstock.core.events import StepRecord
from penstock.core.types import Seq
from penstock.serve.api.dashboard.figures import Figures
from penstock.serve.api.dashboard.lanes import Lanes
from penstock.serve.engine.engine import count
from penstock.serve.engine.watch import Look, Seen, Watch
from tests.decide.builders import Rig


class Watched(Rig):
    """Each step takes half of its second."""

    def __init__(self, num_blocks: int = 32, num_drafts: int = 0, budget: int = 16) -> None:
        super().__init__(num_blocks, num_drafts=num_drafts, budget=budget)
        self.watch = Watch()
        self.lanes = Lanes()
        self.seen: list[Seen] = []

    def tick(self, num_steps: int = 1) -> None:
        """Steps, and takes them into the lanes."""
        for _ in range(num_steps):
            plan = self.scheduler.schedule()
            if plan is None:
                break
            self.watch.on_plan(plan, self.scheduler)
            outputs = self.scheduler.commit(plan, self.runner.execute(plan))
            census = count(plan)
            num_accepted = sum(output.check.num_accepted for output in outputs if output.check is not None)
            self.watch.on_step(plan, outputs, StepRecord(
                plan.step_id, self.clock.now(), 0.5, 0.4, census.seqs, census.prefill_tokens, census.decode_tokens, census.draft_tokens,
                num_accepted, 1000, 500, operations=4000))
            self.clock.advance(1.0)
        for seen in self.watch.take()[0]:
            self.lanes.step(seen)
            self.seen.append(seen)

    def tick_into(self, figures: Figures, num_steps: int = 100) -> None:
        """Steps until there is nothing left to do, and takes them into the figures."""
        for _ in range(num_steps):
            self.tick()
        figures.add(self.seen, self.clock.now())

    def look(self) -> Look:
        """The state now, taken into the lanes as well."""
        self.watch.look_at(self.scheduler, self.clock.now())
        assert self.watch.look is not None
        self.lanes.look(self.watch.look.seqs, self.clock.now())
        return self.watch.look

    def add(self, *seqs: Seq) -> None:
        for seq in seqs:
            self.scheduler.add(seq)

"""Counts down the steps that the controller does not need to observe, so that such a step costs the runner one comparison."""
from dataclasses import dataclass

from penstock.compute.decoding.control.contract import Controller


@dataclass(slots=True)
class Skip:
    """`begin` after the controller's `end_step` and `forget`, `end` before any other call to it. In between, whoever makes a step while
    `left` is above zero decrements it and does not call the controller."""

    controller: Controller
    least_shown: int = 0  # the last so many skipped steps are shown to the drafter all the same, though not to the controller
    most_shown: int = 0  # the same where the proposer may be asked after the step that follows them
    left: int = 0  # steps that are still to be skipped
    num_unasked: int = 0  # steps after these, at least, after which nothing is asked
    num_shown: int = 0  # of the skipped steps the last so many are shown
    _num_unreported: int = 0  # `left` when the controller was last told how many steps were skipped

    def begin(self) -> None:
        self.left = self._num_unreported = self.controller.num_skippable()
        self.num_unasked = self.controller.num_unasked() - self.left
        self.num_shown = max(self.least_shown, self.most_shown - self.num_unasked)

    def end(self) -> None:
        if self._num_unreported > self.left:
            self.controller.skipped(self._num_unreported - self.left)
            self._num_unreported = self.left

"""Counts down the steps that the controller does not need to observe, so that such a step costs the runner one comparison."""
from dataclasses import dataclass

from penstock.compute.decoding.control.contract import Controller


@dataclass(slots=True)
class Skip:
    """`begin` after the controller's `end_step` and `forget`, `end` before any other call to it. In between, whoever makes a step while
    `left` is above zero decrements it and does not call the controller."""

    controller: Controller
    left: int = 0  # steps that are still to be skipped
    num_shown: int = 0  # the last so many of them are shown to the drafter all the same, though not to the controller
    _num_unreported: int = 0  # `left` when the controller was last told how many steps were skipped

    def begin(self) -> None:
        self.left = self._num_unreported = self.controller.num_skippable()

    def end(self) -> None:
        if self._num_unreported > self.left:
            self.controller.skipped(self._num_unreported - self.left)
            self._num_unreported = self.left

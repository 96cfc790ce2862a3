"""Muon for matrices, Adam for the rest. Muon: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/."""
import torch
from torch import Tensor


def orthogonalized(gradient: Tensor, steps: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrix, about, by a quintic Newton-Schulz iteration in bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x.T if tall else x).to(gradient.dtype)


class Optimizer:
    """`lr` scales both parts; state is a plain dict of tensors, so that a run can be resumed."""

    def __init__(self, parameters: dict[str, Tensor], matrix_lr: float = 0.02, other_lr: float = 0.004, decay: float = 0.01) -> None:
        self.parameters = parameters
        self.matrix_lr, self.other_lr, self.decay = matrix_lr, other_lr, decay
        self.step_count = 0
        self.state: dict[str, list[Tensor]] = {}

    def is_matrix(self, name: str) -> bool:
        return self.parameters[name].ndim == 2 and name not in ("embed", "lm_head")

    @torch.no_grad()
    def step(self, scale: float) -> None:
        self.step_count += 1
        for name, weight in self.parameters.items():
            gradient = weight.grad
            if gradient is None:
                continue
            if self.is_matrix(name):
                self._muon(name, weight, gradient, self.matrix_lr * scale)
            else:
                self._adam(name, weight, gradient, self.other_lr * scale)
            weight.grad = None

    def _muon(self, name: str, weight: Tensor, gradient: Tensor, lr: float) -> None:
        (momentum,) = self.state.setdefault(name, [torch.zeros_like(weight)])
        momentum.lerp_(gradient, 0.05)
        update = orthogonalized(gradient.lerp(momentum, 0.95))
        weight.mul_(1 - lr * self.decay)
        weight.add_(update, alpha=-lr * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5)

    def _adam(self, name: str, weight: Tensor, gradient: Tensor, lr: float) -> None:
        first, second = self.state.setdefault(name, [torch.zeros_like(weight), torch.zeros_like(weight)])
        first.lerp_(gradient, 0.1)
        second.lerp_(gradient.square(), 0.05)
        corrected = first / (1 - 0.9**self.step_count)
        weight.add_(corrected / ((second / (1 - 0.95**self.step_count)).sqrt() + 1e-8), alpha=-lr)

"""What the kernel backends share: how one raw rotation becomes the torch operator rope, forward and backward."""

from collections.abc import Callable
from typing import Any

import torch

from kernelyard.kernels.registration import register
from kernelyard.ops.rope.layout import by_token, empty

Rotation = Callable[..., None]
"""`rotate(xs, ys, cos, sin, interleaved, back)`: writes the rotation of each of `xs`, none of them empty, to its place
in `ys`; with `back`, its transpose."""


def registered(backend: str, rotate: Rotation) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """`rotate` as the torch operators `kernelyard::rope_<backend>`[_backward].

    The backward is the transposed rotation of dq and dk, the one by the opposite angle. It needs cos and sin alone,
    so q and k are not kept.
    """

    def run(xs: list[Any], ys: list[torch.Tensor], cos: Any, sin: Any, interleaved: bool, back: bool) -> None:
        given = [pair for pair in zip(xs, ys, strict=True) if pair[1].numel()]
        if given:
            rotate([x for x, _ in given], [y for _, y in given], cos, sin, interleaved, back)

    def forward(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        results = [empty(x, x.shape, by_token(x)) for x in (q, k)]
        run([q, k], results, cos, sin, interleaved, False)
        return results[0], results[1]

    def backward(
        dq: torch.Tensor | None,
        dk: torch.Tensor | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        interleaved: bool,
        q_shape: list[int],
        k_shape: list[int],
        q_by_token: bool,
        k_by_token: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        like = dq if dq is not None else dk
        assert like is not None
        shapes = ((dq, q_shape, q_by_token), (dk, k_shape, k_by_token))
        results = [empty(like, shape, order) for _, shape, order in shapes]
        used = [(dy, dx) for dy, dx in zip((dq, dk), results, strict=True) if dy is not None]
        run([dy for dy, _ in used], [dx for _, dx in used], cos, sin, interleaved, True)
        # A result that nothing used has a gradient of zeros.
        return tuple(dx if dy is not None else dx.zero_() for dy, dx in zip((dq, dk), results, strict=True))  # type: ignore[return-value]

    return register(
        f"rope_{backend}",
        forward,
        backward,
        fake_forward=lambda q, k, *_: (empty(q, q.shape, by_token(q)), empty(k, k.shape, by_token(k))),
        fake_backward=_fake_backward,
        save=lambda inputs, _: (inputs[2:4], (inputs[4], *_kept(inputs[0], inputs[1]))),
        gradients=(0, 1),
        results=2,
    )


def _kept(q: torch.Tensor, k: torch.Tensor) -> tuple[Any, ...]:
    return list(q.shape), list(k.shape), by_token(q), by_token(k)


def _fake_backward(
    dq: Any,
    dk: Any,
    cos: Any,
    sin: Any,
    interleaved: Any,
    q_shape: Any,
    k_shape: Any,
    q_by_token: bool,
    k_by_token: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    like = dq if dq is not None else dk
    return empty(like, q_shape, q_by_token), empty(like, k_shape, k_by_token)

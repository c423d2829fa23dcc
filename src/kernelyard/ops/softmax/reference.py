"""The definition of softmax in plain torch; the ground truth when called in float64."""

import torch


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """exp(x) over its sum along `dim`, written so that no exponent is above zero."""
    if x.numel() == 0:
        return x.clone()
    exponentials = (x - x.detach().amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)

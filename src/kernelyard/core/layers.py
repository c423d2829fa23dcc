"""What came of trying what a layer of the sandbox forbids."""

from pydantic import BaseModel, ConfigDict


class LayerWitness(BaseModel):
    """What came of one attempt.

    `holds`: the forbidden thing was refused (for `device`: the granted device answered). `available`: false where this
    kind of sandbox on this machine has no such layer, so that `holds` can be expected only by luck. `detail`: the
    error the attempt met, or what it got.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: str
    tried: str
    holds: bool
    available: bool
    detail: str

"""The Hugging Face Hub, asked once whether it is there: its own packages ask for 25 s, with two lines for each try."""

from collections.abc import Iterator
from contextlib import contextmanager

from kernelyard.core.errors import first_line

# What huggingface_hub itself gives a first request.
_SECONDS = 10.0


@contextmanager
def looked_for(dataset: str) -> Iterator[str | None]:
    """Why the Hub is out of reach; None where it answers. Out of reach, `datasets` looks into its cache alone.

    Raises ImportError without `datasets`.
    """
    from datasets import config
    from huggingface_hub import HfApi
    from huggingface_hub.utils import HfHubHTTPError

    why = None
    try:
        HfApi().dataset_info(dataset, timeout=_SECONDS)
    except HfHubHTTPError:
        # An answer, if no good one: `datasets` says what it means.
        pass
    except Exception as error:
        why = first_line(error)
    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = before or why is not None
    try:
        yield why
    finally:
        config.HF_HUB_OFFLINE = before

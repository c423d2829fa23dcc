"""Words of one fill for many launches: zero, never twice, and a graph's are its own."""

from itertools import pairwise

import pytest
import torch

from kernelyard.kernels.zeroed import CHUNK_BYTES, zeroed

pytestmark = pytest.mark.gpu
WORDS = CHUNK_BYTES // 8


def _here() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def test_no_launch_gets_words_that_another_one_wrote() -> None:
    lengths = [1, 16, 17, 4000, WORDS // 4, 5, 0, WORDS // 4 + 1, 2 * WORDS, 3] * 8
    taken = []
    for length in lengths:
        words = zeroed(length, _here())
        assert words.numel() >= length and words.data_ptr() % 128 == 0
        taken.append((words, words.count_nonzero()))
        words.fill_(-1)
    assert not any(int(found) for _, found in taken)
    # All are held here, so that no two may share a place.
    places = sorted((words.data_ptr(), words.nbytes) for words, _ in taken if words.numel())
    assert all(first + size <= then for (first, size), (then, _) in pairwise(places))


def test_few_launches_wait_for_a_fill() -> None:
    chunks = {zeroed(2000, _here()).untyped_storage().data_ptr() for _ in range(2 * WORDS // 2000)}
    assert len(chunks) <= 4


def test_streams_share_no_chunk() -> None:
    ours = zeroed(100, _here())
    with torch.cuda.stream(torch.cuda.Stream()):
        theirs = zeroed(100, _here())
    assert ours.untyped_storage().data_ptr() != theirs.untyped_storage().data_ptr()


def test_a_replayed_graph_finds_its_words_zero() -> None:
    zeroed(100, _here())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        words = zeroed(100, _here())
        found = words.count_nonzero()
        words.fill_(-1)
    for _ in range(3):
        graph.replay()
        assert found.item() == 0
    outside = zeroed(100, _here())
    assert outside.untyped_storage().data_ptr() != words.untyped_storage().data_ptr()
    assert not outside.count_nonzero()

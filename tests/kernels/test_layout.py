"""Tensors are seen as rows or columns without a copy where a kernel reads them well."""

import pytest
import torch

from kernelyard.kernels.layout import along


def test_contiguous_tensors_are_not_copied() -> None:
    x = torch.zeros(2, 3, 4, 5)
    assert along(x, -1)[1:] == (24, 5, 1, 5)
    assert along(x, 1)[1:] == (2, 3, 20, 3)
    assert all(along(x, dim).data.data_ptr() == x.data_ptr() for dim in range(4))


def test_rows_with_one_pitch_are_not_copied() -> None:
    x = torch.zeros(4, 6, 20)[:, :, 3:10]
    view = along(x, 2)
    assert view[1:] == (24, 7, 1, 20)
    assert view.data.data_ptr() == x.data_ptr()
    assert along(torch.zeros(1, 7).expand(5, 7), -1).pitch == 0


def test_other_layouts_are_copied() -> None:
    x = torch.randn(5, 6).t()
    view = along(x, -1)
    assert view[1:] == (6, 5, 1, 5)
    assert torch.equal(view.data, x)
    assert along(torch.zeros(4, 6, 20)[:, :3], 2).pitch == 20


def test_a_scalar_is_a_row_of_one_and_a_wrong_dim_an_index_error() -> None:
    assert along(torch.zeros(()), -1)[1:] == (1, 1, 1, 1)
    for x, dim in ((torch.zeros(()), 1), (torch.zeros(2, 3), 2), (torch.zeros(2, 3), -3)):
        with pytest.raises(IndexError):
            along(x, dim)

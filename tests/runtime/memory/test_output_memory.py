"""Memory of outputs: written again only when nobody can see it any more."""

import numpy as np

from tvm_ext.runtime.memory.output_memory import OutputMemory

F32 = np.dtype("float32")


def memory(*shape: int) -> OutputMemory:
    return OutputMemory(shape, F32, shape)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_a_dropped_array_is_handed_out_again() -> None:
    outputs = memory(3, 5)
    array, tensor = outputs.take()
    first = address(array)
    assert array.shape == (3, 5) and array.dtype == F32 and tensor.data_ptr() == first and first % 64 == 0
    del array, tensor
    assert address(outputs.take()[0]) == first


def test_an_array_that_is_held_is_left_alone() -> None:
    outputs = memory(7)
    held = [outputs.take()[0] for _ in range(5)]
    assert len({address(a) for a in held}) == 5


def test_so_is_one_of_which_only_a_view_is_held() -> None:
    outputs = memory(4, 4)
    array = outputs.take()[0]
    view = array[1:, ::2]
    first = address(array)
    del array
    assert address(outputs.take()[0]) != first
    del view
    both = [outputs.take()[0] for _ in range(2)]
    assert first in {address(a) for a in both}


def test_so_is_one_that_another_object_reads_through_the_buffer_protocol() -> None:
    outputs = memory(8)
    array = outputs.take()[0]
    buffer, first = memoryview(array), address(array)
    del array
    assert address(outputs.take()[0]) != first
    del buffer


def test_a_large_array_gives_its_memory_back() -> None:
    outputs = memory(5 << 20)
    array = outputs.take()[0]
    del array
    assert not outputs._slots


def test_the_tensor_has_the_shape_that_the_program_writes() -> None:
    array, tensor = OutputMemory((6, 4), F32, (2, 3, 4)).take()
    assert array.shape == (6, 4) and tuple(tensor.shape) == (2, 3, 4) and tensor.data_ptr() == address(array)

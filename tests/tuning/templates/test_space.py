"""Spaces: numbers of points, filters, sampling, rows of AutoTVM's logs; large ones are never listed."""

import itertools
import json
import math

import numpy as np
import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.tuning.templates.entities import InstantiationError
from tvm_ext.tuning.templates.space import ConfigSpace


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def small() -> ConfigSpace:
    space = ConfigSpace()
    space.define_split("tile_x", 12, num_outputs=3)
    space.define_reorder("order", ["x", "y", "k"], policy="candidate", candidate=[["x", "y", "k"], ["k", "x", "y"]])
    space.define_annotate("ann", ["k", "x"], policy="try_unroll_vec")
    space.define_knob("layout", ["plain", "packed"])
    return space


def large() -> ConfigSpace:
    space = ConfigSpace()
    for name, extent in (("n", 1024), ("c", 512), ("h", 720), ("w", 56)):
        space.define_split(name, extent, num_outputs=4)
    return space


def test_every_point_has_its_number() -> None:
    space = small()
    points = [space.at(index) for index in range(len(space))]
    assert [space.index(config) for config in points] == list(range(len(space)))
    assert len({json.dumps(config, sort_keys=True) for config in points}) == len(space)
    assert len(space) == math.prod(len(choices) for choices in space.knobs.values())


def test_the_first_knob_is_the_lowest_digit_as_in_autotvm() -> None:
    space = ConfigSpace.of({"a": [1, 2, 3], "b": ["x", "y"]})
    assert [space.at(i) for i in range(6)] == [{"a": a, "b": b} for b in ("x", "y") for a in (1, 2, 3)]


def test_points_are_plain_json_values_of_their_own() -> None:
    space = small()
    config = space.at(5)
    assert json.loads(json.dumps(config)) == config
    before = space.at(5)
    config["tile_x"][0] = 99
    assert space.at(5) == before


def test_a_space_of_more_than_a_billion_points_is_not_listed(rng: np.random.Generator) -> None:
    space = large()
    listed = sum(len(choices) for choices in space.knobs.values())
    assert len(space) > 10**9
    assert listed < 3000
    for index in [0, len(space) - 1, *map(int, rng.integers(len(space), size=50))]:
        assert space.index(space.at(index)) == index
    points = space.sample(rng, 100)
    assert len({space.index(config) for config in points}) == 100
    assert all(math.prod(config["h"]) == 720 for config in points)


def test_a_space_beyond_the_largest_length_still_has_points(rng: np.random.Generator) -> None:
    space = ConfigSpace.of({str(knob): range(100) for knob in range(12)})
    assert space.points == 100**12
    assert space.index(space.at(space.points - 1)) == space.points - 1
    assert len(space.sample(rng, 5)) == 5


def test_equal_choices_count_once() -> None:
    space = ConfigSpace.of({"a": [1, 2, 1, (3, 4), [3, 4]], "b": [1, True, 1.0, "1"]})
    assert list(space.knobs["a"]) == [1, 2, [3, 4]]
    assert len(space.knobs["b"]) == 4
    assert space.index({"a": (3, 4), "b": "1"}) == space.index({"a": [3, 4], "b": "1"})


def test_numpy_numbers_become_plain_ones() -> None:
    space = ConfigSpace.of({"a": np.array([1, 2]), "b": [np.float32(0.5)]})
    assert json.dumps(space.at(1)) == '{"a": 2, "b": 0.5}'


def test_legal_and_multi_filter_leave_numbers_alone(rng: np.random.Generator) -> None:
    space = ConfigSpace.of({"a": [1, 2, 4], "b": [1, 2, 4]}, legal=lambda config: config["a"] != 4)
    space.multi_filter(lambda entity: entity["a"].val * entity["b"].val <= 4)
    legal = [config for config in map(space.at, range(len(space))) if space.legal(config)]
    assert len(space) == 9
    assert [(c["a"], c["b"]) for c in legal] == [(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)]
    assert sorted(map(space.index, space.sample(rng, 100))) == sorted(map(space.index, legal))


def test_multi_filter_sees_entities_of_autotvm() -> None:
    space = small()
    space.multi_filter(lambda e: e["tile_x"].size[-1] > 2 and "vec" in e["ann"].anns and e["order"].perm[0] == 2)
    legal = [config for config in map(space.at, range(len(space))) if space.legal(config)]
    assert legal
    for config in legal:
        assert config["tile_x"][-1] > 2 and "vec" in config["ann"] and config["order"] == [2, 0, 1]


def test_sampling_leaves_out_what_is_excluded_and_repeats_with_its_seed() -> None:
    space = small()
    exclude = set(range(0, len(space), 2))
    first, second = (space.sample(np.random.default_rng(3), 20, exclude) for _ in range(2))
    assert first == second
    assert len(first) == 20 and not exclude & set(map(space.index, first))
    assert space.sample(np.random.default_rng(3), 5, set(range(len(space)))) == []


def test_sampling_a_large_space_with_few_legal_points_ends(rng: np.random.Generator) -> None:
    space = large()
    space.multi_filter(lambda entity: entity["n"].size[-1] == 16)
    points = space.sample(rng, 10)
    assert len(points) == 10 and all(config["n"][-1] == 16 for config in points)
    space.multi_filter(lambda entity: False)
    assert space.sample(rng, 3) == []


def test_mutation_changes_one_knob(rng: np.random.Generator) -> None:
    space = small()
    space.multi_filter(lambda entity: entity["tile_x"].size[-1] > 1)
    start = space.sample(rng, 1)[0]
    for _ in range(50):
        other = space.mutate(start, rng)
        assert space.legal(other)
        assert sum(other[name] != start[name] for name in space.knobs) == 1


def test_mutation_without_a_legal_neighbour_gives_the_same(rng: np.random.Generator) -> None:
    space = ConfigSpace.of({"a": [1, 2], "b": [1, 2]}, legal=lambda config: config["a"] == config["b"] == 1)
    assert space.mutate({"a": 1, "b": 1}, rng) == {"a": 1, "b": 1}
    assert ConfigSpace().mutate({}, rng) == {}


def test_crossover_takes_each_knob_of_a_parent(rng: np.random.Generator) -> None:
    space = ConfigSpace.of({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, legal=lambda config: config["c"] == config["a"])
    first, second = {"a": 0, "b": 0, "c": 0}, {"a": 1, "b": 1, "c": 1}
    children = [space.crossover(first, second, rng) for _ in range(50)]
    assert all(map(space.legal, children))
    assert {tuple(child.values()) for child in children} == {(a, b, a) for a, b in itertools.product((0, 1), (0, 1))}


def test_a_point_is_read_back_from_a_row_of_autotvm() -> None:
    space = small()
    kinds = {knob: kind for knob, kind in space.kinds.items() if kind != "ot"}
    assert kinds == {"tile_x": "sp", "order": "re", "ann": "an"}
    record = Record(TaskKey.of("template:t", []), "t", 1, space.at(17), (1e-3,), kinds=kinds, index=17)
    again = Record.from_row(record.to_row())
    assert space.index(again.config) == 17 and again.config == space.at(17) and again.kinds == kinds


def test_the_outermost_size_of_autotvms_rows_is_left_open() -> None:
    space = ConfigSpace()
    space.define_split("tile_x", 12, num_outputs=3)
    assert space.at(space.index({"tile_x": [-1, 2, 3]})) == {"tile_x": [2, 2, 3]}


ERRORS = [
    (lambda s: s["tile_z"], "knob 'tile_z' is not defined; defined: 'tile_x', 'order', 'ann', 'layout'"),
    (lambda s: s.index({**s.at(0), "z": 1}), "knob 'z' is not defined"),
    (lambda s: s.index({"tile_x": [12, 1, 1]}), "no value for knob 'order'"),
    (lambda s: s.index({**s.at(0), "layout": "nchw"}), "'nchw' is not among its choices: plain, packed"),
    (lambda s: s.index({**s.at(0), "tile_x": [5, 1, 1]}), r"\[5, 1, 1\] is not among its choices: .*, ... \(18 ch"),
    (lambda s: s.at(len(s)), "point 576 of a space of 576 points"),
    (lambda s: s.define_knob("layout", [1]), "'layout' is defined twice"),
    (lambda s: s.define_knob("empty", []), "knob 'empty': it has no choices"),
    (lambda s: s.define_knob("odd", [object()]), "no JSON value"),
    (lambda s: s.define_split("t", "x"), "'x' is no axis of a known extent"),
]


@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors_name_the_object(act, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        act(small())


def test_a_configuration_refuses_itself_only_when_it_is_applied() -> None:
    space = small()
    space.raise_error("too much to unroll")
    with pytest.raises(InstantiationError, match="too much to unroll"):
        space.entity(space.at(0)).raise_error("too much to unroll")


def test_a_configuration_takes_definitions_as_made() -> None:
    space = small()
    entity = space.entity(space.at(7))
    axes = entity.define_split("tile_x", entity.axis(12), num_outputs=3)
    assert [axis.name for axis in axes] == ["tile_x.0", "tile_x.1", "tile_x.2"]
    assert list(entity) == list(space) and entity["tile_x"].size == space.at(7)["tile_x"]
    with pytest.raises(OptionError, match="knob 'late' is not defined"):
        entity.define_knob("late", [1])

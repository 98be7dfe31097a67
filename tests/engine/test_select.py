"""Choosing tasks by text, and what is said about a choice that names none."""

from __future__ import annotations

import pytest

from layoutlab.engine.relax.tune.select import Choosable, select, skip
from layoutlab.errors import UsageError

TASKS = [
    Choosable(name="fused_conv2d_add_relu1", kind="conv2d"),
    Choosable(name="max_pool2d1", kind="pool2d"),
    Choosable(name="fused_conv2d1_add1_relu11", kind="conv2d"),
    Choosable(name="avg_pool2d", kind="pool2d"),
    Choosable(name="avg_pool2d1", kind="pool2d"),
    Choosable(name="softmax1", kind="softmax"),
]
KINDS = ("conv2d", "pool2d", "softmax", "matmul")


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("3", (3,)),
        ("1-3", (1, 2, 3)),
        ("5, 0,1-2", (0, 1, 2, 5)),
        ("conv2d", (0, 2)),
        ("pool2d,0", (0, 1, 3, 4)),
        ("max_pool2d1", (1,)),
        ("avg_pool2d", (3,)),  # a whole name, though a part of another
        ("conv2d1", (2,)),
        ("soft", (5,)),
        ("0,0-1,conv2d", (0, 1, 2)),
    ],
)
def test_a_text_names_tasks(text, chosen):
    assert select(text, TASKS) == chosen


EVERY = (
    "There are the kinds conv2d, pool2d, softmax and the tasks 0 fused_conv2d_add_relu1, 1 max_pool2d1, "
    "2 fused_conv2d1_add1_relu11, 3 avg_pool2d, 4 avg_pool2d1, 5 softmax1"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("6", '"6" names task 6, and the variant has tasks 0 to 5'),
        ("4-9", '"4-9" names task 9, and the variant has tasks 0 to 5'),
        ("3-1", '"3-1" is no range of tasks: expected the smaller index first'),
        ("1,con2d", f'"con2d" names no task: did you mean "conv2d"? {EVERY}'),
        ("dense", f'"dense" names no task: {EVERY}'),
        ("0,,1", f'"" names no task: {EVERY}'),
        (
            "relu",
            '"relu" is a part of 2 names: 0 fused_conv2d_add_relu1, 2 fused_conv2d1_add1_relu11. '
            "Say more of the name, or use an index",
        ),
    ],
)
def test_a_text_that_names_none_is_refused(text, said):
    with pytest.raises(UsageError) as refused:
        select(text, TASKS)
    assert str(refused.value) == said


def test_of_many_tasks_some_are_shown():
    many = [Choosable(name=f"fused_conv2d{number}", kind="conv2d") for number in range(50)]
    with pytest.raises(UsageError, match=r"11 fused_conv2d11 and 38 more$"):
        select("dense", many)


def test_what_is_skipped_may_be_a_kind_that_only_other_variants_have():
    assert skip(["matmul", "5", "avg_pool2d1,1"], TASKS, KINDS) == (1, 4, 5)
    assert skip(["matmul"], TASKS, KINDS) == ()
    with pytest.raises(UsageError, match=r'^"matmull" names no task'):
        skip(["matmull"], TASKS, KINDS)

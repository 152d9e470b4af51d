"""What a run will take, told beforehand: beside what runs hold, and what is refused."""

import gc

import jax
import pytest

from configs import digits_b0i2
from launch import check_device_memory
from memo_jax import datasets, estimate, experiment, parallel, planning, protocol, training
from memo_jax.errors import UserError
from memo_jax.estimate import arrays, fit, needs, programs, room
from memo_jax.problems import Problems
from memo_jax.study import outline

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Compiles in a quarter of the time what is slow then."""
MB = 2**20


def config(method: str = "memo", **settings):
    """The digits experiment with the smallest backbone, two tasks of an epoch."""
    made = digits_b0i2.get_config(method)
    fields = {
        "backbone.name": "convnet2",
        "schedule.base_epochs": 1,
        "schedule.later_epochs": 1,
        "protocol.stop_after": 2,
        "schedule.base_milestones": (),
        "schedule.later_milestones": (),
    }
    fields |= {name.replace("__", "."): value for name, value in settings.items()}
    made.update_from_flattened_dict(fields)
    return made


def problems(made, dataset=None) -> Problems:
    """As a dry run poses them, or for a dataset that is there."""
    dataset = dataset or outline.blank(made)
    return Problems(made, planning.make(made, dataset), dataset, parallel.data_mesh())


def digits() -> datasets.Dataset:
    found = datasets.load("digits", "", "auto")
    return found.in_order(protocol.class_order(10, 1993))


def held(posed: Problems, devices: int = 1, memory: int | None = None) -> list[arrays.Arrays]:
    return arrays.by_task(posed.config, posed.plan, posed.dataset, devices, memory)


# ---- arrays


def live_bytes() -> int:
    """Bytes of all arrays of this process; some look at the same ones."""
    gc.collect()
    return sum({a.unsafe_buffer_pointer(): a.nbytes for a in jax.live_arrays()}.values())


class Enough(Exception):
    """Nothing more is to be seen."""


def test_arrays_are_those_that_a_run_holds(tmp_path, monkeypatch):
    seen, stepping = {}, training.Driver.__call__

    def watched(driver, state, rows):
        task = len(state.variables["params"]["blocks"]) - 1
        seen.setdefault(task, live_bytes() - before)
        if task == 1:
            raise Enough
        return stepping(driver, state, rows)

    monkeypatch.setattr(training.Driver, "__call__", watched)
    before = live_bytes()
    with pytest.raises(Enough):
        experiment.run(config(train__eval_batch_size=8), tmp_path / "run")
    counted = {each.task.index: each.training for each in held(problems(config(), digits()))}
    # Beside a key, constants and what is summed up over an epoch.
    assert seen == pytest.approx(counted, abs=1000)


def test_arrays_by_hand():
    first, second = held(problems(config(), digits()))
    # 3x3 convolutions with bias and BatchNorm, 64 channels: parameters, statistics.
    trunk, block = (9 * 64 + 64 + 2 * 64, 2 * 64), (9 * 64 * 64 + 64 + 2 * 64, 2 * 64)
    heads = [64 * 2 + 2, 128 * 4 + 4 + 64 * 3 + 3]
    base = sum(trunk) + sum(block) + heads[0]
    grown = sum(trunk) + 2 * sum(block) + heads[1]
    # The optimizer remembers the gradients of what learns, and counts its steps.
    momentum = [trunk[0] + block[0] + heads[0] + 1, trunk[0] + block[0] + heads[1] + 1]
    assert first.network == 4 * (base + momentum[0])
    assert second.network == 4 * (grown + momentum[1] + base)
    train = digits().train.labels
    new = [int((train // 2 == task).sum()) for task in (0, 1)]
    assert [first.new, second.new] == new and [first.kept, second.kept] == [0, 200]
    # Images of 64 bytes; exemplars and training images have labels.
    assert second.images == 68 * (200 + 200 + new[1]) + 64 * 355


def test_devices_that_share_images_and_hosts_that_keep_them():
    plain = held(problems(config(), digits()))[1]
    shared = held(problems(config(memory__placement="sharded"), digits()), devices=4)[1]
    parts = [-(-count // 4) for count in (200, 200 + plain.new, 355)]
    assert shared.images == 64 * sum(parts) + 4 * (200 + 200 + plain.new)
    assert shared.network == plain.network
    on_host = held(problems(config(dataset__streaming="always"), digits()))[1]
    assert plain.images - on_host.images == 64 * plain.new
    # Half of the memory may be taken by the images of a task, or those to test.
    for memory, test in ((2 * 64 * 355, True), (2 * 64 * 355 - 1, False)):
        there = held(problems(config(), digits()), memory=memory)[1]
        assert (there.streamed, there.test == 355) == (64 * plain.new > memory / 2, test)


def test_a_borrowed_base_task_is_not_trained():
    own, borrowed = held(problems(config())), held(problems(config(base_from="elsewhere")))
    assert borrowed[0].optimizer == 0 < own[0].optimizer
    assert borrowed[1] == own[1]


def test_blank_images_take_as_much_as_real_ones():
    blank, real = problems(config("joint")), problems(config("joint"), digits())
    for planned, there in zip(held(blank), held(real)):
        # Digits has classes of nearly equal size.
        assert planned.training == pytest.approx(there.training, rel=0.01)


# ---- what fits


@pytest.mark.parametrize(
    "needed",
    [lambda n: 100 + 7 * n, lambda n: n * n, lambda n: 900 * n**0.5, lambda n: 64 * (n // 30)],
)
@pytest.mark.parametrize("unit", [1, 4])
@pytest.mark.parametrize("size", [3, 107, 500, 1800, 2500])
def test_the_largest_that_fits_is_found(needed, unit, size):
    high = 1200
    assert needed(high) > size
    brute = max((n for n in range(unit, high, unit) if needed(n) <= size), default=0)
    asked = []

    def watched(n: int) -> int:
        asked.append(n)
        return needed(n)

    assert fit.largest(watched, size, unit, (high, needed(high))) == brute
    assert len(asked) < 20 and all(n % unit == 0 and 0 < n < high for n in asked)
    if needed(1) == 107:  # a line
        assert len(asked) <= 3


def test_what_does_not_fit_is_refused_with_the_largest_batch_that_does(capsys):
    def posed(batch: int) -> Problems:
        fields = {"protocol__stop_after": 1, "train__eval_batch_size": 8}
        return problems(config(schedule__batch_size=batch, **fields))

    def show(batch: int, size: int) -> None:
        estimate.show(posed(batch), 0, size / room.GB)

    (need,) = needs.by_task(posed(40), held(posed(40)))
    assert need.phase == "training"
    with pytest.raises(UserError, match=r"^task 1: .*batch_size=40$") as told:
        show(64, need.peak)
    assert f"found {room.megabytes(need.peak)} on a device" in str(told.value)
    show(40, need.peak)
    with pytest.raises(UserError, match=r"batch_size=40$"):
        show(41, need.peak)
    # Some of it is taken by arrays, whatever the batch.
    with pytest.raises(UserError, match=r"networks and images alone.*no schedule.batch_size fits"):
        show(40, need.arrays.training - 1)
    with pytest.raises(UserError, match=r"no schedule.batch_size fits"):
        show(40, need.arrays.training + 1)
    # What a step takes grows along a line; it holds the activations of the trunk, 64 channels.
    at_40, at_41, at_64 = (programs.step(posed(40), need.arrays, n) for n in (40, 41, 64))
    assert (at_64 - at_40) / 24 == pytest.approx(at_41 - at_40, rel=0.3)
    assert at_41 - at_40 > 64 * 8 * 8 * 4


def test_an_evaluation_that_does_not_fit_is_told():
    posed = problems(config())
    arrays = held(posed)[0]
    need = needs.Need(arrays, programs.Programs(0, 10 * MB, 0), True, epochs=1, steps_per_epoch=1)
    with pytest.raises(UserError, match=r"task 1: .*in evaluation, .*eval_batch_size"):
        fit.expect_all(posed, [need], room.Room(arrays.training + 9 * MB, 1, 0, "there"))
    fit.expect_all(posed, [need], room.Room(need.peak, 1, 0, "there"))


def test_devices_of_a_cpu_share_what_is_free():
    alone, shared = room.Room(1000, 1, 0, "there"), room.Room(1000, 4, 100, "there")
    assert alone.has(1000) and not alone.has(1001)
    assert shared.has(225) and not shared.has(226)
    text = room.Room(100 * MB, 4, 3 * MB, "free").words(5 * MB)
    assert text == "23.0 MB (5.0 MB on each of 4 devices, 3.0 MB for the dataset)"
    mesh = parallel.data_mesh()
    assert room.there(mesh).size > MB and room.there(mesh, 2.0).size == 2 * room.GB


def test_a_run_whose_arrays_do_not_fit_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "available_memory", lambda: MB // 2)
    with pytest.raises(
        UserError, match=r"^task 2: .* networks and images alone, found 0\.5 MB free"
    ):
        experiment.run(config(), tmp_path / "run")
    assert not list(tmp_path.rglob("config.json"))


# ---- the command


def test_between_compiled_tasks_needs_are_interpolated(launch, tmp_path):
    """The table of all five tasks, and the truth about one that is interpolated."""
    fields = {"train.eval_batch_size": 8, "backbone.name": "convnet2"}
    done = launch(
        "--config=configs/digits_b0i2.py",
        *(f"--config.{name}={value}" for name, value in fields.items()),
        "--dry-run",
        f"--workdir={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[2].split()
    assert " ".join(row) == "run digits/b0i2 memo 200 0.72 12 + 4 x 12 ? to do", done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    table = {row[0]: row for row in rows if "of" in row[2:3]}
    assert list(table) == list("12345")
    # 145 images of the first two classes, 144 of the others; 200 exemplars, batches of 64.
    assert table["1"][1:9] == ["2", "of", "2", "290", "0", "12", "5", "60"]
    assert table["4"][1:9] == ["2", "of", "8", "288", "198", "12", "8", "96"]
    assert [number for number, row in table.items() if "~" in str(row)] == ["3", "4"], done.stdout
    posed = problems(config(protocol__stop_after=5, train__eval_batch_size=8))
    fourth = programs.step(posed, held(posed)[3], 64)
    assert float(table["4"][-3].strip("~")) == pytest.approx(fourth / MB, rel=0.03)
    assert not list(tmp_path.iterdir())


def test_several_devices_in_bfloat16(launch, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"{QUICK} --xla_force_host_platform_device_count=2")
    args = ["--config=configs/digits_b0i2.py", "--dry-run", f"--workdir={tmp_path / 'run'}"]
    args += ["--config.backbone.name=convnet2", "--config.precision=bfloat16"]
    args += ["--config.protocol.stop_after=1", "--device-memory"]
    done = launch(*args[:-1])
    assert done.returncode == 0, done.stderr
    assert "on each of 2 devices" in done.stdout and "for the dataset" in done.stdout
    assert "2 x cpu" in done.stdout
    small = launch(*args, "0.0003")
    assert small.returncode == 2 and len(small.stderr.splitlines()) == 1, small.stderr
    assert "error: task 1: " in small.stderr and "no schedule.batch_size" in small.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("gigabytes", "planning", "named"), [(8.0, False, "--dry-run"), (0.0, True, "above 0")]
)
def test_a_memory_that_makes_no_sense_is_told(gigabytes, planning, named):
    with pytest.raises(UserError, match=f"^--device-memory.*{named}"):
        check_device_memory(gigabytes, planning)
    check_device_memory(8.0, True)
    check_device_memory(None, planning)

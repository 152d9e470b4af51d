"""Memory budgets against the paper's tables, and the configs of its settings."""

import importlib
import pathlib

import numpy as np
import pytest

from configs import base
from memo_jax import backbones, budget, datasets, methods, network, planning
from memo_jax.errors import UserError

CIFAR = (32, 32, 3)
IMAGENET = (224, 224, 3)
RESNET32 = 463_504

CONFIGS = sorted(
    path.stem
    for path in (pathlib.Path(__file__).parents[1] / "configs").glob("*.py")
    if path.stem not in ("base", "__init__")
)


def config_of(name: str, method: str = "memo"):
    return importlib.import_module(f"configs.{name}").get_config(method)


def small_config(method: str = "memo"):
    """Where the backbone does not matter: one that is quickly planned."""
    config = config_of("cifar_b0i10", method)
    config.backbone.name = "resnet8"
    return config


@pytest.fixture(scope="module")
def cifar100() -> datasets.Dataset:
    """Black images of the shape and number of CIFAR-100's."""
    split = datasets.Split(
        np.zeros((50_000, *CIFAR), np.uint8), np.repeat(np.arange(100), 500).astype(np.int32)
    )
    names = tuple(f"class {number}" for number in range(100))
    return datasets.Dataset("cifar100", split, split, names, (0.5,) * 3, (0.2,) * 3)


# ---- numbers of the paper

# (config, backbone): exemplars of MEMO, parameters of its trunk and all its blocks, megabytes in
# all (which the paper rounds).
MEMO = {
    ("cifar_b0i5", "resnet32"): (4771, 112_016 + 20 * 351_488, 41.22),
    ("cifar_b0i10", "resnet32"): (3312, 112_016 + 10 * 351_488, 23.53),
    ("cifar_b50i5", "resnet32"): (3458, 112_016 + 11 * 351_488, 25.3),
    ("cifar_b50i10", "resnet32"): (2729, 112_016 + 6 * 351_488, 16.45),
    ("cifar_b0i10", "resnet14"): (2495, 42_320 + 10 * 129_536, 12.4),
    ("cifar_b0i10", "resnet20"): (2768, 65_552 + 10 * 203_520, 16.1),
    ("cifar_b0i10", "resnet26"): (3040, 88_784 + 10 * 277_504, 19.8),
}


@pytest.mark.parametrize(("setting", "published"), MEMO.items(), ids=str)
def test_exemplars_of_memo_aligned_to_der_are_those_of_the_paper(setting, published, cifar100):
    config = config_of(setting[0])
    config.backbone.name = setting[1]
    ledger = planning.make(config, cifar100).ledger
    exemplars, parameters, megabytes = published
    assert (ledger.exemplars, ledger.parameters) == (exemplars, parameters)
    assert ledger.as_dict()["total_mb"] == pytest.approx(megabytes, abs=0.05)


# (classes, exemplars of MEMO, tasks); ResNet18 is cut into 2,782,784 and 8,393,728 parameters.
IMAGENET_SETTINGS = {
    "imagenet100_b50i5": (100, 2739, 11),
    "imagenet1000_b0i100": (1000, 20665, 10),
}


@pytest.mark.parametrize("name", IMAGENET_SETTINGS)
def test_exemplars_on_imagenet_are_those_of_the_paper(name):
    classes, exemplars, tasks = IMAGENET_SETTINGS[name]
    images = np.broadcast_to(np.uint8(0), (100 * classes, *IMAGENET))  # takes no memory
    split = datasets.Split(images, np.arange(len(images)) % classes)
    names = tuple(map(str, range(classes)))
    dataset = datasets.Dataset("imagenet", split, split, names, (0.5,) * 3, (0.2,) * 3)
    config = config_of(name)
    ledger = planning.make(config, dataset).ledger
    assert (ledger.exemplars, ledger.parameters) == (exemplars, 2_782_784 + tasks * 8_393_728)
    assert planning.resolved(config, planning.make(config, dataset))["dataset"]["image_size"] == 224


@pytest.mark.parametrize(
    ("name", "tasks"), [("cifar_b0i5", 20), ("cifar_b0i10", 10), ("cifar_b50i5", 11)]
)
def test_der_aligned_to_itself_keeps_2000_exemplars_and_a_backbone_per_task(name, tasks, cifar100):
    ledger = planning.make(config_of(name, "der"), cifar100).ledger
    assert (ledger.exemplars, ledger.parameters) == (2000, tasks * RESNET32)


def test_one_backbone_beside_der_with_ten_has_the_7431_exemplars_of_the_paper():
    nets = [
        network.build(backbones.get("resnet32"), CIFAR, "memo", grows)
        for grows in ("nothing", "backbone")
    ]
    one, ten = (net.num_parameters(10) for net in nets)
    assert (one, ten) == (RESNET32, 10 * RESNET32)
    assert budget.aligned_exemplars(2000, ten - one, CIFAR) == 7431


@pytest.mark.parametrize("method", ["replay", "icarl", "wa"])
def test_methods_with_one_network_get_them_from_the_config_alone(method, cifar100):
    ledger = planning.make(config_of("cifar_b0i10", method), cifar100).ledger
    assert (ledger.exemplars, ledger.parameters) == (7431, RESNET32)


def test_a_resnet32_weighs_603_images_as_the_title_of_the_paper_says():
    assert budget.aligned_exemplars(0, RESNET32, CIFAR) == 603
    assert budget.aligned_exemplars(2000, RESNET32, CIFAR) == 2603


# ---- arithmetic


def test_spared_bytes_become_whole_images_only():
    # An image of 2 x 2 x 3 takes 12 bytes, three parameters.
    counts = [budget.aligned_exemplars(10, spared, (2, 2, 3)) for spared in range(8)]
    assert counts == [10, 10, 10, 11, 11, 11, 12, 12]


def test_exemplars_within_is_the_most_that_fits():
    # A quarter of a megabyte of parameters leaves 786,432 bytes: exactly 256 images of CIFAR.
    assert budget.exemplars_within(1.0, 65_536, CIFAR) == 256
    assert budget.exemplars_within(1.0, 65_537, CIFAR) == 255
    assert budget.exemplars_within(1.0, 262_144, CIFAR) == 0
    assert budget.exemplars_within(1.0, 10**9, CIFAR) == 0


def test_ledger_counts_one_byte_a_pixel_and_four_a_parameter():
    ledger = budget.Ledger(exemplars=512, parameters=786_432, image_bytes=3072)
    assert budget.image_bytes(CIFAR) == 3072 and budget.image_bytes(IMAGENET) == 150_528
    assert ledger.as_dict() == {
        "exemplars": 512,
        "exemplar_mb": 1.5,
        "parameters": 786_432,
        "model_mb": 3.0,
        "total_mb": 4.5,
    }


@pytest.mark.parametrize("method", ["memo", "der"])
def test_total_mb_is_filled_and_not_exceeded(method, cifar100):
    config = small_config(method)
    config.memory.total_mb = 9.7
    ledger = planning.make(config, cifar100).ledger
    total = ledger.as_dict()["total_mb"]
    assert total <= 9.7 < total + 3072 / 2**20


def test_a_stream_that_is_left_early_has_the_budget_of_the_whole(cifar100):
    config = config_of("cifar_b0i10")
    whole = planning.make(config, cifar100)
    config.protocol.stop_after = 5
    plan = planning.make(config, cifar100)
    assert plan.tasks == whole.tasks[:5] and plan.ledger == whole.ledger


def test_a_number_of_exemplars_is_taken_as_it_is(cifar100):
    config = small_config()
    config.memory.exemplars = 123
    assert planning.make(config, cifar100).ledger.exemplars == 123


# ---- errors


def test_a_number_of_exemplars_keeps_to_a_limit_in_megabytes(cifar100):
    config = small_config()
    parameters = planning.make(config, cifar100).ledger.parameters
    config.memory.exemplars = 512  # 1.5 MB
    config.memory.total_mb = 1.5 + parameters * 4 / 2**20
    assert planning.make(config, cifar100).ledger.exemplars == 512
    config.memory.exemplars = 513
    with pytest.raises(UserError, match=r"expected at most 3.69.* MB, found .*: 513 exemplars"):
        planning.make(config, cifar100)


def test_models_that_alone_exceed_the_megabytes_are_told(cifar100):
    config = small_config()
    config.memory.total_mb = 2.0
    with pytest.raises(UserError, match=r"at most 2 MB, found 2.19 MB: 0 exemplars .* 574,608 par"):
        planning.make(config, cifar100)


@pytest.mark.parametrize(("field", "value"), [("exemplars", 99), ("total_mb", 2.45)])
def test_a_budget_below_one_exemplar_for_each_class_is_told(field, value, cifar100):
    config = small_config()
    config.memory[field] = value
    with pytest.raises(UserError, match=r"each of 100 classes, found a budget of (99|88);"):
        planning.make(config, cifar100)


@pytest.mark.parametrize(("align_to", "exemplars"), [("der:resnet14", 3634), ("replay", 2000)])
def test_a_method_may_be_aligned_to_another_backbone(align_to, exemplars, cifar100):
    config = config_of("cifar_b0i10", "replay")
    config.memory.align_to = align_to
    assert planning.make(config, cifar100).ledger.exemplars == exemplars


def test_one_exemplar_for_each_class_is_enough(cifar100):
    config = small_config()
    config.memory.exemplars = 100
    assert planning.make(config, cifar100).ledger.exemplars == 100


def test_an_unknown_method_to_align_to_is_told(cifar100):
    config = small_config()
    config.memory.align_to = "derr"
    with pytest.raises(UserError, match="'derr'; did you mean 'der'"):
        planning.make(config, cifar100)


# ---- configs


def fields(config, prefix: str = "") -> set[str]:
    found = set()
    for name in config:
        value = config.get_oneway_ref(name).get()
        section = isinstance(value, type(config))
        found |= fields(value, f"{prefix}{name}.") if section else {prefix + name}
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_sets_only_fields_that_base_declares(name):
    for method in methods.names():
        config = config_of(name, method)
        assert fields(config) == fields(base.get_config())
        assert config.method.name == method


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_passes_the_checks(name):
    planning.check(config_of(name), num_devices=1)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name.startswith("cifar_")])
def test_a_config_of_cifar_is_the_setting_that_its_name_says(name, cifar100):
    config = config_of(name)
    assert (config.backbone.name, config.backbone.cut) == ("resnet32", "memo")
    config.backbone.name = "resnet8"  # quickly planned
    plan = planning.make(config, cifar100)
    base_size, increment = map(int, name.removeprefix("cifar_b").split("i"))
    assert [task.num_new for task in plan.tasks[:2]] == [base_size or increment, increment]
    # The paper trains the trunk of MEMO after a base task of at most 20 classes.
    assert plan.options.train_trunk == ((base_size or increment) <= 20)
    for task, decay in zip(plan.tasks, (5e-4, 2e-4)):
        schedule = plan.schedule(task)
        assert (schedule.epochs, schedule.milestones) == (170, (80, 150))
        assert (schedule.weight_decay, schedule.learning_rate) == (decay, 0.1)


def test_numbers_in_the_config_replace_those_of_the_named_schedule(cifar100):
    config = small_config()
    config.schedule.learning_rate = 0.05
    config.schedule.base_epochs = 100
    config.schedule.later_milestones = (2, 3)
    config.schedule.later_weight_decay = 0.0
    first, later = planning.make(config, cifar100).schedules
    # Milestones of the named schedule that the epochs do not reach are left out.
    assert (first.epochs, first.milestones, first.weight_decay) == (100, (80,), 5e-4)
    assert (later.epochs, later.milestones, later.weight_decay) == (170, (2, 3), 0.0)
    assert first.learning_rate == later.learning_rate == 0.05

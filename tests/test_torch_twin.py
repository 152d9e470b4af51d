"""The PyTorch twin of benchmarks/ learns what we learn: same weights and batch, same numbers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

torch = pytest.importorskip("torch")
# ruff: noqa: E402

from benchmarks import settings, torch_backbones, torch_data, torch_training, weights
from benchmarks.job import Job
from benchmarks.torch_exemplars import class_means
from benchmarks.torch_network import Network
from benchmarks.torch_training import Speed, Trainer
from benchmarks.torch_twin import Twin
from memo_jax import (
    backbones,
    exemplars,
    freezing,
    heads,
    methods,
    network,
    optimizers,
    parallel,
    training,
)
from memo_jax.backbones import base
from memo_jax.datasets import Dataset, Split
from memo_jax.methods.base import Options
from memo_jax.protocol import Task

CPU = torch.device("cpu")
TASKS = (Task(0, 0, 3), Task(1, 3, 5), Task(2, 5, 7))
TAKEN = {"resnet10": (0, 1, 2), "resnet26_imagenet": (0, 1, 3)}
"""The units that are taken of a deep backbone, the last of them as block, and the pool: they have
every kind of layer, while all of them take long to compile and multiply rounding by a hundred."""
# case: (backbone, method, task, trunk learns, old blocks learn, seed). The seeds are such that in
# three steps no activation comes within 1e-5 of a ReLU's kink or of another that a max-pool sees,
# where rounding decides which side is taken.
CASES = {
    "base task": ("resnet8", "memo", 0, True, False, 5),
    "memo, trunk trained": ("resnet8", "memo", 1, True, False, 5),
    "memo, trunk frozen": ("resnet8", "memo", 1, False, False, 1),
    "memo, old blocks trained": ("resnet8", "memo", 1, True, True, 4),
    "memo, third task": ("resnet8", "memo", 2, True, False, 7),
    "der": ("resnet8", "der", 1, True, False, 4),
    "replay": ("resnet8", "replay", 1, True, False, 2),
    "convnet2": ("convnet2", "memo", 1, True, False, 2),
    "basic blocks": ("resnet10", "memo", 0, True, False, 29),
    "bottlenecks": ("resnet26_imagenet", "memo", 0, True, False, 0),
}
TOLERANCE = 1e-5
"""Absolute; measured: at most 8e-7 in losses, 2e-6 in gradients, 1e-6 in the state afterwards."""


def random_like(variables: dict, seed: int) -> dict:
    """Variables without the zeros and ones of a fresh network, behind which errors could hide."""
    draws = np.random.RandomState(seed)

    def change(path, leaf):
        kind = path[-1].key
        noise = draws.standard_normal(leaf.shape).astype("f4")
        if kind == "kernel":
            return leaf * (1 + 0.1 * noise)
        return np.abs(leaf + 0.2 * noise) + 0.1 if kind in ("scale", "var") else 0.2 * noise

    return jax.tree_util.tree_map_with_path(change, variables)


def on_both_sides(name: str) -> tuple[base.Backbone, torch_backbones.Backbone, tuple[int, ...]]:
    """A backbone, ours and the twin's, and the shape of images for it."""
    ours, theirs, shape = backbones.get(name), torch_backbones.BACKBONES[name], (8, 8, 3)
    if name in TAKEN:
        shape = (16, 16, 3)
        ours, theirs = (
            dataclasses.replace(side, units=tuple(side.units[i] for i in (*TAKEN[name], -1)))
            for side in (ours, theirs)
        )
        width, cut = base.output_shape(ours.units, shape)[0], len(TAKEN[name]) - 1
        ours = dataclasses.replace(ours, feature_dim=width, cuts={"memo": cut})
        theirs = dataclasses.replace(theirs, feature_dim=width)
    return ours, theirs, shape


class Case:
    """One problem on both sides: our variables, the twin that holds them, a batch."""

    def __init__(self, name: str):
        backbone, method, index, train_trunk, train_old_blocks, seed = CASES[name]
        self.task = TASKS[index]
        self.method = methods.get(method)
        ours, self.backbone, shape = on_both_sides(backbone)
        self.net = network.build(ours, shape, "memo", self.method.grows)
        grown = None
        for task in TASKS[: index + 1]:
            grown = self.net.expand(grown, task, seed=seed)
        self.before = jax.tree.map(jnp.asarray, random_like(grown, seed))
        draws = np.random.RandomState(seed)
        self.x = draws.standard_normal((12, *shape)).astype("f4")
        self.y = (np.arange(12) % self.task.num_seen).astype(np.int32)
        at = self.method.at(self.task)
        options = Options(0.7, train_trunk, train_old_blocks, "previous")
        self.learns = freezing.mask(grown["params"], at.trains(self.task, options))
        self.loss = functools.partial(at.loss, task=self.task, options=options)
        self.schedule = optimizers.Schedule(epochs=3, milestones=(2,), weight_decay=5e-4)
        self.twin = self.make_twin(method, train_trunk, train_old_blocks)

    def make_twin(self, method: str, train_trunk: bool, train_old_blocks: bool) -> Network:
        """The twin's network, grown task by task, with our variables in it."""
        twin = Network(self.backbone, 3, self.net.cut, TASKS[0].num_new)
        for task in TASKS[1 : self.task.index + 1]:
            twin.grow(task.num_new, self.net.grows)
        weights.load(twin, self.before)
        if self.net.grows and not self.task.is_base:
            twin.learn(train_trunk, train_old_blocks)
        else:
            twin.learn()
        return twin.to(memory_format=torch.channels_last)

    def ours(self):
        """Our (terms of the first step, its gradients, variables after three steps)."""
        problem = training.Problem(
            net=self.net,
            loss=self.loss,
            learns=self.learns,
            schedule=self.schedule,
            prepare=lambda key, _: jnp.asarray(self.x),
            batch_size=len(self.x),
            seed=0,
            task=self.task.index,
            mesh=parallel.data_mesh(),
        )
        # The step hands its gradients to this first, which keeps them.
        keep = optax.GradientTransformation(lambda params: params, lambda g, kept, params: (g, g))
        optimizer = optax.chain(keep, optimizers.sgd(self.schedule, 1, self.learns))
        placed = parallel.replicated(problem.mesh)
        step = jax.jit(training.make_step(problem, optimizer), out_shardings=placed)
        pool = exemplars.Pool(jnp.zeros(self.x.shape, jnp.uint8), jnp.asarray(self.y))
        state, rows = training.start(problem, self.before, pool), jnp.arange(len(self.x))
        opt_state = parallel.place(optimizer.init(state.variables["params"]), placed)
        states = [state.replace(opt_state=opt_state)]
        for _ in range(3):
            states.append(step(states[-1], pool.images, pool.labels, None, rows, jax.random.key(0)))
        gradients, _ = freezing.partition(states[1].opt_state[0], self.learns)
        return training._means(states[1]), gradients, states[3].variables

    def theirs(self, precision: str = "float32"):
        """The twin's."""
        speed = Speed(precision=precision)
        trainer = Trainer(self.twin, self.task, vars(self.schedule), 1, speed, alpha_aux=0.7)
        x = torch.from_numpy(self.x).permute(0, 3, 1, 2)
        y = torch.from_numpy(self.y).long()
        trainer.step(x, y)
        grads, means = weights.gradients(self.twin, self.before["params"]), trainer.means()
        for _ in range(2):
            trainer.step(x, y)
        return means, grads, weights.variables(self.twin, self.before)


def check_leaves(ours, theirs, tolerance: float = TOLERANCE):
    """Raises AssertionError, naming the leaf, unless two trees have the same leaves."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    named = jax.tree_util.tree_leaves_with_path(ours)
    for (path, own), other in zip(named, jax.tree.leaves(theirs)):
        error = float(np.abs(np.asarray(own) - np.asarray(other)).max())
        assert error <= tolerance, f"{freezing.path_of(path)}: off by {error:.1e}"


@pytest.mark.parametrize("name", CASES)
def test_losses_gradients_and_three_steps_agree(name):
    case = Case(name)
    ours, theirs = case.ours(), case.theirs()
    for what, own, other in zip(("losses", "gradients", "variables"), ours, theirs):
        check_leaves({what: own}, {what: other})
    params = (case.before["params"], theirs[2]["params"])
    for learns, before, after in zip(*map(jax.tree.leaves, (case.learns, *params))):
        assert learns != np.array_equal(before, after)


@pytest.mark.parametrize("name", torch_backbones.BACKBONES)
def test_units_have_our_names_layers_and_shapes(name):
    """All backbones, without a number computed; odd sides tell paddings and strides apart."""
    ours, theirs, shape = backbones.get(name), torch_backbones.BACKBONES[name], (75, 46, 3)
    assert theirs.feature_dim == ours.feature_dim
    fresh = base.init(ours.units, shape, lambda rng, shape: np.zeros(shape), 0)
    expected = {
        weights.torch_name(path): tuple(leaf.shape[axis] for axis in weights.TO_TORCH[leaf.ndim])
        for tree in fresh
        for path, leaf in weights.leaves(tree)
    }
    with torch.device("meta"):
        units, x = theirs.build(3), torch.zeros(2, 3, *shape[:2])
    state = torch.nn.ModuleDict(units).state_dict()
    assert expected == {n: tuple(t.shape) for n, t in state.items() if "num_batches" not in n}
    for unit, (other, module) in zip(ours.units, units, strict=True):
        x, shape = module(x), base.output_shape((unit,), shape)
        assert unit[0] == other and x.shape[1:] == (shape[-1], *shape[:-1]), other


def test_the_command_knows_the_backbones_of_the_twin():
    assert set(settings.BACKBONES) == set(torch_backbones.BACKBONES)


def test_bfloat16_is_near_float32_and_is_not_it():
    single, half = (Case("der").theirs(p) for p in ("float32", "bfloat16"))
    for name, value in single[0].items():
        assert name == "accuracy" or 1e-6 < abs(half[0][name] - value) < 0.02
    assert {leaf.dtype for leaf in jax.tree.leaves(half[2])} == {np.dtype("float32")}


@pytest.mark.parametrize("name", ["memo, third task", "der", "replay"])
def test_aligned_heads_agree(name):
    case = Case(name)
    case.twin.align(case.task.num_old)
    aligned = heads.align(case.before["params"]["head"], case.task.num_old)
    template = {"head": case.before["params"]["head"]}
    check_leaves({"head": aligned}, weights.like(template, case.twin.state_dict().get))


def test_growth_keeps_what_was_learned():
    case = Case("memo, third task")
    case.twin.grow(num_new=2, adds_block=True)
    state = case.twin.state_dict()
    old = case.before["params"]["head"]["kernel"].T
    np.testing.assert_array_equal(state["head.weight"][: old.shape[0], : old.shape[1]], old)
    copied = [name for name in state if name.startswith("blocks.3.")]
    assert len(copied) > 10 and state["aux_head.weight"].shape == (3, 64)
    for name in copied:
        assert torch.equal(state[name], state[name.replace("blocks.3.", "blocks.2.")])


@pytest.mark.parametrize("kind, milestones", [("steps", (2, 5)), ("cosine", ())])
def test_learning_rates_agree(kind, milestones):
    schedule = optimizers.Schedule(epochs=7, milestones=milestones, kind=kind)
    ours = optimizers.learning_rate(schedule, 3)
    for step in range(21):
        rate = torch_training.learning_rate(vars(schedule), step, 3)
        assert rate == pytest.approx(float(ours(step)), rel=1e-5)


SIZES = np.array([9, 4, 12, 9, 7, 30, 10])


@pytest.fixture(scope="module")
def twin() -> Twin:
    """The twin in its third task, on random images of seven classes of different sizes."""
    labels = np.repeat(np.arange(7), SIZES)
    pixels = np.random.RandomState(0).randint(0, 256, (len(labels), 8, 8, 3)).astype(np.uint8)
    split, names = Split(pixels, labels.astype(np.int32)), tuple("abcdefg")
    dataset = Dataset("random", split, split, names, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
    schedule = vars(optimizers.Schedule(epochs=1))
    options = vars(Options(1.0, True, False, "previous"))
    made = ("", 0, "none", "convnet2", 1, True, "memo", options, TASKS, (schedule,) * 2, 8, 16)
    return Twin(Job(*made, exemplars=62, allocation="fill", seed=0), dataset, Speed(), CPU)


def test_exemplars_and_their_means_agree(twin):
    """Nine slots a class, eight for the last; two classes have fewer images.

    With three features, unlike with many, an image would be picked again if it could be.
    """
    task, placed = TASKS[2], parallel.replicated(parallel.data_mesh())
    pool = twin.loader.place(twin._train.images, twin._train.labels)
    features = np.random.RandomState(1).standard_normal((len(pool.labels), 3)).astype("f4")
    ours = exemplars.Pool(jnp.asarray(pool.images.numpy()), jnp.asarray(pool.labels.numpy()))
    memory, kept = exemplars.refresh(62, ours, features, task, "herding", "fill", placed)
    theirs, their_features = twin.remember(pool, torch.from_numpy(features), task)
    filled = memory.filled
    assert filled == len(theirs.labels) < 62
    np.testing.assert_array_equal(memory.images[:filled], theirs.images)
    np.testing.assert_array_equal(memory.labels[:filled], theirs.labels)
    means = class_means(their_features, theirs.labels, 7)
    check_leaves([exemplars.class_means(kept, memory.labels, 7)], [means], 1e-6)


def test_the_jobs_backbone_is_cut_as_the_job_says(twin):
    parts = (twin.network.trunk, twin.network.blocks[0])
    names = [[name for name, _ in part.named_children()] for part in parts]
    assert names == [["stage1"], ["stage2", "pool"]]


def test_both_rules_of_prediction_are_counted_exactly(twin, monkeypatch):
    """Against NumPy, image by image; our own counts are held to the same in test_metrics.py."""
    network = Network(torch_backbones.BACKBONES["resnet8"], 3, 3, 7)
    monkeypatch.setattr(twin, "network", network)
    data = twin.test_images(TASKS[2])
    means = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    counts = twin.count(data, TASKS[2], means)
    features, logits, labels = (torch.cat(parts).numpy() for parts in zip(*twin.predict(data)))
    units = np.asarray(exemplars.normalise(features))
    distances = ((units[:, None] - means.numpy()[None]) ** 2).sum(2)
    for rule, scores in enumerate((logits, -distances)):
        order = np.argsort(-scores, axis=1)
        expected = np.zeros((7, 7), int)
        np.add.at(expected, (labels, order[:, 0]), 1)
        np.testing.assert_array_equal(counts.confusion[rule], expected)
        assert counts.top[rule] == (order[:, :5] == labels[:, None]).any(1).sum()


@pytest.mark.parametrize("channels", [1, 3])
def test_both_loaders_give_the_same_plain_batches(channels, monkeypatch):
    monkeypatch.setattr(torch_data, "WORKERS", 0)  # a fork beside JAX's threads could hang
    pixels = np.random.RandomState(0).randint(0, 256, (10, 6, 7, channels)).astype(np.uint8)
    settings = ("none", (0.4,) * channels, (0.3,) * channels, CPU)
    batches = []
    for make in torch_data.LOADERS.values():
        loader = make(*settings)
        batches.append(list(loader.plain(loader.place(pixels, np.arange(10)), 4)))
    for (a, a_labels), (b, b_labels) in zip(*batches, strict=True):
        torch.testing.assert_close(a, b)
        assert torch.equal(a_labels, b_labels) and a.shape[1:] == (channels, 6, 7)


def as_pil(images: torch.Tensor) -> torch.Tensor:
    """The published way to augment, image by image."""
    image = pytest.importorskip("PIL.Image")
    changed = [torch_data.pil_augment(image.fromarray(i.numpy()), "cifar") for i in images]
    return torch.from_numpy(np.stack([np.asarray(c) for c in changed])) / 255


@pytest.mark.parametrize("augment, rounding", [(torch_data.cifar, 1e-6), (as_pil, 1 / 255)])
def test_every_augmented_image_is_a_window_flipped_and_brightened(augment, rounding):
    """Its factor is found by least squares; all windows, both ways round, occur."""
    torch.manual_seed(0)
    image = torch.from_numpy(np.random.RandomState(0).randint(60, 90, (6, 6, 3)).astype("u1"))
    results = augment(image.expand(400, 6, 6, 3).contiguous()).double().reshape(400, -1)
    padded = np.pad(image.numpy(), ((4, 4), (4, 4), (0, 0))) / 255.0
    windows = [padded[i : i + 6, j : j + 6] for i in range(9) for j in range(9)]
    windows = torch.tensor(np.stack([*windows, *[w[:, ::-1] for w in windows]])).reshape(162, -1)
    factors = (results @ windows.T) / (windows**2).sum(1)
    errors = (results[:, None] - factors[..., None] * windows).abs().amax(2)
    least, which = errors.min(1)
    assert least.max() <= 1.01 * rounding
    assert len(which.unique()) > 130 and 170 < (which < 81).sum() < 230
    factors = factors[torch.arange(400), which]
    assert 0.74 < factors.min() < 0.78 and 1.22 < factors.max() < 1.26
    assert torch_data.random_brightness(torch.ones(50, 1, 1, 1)).max() == 1

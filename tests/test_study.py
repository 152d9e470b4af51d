"""Studies: what their files declare, how runs are planned and shared out."""

import importlib
import json
import pathlib

import pytest
from test_budget import fields

from configs import base
from memo_jax import budget, paper, study
from memo_jax.study import forecast, outline

FILES = pathlib.Path(__file__).parents[1] / "configs" / "studies"
NAMES = sorted(path.stem for path in FILES.glob("*.py") if path.stem != "__init__")
SCALES = ("paper", "digits")


def read(name: str, scale: str = "paper", folder=None, **settings) -> study.Study:
    """A study as its file declares it, with settings as from the command line."""
    config = importlib.import_module(f"configs.studies.{name}").get_config(scale)
    changed = {field.replace("__", "."): value for field, value in settings.items()}
    config.update_from_flattened_dict(changed)
    return study.read(config, name, folder and str(folder), changed)


# ---- what the files declare


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_every_study_is_planned_without_its_data(name, scale, tmp_path):
    found = read(name, scale, tmp_path)
    assert found.title
    entries = outline.entries(found)
    for entry in entries:
        assert fields(entry.run.config) == fields(base.get_config())
        assert entry.problem is None and entry.to_run
        assert (entry.run.labels["seed"], entry.run.config.seed) == (1, 1)
    assert not list(tmp_path.iterdir())
    labels = {(e.run.setting, e.run.method, *e.run.labels.items()) for e in entries}
    assert len(labels) == len(entries), "two runs stand at the same place"
    assert scale == "paper" or all(len(entry.plan.tasks) < 4 for entry in entries)


def test_the_default_folder_carries_the_name_and_the_scale():
    assert read("cuts").folder == pathlib.Path("runs/studies/cuts")
    assert read("cuts", "digits").folder == pathlib.Path("runs/studies/cuts-digits")


@pytest.mark.parametrize(
    ("name", "number"), [("settings", 30), ("curve_cifar", 25), ("curve_imagenet100", 30)]
)
def test_exemplars_and_backbones_are_those_of_the_tables(name, number, tmp_path):
    printed = {
        (table.setting, None if table.point == "aligned_to_der" else table.total_mb, method): row
        for table in paper.memory_tables()
        for method, row in table.rows.items()
    }
    off = {}
    entries = outline.entries(read(name, folder=tmp_path))
    assert len(entries) == number
    for entry in entries:
        run, ledger = entry.run, entry.plan.ledger
        row = printed[run.setting, run.labels.get("total_mb"), run.method]
        assert run.config.backbone.name == row["backbone"]
        if ledger.exemplars != row["exemplars"]:
            off[run.setting, run.method] = ledger.exemplars - row["exemplars"]
        assert ledger.total_mb == pytest.approx(
            run.labels.get("total_mb", ledger.total_mb), rel=0.01
        )
    # Where the paper is off its own formula (the notes of tables.json).
    single = {("imagenet100/b50i5", method): -1 for method in ("replay", "icarl", "wa")}
    assert (
        off
        == {
            "settings": {**single, ("imagenet1000/b0i100", "memo"): -1},
            "curve_cifar": {},
            "curve_imagenet100": {**single, ("imagenet100/b50i5", "memo"): 1},
        }[name]
    )


@pytest.mark.parametrize("scale", SCALES)
def test_freezing_has_all_four_combinations_as_labelled(scale):
    found = set()
    for entry in outline.entries(read("freezing", scale)):
        options, labels = entry.plan.options, entry.run.labels
        assert options.train_trunk == (labels["trunk"] == "trained")
        assert options.train_old_blocks == (labels["blocks"] == "trained")
        assert entry.run.method == "memo"
        found.add((entry.run.setting, labels["trunk"], labels["blocks"]))
    assert len(found) == {"paper": 8, "digits": 4}[scale]


def test_base_classes_orders_and_cuts_are_as_labelled():
    sizes = set()
    for entry in outline.entries(read("base_classes")):
        labels = entry.run.labels
        assert [task.num_new for task in entry.plan.tasks[:2]] == [labels["base"], 5]
        assert entry.plan.options.train_trunk == (labels["trunk"] == "trained")
        sizes.add(labels["base"])
    assert sizes == {5, 10, 20, 25, 30, 35, 40, 50}
    orders = read("class_orders").runs
    assert all(r.config.protocol.class_order_seed == r.labels["class_order"] for r in orders)
    assert {r.labels["class_order"] for r in orders} == {10, 20, 30, 40, 50} and len(orders) == 25
    cuts = {e.run.labels["cut"]: e.plan.ledger for e in outline.entries(read("cuts"))}
    assert {"memo", "memo-2", "memo-3"} < set(cuts)
    parameters = [ledger.parameters for ledger in cuts.values()]
    assert parameters == sorted(set(parameters), reverse=True), (
        "less is specialized from cut to cut"
    )
    # All of them fill the memory of DER up to less than an image of 3072 bytes.
    der = 10 * 463_504 * 4 + 2000 * 3072
    assert all(0 <= der - ledger.total_mb * budget.MB < 3072 for ledger in cuts.values())


@pytest.mark.parametrize("scale", SCALES)
def test_rho_shares_its_budgets_as_labelled(scale):
    entries = outline.entries(read("rho", scale))
    for entry in entries:
        ledger, labels = entry.plan.ledger, entry.run.labels
        assert ledger.total_mb == pytest.approx(labels["total_mb"], rel=1e-3)
        assert ledger.exemplar_mb / ledger.total_mb == pytest.approx(labels["share"], abs=1e-3)
    if scale == "paper":
        places = {(e.run.labels["total_mb"], e.run.config.backbone.name) for e in entries}
        names = ("resnet32", "resnet44", "resnet56", "resnet110")
        assert places == {(mb, name) for mb in (12.4, 23.5) for name in names}
        assert {e.run.method for e in entries} == {"replay", "icarl", "wa"}


def test_seeds_multiply_the_runs_and_are_labelled():
    runs = read("cuts", study__seeds=(1, 5)).runs
    assert len(runs) == 2 * len(read("cuts").runs)
    assert {run.config.seed for run in runs} == {1, 5}
    assert all(run.labels["seed"] == run.config.seed for run in runs)
    assert {run.name for run in read("cuts").runs} < {run.name for run in runs}


def test_a_setting_of_the_command_line_holds_for_all_runs():
    runs = read("cuts", schedule__later_epochs=3, dataset__path="elsewhere").runs
    assert {run.config.schedule.later_epochs for run in runs} == {3}
    assert {run.config.dataset.path for run in runs} == {"elsewhere"}


# ---- families, shards, time


def test_runs_whose_base_task_is_the_same_are_a_family():
    families = outline.families(outline.entries(read("curve_cifar")))
    # One network in 15 runs, and der and memo at 23.5 MB, have the same ResNet32.
    assert [len(family) for family in families] == [17, 2, 2, 2, 2]
    settings = outline.families(outline.entries(read("settings")))
    assert [len(family) for family in settings] == [5, 5, 10, 5, 5]  # b50i5 and b50i10 begin alike
    seeds = outline.families(outline.entries(read("cuts", study__seeds=(1, 2))))
    assert {len({e.run.labels["seed"] for e in family}) for family in seeds} == {1}


@pytest.mark.parametrize("name", ["settings", "curve_cifar", "class_orders"])
@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_shards_divide_the_runs_and_split_no_family(name, count):
    entries = outline.entries(read(name))
    parts = [outline.in_shard(entries, f"{i}/{count}") for i in range(1, count + 1)]
    names = [entry.run.name for part in parts for entry in part]
    assert sorted(names) == sorted(entry.run.name for entry in entries)
    terms = [{entry.terms for entry in part} for part in parts]
    assert sum(map(len, terms)) == len(set().union(*terms))
    largest = max(map(len, outline.families(entries)))
    assert max(map(len, parts)) <= max(largest, -(-len(entries) // count) + largest - 1)
    if name == "class_orders" and count == 2:
        assert [len(part) for part in parts] == [15, 10]  # five orders of five runs


@pytest.mark.parametrize(
    ("name", "each"),  # exemplars for each of 10, 20, ..., 90 old classes
    [
        ("7.6mb-icarl-seed1", [200, 100, 66, 50, 40, 33, 28, 25, 22]),  # of 2000
        ("23.5mb-wa-seed1", [500, 371, 247, 185, 148, 123, 106, 92, 82]),  # of 7431
    ],
)
def test_images_to_train_on_are_counted_by_hand(name, each):
    entries = outline.entries(read("curve_cifar", schedule__later_epochs=3))
    plan = next(entry.plan for entry in entries if entry.run.name == name)
    kept = [10 * number * share for number, share in enumerate(each, 1)]
    later = sum(3 * (5000 + number) for number in kept)
    assert forecast.images(plan, 500) == 170 * 5000 + later
    assert forecast.images(plan, 500, first=1) == later
    assert forecast.images(plan, 500, first=9) == 3 * (5000 + kept[-1])


def test_what_has_begun_comes_first_and_lends_its_base_task(tmp_path):
    def begin(name: str, base_from: str | None) -> None:
        run = next(run for run in read("cuts").runs if run.name == name)
        requested = {**json.loads(run.config.to_json_best_effort()), "base_from": base_from}
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"requested": requested}))

    def lenders() -> dict:
        entries = outline.entries(read("cuts", folder=tmp_path))
        queued = outline.queue(entries)
        return {e.run.name: outline.expected_lender(e, queued, entries) for e in queued}

    def all_from(lender: str) -> dict:
        return {name: None if name == lender else tmp_path / lender for name in names}

    names = list(lenders())
    assert lenders() == all_from(names[0])
    begin(names[2], base_from=None)
    assert next(iter(lenders())) == names[2] and lenders() == all_from(names[2])
    # What began with another's base task goes on with it, wherever the study has been moved to.
    begin(names[1], base_from=f"/elsewhere/{names[3]}")
    assert lenders()[names[1]] == tmp_path / names[3]
    (tmp_path / names[2] / "checkpoints" / "task_000").mkdir(parents=True)
    entries = {e.run.name: e for e in outline.entries(read("cuts", folder=tmp_path))}
    found = [outline.lender(entries[name], list(entries.values())) for name in names[:3:2]]
    assert found == [tmp_path / names[2], None]


@pytest.mark.parametrize(
    ("seconds", "words"), [(4.4, "4 s"), (89, "89 s"), (700, "12 min"), (11_100, "3 h 05 min")]
)
def test_durations_are_told_in_words(seconds, words):
    assert forecast.words(seconds) == words

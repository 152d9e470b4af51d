"""Figures of a run. Matplotlib is imported here only, when a figure is drawn."""

import pathlib


def plot_accuracy(path: pathlib.Path, summary: dict) -> None:
    """Draws accuracy over classes seen, by head and by nearest mean, to `path` (PNG)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    lines = {"head": ("#0072b2", "o-", "head"), "nearest_mean": ("#d55e00", "s--", "nearest mean")}
    classes_seen = summary["classes_seen"]
    for rule, values in summary["accuracy"].items():
        (colour, style, label), average = lines[rule], summary["averages"][rule]
        axes.plot(
            classes_seen, values, style, color=colour, label=f"{label}, average {average:.2f} %"
        )
    axes.set(
        title=f"{summary['method'].upper()}, {summary['dataset']} {summary['setting']}, "
        f"{summary['backbone']}, {summary['memory']['total_mb']:.1f} MB",
        xlabel="classes seen",
        ylabel="accuracy over all classes seen (%)",
        ylim=(0, 101),
        xticks=classes_seen if len(classes_seen) <= 12 else None,
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)

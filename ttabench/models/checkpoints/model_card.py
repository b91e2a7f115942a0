"""The model card and the learning curve of a source classifier. Imports no torch."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any


def card(note: Mapping[str, Any]) -> str:
    """The model card (Markdown) of a checkpoint, from its JSON file."""
    rows = {
        "Clean accuracy": f"{note['clean_accuracy']:.2f} % of {note['test_images']:,} test images",
        "Parameters": f"{note['parameters']:,}",
        "Weights": f"`{note['weights']}`",
        "SHA-256 (weights and normalisation)": f"`{note['sha256']}`",
        "Input": f"RGB in 0 … 1; mean {_numbers(note['mean'])}, std {_numbers(note['std'])} inside the model",
        **(_training(note) if "plan" in note else _origin(note)),
        "Versions": ", ".join(f"{name} {version}" for name, version in note["versions"].items()),
    }
    table = "".join(f"| {name} | {value} |\n" for name, value in rows.items())
    about = (
        "A source classifier for test-time adaptation: trained on clean images only, never on corrupted "
        "ones. The weights of the last epoch are kept; none were selected by their test accuracy."
        if "plan" in note
        else "A source classifier for test-time adaptation, trained elsewhere."
    )
    return f"# {note['arch']} on {note['dataset']}\n\n{about}\n\n| | |\n| --- | --- |\n{table}"


def _training(note: Mapping[str, Any]) -> dict[str, Any]:
    processor = f"{note['processor']}, " if "processor" in note else ""
    threads = "1 thread" if note["threads"] == 1 else f"{note['threads']} threads"
    recipe = ", ".join(f"{k} {v}" for k, v in note["recipe"].items() if v and k != "name")
    return {
        "Training images (hash)": f"`{note['training_data'][:16]}`",
        "Recipe": f"{note['recipe']['name']}: {recipe}",
        "Seed": note["seed"],
        "Trained": f"{note['seconds']:.0f} s on {note['device']} "
        f"({note['machine']}, {processor}{threads}, {note['precision']})",
    }


def _origin(note: Mapping[str, Any]) -> dict[str, Any]:
    claimed = "nothing" if note["claimed"] is None else f"{note['claimed']:.2f} %"
    rows = {"Comes from": f"`{note['origin']}`, which claims {claimed}"}
    if "origin_sha256" in note:
        rows["SHA-256 (downloaded file)"] = f"`{note['origin_sha256']}`"
    return rows | {"Warning": note["warning"] or "none"}


def _numbers(values: Any) -> str:
    return " ".join(f"{value:g}" for value in values)


def curve(note: Mapping[str, Any]) -> bytes:
    """The learning curve (PNG): training loss, training accuracy and measured clean test accuracies."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = note["curve"]
    epochs = [point["epoch"] for point in points]
    measured = [point for point in points if "clean_accuracy" in point]
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.add_subplot(xlabel="epoch", ylabel="training loss")
    left.plot(epochs, [point["loss"] for point in points], color="tab:grey", label="training loss")
    right = left.twinx()
    right.set_ylabel("accuracy (%)")
    right.plot(epochs, [point["train_accuracy"] for point in points], label="training images")
    right.plot(
        [point["epoch"] for point in measured], [point["clean_accuracy"] for point in measured],
        marker="o", markersize=3, label="clean test images",
    )  # fmt: skip
    left.set_title(f"{note['arch']} on {note['dataset']}: {note['clean_accuracy']:.2f} % clean")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()

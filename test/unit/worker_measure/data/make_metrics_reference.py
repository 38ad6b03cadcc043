#!/usr/bin/env python3
"""Writes metrics_reference.json: samples, and what NumPy makes of them by the formulas of scikit-learn's and PyTorch's pages, for
metrics_reference_test.cpp. Any Python with NumPy runs it.

    python3 test/unit/worker_measure/data/make_metrics_reference.py
"""
import json
import os

import numpy as np

CLASSES, IGNORED = 6, 255


def class_case(generator, count, classes):
    output = np.round(generator.normal(size=(count, classes)), 3)
    target = generator.integers(0, classes - 1, size=count)  # The last class is never a target.
    target[::9] = IGNORED
    return output, target


def divided(part, whole):
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


def scores(right, predicted, actual, beta):
    """Precision, recall and F-beta of each class; without a denominator 0, as zero_division=0."""
    square = beta * beta
    return {"precision": divided(right, predicted), "recall": divided(right, actual),
            f"f{beta:g}": divided((1 + square) * right, square * actual + predicted)}


def averaged(each, micro, occurs):
    values = {}
    for name, by_class in each.items():
        values[name] = float(by_class[occurs].mean())
        values[name + "_per_class"] = [float(value) if there else None for value, there in zip(by_class, occurs)]
        values[name + "_micro"] = float(micro[name][0])
    return values


def of_classes(output, target, classes):
    counts = target != IGNORED
    output, target = output[counts], target[counts]
    predicted = output.argmax(axis=1)
    matrix = np.zeros((classes, classes))
    for wanted, guess in zip(target, predicted):
        matrix[wanted, guess] += 1
    right, guesses, actual = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
    occurs = guesses + actual > 0
    values = {"accuracy": float((predicted == target).mean())}
    order = np.argsort(-output, axis=1, kind="stable")
    for k in (1, 2, 4):
        values[f"top_{k}"] = float(np.mean([wanted in row[:k] for wanted, row in zip(target, order)]))
    for beta in (1, 2, 0.5):
        total = [np.array([part.sum()]) for part in (right, guesses, actual)]
        values.update(averaged(scores(right, guesses, actual, beta), scores(*total, beta), occurs))
    union = guesses + actual - right
    iou = [float(part / whole) if whole else None for part, whole in zip(right, union)]
    values["iou"] = iou
    values["mean_iou"] = float(np.mean([value for value in iou if value is not None]))
    values["class_accuracy"] = [float(part / whole) if whole else None for part, whole in zip(right, actual)]
    values["confusion_matrix"] = matrix.astype(int).tolist()
    shifted = output - output.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(target)), target]
    values["perplexity"] = float(np.exp(losses.mean()))
    return values


def of_numbers(output, target):
    error = output - target
    residual, variation = (error ** 2).sum(axis=0), ((target - target.mean(axis=0)) ** 2).sum(axis=0)
    return {"mae": float(np.abs(error).mean()), "mse": float((error ** 2).mean()),
            "r2": float((1 - residual / variation).mean())}


def main():
    generator = np.random.default_rng(20)
    cases = []
    for count, classes in ((60, CLASSES), (40, 2)):
        output, target = class_case(generator, count, classes)
        if classes == 2:
            target = np.where(target == IGNORED, IGNORED, generator.integers(0, 2, size=count))
        cases.append({"output": output.tolist(), "target": target.tolist(), "values": of_classes(output, target, classes)})
    numbers = []
    for shape in ((50, 1), (30, 3)):
        target = np.round(generator.normal(5, 3, size=shape), 3)
        output = np.round(target + generator.normal(size=shape), 3)
        numbers.append({"output": output.tolist(), "target": target.tolist(), "values": of_numbers(output, target)})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics_reference.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"ignored": IGNORED, "classes": cases, "numbers": numbers}, file)
        file.write("\n")


if __name__ == "__main__":
    main()

"""Prompts of our own making for the checks and benchmarks: topics in templates, the same ones each time."""

from __future__ import annotations

_TOPICS = (
    "the tides", "a bicycle brake", "sourdough bread", "the French revolution", "how vaccines work", "chess openings",
    "coral reefs", "a hash table", "the water cycle", "jazz improvisation", "compound interest", "a lighthouse keeper",
    "volcanoes", "public libraries", "the Silk Road", "bees in winter", "a suspension bridge", "sleep and memory",
    "the metric system", "tomato plants",
)  # fmt: skip
_TASKS = (
    "Explain {} to a ten-year-old.",
    "Write a short story about {}.",
    "List five facts about {}, one on each line.",
    "What is a common mistake that people make about {}? Answer in three sentences.",
    "Write a short email to a colleague who asked about {}.",
    "Give a step-by-step plan to learn more about {} in one week.",
    "Translate this sentence into French, then into Spanish: I read a book about {} yesterday.",
    "Write four lines of verse about {}.",
    "Compare {} with something from everyday life.",
    "Write a quiz with three questions and answers about {}.",
)
_CODE = (
    "Write a Python function that {}. Include a docstring and type hints.",
    "Write a Python class with tests for something that {}.",
)
_CODE_TOPICS = (
    "merges two sorted lists", "counts the words of a text file", "parses ISO dates", "rotates a matrix by 90 degrees",
    "finds all primes below n", "caches the results of a slow function", "validates an email address",
    "flattens a nested list", "computes a moving average", "reads a CSV file into dictionaries",
)  # fmt: skip

EDIT_FILE = '''import csv
import sys


class Inventory:
    """Items in stock, by name."""

    def __init__(self):
        self.items = {}

    def add(self, name, quantity, price):
        if name in self.items:
            self.items[name]["quantity"] += quantity
        else:
            self.items[name] = {"quantity": quantity, "price": price}

    def remove(self, name, quantity):
        if name not in self.items:
            raise KeyError(name)
        if self.items[name]["quantity"] < quantity:
            raise ValueError("not enough in stock")
        self.items[name]["quantity"] -= quantity
        if self.items[name]["quantity"] == 0:
            del self.items[name]

    def total(self):
        result = 0
        for item in self.items.values():
            result += item["quantity"] * item["price"]
        return result

    def load(self, path):
        with open(path) as file:
            for row in csv.DictReader(file):
                self.add(row["name"], int(row["quantity"]), float(row["price"]))

    def report(self):
        for name, item in sorted(self.items.items()):
            print(name, item["quantity"], item["price"])


if __name__ == "__main__":
    inventory = Inventory()
    inventory.load(sys.argv[1])
    inventory.report()
    print(inventory.total())
'''
EDIT_PROMPT = (
    "Rename the method `remove` to `take` and the method `report` to `print_report` in this file. "
    f"Answer with the whole file and nothing else.\n\n```python\n{EDIT_FILE}```"
)
CHAT_PROMPT = "I have a free weekend and it will rain. What could I do at home that isn't watching a screen?"


def mixed(count: int) -> list[str]:
    """`count` different prompts, prose and code in turn; at most 220."""
    prose = [task.format(topic) for task in _TASKS for topic in _TOPICS]
    code = [task.format(topic) for task in _CODE for topic in _CODE_TOPICS]
    # a step that shares no factor with the length visits all of them, and mixes tasks and topics early
    prose = [prose[(i * 37) % len(prose)] for i in range(len(prose))]
    prompts = []
    for i, prompt in enumerate(prose):
        prompts.append(prompt)
        if i % 10 == 9:
            prompts.append(code[(i // 10) % len(code)])
    if count > len(prompts):
        raise ValueError(f"there are {len(prompts)} prompts")
    return prompts[:count]

"""Options of one generation, by their flat names."""

from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any

import pytest

from edgespec.models.errors import EdgespecError, UsageError
from edgespec.options import GenerationOptions
from edgespec.sampling import SamplingOptions

SAMPLING = {
    "temperature": 0.7,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.05,
    "typical_p": 0.8,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.3,
    "penalty_window": 128,
    "logit_bias": {5: -1.0},
    "seed": 42,
}


def test_without_options_the_defaults_hold() -> None:
    options = GenerationOptions.of()
    assert options == GenerationOptions()
    assert options.sampling == SamplingOptions()
    assert options.max_tokens is None
    assert options.stop == ()


def test_every_sampling_option_has_a_value_in_these_tests() -> None:
    assert set(SAMPLING) == {field.name for field in dataclasses.fields(SamplingOptions)}


@pytest.mark.parametrize("name", SAMPLING)
def test_a_flat_name_reaches_the_sampling_options(name: str) -> None:
    options = GenerationOptions.of(**{name: SAMPLING[name]})
    assert getattr(options.sampling, name) == SAMPLING[name]
    assert options.sampling == dataclasses.replace(SamplingOptions(), **{name: SAMPLING[name]})


def test_both_kinds_of_names_can_be_given_together() -> None:
    cancel = threading.Event()

    def on_prefill(done: int, total: int) -> None:
        pass

    options = GenerationOptions.of(
        max_tokens=7, stop=["a", "b"], prediction="text", deadline_s=1.5, cancel=cancel, on_prefill=on_prefill,
        **SAMPLING,
    )  # fmt: skip
    assert options.sampling == SamplingOptions(**SAMPLING)  # type: ignore[arg-type]
    assert (options.max_tokens, options.stop, options.prediction) == (7, ("a", "b"), "text")
    assert options.deadline_s == 1.5
    assert options.cancel is cancel
    assert options.on_prefill is on_prefill


@pytest.mark.parametrize("name", ["temprature", "max_token", "top", "Temperature", "stop_strings"])
def test_an_unknown_name_is_a_usage_error_that_says_it(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown option '{name}'"):
        GenerationOptions.of(**{name: 1})


def test_an_unknown_name_among_known_ones_is_found() -> None:
    with pytest.raises(UsageError, match="'beam_size'"):
        GenerationOptions.of(temperature=0.5, max_tokens=3, beam_size=4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", -1),
        ("deadline_s", -0.1),
        ("deadline_s", math.nan),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0.0),
        ("min_p", 2.0),
        ("typical_p", 0.0),
        ("repetition_penalty", 0.0),
        ("presence_penalty", math.inf),
        ("frequency_penalty", math.nan),
        ("penalty_window", -1),
        ("seed", -5),
        ("logit_bias", {-3: 1.0}),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_the_option(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        GenerationOptions.of(**{name: value})
    assert isinstance(caught.value, EdgespecError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("name", "value"), [("max_tokens", 0), ("deadline_s", 0), ("deadline_s", math.inf)])
def test_values_at_the_edge_are_taken(name: str, value: Any) -> None:
    assert getattr(GenerationOptions.of(**{name: value}), name) == value


@pytest.mark.parametrize("stop", ["END", ""])
def test_stop_as_one_string_is_a_usage_error(stop: str) -> None:
    # it would be taken letter by letter
    with pytest.raises(UsageError, match="stop"):
        GenerationOptions.of(stop=stop)


@pytest.mark.parametrize("stop", [["a", "b"], ("a", "b"), iter(["a", "b"])])
def test_stops_become_a_tuple(stop: Any) -> None:
    assert GenerationOptions.of(stop=stop).stop == ("a", "b")


@pytest.mark.parametrize("stop", [None, [], ()])
def test_no_stops_are_no_stops(stop: Any) -> None:
    assert GenerationOptions.of(stop=stop).stop == ()


def test_options_cannot_be_changed_afterwards() -> None:
    options = GenerationOptions.of(max_tokens=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.max_tokens = 4  # type: ignore[misc]

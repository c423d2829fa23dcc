"""Options that may be repeated: each takes its values joined by commas, too, in every verb."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import Call

from kernelyard.campaign.baselines import Variant
from kernelyard.cli.main import build, verbs
from kernelyard.cli.run import Retry


def commands(command: Any) -> Iterator[Any]:
    """Those that take options: a group's, and of its groups."""
    for each in command.commands.values():
        yield from commands(each) if hasattr(each, "commands") else [each]


def read(verb: str, *words: str) -> dict[str, Any]:
    """What the verb is called with, by the names of its parameters."""
    command = typer.main.get_command(build(verb)).commands[verb]  # type: ignore[attr-defined]
    if hasattr(command, "commands"):
        name, *words = words  # type: ignore[assignment]
        command = command.commands[name]
    return command.make_context(verb, list(words)).params


@pytest.mark.parametrize(
    ("words", "option", "values"),
    [
        (["analyze", "RUN", "--k", "1,5"], "k", [1, 5]),
        (["analyze", "RUN", "--k", "1,5", "--json", "--k=10", "--k", "100"], "k", [1, 5, 10, 100]),
        (["analyze", "--p", "0.5, 1.5", "RUN"], "p", [0.5, 1.5]),
        (["run", "RUN", "--retry", "infra_error, timeout"], "retry", [Retry.INFRA_ERROR, Retry.TIMEOUT]),
        (["run", "RUN", "--retry=timeout"], "retry", [Retry.TIMEOUT]),
        (["baseline", "--variants", "compile,cudagraphs"], "variants", [Variant.COMPILE, Variant.CUDAGRAPHS]),
        (["baseline", "--variants", "compile", "--variants", "eager"], "variants", [Variant.COMPILE, Variant.EAGER]),
        (["bench", "softmax", "--x", "1000,5000", "--dtype", "fp32,bf16"], "x", [1000, 5000]),
        (["bench", "softmax", "--x-name=B=O,N"], "x_name", ["B=O", "N"]),
        (["bench", "softmax", "--against", "liger, quack"], "against", ["liger", "quack"]),
        (["check", "softmax", "--backend", "cuda,triton", "--dtype", "fp32"], "backend", ["cuda", "triton"]),
        (["problem", "check", "a.py", "--op", "softmax,rope"], "op", ["softmax", "rope"]),
        (["run", "RUN", "--level", "1,3"], "level", ["1", "3"]),
        (["problems", "list", "--level", "1", "--ids", "7", "--ids=9-11, 3"], "ids", ["7", "9-11", "3"]),
    ],
)
def test_values_may_be_joined_by_commas(
    words: list[str], option: str, values: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(read(*words)[option]) == values


def test_every_command_of_every_verb_takes_them_so() -> None:
    kinds = {type(each).__name__ for verb in verbs() for each in commands(typer.main.get_command(build(verb)))}
    assert kinds == {"_Verb"}


def test_a_folder_with_a_comma_in_its_name_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def baselines() -> list[str]:
        return [str(each) for each in read("analyze", "RUN", "--baseline", "A,B")["baseline"]]

    monkeypatch.chdir(tmp_path)
    assert baselines() == ["A", "B"]
    (tmp_path / "A,B").mkdir()
    assert baselines() == ["A,B"]
    assert list(read("analyze", "RUN", "--k", ",".join(["1"] * 300))["k"]) == [1] * 300, "longer than a name may be"


def test_an_option_that_is_given_once_keeps_its_commas() -> None:
    assert read("run", "RUN", "--timeout", "compile=300,check=60")["timeout"] == "compile=300,check=60"


@pytest.mark.parametrize(
    ("words", "option", "wrong"),
    [
        (["analyze", "RUN", "--k", "1,x"], "--k", "int"),
        (["analyze", "RUN", "--k", "1,0"], "--k", "1"),
        (["analyze", "RUN", "--k", "1,"], "--k", "int"),
        (["analyze", "RUN", "--p", "0.5,-1"], "--p", "0"),
        (["analyze", "RUN", "--k"], "--k", "requires an argument"),
        (["run", "RUN", "--retry", "timeout,crashed"], "--retry", "'crashed' is not one of 'infra_error', 'timeout'"),
        (["baseline", "--variants", "eager,inductor"], "--variants", "'inductor' is not one of 'eager', 'compile'"),
        (["check", "softmax", "--backend", "cuda,tritn"], "backend", "'tritn': did you mean 'triton'?"),
    ],
)
def test_a_wrong_one_among_them_is_one_line(
    words: list[str], option: str, wrong: str, tmp_path: Path, kernelyard: Call
) -> None:
    done = kernelyard(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert option in done.stderr and wrong in done.stderr, done.stderr

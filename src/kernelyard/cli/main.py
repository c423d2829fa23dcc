"""`kernelyard VERB ...`: every file beside this one is a verb, its function (or sub-application) of the same name the
command.

Exit codes: 0 done, 1 a verdict is negative, 2 the request could not be understood or cannot be met here,
130 after Ctrl-C, 143 after SIGTERM, 141 where nobody reads the output any more.
"""

import ast
import errno
import importlib
import io
import logging
import os
import pkgutil
import signal
import sys
import threading
import warnings
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from kernelyard.core.errors import UsageError, unknown
from kernelyard.core.imports import uncollected
from kernelyard.core.termination import terminated_like_interrupted
from kernelyard.report.untrusted import visible

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
SUMMARY = "Build a GPU kernel, prove it, time it against the speed of light, judge a stranger's."


def verbs() -> list[str]:
    """The names of the verbs: the modules of this package but this one."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.name != "main")


def build(verb: str | None) -> typer.Typer:
    """The application with that verb, or with the outlines of all: their imports take 5 s, most of it torch's."""
    app = typer.Typer(help=SUMMARY, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_application)
    if verb is None:
        for each in verbs():
            app.command(_spoken(each), help=_outline(each))(_application)
        return app
    with uncollected():
        command = getattr(importlib.import_module(f"kernelyard.cli.{verb}"), verb)
    if isinstance(command, typer.Typer):
        for one in command.registered_commands:
            one.cls = _Verb
        app.add_typer(command, name=verb)
    else:
        app.command(_spoken(verb), cls=_Verb)(command)
    return app


class _Verb(TyperCommand):
    """A verb whose options that may be repeated take their values joined by commas, too: `--k 1,5` is `--k 1 --k 5`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeated = {name for option in self.params if option.multiple for name in option.opts}
        return super().parse_args(ctx, list(_repeated(args, repeated)))


def _repeated(words: list[str], options: Collection[str]) -> Iterator[str]:
    """The words with each of `options` before every one of its values."""
    rest = iter(words)
    for word in rest:
        option, equals, values = word.partition("=")
        given = values if equals else next(rest, None) if option in options else None
        if option in options and given is not None:
            yield from (f"{option}={value}" for value in _apart(given))
        else:
            yield word


def _apart(values: str) -> list[str]:
    with suppress(OSError):  # too long for a name
        if Path(values).exists():
            return [values]  # a folder's name may have a comma
    return [value.strip() for value in values.split(",")]


def _spoken(verb: str) -> str:
    """A verb that is a Python keyword or builtin keeps its plain name on the command line: `list_` is `list`."""
    return verb.rstrip("_")


def _outline(verb: str) -> str:
    """What the verb's function says of itself or, where it is a group, its file after the usage; read and not run."""
    tree = ast.parse(Path(__file__).with_name(f"{verb}.py").read_text(encoding="utf-8"))
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == verb), None)
    outline = ast.get_docstring(function or tree) or ""
    if function is None:
        outline = outline.partition(": ")[2]
    return outline[:1].upper() + outline[1:]


def _application() -> None:
    """Build a GPU kernel, prove it, time it against the speed of light, judge a stranger's."""


def main() -> None:
    """Run the command line; UsageError is one line on stderr and exit code 2."""
    _quiet_inductor()
    # cuda:1 is the second of nvidia-smi's, whose nodes a worker is granted by; by itself CUDA has the fastest first.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no letter for something is no reason to lose a verdict.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with terminated_like_interrupted() as terminated:
            code = _ended(terminated)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`); nothing more to say.
        _write_nowhere(1, 2)
        code = 128 + signal.SIGPIPE
    except OSError as error:
        if not _is_full(error):
            raise
        # Nor can it be said that nothing can be written.
        _write_nowhere(1, 2)
        code = 2
    sys.exit(code)


def _is_full(error: OSError) -> bool:
    """Whether it is of a stream of ours, whose disk or device takes no more."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO)


def _open_what_is_closed() -> None:
    """A closed stream (`>&-`) is nowhere: Python has None in its place, and the next file to be opened its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _write_nowhere(*descriptors: int) -> None:
    """What is still to be written to them is lost, without an error at shutdown."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)


def _ended(terminated: threading.Event) -> int:
    """How it ended, as an exit code, and said. Raises BrokenPipeError where nobody reads what is written."""
    # What a verb that is interrupted has to say, by its context's `obj`: typer keeps the code of Ctrl-C alone.
    notes: list[str] = []
    wanted = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    named = {_spoken(verb): verb for verb in verbs()}
    try:
        if wanted is not None and sys.argv[1] == wanted and wanted not in named:
            raise unknown("command", wanted, named)
        # Not standalone: a wrong argument is one line here, not a usage text and a box.
        application = build(named.get(wanted or ""))
        words = joined_source(sys.argv[1:])
        code = application(words, prog_name="kernelyard", standalone_mode=False, obj=notes) or 0
        # What `print` still holds: at shutdown nobody could catch that its reader is gone.
        print(end="", flush=True)
    except UsageError as error:
        # It may name what a stranger's file holds.
        print(f"kernelyard: {visible(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as end:
        # Typer and rich make 1 of a reader who is gone, and 1 is a verdict.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except OSError as error:
        if _is_full(error):
            _write_nowhere(1)
            print(f"kernelyard: what was to be printed cannot be written: {error.strerror}", file=sys.stderr)
            return 2
        # A file that cannot be had; without a name it is a fault of ours, or a reader who is gone.
        if error.filename is None:
            raise
        print(f"kernelyard: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except Exception as error:
        # Typer's own usage errors; newer ones carry their copy of click, so the class cannot be named.
        if not hasattr(error, "format_message"):
            raise
        line = " ".join(error.format_message().split())
        print(f"kernelyard: {line}" if line else SUMMARY, file=sys.stderr)
        return 2
    if code == INTERRUPTED:
        # Typer makes this code of Ctrl-C and says nothing.
        code, how = (TERMINATED, "terminated") if terminated.is_set() else (INTERRUPTED, "interrupted")
        print(f"kernelyard: {'; '.join([how, 'what was finished is kept', *notes])}", file=sys.stderr)
    return code


def joined_source(words: list[str]) -> list[str]:
    """`--source local PATH`, which no parser of options takes, as `--source PATH`.

    Raises UsageError without a PATH, and for a source that is none: of a misspelt `local` the parser would say that the
    PATH behind it is an argument too many.
    """
    joined: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, source = word.partition("=")
        if option == "--source" and equals:
            word = f"--source={_source(source, rest)}"
        elif joined[-1:] == ["--source"]:
            word = _source(word, rest)
        joined.append(word)
    return joined


def _source(word: str, rest: Iterator[str]) -> str:
    """A path or `huggingface`: what a word after `--source` means, with the next of `rest` where that is `local`."""
    if word == "local":
        path = next(rest, "")
        if not path or path.startswith("-"):
            raise UsageError("--source local needs the path of a checkout of KernelBench; or --source huggingface")
        return path
    if word != "huggingface" and not (word and Path(word).exists()):
        raise UsageError(f"--source {word!r}: expected local PATH, a checkout of KernelBench, or huggingface")
    return word


def _quiet_inductor() -> None:
    """Its advice on how to tune torch.compile is for those who write models; here it would tear the tables apart."""
    warnings.filterwarnings("ignore", module=r"torch\._(inductor|dynamo|functorch)")
    for name in ("torch._inductor", "torch._dynamo"):
        logging.getLogger(name).setLevel(logging.ERROR)


if __name__ == "__main__":
    main()

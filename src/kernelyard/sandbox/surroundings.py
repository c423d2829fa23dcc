"""What of the judge's machine a sandboxed process gets to see: files by allow-list, variables by allow-list."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# System libraries, compilers and their settings. /etc by name: as a whole it holds shadow, keys and host certificates.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/cuda", "/opt/rocm"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/OpenCL", "/etc/nvidia"),
)
_PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PACKAGE = Path(__file__).resolve().parents[1]
IMPORT_ROOT = _PACKAGE.parent
"""Where kernelyard is imported from. Python lists it to find the package and may read nothing else in it."""


def readable_paths(extra: Iterable[Path] = ()) -> list[Path]:
    """Absolute paths, files and directories that exist, that a process inside may read and execute.

    The interpreter with its packages, kernelyard, system libraries, `extra`; the working directory and the home
    directory of the judge are not among them unless one of these lies there.
    """
    paths = [Path(text) for text in _SYSTEM]
    paths += [Path(text) for text in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)]
    paths += _interpreter_links()
    paths += [Path(text) for text in site.getsitepackages()]
    paths += _python_path()
    paths.append(_PACKAGE)
    for variable in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_HOME"):
        paths += [Path(text) for text in os.environ.get(variable, "").split(os.pathsep) if text]
    paths += extra
    present = [Path(os.path.abspath(path)) for path in paths if path.exists()]  # noqa: PTH100 - keeps symlinks
    # A link is of use only where its target is there too.
    both = dict.fromkeys([*present, *(path.resolve() for path in present)])
    return [path for path in both if path != Path("/")]


def environment(private: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a process whose private writable directory is `private`; `extra` has the last word."""
    variables = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "LANG": "C.UTF-8",
        "USER": "nobody",
        "LOGNAME": "nobody",
        "HOME": private,
        "TMPDIR": private,
        "XDG_CACHE_HOME": f"{private}/cache",
        "TRITON_CACHE_DIR": f"{private}/triton",
        "TORCH_EXTENSIONS_DIR": f"{private}/extensions",
        "TORCHINDUCTOR_CACHE_DIR": f"{private}/inductor",
        "CUDA_CACHE_PATH": f"{private}/cuda",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(IMPORT_ROOT), *map(str, _python_path())])),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    variables |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return variables | dict(extra)


def _python_path() -> list[Path]:
    """Where this process finds packages besides its prefix: PYTHONPATH and the user's site.

    Not the rest of sys.path, whose first entry is the directory of a script or the working directory.
    """
    entries = [Path(text).absolute() for text in os.environ.get("PYTHONPATH", "").split(os.pathsep) if text]
    if site.ENABLE_USER_SITE:
        entries.append(Path(site.getusersitepackages()))
    return [path for path in entries if path.exists() and path != Path.cwd()]


def _interpreter_links() -> list[Path]:
    """Every file on the way from sys.executable to the real interpreter."""
    links = [Path(sys.executable)]
    while links[-1].is_symlink() and len(links) < 16:
        links.append(links[-1].parent / links[-1].readlink())
    return links

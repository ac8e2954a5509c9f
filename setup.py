"""Builds the CPU kernels beside the Python code; everything else is in pyproject.toml.

A plain shared library, loaded by ctypes: one build serves every version of Python. setuptools rather than CMake, since
the sources need no flags of their own (functions name the instructions that they use), and since an optional extension
may fail to build without failing the installation.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = "runtimes/kernels"
UNIX = ["-std=c++17", "-O3", "-g0", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
MICROSOFT = ["/std:c++17", "/O2", "/fp:precise", "/EHsc"]


class BuildLibrary(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
        return str(Path(*fullname.split("."))) + suffix

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols  # not the one that Python's own modules have

    def build_extension(self, ext: Extension) -> None:
        microsoft = self.compiler.compiler_type == "msvc"
        ext.extra_compile_args = MICROSOFT if microsoft else UNIX
        ext.extra_link_args = [] if microsoft else ["-pthread"]
        super().build_extension(ext)


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        *_, platform = super().get_tag()
        return "py3", "none", platform


setup(
    ext_modules=[
        Extension(
            "edgespec.runtimes.kernels.libedgespec",
            sources=sorted(str(path) for path in Path(FOLDER).glob("*.cpp")),
            depends=sorted(str(path) for path in Path(FOLDER).glob("*.h")),
            language="c++",
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": AnyPython},
)

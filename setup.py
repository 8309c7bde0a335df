"""Puts the built-in split and the recorded judge into the wheel, so that `rm-gallery demo` works
outside a checkout.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithSplit(build_py):
    """Copies the files of data/ that are data to rm_gallery/_data in the build folder."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if getattr(self, "editable_mode", False):
            return  # an editable install finds the split beside the package
        target = Path(self.build_lib) / "rm_gallery" / "_data"
        target.mkdir(parents=True, exist_ok=True)
        for kind in ("*.parquet", "llmbar.*"):
            for file in sorted((Path(__file__).parent / "data").glob(kind)):
                shutil.copy2(file, target / file.name)


setup(cmdclass={"build_py": BuildWithSplit})

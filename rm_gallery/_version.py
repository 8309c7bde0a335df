"""The version of the package; modules import it from here, so that none imports the package's face."""

__version__ = "0.1.0"

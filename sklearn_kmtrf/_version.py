"""The version of the package: the only place where it stands."""

__version__ = "0.1.0.dev0"

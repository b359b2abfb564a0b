"""The version of the package and of the PyTorch it was built for. Read by the build; loads nothing."""

__version__ = "0.1.0"
TORCH_MINOR = "2.13"

"""What tests of the operator need: routings, inputs, comparison with the reference, and :func:`auto_prepare`.

Nothing here is imported by the operator itself.
"""

from .auto_prepare import auto_prepare

__all__ = ["auto_prepare"]

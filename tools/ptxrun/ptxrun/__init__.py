"""Runs PTX for sm_90a, sm_100a and sm_103a on the CPU and checks it for what hardware would hide."""

from ptxrun.api import CensusLine, Launch, Module, Parameter, finding_codes, run
from ptxrun.memory import Buffer, Memory
from ptxrun.report import BufferCounters, Finding, LaunchCounters, Place, Report
from ptxrun.tensor_map import TensorMap

__all__ = [
    "Buffer",
    "BufferCounters",
    "CensusLine",
    "Finding",
    "Launch",
    "LaunchCounters",
    "Memory",
    "Module",
    "Parameter",
    "Place",
    "Report",
    "TensorMap",
    "finding_codes",
    "run",
]

"""Every fault planted in the shipped PTX spoils a call: a finding that names it, or wrong bits."""

from __future__ import annotations

from functools import cache

import pytest
from ptx_cases import crowded, sparse
from ptx_faults import Fault, Subject
from sm90_faults import FUSED as SM90_FUSED
from sm90_faults import ROUTED as SM90_ROUTED
from sm90_faults import STAGED as SM90_STAGED
from sm90_faults import WIDE as SM90_WIDE
from sm100_faults import FUSED, STAGED, TWO_ATOMS, TWO_SCALE_ATOMS

FAULTS = {
    "sm90_fused": SM90_FUSED,
    "sm90_routed": SM90_ROUTED,
    "sm90_staged": SM90_STAGED,
    "sm90_wide": SM90_WIDE,
    "sm100_fused": FUSED,
    "sm100_staged": STAGED,
    "sm100_two_atoms": TWO_ATOMS,
    "sm100_two_scale_atoms": TWO_SCALE_ATOMS,
}
QUICK = {  # one of each kind for sm_100a; its others are long tests
    "no_proxy_fence_for_tokens",
    "epilogue_not_fenced_after_mma",
    "fc1_sums_not_awaited",
    "finalise_does_not_wait",
    "stage_arrived_phase",
    "expects_16_bytes_less",
    "commits_to_the_next_slot",
    "weight_scale_column",
    "work_counter_starts_at_one",
    "tile_counters_not_zero",
}


@cache
def subject(name: str) -> Subject:
    subjects = {
        "sm90_fused": lambda: Subject(sparse(2, 3), "90a"),
        "sm90_routed": lambda: Subject(sparse(40, 3), "90a", sm_count=1),
        "sm90_staged": lambda: Subject(sparse(65, 3), "90a"),
        "sm90_wide": lambda: Subject(sparse(321, 3), "90a"),
        "sm100_fused": lambda: Subject(sparse(2, 3), "100a"),
        "sm100_staged": lambda: Subject(sparse(65, 3), "100a"),
        "sm100_two_atoms": lambda: Subject(crowded(300, {1: 12}), "100a"),
        "sm100_two_scale_atoms": lambda: Subject(crowded(6000, {3: 140}), "100a"),
    }
    return subjects[name]()


def case(name: str, fault: Fault) -> object:
    quick = name.startswith("sm90") or fault.name in QUICK
    return pytest.param(name, fault, id=f"{name}-{fault.name}", marks=[] if quick else [pytest.mark.full])


@pytest.mark.parametrize(("name", "fault"), [case(name, fault) for name, faults in FAULTS.items() for fault in faults])
def test_a_fault_is_seen(name: str, fault: Fault) -> None:
    verdict = subject(name).with_fault(fault)
    print(f"{name}, {fault.name}: {', '.join(sorted(verdict.codes)) or 'nothing'}")
    assert verdict.codes & fault.codes, str(verdict.report)

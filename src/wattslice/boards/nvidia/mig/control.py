"""Bring a board into a layout and back: difference, placement, read-back, rollback.

Only the named board is touched, it is never reset, and instances that are already right stay.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from wattslice.boards.base import MigPolicy
from wattslice.boards.errors import (
    BoardBusyError,
    BoardError,
    BoardPermissionError,
    LayoutImpossibleError,
    LayoutMismatchError,
)
from wattslice.boards.nvidia import holders, nvml
from wattslice.boards.nvidia.mig import advice, planner
from wattslice.boards.nvidia.mig.capabilities import read_capabilities
from wattslice.boards.nvidia.mig.ids import CiProfileId, GpuInstanceId
from wattslice.boards.nvidia.mig.journal import Journal
from wattslice.boards.nvidia.mig.state import CiState, GiState, read_instances
from wattslice.boards.nvidia.mig.target import (
    BoardState,
    Reading,
    WantedCi,
    WantedGi,
    difference,
    wanted_state,
)
from wattslice.boards.nvidia.nvml_errors import (
    NvmlError,
    NvmlInsufficientResourcesError,
    NvmlInUseError,
    NvmlNoPermissionError,
    NvmlNotFoundError,
)
from wattslice.config.layout import Layout

# How long an instance may stay "in use" after its last process: monitors such as DCGM let go
# within 10 s of a MIG event.
BUSY_WAIT_S = 12.0
# How long a created instance may take to appear as a MIG device with a UUID.
SETTLE_S = 10.0
_POLL_S = 0.1
_NO_PERMISSION = 4
_FULL = "full"


class MigModePendingError(BoardError):
    """The driver has taken note of the MIG mode, but it is not in force yet."""


class MigController:
    """Changes one board, addressed by UUID, under a policy.

    `off`: only `full`, MIG must be off. `existing`: what is there is verified, nothing changes.
    `managed`: the board is changed, and put back by `restore`.
    """

    def __init__(
        self,
        uuid: str,
        policy: MigPolicy,
        journal: Journal,
        *,
        busy_wait_s: float = BUSY_WAIT_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self.uuid = uuid
        self.policy = policy
        self._journal = journal
        self._busy_wait_s = busy_wait_s
        self._settle_s = settle_s

    # --- reading -------------------------------------------------------------------------------

    def device(self) -> nvml.Device:
        nvml.ensure_open()
        return nvml.device_by_uuid(self.uuid)

    def read(self) -> Reading:
        """Look at the board. Needs no privilege."""
        device = self.device()
        capabilities = read_capabilities(device)
        mode = capabilities.mode
        instances: tuple[GiState, ...] = ()
        if mode is not None and mode.current:
            instances = read_instances(device, capabilities.geometry)
        return Reading(capabilities, instances)

    def snapshot(self) -> BoardState:
        """The state to return to: from before an unfinished change, if there was one."""
        entry = self._journal.read() if self.policy == "managed" else None
        if entry is not None:
            return BoardState.from_json(entry.original)
        return self.read().state()

    # --- planning ------------------------------------------------------------------------------

    def plan(self, layout: Layout, reading: Reading) -> planner.MigPlan | None:
        """Places for a layout, or None for `full`.

        Raises LayoutImpossibleError; nothing is changed.
        """
        if layout.slices == (_FULL,):
            return None
        if layout.boards > 1:
            why = f"it is of {layout.boards} boards, and this is one"
            raise LayoutImpossibleError(str(layout), why, [_FULL])
        if reading.mig_on is None:
            raise LayoutImpossibleError(str(layout), "the board has no MIG", [_FULL])
        if not reading.geometry.profiles:
            why = "; ".join(reading.capabilities.notes) or "the driver lists no profiles"
            raise LayoutImpossibleError(str(layout), why)
        return planner.plan(reading.geometry, layout, reading.placed())

    # --- changing ------------------------------------------------------------------------------

    def ensure(self, layout: Layout) -> Reading:
        """Make the layout hold and read it back; a no-op when it already holds.

        On any failure the board is put back into the state it was found in. Raises BoardError
        and its kinds, LayoutImpossibleError before anything is changed.
        """
        with self._translated("ensure"):
            reading = self.read()
            plan = self.plan(layout, reading)
            if self._holds(plan, reading):
                return reading
            if self.policy != "managed":
                raise LayoutMismatchError(
                    advice.not_managed(self.uuid, self.policy, layout, plan, reading)
                )
            self._change(lambda: self._ensure_now(layout, plan))
            return self.read()

    def _ensure_now(self, layout: Layout, plan: planner.MigPlan | None) -> None:
        if plan is None:
            self._drive(BoardState(False))
            return
        self._set_mode(True)
        # Planned again, now that the driver says what it has: with MIG off some cannot.
        fresh = self.plan(layout, self.read())
        if fresh is not None:
            self._drive(wanted_state(fresh))

    def restore(self, state: BoardState) -> None:
        """Put the board back into a state; a no-op when it already is in it."""
        with self._translated("restore"):
            reading = self.read()
            if self._reached(state, reading):
                self._journal.end()
                return
            if self.policy != "managed":
                raise LayoutMismatchError(
                    f"board {self.uuid} is not as it was found ({reading.state()}, found: "
                    f"{state}); with the MIG policy {self.policy!r} nothing is changed, so "
                    "somebody else did it"
                )
            self._change(lambda: self._drive(state))
            self._journal.end()

    def _change(self, act: Callable[[], None]) -> None:
        """Run a change; on any failure go back to the state from before it.

        What a killed process leaves is recorded in the journal, which stays until a change or a
        restore has come to its end. An open record of an earlier process says what to go back to.
        """
        original = self.snapshot()
        if any(i.start is None for i in original.instances):
            raise NvmlNoPermissionError(_NO_PERMISSION, "listing the GPU instances")
        self._journal.begin(original.to_json())
        try:
            act()
        except BaseException as error:
            try:
                if not self._reached(original, self.read()):
                    self._drive(original)
            except (BoardError, NvmlError) as second:
                raise BoardError(
                    f"{self._explain(error)}; and the board could not be put back into "
                    f"{original}: {self._explain(second)}. Run the target `restore` when the "
                    "cause is gone"
                ) from error
            self._journal.end()
            raise
        self._journal.end()

    def _drive(self, target: BoardState) -> None:
        """Bring the board into a state, step by step, and check that it is there."""
        if target.mig_on is None:
            return
        if not target.mig_on:
            if self.read().mig_on:
                self._apply(())
            self._set_mode(False)
        else:
            self._set_mode(True)
            self._apply(target.instances)
        self._verify(target)

    def _apply(self, wanted: Sequence[WantedGi]) -> None:
        if any(w.start is None for w in wanted):
            raise BoardError(
                f"the state to go back to was read without privilege on board {self.uuid}, so the "
                "places of its instances are not known"
            )
        todo = difference(self.read().instances, wanted)
        leaving = [*todo.destroy, *(gi for gi, _ in todo.recut)]
        self._refuse_busy(leaving)
        for gi in leaving:
            self._destroy_cis(gi)
        for gi in todo.destroy:
            self._destroy_gi(gi)
        for gi, want in todo.recut:
            self._create_cis(gi.gi_id, want)
        for want in todo.create:
            self._create(want)

    def _create(self, want: WantedGi) -> None:
        assert want.start is not None and want.size is not None
        handle = nvml.create_gpu_instance(self.device(), want.profile_id, want.start, want.size)
        self._create_cis(nvml.gi_info(handle).gi_id, want)

    def _create_cis(self, gi_id: GpuInstanceId, want: WantedGi) -> None:
        for ci in sorted(want.compute_instances, key=lambda c: -c.compute_slices):
            instance = self._instance(gi_id)
            if instance is None:
                raise LayoutMismatchError(f"the instance {want} is gone; somebody removed it")
            profile = _ci_profile(nvml.ci_profiles(instance), ci)
            if profile is None:
                raise LayoutImpossibleError(
                    str(want), f"no compute instance of {ci.compute_slices} slices in {want.name}"
                )
            nvml.create_compute_instance(instance, profile)

    def _destroy_cis(self, gi: GiState) -> None:
        for ci in gi.compute_instances:
            self._until_free(functools.partial(self._destroy_ci, gi.gi_id, ci), gi)

    def _destroy_ci(self, gi_id: GpuInstanceId, ci: CiState) -> None:
        instance = self._instance(gi_id)
        if instance is None:
            return
        for profile in nvml.ci_profiles(instance):
            for handle in nvml.compute_instances(instance, profile.profile_id):
                if nvml.ci_info(handle).ci_id == ci.ci_id:
                    nvml.destroy_compute_instance(handle)
                    return

    def _destroy_gi(self, gi: GiState) -> None:
        def destroy() -> None:
            instance = self._instance(gi.gi_id)
            if instance is not None:
                nvml.destroy_gpu_instance(instance)

        self._until_free(destroy, gi)

    def _instance(self, gi_id: GpuInstanceId) -> nvml.GpuInstance | None:
        """A fresh handle of a GPU instance, through the board's own list."""
        device = self.device()
        for info in nvml.gi_profiles(device):
            for handle in nvml.gpu_instances(device, info.profile_id):
                if nvml.gi_info(handle).gi_id == gi_id:
                    return handle
        return None

    def _until_free(self, act: Callable[[], None], gi: GiState) -> None:
        """Run a destruction; wait a while for clients that are just letting go."""
        deadline = time.monotonic() + self._busy_wait_s
        while True:
            try:
                act()
            except NvmlNotFoundError:
                return  # gone already, which is what was wanted
            except NvmlInUseError:
                if time.monotonic() >= deadline:
                    raise BoardBusyError(
                        f"instance {gi} of board {self.uuid} is in use by: "
                        f"{self._holders(gi.gi_id)}; end it and try again"
                    ) from None
                time.sleep(_POLL_S)
            else:
                return

    def _refuse_busy(self, leaving: Sequence[GiState]) -> None:
        """Refuse before the first step if an instance that has to go computes something.

        A process that has just ended may be listed a little longer, so this waits a while.
        """
        deadline = time.monotonic() + self._busy_wait_s
        while busy := self._busy(leaving):
            if time.monotonic() >= deadline:
                raise BoardBusyError(
                    f"board {self.uuid}: {'; '.join(busy)}; end it and try again, nothing was "
                    "changed"
                )
            time.sleep(_POLL_S)

    def _busy(self, leaving: Sequence[GiState]) -> list[str]:
        ids = {gi.gi_id: gi for gi in leaving}
        handles = nvml.mig_devices(self.device()) if ids else ()
        found = []
        for handle in handles:
            gi = ids.get(nvml.mig_gpu_instance_id(handle))
            if gi is not None and (holding := holders.computing(handle)):
                found.append(f"instance {gi} has to go, but {'; '.join(map(str, holding))}")
        return found

    # --- mode ----------------------------------------------------------------------------------

    def _set_mode(self, on: bool) -> None:
        mode = nvml.mig_mode(self.device())
        if mode.current == on:
            return
        word = "on" if on else "off"
        try:
            activation = nvml.set_mig_mode(self.device(), on)
        except NvmlInUseError:
            activation = advice.IN_USE
        # Handles are stale now, and the driver needs a moment on boards that it resets.
        after = nvml.mig_mode(self.device())
        deadline = time.monotonic() + self._settle_s
        while activation == 0 and after.current != on and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            after = nvml.mig_mode(self.device())
        if after.current == on:
            return
        why = self._pending_reason(activation)
        if after.pending != after.current:  # take the wish back: a reboot must not surprise
            with contextlib.suppress(NvmlError):
                nvml.set_mig_mode(self.device(), after.current)
        raise MigModePendingError(
            f"MIG mode {word} was recorded for board {self.uuid}, but is not in force: {why}. The "
            "request was taken back"
        )

    def _pending_reason(self, activation: int) -> str:
        device = self.device()
        if activation == advice.IN_USE:
            return advice.mode_pending(activation, held_by=self._holders())
        try:
            resetless = nvml.field_value(device, nvml.FIELD_RESETLESS_MIG) == 1
        except NvmlError:
            resetless = False
        return advice.mode_pending(activation, pci=nvml.pci(device).bus_id, resetless=resetless)

    # --- checking ------------------------------------------------------------------------------

    def _verify(self, target: BoardState) -> None:
        deadline = time.monotonic() + self._settle_s
        while True:
            reading = self.read()
            if self._reached(target, reading) and reading.all_visible():
                return
            if time.monotonic() >= deadline:
                raise LayoutMismatchError(
                    f"board {self.uuid} was told to become {target}, but reads back as "
                    f"{reading.state()}"
                    + ("" if reading.all_visible() else " with instances that are no MIG device")
                )
            time.sleep(_POLL_S)

    @staticmethod
    def _reached(target: BoardState, reading: Reading) -> bool:
        if target.mig_on is None or reading.mig_on is None:
            return target.mig_on == reading.mig_on
        if target.mig_on != reading.mig_on:
            return False
        starts = [w.start for w in target.instances] + [gi.start for gi in reading.instances]
        if None in starts:  # without privilege places are unknown: compare shapes
            present = Counter((gi.profile_id, gi.ci_slices) for gi in reading.instances)
            return present == Counter(w.shape for w in target.instances)
        todo = difference(reading.instances, target.instances)
        return not (todo.destroy or todo.create or todo.recut)

    @staticmethod
    def _holds(plan: planner.MigPlan | None, reading: Reading) -> bool:
        """Whether the layout is there, at whatever places. Needs no privilege."""
        if plan is None:
            return not reading.mig_on
        if not reading.mig_on or not reading.all_visible():
            return False
        wanted = Counter((i.profile.profile_id, i.ci_slices) for i in plan.instances)
        present = Counter((gi.profile_id, gi.ci_slices) for gi in reading.instances)
        return wanted == present

    # --- saying why ----------------------------------------------------------------------------

    def _holders(self, gi_id: GpuInstanceId | None = None) -> str:
        device = self.device()
        handles = tuple(
            handle
            for handle in nvml.mig_devices(device)
            if gi_id is not None and nvml.mig_gpu_instance_id(handle) == gi_id
        )
        return holders.describe(
            device,
            handles,
            simulated=nvml.is_simulated(),
            own_pids=frozenset({os.getpid()}),
        )

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """NVML's errors as the board's, with what to do about them."""
        try:
            yield
        except NvmlError as error:
            raise self._board_error(error, what) from error

    def _explain(self, error: BaseException) -> str:
        if isinstance(error, NvmlError):
            return str(self._board_error(error, "change"))
        return str(error) or type(error).__name__

    def _board_error(self, error: NvmlError, what: str) -> BoardError:
        if isinstance(error, NvmlNoPermissionError):
            return BoardPermissionError(advice.not_permitted(self.uuid, what, error.reason))
        if isinstance(error, NvmlInsufficientResourcesError):
            return LayoutMismatchError(
                f"the driver found no room on board {self.uuid} ({error.reason}), though by its "
                f"own placements there is some; present: {self._present()}. Another client may "
                "have changed the board at the same time"
            )
        if isinstance(error, NvmlInUseError):
            return BoardBusyError(
                f"{what} of board {self.uuid}: in use by: {self._holders_or_none()} "
                f"({error.reason})"
            )
        return BoardError(f"{what} of board {self.uuid} failed: {error}")

    def _present(self) -> str:
        try:
            return str(self.read().state())
        except NvmlError as error:
            return f"unknown ({error.reason})"

    def _holders_or_none(self) -> str:
        try:
            return self._holders()
        except NvmlError:
            return "an unknown client"


def _ci_profile(profiles: Sequence[nvml.CiProfileInfo], want: WantedCi) -> CiProfileId | None:
    """The compute instance profile: the one that was there, or by its slices.

    Where two have the same slices (Hopper lists two of one slice in a 2g), the one that fills its
    instance is that with more SMs, a part of an instance is the plain one with fewer.
    """
    if want.profile_id is not None:
        known = [p for p in profiles if p.profile_id == want.profile_id]
        if known:
            return known[0].profile_id
    fitting = [p for p in profiles if p.compute_slices == want.compute_slices]
    if not fitting:
        return None
    fills = want.compute_slices == max(p.compute_slices for p in profiles)
    choose = max if fills else min
    return choose(fitting, key=lambda p: p.sm_count).profile_id

"""Who holds a board, found in a made-up /proc."""

import pytest

from wattslice.boards.nvidia import holders


@pytest.fixture
def proc(tmp_path):
    def add(pid, name, *files):
        directory = tmp_path / str(pid)
        (directory / "fd").mkdir(parents=True)
        (directory / "comm").write_text(name + "\n")
        for number, target in enumerate(files):
            (directory / "fd" / str(number)).symlink_to(target)

    add(10, "python", "/dev/nvidia0", "/dev/null")
    add(11, "nv-hostengine", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap2")
    add(12, "bash", "/dev/null")
    add(13, "other", "/dev/nvidia10")
    add(14, "nvidia-persiste", "/dev/nvidia0")
    (tmp_path / "modules").write_text("nvidia_drm 1 0 - Live\nnvidia 1 1 - Live\n")
    (tmp_path / "self").mkdir()
    return tmp_path


def test_t15_open_device_files_give_the_holders_away(proc):
    found, hidden = holders.open_files(0, proc, frozenset({10}))
    assert [h.pid for h in found] == [11, 14]
    assert hidden == 0
    assert "nvidia-dcgm" in str(found[0])  # what to do about the monitor
    assert "/dev/nvidia-caps/nvidia-cap2" in str(found[0])
    assert "-pm 0" in str(found[1])


def test_nvidia10_is_another_board_than_nvidia1(proc):
    assert holders.open_files(1, proc)[0][0].pid == 11  # a capability may be of any board
    assert [h.pid for h in holders.open_files(10, proc)[0]] == [11, 13]


def test_processes_of_others_are_counted_as_hidden(proc, monkeypatch):
    from pathlib import Path

    iterdir = Path.iterdir

    def refuse(self):
        if self == proc / "14" / "fd":
            raise PermissionError
        return iterdir(self)

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert holders.open_files(0, proc)[1] == 1


def test_mig_parted_181_a_loaded_nvidia_drm_is_a_possible_holder(proc):
    assert holders.display_module_loaded(proc)
    (proc / "modules").write_text("nvidia 1 1 - Live\n")
    assert not holders.display_module_loaded(proc)
    assert not holders.display_module_loaded(proc / "nowhere")


def test_a_process_that_is_gone_has_no_name(proc):
    assert holders.process_name(99, proc) == "?"

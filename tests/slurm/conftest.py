"""The cluster, and the campaigns on it: made once, side by side, each in a thread of its own."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

from slurm import campaigns
from slurm.cluster import CannotError, Cluster, end_orphans, running_cluster

# `required`: what is missing is installed, and a machine that cannot have SLURM is a failure.
MODE = "WATTSLICE_TEST_SLURM"
LANES = (campaigns.healthy, campaigns.here, campaigns.faulty, campaigns.moved)


def cannot(reason: object) -> NoReturn:
    if os.environ.get(MODE) == "required":
        pytest.fail(f"{MODE} is 'required': {reason}")
    pytest.skip(f"SLURM IS NOT TESTED: {reason}; `make test-slurm` installs what is missing")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    install = os.environ.get(MODE) == "required"
    folder = tmp_path_factory.mktemp("slurm")
    # SLURM's files in /etc and its ports are the machine's: one test run at a time.
    with Path("/tmp/wattslice-slurm-test.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with running_cluster(folder, install=install) as running:
                yield running
        except CannotError as error:
            cannot(error)
        finally:
            end_orphans(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def lanes(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    folder = tmp_path_factory.mktemp("campaigns")
    with ThreadPoolExecutor(len(LANES)) as pool:
        yield {lane.__name__: pool.submit(lane, cluster, folder / lane.__name__) for lane in LANES}


@pytest.fixture(scope="session")
def healthy(lanes: dict[str, Future[Any]]) -> campaigns.Healthy:
    return lanes["healthy"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def here(lanes: dict[str, Future[Any]]) -> campaigns.Clone:
    return lanes["here"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def faulty(lanes: dict[str, Future[Any]]) -> campaigns.Faulty:
    return lanes["faulty"].result()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def moved(lanes: dict[str, Future[Any]]) -> campaigns.Moved:
    return lanes["moved"].result()  # type: ignore[no-any-return]

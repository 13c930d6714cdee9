# SPDX-License-Identifier: Apache-2.0
"""The controller's reports about jobs and switches: Explain, refusals by quotas, and Prometheus."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from controller_world import World, new_world
from prometheus_client.parser import text_string_to_metric_families
from watcher import watched

from railweave.controller.errors import ControllerError
from railweave.controller.quotas import Quota, Quotas, read
from railweave.topologies.clos import leaf_spine
from railweave.v1 import controller_pb2 as pb

LEAF_SPINE = leaf_spine(racks=2, hosts=2, spines=2, rails=("ina", "tcp"))


async def scrape(world: World) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return all samples of the metrics endpoint, by name and then by labels."""
    url = f"http://{world.running.metrics}/metrics"
    request = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    text = (await asyncio.to_thread(lambda: request(url, timeout=20).read())).decode()
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


async def test_prometheus_reads_switches_groups_and_jobs() -> None:
    async with new_world(topology=LEAF_SPINE, metrics="127.0.0.1:0") as world:
        await world.join(4)
        world.switches["leaf1"].count("members", 7)
        found = await scrape(world)
        leaf = (("plane", "ina"), ("switch", "leaf1"))
        assert set(found["railweave_switch_up"].values()) == {1}
        assert found["railweave_switch_packets_total"][("decision", "members"), *leaf] > 7
        assert found["railweave_switch_slots"][(*leaf, ("use", "used"))] == 512
        assert found["railweave_job_ranks"] == {(("job", "job"),): 4}
        labels = [dict(each) for each in found["railweave_group_packets_total"]]
        assert {(each["tree"], each["switch"]) for each in labels} == {
            *(("0", "leaf1"), ("0", "leaf2"), ("0", "spine1")),
            *(("1", "leaf1"), ("1", "leaf2"), ("1", "spine2")),
        }
        outcomes = {"result", "stale", "duplicate", "mismatch", "refused", "reflect", "spread"}
        assert outcomes <= {each["outcome"] for each in labels}
        await world.switches["spine2"].stop()
        await world.settled(lambda: "spine2" in world.running.fabric.health.dead)
        up = (await scrape(world))["railweave_switch_up"]
        assert [dict(where)["switch"] for where, value in up.items() if not value] == ["spine2"]


async def test_an_address_that_is_none_is_refused() -> None:
    for address in ("127.0.0.1:x", "127.0.0.1:99999", "192.0.2.1:0"):
        with pytest.raises(ControllerError, match=f"--metrics {address}: .*expected HOST:PORT"):
            async with new_world(metrics=address):
                pass


async def test_explain_tells_of_trees_refusals_and_what_ranks_decide() -> None:
    quotas = Quotas(Quota(64), (("batch/*", Quota(slots=0)), ("wide", Quota(slots=8192))))
    async with new_world(hosts=2, quotas=quotas) as world:
        watchers = await watched(world, 2)
        batch = await world.join(2, "batch/1")
        assert not batch[0].ina
        decision = pb.Decision(
            rail="ina", collective="all_reduce", dtype="float64", op="sum", reason="DTYPE", calls=3
        )
        used = pb.Decision(
            rail="ina", collective="broadcast", dtype="int8", used=True, detail="multicast", calls=2
        )
        decisions = [decision, used]
        watchers[1].beats.put_nowait(pb.Heartbeat(lease=watchers[1].lease, decisions=decisions))

        jobs: dict[str, pb.JobReport] = {}
        while not jobs or not jobs["job"].ranks[1].decisions:
            jobs = {job.job: job for job in (await world.stub.Explain(pb.ExplainRequest())).jobs}
        (tree,) = jobs["job"].rails[0].trees
        assert (tree.root, tree.slots, list(tree.switches)) == ("s-ina", 64, ["s-ina"])
        assert list(jobs["job"].ranks[1].decisions) == decisions
        assert (
            jobs["batch/1"]
            .rails[0]
            .refusal.startswith(
                "the quota of job 'batch/1' is 0 slots and 4 trees per plane: expected a tree of 16 slots"
            )
        )
        (refusal,) = (await world.join(2, "wide"))[0].refusals
        full = "no 8192 slots in a row are free on switch s-ina, where 1 groups hold 64 of 8192"
        assert full in refusal.reason
        one = await world.stub.Explain(pb.ExplainRequest(job="wide"))
        assert [job.job for job in one.jobs] == ["wide"]

        command = [sys.executable, "-m", "railweave", "why", "--json", "-"]
        command += ["--controller", f"127.0.0.1:{world.running.port}"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert {job["job"] for job in json.loads(done.stdout)["jobs"]} == {"job", "batch/1", "wide"}
        refused = "refused: the quota of job 'batch/1'"
        for text in (refused, "root s-ina", "DTYPE", "float64", "used multicast"):
            assert text in done.stderr


def test_quotas_are_read_from_options_and_files(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("default: {slots: 128}\njobs:\n  train-*: {trees: 1}\n")
    quotas = read(["x:slots=32,trees=2", "slots=256"], file, Quota(512, 4))
    assert quotas.of("other") == Quota(256, 4)
    assert quotas.of("train-7") == Quota(128, 1)
    assert quotas.of("x") == Quota(32, 2)


OPTIONS = ("slots", "slots=-1", "rails=2", "x:y", "", ":slots=1", "slots=1,")
FILES = ("[", "jobs: 7", "job: {}", "default: {slots: many}", "jobs: {x: {trees: -1}}")


@pytest.mark.parametrize(("options", "text"), [*((True, o) for o in OPTIONS), *((False, f) for f in FILES)])
def test_quotas_that_make_no_sense_are_refused(tmp_path: Path, text: str, *, options: bool) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(text)
    with pytest.raises(ControllerError, match=r"expected|key"):
        read([text] if options else [], None if options else file, Quota())

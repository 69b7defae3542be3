"""A slow network, one that loses packets, and machines that are cut off while a fit runs."""

import random
import time
from contextlib import closing

import pytest
from fits import FIT, Fit, Supervisor, Whole
from network import network
from tally import few_and_many

SHORT = (*FIT[:-1], "3")
SCHEDULER, WORKER, DRIVER = 0, 1, 3


@pytest.fixture(scope="module")
def far():
    """Yield a network, a cluster, and machines: of the scheduler, two workers and the driver."""
    with network(4) as (net, machines), closing(Supervisor(*machines[:DRIVER])) as cluster:
        yield net, cluster, machines


@few_and_many(few=1, many=10)
@pytest.mark.parametrize(
    ("fault", "delay", "loss"),
    [("each packet takes 200 ms", 0.2, 0.0), ("5% of all packets are lost", 0.0, 0.05)],
    ids=["late", "lost"],
)
def test_a_bad_network_costs_time_only(tally, count, fault, delay, loss, local, far, tmp_path):
    net, cluster, machines = far
    row = tally(fault, count)
    assert Fit("whole", local, tmp_path, fit=SHORT).ended(200)
    whole = Whole("whole")
    net.delay, net.loss = delay, loss
    for number in range(count):
        within = machines[DRIVER].within
        fit = Fit(f"far-{number}", cluster.address, tmp_path, fit=SHORT, within=within)
        survived = fit.ended(400)
        row.add(survived=survived, wrong=survived and whole.differs(fit.name))
    net.delay = net.loss = 0.0


@few_and_many(few=1, many=10)
@pytest.mark.parametrize(
    ("fault", "victims", "seconds"),
    [
        ("a machine is cut off for 90 s", (SCHEDULER, WORKER, DRIVER), 90),
        # Nobody closes their connections: to the others they are half-open.
        ("processes end on a machine that is cut off", (SCHEDULER, WORKER), 5),
    ],
    ids=["cut", "gone"],
)
def test_a_machine_is_cut_off(tally, count, fault, victims, seconds, whole, local, far, tmp_path):
    net, cluster, machines = far
    row = tally(fault, count)
    rng = random.Random(count)
    for number in range(count):
        within, stall = machines[DRIVER].within, ("--stall", 20)
        fit = Fit(f"cut-{number}", cluster.address, tmp_path, *stall, within=within)
        fit.reach(rng.randrange(1, 15))
        victim = victims[number % len(victims)]
        net.cut_off = {machines[victim]}
        if DRIVER not in victims:
            cluster.kill(victim)
        time.sleep(seconds)
        net.cut_off = set()
        survived = fit.ended(400)
        print(victim, [each for each in fit.said.splitlines() if "joining it again" in each])
        row.add(survived=survived, wrong=survived and whole.differs(fit.name))

"""Machines in network namespaces, between which packets come late, are lost, or do not arrive."""

import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from daskparts import needs, ran
from fits import Machine

# Of <linux/if_tun.h>: each read and write of a device is one packet, without a header of its own.
_TUNSETIFF, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
# Of a packet of IPv4.
_FROM, _TO = slice(12, 16), slice(16, 20)
_PLUG_IN = """
ip netns add $0
ip link set $0 netns $0
ip -n $0 link set lo up
ip -n $0 address add $1/24 dev $0
ip -n $0 link set $0 mtu 1500 up
"""


class Network:
    """Carries packets between machines, and does to them what its attributes say.

    The kernel can do this, too (`netem`), but many are built without it.
    """

    def __init__(self) -> None:
        self.delay, self.loss = 0.0, 0.0  # seconds each way; share of the packets
        self.cut_off: set[Machine] = set()  # what they send, or is sent to them, does not arrive
        self.ended = threading.Event()
        self._devices: dict[bytes, int] = {}

    def plug_in(self, machine: Machine, name: str) -> None:
        """Make the namespace of a machine, with a device on this network."""
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _TUN_WITHOUT_HEADER))
        self._devices[machine.address] = device
        ran("sh", "-ec", _PLUG_IN, name, machine.host).check_returncode()

    def carry(self) -> None:
        """Carry packets until that has ended, then remove the devices."""
        late: list[tuple[float, int, int, bytes]] = []
        rng, numbers = random.Random(0), itertools.count()
        while not self.ended.is_set():
            pause = late[0][0] - time.monotonic() if late else 0.1
            for device in select.select([*self._devices.values()], [], [], max(pause, 0))[0]:
                packet = os.read(device, 65_535)
                target = self._devices.get(packet[_TO])
                ends = {packet[_FROM], packet[_TO]}
                is_cut = not ends.isdisjoint(each.address for each in self.cut_off)
                lost = rng.random() < self.loss or is_cut
                if target is not None and not lost:
                    due = time.monotonic() + self.delay
                    heapq.heappush(late, (due, next(numbers), target, packet))
            while late and late[0][0] <= time.monotonic():
                *_, target, packet = heapq.heappop(late)
                with suppress(OSError):  # as of a full queue: it is lost
                    os.write(target, packet)
        for device in self._devices.values():
            os.close(device)


@contextmanager
def network(number: int) -> Iterator[tuple[Network, list[Machine]]]:
    """Yield a network and so many machines on it."""
    needs("ip")
    if not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("TUN devices need root")
    names = [f"ism{os.getpid() % 100_000}x{each}" for each in range(1, number + 1)]
    net, machines = Network(), []
    thread = threading.Thread(target=net.carry)
    try:
        for each, name in enumerate(names, 1):
            machines.append(Machine(f"10.77.0.{each}", ("ip", "netns", "exec", name)))
            net.plug_in(machines[-1], name)
        thread.start()
        yield net, machines
    finally:
        net.ended.set()
        if thread.is_alive():
            thread.join()
        for name in names:
            ran("ip", "netns", "delete", name)

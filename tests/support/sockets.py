"""Which sockets processes listen on, as the kernel tells it."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

LISTENING = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}  # states; a UDP socket that is bound has no peer


@dataclass(frozen=True)
class Listener:
    pid: int
    protocol: str
    address: str
    port: int
    command: str

    @property
    def on_loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback


def processes_with(name: str, value: str) -> list[int]:
    """The processes with this variable in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"{name}={value}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def listeners(pids: list[int]) -> list[Listener]:
    """What these processes listen on."""
    places = {}
    for protocol, state in LISTENING.items():
        for line in Path("/proc/net", protocol).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == state:
                address, port = words[1].split(":")
                places[words[9]] = (protocol, _address(address), int(port, 16))
    found = []
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes = {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
        found += [Listener(pid, *places[inode], command) for inode in inodes & places.keys()]
    return found


def _address(text: str) -> str:
    """The kernel prints words of 32 bits in the order of this machine's bytes."""
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    packed = b"".join(words)
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)

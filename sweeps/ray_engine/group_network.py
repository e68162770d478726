"""The network of a group of workers: that of Ray's node addresses. Otherwise gloo takes the one of
the host's name, which may lead to another network or to loopback."""

import fcntl
import os
import socket
import struct
from contextlib import suppress

import ray
from ray.train.torch.config import TorchConfig, _TorchBackend

SIOCGIFADDR = 0x8915  # Linux: the address of an interface


class NodeAddressConfig(TorchConfig):
    """A process group over the interfaces of Ray's node addresses."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        """Sets up the group."""
        return _Backend


class _Backend(_TorchBackend):
    def on_start(self, worker_group, backend_config):  # type: ignore[no-untyped-def]
        worker_group.execute(choose_interface)
        super().on_start(worker_group, backend_config)


def choose_interface() -> None:
    """Names this process's interface to gloo and NCCL, unless the user has."""
    name = interface_of(ray.util.get_node_ip_address())
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")


def interface_of(address: str) -> str | None:
    """The interface with an IPv4 address; None if none is known to have it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None

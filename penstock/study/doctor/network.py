"""Whether a server could listen."""
import socket

from penstock.core.config import ServerConfig
from penstock.study.doctor.check import Check, Host, Status


def port(host: Host, number: int = ServerConfig().port, address: str = ServerConfig().host) -> Check:
    details = {"address": address, "port": number}
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, number))
        except OSError as error:
            return Check("port", Status.WARN, f"cannot listen on {address}:{number}: {error.strerror}",
                         "another server may be running: choose another port with `penstock serve --port`", {**details, "free": False})
    return Check("port", Status.PASS, f"{address}:{number} is free", details={**details, "free": True})

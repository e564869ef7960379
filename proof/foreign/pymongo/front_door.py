"""Connects with PyMongo for each of several settings, and prints the errors.

Standard input is a JSON object: the address of the DNS server, the domain whose names are all the
loopback address, the cases, each with a connection string and optionally a proxy, and the number of
concurrent cases. Standard output is a JSON array: null for each case that connects, otherwise the
error.
"""

import json
import multiprocessing
import os
import socket
import sys

import dns.resolver
import pymongo
import socks


def resolve_by(server):
    resolver = dns.resolver.Resolver(configure=False)
    host, port = server.rsplit(":", 1)
    resolver.nameservers, resolver.port = [host], int(port)
    dns.resolver.default_resolver = resolver


def translate(domain):
    """PyMongo looks up members with the system's resolver, which does not know the domain."""
    of_system = socket.getaddrinfo

    def getaddrinfo(host, *arguments, **options):
        return of_system("127.0.0.1" if host.endswith(domain) else host, *arguments, **options)

    socket.getaddrinfo = getaddrinfo


def connect_through(proxy):
    """PyMongo has no proxy option: its documentation recommends PySocks."""
    host, port = proxy["address"].rsplit(":", 1)
    credential = [proxy.get("user"), proxy.get("password")]
    socks.set_default_proxy(socks.SOCKS5, host, int(port), False, *credential)
    socket.socket = ProxiedSocket


class ProxiedSocket(socks.socksocket):
    """A PySocks socket, which does not accept socket type flags."""

    def __init__(self, family, kind, *arguments):
        super().__init__(family, kind & ~socket.SOCK_CLOEXEC, *arguments)


def connect(arguments):
    dns_server, domain, case = arguments
    # OpenSSL would prompt for the password of a key, on the terminal or on standard error.
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    resolve_by(dns_server)
    translate(domain)
    if case["proxy"]:
        connect_through(case["proxy"])
    try:
        with pymongo.MongoClient(case["uri"]) as client:
            client.admin.command("ping")
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main():
    given = json.load(sys.stdin)
    work = [(given["dns"], given["domain"], case) for case in given["cases"]]
    # Each case changes its process.
    with multiprocessing.get_context("fork").Pool(given["at_once"], maxtasksperchild=1) as pool:
        json.dump(pool.map(connect, work, chunksize=1), sys.stdout)


if __name__ == "__main__":
    main()

"""Lets PyMongo discover, follow, write to and read from the simulated deployment.

usage: check.py PATH_OF_THE_SERVE_EXAMPLE

Compares PyMongo's view with the actions on the deployment. There are no sleeps: every wait is for an
event published by PyMongo, with a deadline.
"""

import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pymongo
from bson import ObjectId
from pymongo import MongoClient, ReadPreference, common, monitoring
from pymongo.errors import AutoReconnect, NotPrimaryError
from pymongo.read_preferences import Secondary

VERSIONS = ["3.6", "4.0", "4.2.9", "4.2", "4.4", "5.0", "6.0", "7.0", "8.0"]
WIRE = {"3.6": 6, "4.0": 7, "4.2.9": 8, "4.2": 8, "4.4": 9, "5.0": 13, "6.0": 17, "7.0": 21, "8.0": 25}
DEADLINE = 15.0


class Serve:
    """A deployment in a separate process."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [SDAM, "serve", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.uri = self.process.stdout.readline().strip()

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        lines = []
        while True:
            line = self.process.stdout.readline().strip()
            assert line, f"serve ended at `{command}`"
            assert not line.startswith("error"), f"{command}: {line}"
            if line == "ok":
                return lines
            lines.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Watch(monitoring.TopologyListener, monitoring.ServerListener, monitoring.ServerHeartbeatListener):
    """Records PyMongo's events, and waits for them."""

    def __init__(self):
        self.changed = threading.Condition()
        self.description = None
        self.servers = []
        self.awaited = 0

    def opened(self, event):
        pass

    def closed(self, event):
        pass

    def description_changed(self, event):
        with self.changed:
            if isinstance(event, monitoring.TopologyDescriptionChangedEvent):
                self.description = event.new_description
            else:
                self.servers.append(event)
            self.changed.notify_all()

    def started(self, event):
        pass

    def succeeded(self, event):
        with self.changed:
            self.awaited += event.awaited
            self.changed.notify_all()

    def failed(self, event):
        pass

    def until(self, what, predicate):
        with self.changed:
            if not self.changed.wait_for(lambda: self.description and predicate(self), DEADLINE):
                raise AssertionError(f"PyMongo never saw {what}; it sees {self.description}")

    def of_type(self, name):
        servers = self.description.server_descriptions().values()
        return sorted(s.address for s in servers if s.server_type_name == name)

    def primary(self):
        return (self.of_type("RSPrimary") or [None])[0]


def connect(serve, watch, **options):
    return MongoClient(
        serve.uri,
        event_listeners=[watch],
        heartbeatFrequencyMS=500,
        serverSelectionTimeoutMS=int(DEADLINE * 1000),
        connectTimeoutMS=1000,
        **options,
    )


def whole(watch, secondaries=2):
    return watch.primary() and len(watch.of_type("RSSecondary")) == secondaries


def write_and_read(client, text):
    key = ObjectId()
    client.test.things.insert_one({"_id": key, "text": text})
    assert client.test.things.find_one({"_id": key})["text"] == text
    secondary = client.test.get_collection("things", read_preference=ReadPreference.SECONDARY_PREFERRED)
    assert secondary.find_one({"_id": key})["text"] == text


def replica_set(version):
    watch = Watch()
    with Serve("--replica-set", "3", "--version", version) as serve, connect(serve, watch) as client:
        watch.until("the whole set", whole)
        assert watch.description.topology_type_name == "ReplicaSetWithPrimary"
        assert watch.description.replica_set_name == "rs0"
        for server in watch.description.server_descriptions().values():
            assert server.max_wire_version == WIRE[version], server
            assert (server.topology_version is not None) == (WIRE[version] >= 9), server
        assert client.server_info()["version"].startswith(version)
        write_and_read(client, "before")

        first = watch.primary()
        serve.do("stepdown")
        watch.until("another primary", lambda w: w.primary() not in (None, first))
        write_and_read(client, "after the step-down")

        watch.until("the whole set again", whole)
        second = watch.primary()
        serve.do("kill primary")
        # A write in between is retried until there is a new primary.
        write_and_read(client, "during the failover")
        watch.until("a third primary", lambda w: w.primary() not in (None, second))
        dead = [int(l.split()[0]) for l in serve.do("status") if " down " in l]
        serve.do(f"restart {dead[0]}")
        watch.until("the dead member back", whole)
        if WIRE[version] >= 9:
            watch.until("a streamed heartbeat", lambda w: w.awaited)
        else:
            assert not watch.awaited
        assert client.test.things.count_documents({}) == 3


def role_changes():
    watch = Watch()
    with Serve("--replica-set", "3", "--spares", "1") as serve, connect(serve, watch) as client:
        watch.until("the whole set", whole)
        serve.do("reconfig 1 tags=dc:ny,rack:1")
        watch.until(
            "the tags",
            lambda w: any(
                s.tags == {"dc": "ny", "rack": "1"} for s in w.description.server_descriptions().values()
            ),
        )
        tagged = client.test.get_collection("things", read_preference=Secondary([{"dc": "ny"}]))
        write_and_read(client, "tagged")
        assert tagged.count_documents({}) == 1
        serve.do("add 3")
        watch.until("the fourth member", lambda w: whole(w, 3))
        serve.do("remove 3")
        watch.until("three members", lambda w: whole(w) and len(w.description.server_descriptions()) == 3)
        serve.do("reconfig 2 priority=0 hidden=on")
        watch.until("the member hidden", lambda w: len(w.description.server_descriptions()) == 2)
        serve.do("reconfig 2 hidden=off")
        watch.until("the member shown", whole)
        serve.do("maintenance 2 on")
        watch.until("the member in maintenance", lambda w: len(w.of_type("RSOther")) == 1)
        serve.do("maintenance 2 off")
        watch.until("the member back", whole)
        serve.do("horizon close")
        write_and_read(client, "after the horizon change")
        watch.until("the whole set", whole)


def split_brain():
    watch = Watch()
    with Serve("--replica-set", "3") as serve, connect(serve, watch) as client:
        watch.until("the whole set", whole)
        old = watch.primary()
        serve.do("splitbrain")
        watch.until("the newer primary", lambda w: w.primary() not in (None, old))
        write_and_read(client, "to the newer primary")
        assert watch.primary() != old
        serve.do("heal")
        watch.until("one primary and two secondaries", whole)
        assert watch.primary() != old


def shutdown():
    watch = Watch()
    with Serve("--replica-set", "3") as serve, connect(serve, watch) as client:
        watch.until("the whole set", whole)
        old = watch.primary()
        serve.do("shutdown primary")
        watch.until("another primary", lambda w: w.primary() not in (None, old))
        errors = [e.new_description.error for e in watch.servers if e.new_description.error]
        codes = [getattr(error, "code", None) for error in errors]
        watch.until(
            "the shutdown announced",
            lambda w: any(
                getattr(e.new_description.error, "code", None) == 91
                or "quiesce" in str(e.new_description.error)
                for e in w.servers
            ),
        )
        write_and_read(client, f"after the shutdown {codes}")


def frozen_primary():
    watch = Watch()
    with Serve("--replica-set", "3") as serve, connect(serve, watch) as client:
        watch.until("the whole set", whole)
        old = watch.primary()
        serve.do("freeze primary")
        watch.until("another primary", lambda w: w.primary() not in (None, old))
        write_and_read(client, "past a frozen primary")
        frozen = [l.split()[0] for l in serve.do("status") if "does not answer" in l]
        serve.do(f"thaw {frozen[0]}")
        watch.until("the whole set", whole)
        assert watch.primary() != old


def fail_points():
    watch = Watch()
    with Serve("--replica-set", "3") as serve, connect(serve, watch, retryWrites=False) as client:
        watch.until("the whole set", whole)

        def fail(**data):
            client.admin.command(
                {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data}
            )

        fail(failCommands=["insert"], errorCode=10107)
        try:
            client.test.things.insert_one({})
            raise AssertionError("the insert must fail")
        except NotPrimaryError as error:
            assert error.details["codeName"] == "NotWritablePrimary", error.details
            assert "counter" in error.details["topologyVersion"], error.details
        fail(failCommands=["insert"], errorCode=91)
        try:
            client.test.things.insert_one({})
            raise AssertionError("the insert must fail")
        except AutoReconnect as error:
            # Like mongod: a client would treat an error with the known version as stale.
            assert "topologyVersion" not in error.details, error.details
        watch.until("the primary marked unknown", lambda w: any(
            e.new_description.server_type_name == "Unknown" and e.new_description.error
            for e in w.servers
        ))
        watch.until("the whole set", whole)
        fail(failCommands=["insert"], closeConnection=True)
        try:
            client.test.things.insert_one({})
            raise AssertionError("the insert must fail")
        except AutoReconnect:
            pass
        watch.until("the whole set", whole)
    watch = Watch()
    with Serve("--replica-set", "3") as serve, connect(serve, watch) as client:
        serve.do("failpoint primary commands=insert times=1 code=91")
        write_and_read(client, "retried after an error")
        serve.do("failpoint primary commands=find times=1 close")
        assert client.test.things.count_documents({}) == 1
        write_and_read(client, "retried after a closed connection")


def sharded():
    watch = Watch()
    with Serve("--sharded", "2", "--version", "6.0") as serve, connect(serve, watch) as client:
        watch.until("both mongoses", lambda w: len(w.of_type("Mongos")) == 2)
        assert watch.description.topology_type_name == "Sharded"
        write_and_read(client, "through a mongos")
        serve.do("kill 0")
        for _ in range(10):
            write_and_read(client, "through the other")
        watch.until("one mongos", lambda w: len(w.of_type("Mongos")) == 1)
        serve.do("restart 0")
        watch.until("both mongoses", lambda w: len(w.of_type("Mongos")) == 2)


def standalone():
    watch = Watch()
    with Serve("--standalone", "--version", "5.0") as serve, connect(serve, watch, retryWrites=False) as client:
        watch.until("the server", lambda w: w.of_type("Standalone"))
        assert watch.description.topology_type_name == "Single"
        write_and_read(client, "alone")


def load_balanced():
    watch = Watch()
    with Serve("--load-balanced", "2", "--version", "6.0") as serve, connect(serve, watch) as client:
        watch.until("the balancer", lambda w: w.of_type("LoadBalancer"))
        assert watch.description.topology_type_name == "LoadBalanced"
        write_and_read(client, "balanced")


def direct_connection():
    watch = Watch()
    with Serve("--replica-set", "3") as serve:
        host = serve.uri.removeprefix("mongodb://").split("/")[0].split(",")[1]
        with MongoClient(f"mongodb://{host}/?directConnection=true", event_listeners=[watch]) as client:
            watch.until("the secondary", lambda w: w.of_type("RSSecondary"))
            assert client.test.things.find_one({}) is None
            try:
                client.test.things.insert_one({})
                raise AssertionError("a secondary must refuse to write")
            except NotPrimaryError as error:
                assert error.details["code"] == 10107


def api_version():
    watch = Watch()
    with Serve("--replica-set", "1") as serve:
        api = pymongo.server_api.ServerApi("1", strict=True)
        with connect(serve, watch, server_api=api) as client:
            write_and_read(client, "with a declared API")


CHECKS = [
    (f"replica set of {version}", lambda v=version: replica_set(v))
    for version in VERSIONS
    # Each PyMongo release refuses servers that are too old for it.
    if WIRE[version] >= common.MIN_SUPPORTED_WIRE_VERSION
] + [
    (check.__name__.replace("_", " "), check)
    for check in (
        role_changes,
        split_brain,
        shutdown,
        frozen_primary,
        fail_points,
        sharded,
        standalone,
        load_balanced,
        direct_connection,
        api_version,
    )
]


def run(named):
    name, check = named
    started = time.monotonic()
    try:
        check()
        print(f"ok      {name} ({time.monotonic() - started:.2f} s)\n", end="", flush=True)
        return True
    except Exception:
        print(f"FAILED  {name}\n{traceback.format_exc()}\n", end="", flush=True)
        return False


def main():
    with ThreadPoolExecutor(max_workers=8) as pool:
        passed = sum(pool.map(run, CHECKS))
    print(f"PyMongo {pymongo.version}: {passed} of {len(CHECKS)} checks passed")
    return 0 if passed == len(CHECKS) else 1


if __name__ == "__main__":
    SDAM = sys.argv[1]
    sys.exit(main())

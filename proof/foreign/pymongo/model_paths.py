"""Replays tests that the topology machine wrote on PyMongo's topology, without sockets.

The argument is a file with one test in each line, in the format of the official SDAM tests, whose
outcomes are complete descriptions. Standard output has one JSON object in each line: for each phase
whose outcome is different, the number of its test, the descriptions before and after it, and what
happens in it; at last the number of tests. A phase that follows a different one is not judged.
"""

import functools
import json
import multiprocessing
import sys

from bson.objectid import ObjectId
from pymongo.errors import AutoReconnect, NetworkTimeout, PyMongoError
from pymongo.hello import Hello
from pymongo.helpers_shared import _check_command_response
from pymongo.server_description import ServerDescription
from pymongo.synchronous.settings import TopologySettings
from pymongo.synchronous.topology import Topology
from pymongo.topology_shared import _ErrorContext
from pymongo.uri_parser import parse_uri

# The number of tests that a process takes at a time.
CHUNK = 200


class NoMonitor:
    """Does nothing: the tests play the checks."""

    def __init__(self, **_):
        pass

    def nothing(self, *_):
        pass

    open = close = request_check = cancel_check = nothing


@functools.cache
def options(uri):
    parsed = parse_uri(uri)
    return {
        "seeds": parsed["nodelist"],
        "replica_set_name": parsed["options"].get("replicaSet"),
        "direct_connection": parsed["options"].get("directConnection"),
    }


def started(uri):
    topology = Topology(TopologySettings(monitor_class=NoMonitor, **options(uri)))
    topology.open()
    return topology


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def check(topology, server, reply):
    """Processes the outcome of a check as a monitor does."""
    try:
        if not reply:
            raise AutoReconnect("broken")
        _check_command_response(reply, None)
        description = ServerDescription(server, Hello(reply), 0.001)
    except PyMongoError as error:
        description = ServerDescription(server, error=error)
    topology.on_change(description, reset_pool=description.error)


def fail(topology, reported):
    """Processes an error on a pooled connection as a pool does."""
    done = reported["when"] == "afterHandshakeCompletes"
    try:
        if reported["type"] == "command":
            _check_command_response(reported["response"], reported["maxWireVersion"])
        raise {"network": AutoReconnect, "timeout": NetworkTimeout}[reported["type"]]("broken")
    except PyMongoError as caught:
        if not done and isinstance(caught, AutoReconnect) and reported["type"] != "command":
            caught._add_error_label("SystemOverloadedError")
        context = _ErrorContext(
            caught, reported["maxWireVersion"], reported["generation"], done, None
        )
        topology.handle_error(address(reported["address"]), context)


def outcome_of(topology):
    description = topology.description
    return {
        "topologyType": description.topology_type_name,
        "setName": description.replica_set_name,
        "maxSetVersion": description.max_set_version,
        "maxElectionId": description.max_election_id,
        "logicalSessionTimeoutMinutes": description.logical_session_timeout_minutes,
        "compatible": description._incompatible_err is None,
        "servers": {
            f"{host}:{port}": server_outcome(topology, server)
            for (host, port), server in description.server_descriptions().items()
        },
    }


def server_outcome(topology, server):
    known = server.is_server_type_known
    pool = topology.get_server_by_address(server.address).pool
    return {
        "type": server.server_type_name,
        "setName": server.replica_set_name,
        "setVersion": server.set_version,
        "electionId": server.election_id,
        "topologyVersion": server.topology_version,
        "logicalSessionTimeoutMinutes": server.logical_session_timeout_minutes,
        "minWireVersion": server.min_wire_version if known else None,
        "maxWireVersion": server.max_wire_version if known else None,
        "pool": {"generation": pool.gen.get_overall()},
    }


def typed(fields):
    """Reads ids, and the type that PyMongo does not have."""
    if "$oid" in fields:
        return ObjectId(fields["$oid"])
    if fields.get("type") == "PossiblePrimary":
        fields["type"] = "Unknown"
    return fields


def plain(value):
    return {"$oid": str(value)}


def replay(numbered):
    """Returns the phases whose outcomes are different, and whether the last phase is judged."""
    number, line = numbered
    test = json.loads(line, object_hook=typed)
    topology = started(test["uri"])
    before, judged, found = outcome_of(topology), True, []
    for phase in test["phases"]:
        expected = phase.pop("outcome")
        for server, reply in phase.get("responses", []):
            check(topology, address(server), reply)
        for reported in phase.get("applicationErrors", []):
            fail(topology, reported)
        actual = outcome_of(topology)
        last_judged, judged = judged, actual == expected
        if last_judged and not judged:
            difference = {"before": before, "step": phase, "expected": expected, "actual": actual}
            found.append(json.dumps({"path": number, **difference}, default=plain))
        before = actual
    return found, last_judged


def main(file):
    replayed = judged = 0
    with open(file, encoding="utf-8") as tests, multiprocessing.Pool() as processes:
        for found, last_judged in processes.imap(replay, enumerate(tests), chunksize=CHUNK):
            replayed += 1
            judged += last_judged
            for difference in found:
                print(difference)
    print(json.dumps({"replayed": replayed, "judged": judged}))


if __name__ == "__main__":
    main(sys.argv[1])

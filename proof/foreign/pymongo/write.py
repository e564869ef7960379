"""Inserts again and again with PyMongo at the given connection string.

Prints a line for the first insert and each one that took half a second or longer ("ok SECONDS" or
"failed SECONDS"), and one for each cleared pool ("cleared").
"""

import sys
import time

import pymongo
from pymongo.errors import PyMongoError
from pymongo.monitoring import ConnectionPoolListener


def report(*words):
    print(*words, flush=True)


def ignore(listener, event):
    pass


CALLBACKS = [name for name in dir(ConnectionPoolListener) if not name.startswith("_")]
Pools = type(
    "Pools",
    (ConnectionPoolListener,),
    {name: ignore for name in CALLBACKS} | {"pool_cleared": lambda self, event: report("cleared")},
)


def main():
    client = pymongo.MongoClient(sys.argv[1], event_listeners=[Pools()])
    is_first = True
    while True:
        began = time.monotonic()
        try:
            client.test.silence.insert_one({"a": 1})
            outcome = "ok"
        except PyMongoError as error:
            outcome = "failed"
            print(error, file=sys.stderr)
        took = time.monotonic() - began
        if is_first or took >= 0.5:
            report(outcome, took)
        is_first = False


main()

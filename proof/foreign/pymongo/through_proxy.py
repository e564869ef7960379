"""Writes with PyMongo through failovers: through `sdam proxy` in direct-connection mode, or directly.

usage: through_proxy.py URI COLLECTION W

Inserts documents with the write concern W. Each line on standard input is answered once a document
sent after it is acknowledged. The answer is the longest time in seconds without an acknowledgement
since the previous line. At the end of the input, prints the numbers of missing acknowledged documents,
of acknowledged documents and of failed attempts.
"""

import queue
import sys
import threading
import time

from pymongo import MongoClient
from pymongo.errors import PyMongoError

lines = queue.Queue()


def read():
    for line in sys.stdin:
        lines.put(line)
    lines.put(None)


threading.Thread(target=read, daemon=True).start()
uri, collection, concern = sys.argv[1:]
limits = {"serverSelectionTimeoutMS": 500, "socketTimeoutMS": 5000}
client = MongoClient(uri, w=int(concern) if concern.isdigit() else concern, journal=True, **limits)
things = client.test[collection]
number, failures, longest, acknowledged = 0, 0, 0.0, set()
asked, last = False, time.monotonic()
while True:
    if not asked and not lines.empty():
        if lines.get() is None:
            break
        asked = True
    number += 1
    try:
        things.insert_one({"_id": number})
    except PyMongoError:
        failures += 1
        continue
    now = time.monotonic()
    if acknowledged:
        longest = max(longest, now - last)
    last = now
    acknowledged.add(number)
    if asked:
        print(f"gap={longest:.3f}", flush=True)
        asked, longest = False, 0.0
missing = len(acknowledged - {document["_id"] for document in things.find()})
print(f"missing={missing} acknowledged={len(acknowledged)} failed={failures}", flush=True)

"""Writes through `sdam proxy` with PyMongo in direct-connection mode.

usage: through_proxy.py URI

Inserts documents, each acknowledged by a majority. A line on standard input is answered by `writing`
once a document is acknowledged that was sent after it. At the end of the input the numbers of
acknowledged documents that are missing, of acknowledged ones and of failed attempts are printed, and
the longest time in seconds without an acknowledgement.
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
client = MongoClient(
    sys.argv[1], serverSelectionTimeoutMS=500, connectTimeoutMS=2000, socketTimeoutMS=5000, w="majority"
)
things = client.test.through_proxy
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
        print("writing", flush=True)
        asked = False
missing = len(acknowledged - {document["_id"] for document in things.find()})
print(f"missing={missing} acknowledged={len(acknowledged)} failed={failures} gap={longest:.3f}", flush=True)

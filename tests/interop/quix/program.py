"""One run of a Quix Streams application: `program.py '{"servers": …, "source": …, …}'`.

Writes the totals of `source` (see totals.py) to `target`, with the counts in its state, and ends
after `count` records.
"""

import json
import sys

from quixstreams import Application


def main() -> None:
    given = json.loads(sys.argv[1])
    app = Application(
        broker_address=given["servers"],
        consumer_group=given["group"],
        auto_offset_reset="earliest",
        processing_guarantee=given["guarantee"],
        state_dir=given["state"],
        loglevel="ERROR",
    )
    source = app.topic(given["source"], value_deserializer="json")
    target = app.topic(given["target"], value_serializer="json")

    def total(value, state):
        seen = state.get("seen", 0) + 1
        state.set("seen", seen)
        return {"number": value["number"], "seen": seen}

    app.dataframe(source).apply(total, stateful=True).to_topic(target)
    app.run(count=given["count"], timeout=30)


main()

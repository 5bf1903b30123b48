"""The command line of the demo, and the order of its steps."""

from __future__ import annotations

import argparse
import signal
import tempfile
from types import FrameType
from typing import TYPE_CHECKING

from demo.broker_process import CONSOLE_PASSWORD, CONSOLE_USER, BrokerProcess
from demo.next_steps import console_pages, next_steps
from demo.screen import Screen
from demo.spark_job import table_path
from demo.spark_process import SparkJobError, SparkProcess
from demo.story import Stage, Step, play
from dragoman.errors import DragomanError
from dragoman.installation import install_command

if TYPE_CHECKING:
    from demo.capture import Database
    from demo.shop import Shop

#: Records that one run produces and keeps a mark of. More are refused.
RECORDS_MAX = 10_000_000


def main(arguments: list[str] | None = None) -> int:
    """0 when everything shown was as it should be, 1 when something was not."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _as_interrupt)
    screen = Screen()
    try:
        has_spark = not options.without_spark
        # Spark has a part in it that needs a database.
        has_database = has_spark or not options.without_postgres
        steps, last_steps = _steps(with_spark=has_spark, with_database=has_database)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("confluent_kafka"):
            raise
        screen.complain(f"the demo needs the Kafka client: {install_command('demo')}")
        return 1
    with tempfile.TemporaryDirectory(prefix="dragoman-demo-") as directory:
        broker, spark = BrokerProcess(directory), SparkProcess(directory)
        database, shop = _database(options.dsn), _shop(broker)
        stage = Stage(
            screen=screen,
            broker=broker,
            spark=spark,
            database=database,
            shop=shop,
            record_count=options.records,
            has_database=has_database,
            has_spark=has_spark,
        )
        try:
            screen.open_with_title()
            play(steps, stage)
            if options.exit:
                spark.kill()
                shop.close()
                play(last_steps, stage)
            else:
                table = table_path(spark.directory) if has_spark else ""
                screen.show_what_next(next_steps(broker, table))
                login = f"log in as {CONSOLE_USER}, password {CONSOLE_PASSWORD}"
                screen.show_console(broker.console_url, login, console_pages(broker))
                broker.wait()
            status = broker.stop()
        except KeyboardInterrupt:
            screen.say("\nstopping")
            spark.kill()
            shop.close()
            status = broker.stop()
        except SparkJobError as failure:
            screen.complain(str(failure), failure.log_lines)
            return 1
        except DragomanError as failure:
            screen.complain(str(failure), broker.last_log_lines())
            return 1
        finally:
            spark.kill()
            shop.close()
            broker.kill()
            database.close()
    if status != 0:
        screen.complain(f"the broker ended with status {status}")
        return 1
    screen.say("\nThe broker stopped cleanly; the data directory is gone.")
    return 0


def _steps(*, with_spark: bool, with_database: bool) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Steps before the demo serves, and after it if it ends by itself.

    Imported here, so that a missing client is reported in one line.
    """
    from demo import capture, console, kafka, node, protocols, shop, spark

    steps: tuple[Step, ...] = (
        node.START,
        kafka.CREATE_TOPIC,
        kafka.PRODUCE,
        kafka.CONSUME,
        protocols.WRITE,
        node.KILL_AND_RESTART,
        kafka.CONSUME_AGAIN,
        protocols.READ,
        node.SHOW_WHAT_LANDED,
    )
    if with_database:
        steps += (capture.START, capture.CHANGE, capture.READ_BY_ROCKETMQ)
    steps += (shop.OPEN,)
    if with_spark:
        steps += (
            spark.START,
            protocols.COUNT,
            spark.AGGREGATE,
            spark.SHOW_TABLE,
            capture.COMPARE,
            spark.SHOW_TOPIC,
            spark.RUN_PIPELINE,
        )
    return (*steps, console.SHOW), (capture.END,) if with_database else ()


def _database(dsn: str) -> Database:
    from demo.capture import Database

    return Database(dsn)


def _shop(broker: BrokerProcess) -> Shop:
    from demo.shop import Shop

    return Shop(broker)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo", description="Dragoman at work.")
    parser.add_argument("--exit", action="store_true", help="end after the last step")
    parser.add_argument(
        "--dsn", default="", help="a PostgreSQL to use, in place of one that comes and goes"
    )
    parser.add_argument("--without-spark", action="store_true", help="leave Spark out")
    parser.add_argument(
        "--without-postgres", action="store_true", help="without Spark: leave PostgreSQL out, too"
    )
    parser.add_argument(
        "--records",
        type=_record_count,
        default=10_000,
        metavar="N",
        help="how many to produce (default: %(default)s)",
    )
    return parser


def _record_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= RECORDS_MAX:
        bound = RECORDS_MAX
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {bound}, got {text!r}")
    return int(text)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

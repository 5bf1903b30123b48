"""Each alert has its fault: it is raised on real processes, and its runbook ends it.

    quiet ── fault ──> firing ── "How to look", "What to do" ──> quiet ── "When it is over"

A real Prometheus scrapes nodes each second and evaluates the rules of `deploy/prometheus`, in which
time runs faster (`rules`). The blocks of commands in a runbook are run as they are written, and
print what the page shows (`runbook`); `systemctl` and `journalctl` in them are those of the nodes
here (`machine`). `trial` is the course of one fault. Faults are grouped by what they need: `nodes`
(three nodes), `disks` (a small file system), `clients` (a node and its clients), `captures` (a
PostgreSQL) and `pipelines` (Spark). `check` runs all, or those of the alerts that are named, and
prints a table. Its rows are kept from run to run; when every alert has one, the table is written to
`docs/reference/alerts.md`.
"""

from deploy_check.faults.run import check

__all__ = ["check"]

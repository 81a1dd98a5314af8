"""The chart's dashboards, seen: a real Prometheus records a run on a cluster, and answers every panel's queries.

`python -m dashboards --record` plays a job that trains beside a pool that scales, and keeps what Prometheus scraped of
it in `recorded_run.om.gz`. Without `--record`, the pictures of the pages are drawn from that recording, and the tests
ask it every query. Grafana itself is in no package index, so what a panel shows is drawn by matplotlib.
"""

"""Rules, scrape configs and dashboard for Prometheus and Grafana, from one source.

``python -m hack.monitoring`` writes ``manifests/monitoring/``. Tests make the same with time scaled down.
"""

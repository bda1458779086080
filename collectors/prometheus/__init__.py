"""Samples of one engine out of a Prometheus server that has scraped it already.

`api` asks, within bounds; `matchers` says what for; `targets` makes sure that it is one engine;
`windows` cuts the range into answers that fit in memory; `scrapes` puts series together again to
the pages they came from, and `backfill` writes them as a run.
"""

"""Scraping one engine's metrics page on a schedule, and keeping every page that was read.

A scrape is fetched (`fetch`), has one outcome (`outcome`), goes to a journal (`journal`) and is
observed (`observe`, `watch`); a full journal becomes samples and compressed pages (`settle`);
`belonging` says whether a page is of the engine whose run is being written, `housing` which run it
goes to; `loop` does all this at the right times, and `reparse` does the reading again.
"""

"""Puts a model's files where an engine reads them: once for all workers that share a cache, whoever comes first.

It runs before the engine starts, in the engine's image; the clients of hub and S3 are those the image has. The way of
one run (`run.py`):

    which release   the commit that the operator pinned for this revision of workers, or else what the branch is now
    there already?  a release that was checked once is taken without asking anybody, if its files are those of then
    the lock        one process downloads, the others watch how it gets on, and take over when it dies (`lock.py`)
    the files       the missing ones, from where they were broken off; each checked against its digest (`cache.py`)
    the link        a fixed path to a folder with the release's files, which is what the engine's command line says

`hub.py` and `s3.py` know their servers; `progress.py` tells how far it is, and ends a run in which nothing moves.
"""

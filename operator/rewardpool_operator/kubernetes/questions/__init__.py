"""What a pass must not wait for: questions to workers and to the API server that are asked aside.

asking.py     the machinery: ask in the background, have the answer at a later pass
lengths.py    how long a sample may be, by the engine
golden.py     what a worker makes of the golden set
downloads.py  how far a download is
trouble.py    why a pod does not start, by its events
"""

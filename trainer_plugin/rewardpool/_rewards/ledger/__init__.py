"""The ledger: an append-only record of every score, or of a share of them, in files of a local folder.

    a part's score  ->  `Ledger.add`, on the reward's loop  ->  a queue  ->  a thread that writes lines

It never holds up or ends the scoring: a write that fails ends the ledger.
"""

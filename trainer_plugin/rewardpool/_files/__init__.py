"""Whole files of rows, scored once each, whatever ends the process meanwhile.

    input file  ->  checked rows  ->  a window of them in flight  ->  journal  ->  output in the input's order
    source.py       forms.py          window.py                       journal.py   results.py

`score.py` joins them. What is scored is appended to the journal at once; a later run goes on where it ends.
"""

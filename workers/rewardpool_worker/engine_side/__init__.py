"""Code that runs beside an engine: in stock images, which have nothing of RewardPool, and on one machine.

`mounted` makes one zip of this folder, which is mounted into workers and is a program itself (`__main__`). So what is
here needs the standard library of Python 3.10, what the images bring, and the few modules of `rewardpool_api` that are
in the zip too; an import contract keeps everything else out.
"""

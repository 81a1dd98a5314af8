"""`make rehearsal`: a release and the one after it, from a package index and a registry to upgrades under
load. Nothing is published.

    later_version  a made-up later release: this tree with another version, and a field of the API that has another name
    packages       both versions as wheels, and a package index on loopback that has them
    first_scores   installed from that index on each Python, README's first sample
    streams        a job that streams samples, and what became of them by windows of time
    one_machine    job and pool of different versions on one machine, and an installation that changes below a pool
    in_cluster     operator, routers and workers to the later version and back by helm, under jobs of both versions

The quick tutorials are typed with the package from that index, too. Figures go to `.rewardpool/rehearsal/report.json`.
It fails where a sample is lost or wrong, or a worker is replaced that nobody asked to replace.
"""

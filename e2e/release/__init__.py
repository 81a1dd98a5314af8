"""`make release`: all that a release consists of, built and checked into `.rewardpool/release`. Nothing is published.

    package/    the wheel and the source archive
    chart/      the chart for helm, and in oci/ as an OCI layout
    image/      the image, an OCI archive
    */*.cdx.json  what is in the package's environment and in the image, as CycloneDX
    SHA256SUMS    of all of it

It fails, and says where, when two files name different versions. Times are those of the commit, so that the same commit
gives the same package and chart.
"""

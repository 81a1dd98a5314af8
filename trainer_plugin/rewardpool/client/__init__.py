"""From a sample to its score, whatever happens on the way.

pool        what a trainer holds: score, judge, stream, report
blocking    the same for code that is not async, on the event loop of `loop_thread`
caller      one request, sent again until it is answered
retry       what kinds of trouble there are, and how long to pause after each
answer      what an answer means
hedging     a second request beside a straggler
pace        how many requests are in flight
batching    several samples in one request
report      what it cost; `metrics` for Prometheus, `tracing` for OpenTelemetry, `progress` for people
"""

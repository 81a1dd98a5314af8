"""The way from a sample to its score.

pool          what a trainer holds: score, judge, stream, report
blocking      the same for code that is not async, on the event loop of a thread
stream        many samples at once: read as there is room, handed out as they are ready
request       one request, from the queue to its end; `sample_request` and `logprobs_request` say what it asks
batching      several samples in one request
answer        what an answer means
transport     what all requests to one pool share; `request_timer` is one timer for all in flight
rules/        how many requests are in flight (limiter), what is tried again (retry) or asked twice (hedging), and a
              pool that answers nothing (outage) or refuses everything (breaker)
connections/  HTTP/1.1 over connections that are kept
threads/      one client an event loop (shared), one a process, one on a thread of its own
report        what it cost; `metrics` for Prometheus, `tracing` for OpenTelemetry, `progress` for people
wake_lock     a pool that sleeps unless somebody holds it awake
"""

"""From a sample to its score, whatever happens on the way.

pool        what a trainer holds: score, judge, stream, report
blocking    the same for code that is not async, on the event loop of `loop_thread`
stream      many samples at once: read as there is room, handed out as they are ready
caller      the requests of one pool; `request` is what is sent for a sample, `effort` what was done for it
asking      one request, sent again until it is answered
recovery    what is done after a retryable error, before it is sent again
transport   what all requests share; `shared` lets several pools of one config have the same
timers      one timer for all that is in flight
retry       what kinds of trouble there are, and how long to pause after each
answer      what an answer means
hedging     a second request beside a straggler
limiter     how many requests are in flight
batching    several samples in one request
report      what it cost; `metrics` for Prometheus, `tracing` for OpenTelemetry, `progress` for people
"""

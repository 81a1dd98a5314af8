"""The way from a sample to its score.

pool        what a trainer holds: score, judge, stream, report
blocking    the same for code that is not async, on the event loop of `loop_thread`
stream      many samples at once: read as there is room, handed out as they are ready
request     one request, from the queue to its end
batching    several samples in one request
limiter     how many requests are in flight
retry       which failures another attempt may repair, after which pause, and when it is given up
hedging     further requests beside a straggler
outage      a pool that answers nothing; `breaker` for one that refuses everything
transport   what all requests share; `shared` lets several pools of one config have the same
request_timer  one timer for all that is in flight
answer      what an answer means
report      what it cost; `metrics` for Prometheus, `tracing` for OpenTelemetry, `progress` for people
wake_lock   a pool that sleeps unless somebody holds it awake
"""

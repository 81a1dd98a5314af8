"""The client of API servers: what the operator, the command line and trainers ask of Kubernetes.

resources        kinds of objects, by their URLs
errors           what a call raises
answers          the one place where answers are read
events           what an event says, and when it was last seen
client           the calls, on plain JSON objects; slow to import, as kubernetes_asyncio is
configuration    where the API server is, and by what credentials and proxy it is reached
api_server_time  how long calls took, of one pass of the operator
"""

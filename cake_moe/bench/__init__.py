"""``python -m cake_moe.bench``: the operator's time against the time that moving its bytes takes, in one run.

A *case* (`cases`) is a token count, a routing and a cache state. *Contenders* (`contenders`) are what is timed on it:
the operator, the floor and the baselines. A *clock* (`clock`) times one call, `measure` verifies a case and then takes
the samples of all contenders in turns, `report` and `plot` show them. Results are plain data (`results`), as JSON too.
"""

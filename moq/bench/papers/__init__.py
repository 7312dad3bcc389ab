"""`moq bench papers`: the experiments of the three MQTT papers, run on the real broker, our figures beside theirs.

published.py              what the papers say, each figure with its place
emqtt.py  exchanges.py    E-MQTT: how soon a publisher knows that its subscribers have a message
rfc.py                    RFC: what the broker writes to subscribers with and without reception periods
mqttplus.py  equations.py MQTT+: what aggregation and processing in the broker save and cost
*_report.py  results.py   what came of it; page.py and svg.py draw it
"""

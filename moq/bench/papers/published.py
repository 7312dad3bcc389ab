"""What the three papers report: their parameters and figures, each with the place it stands in.

Bar charts and curves that exist only as images are not here: nobody can read a figure off them to three digits.
"""

from __future__ import annotations

from typing import Final

EMQTT: Final = (
    "Im, Lim: E-MQTT: End-to-End Synchronous and Asynchronous Communication Mechanisms in MQTT Protocol. "
    "Applied Sciences 13 (2023) 12419"
)
RFC: Final = "Hwang, Lee, Jung: Extension of Reception Frequency Control to MQTT Protocol (2019)"
MQTTPLUS: Final = (
    "MQTT+: Enhanced Syntax and Broker Functionalities for Data Filtering, Processing and Aggregation (2018)"
)

# --- E-MQTT ---

EMQTT_SUBSCRIBERS: Final = tuple(range(10, 81, 10))
"""Section 5.1: ten subscribers, then ten more until there are eighty."""
EMQTT_PUBLISHES: Final = 60
"""Section 5.1: sixty tests of each."""
EMQTT_TOPIC_BYTES: Final = 1
EMQTT_PAYLOAD_BYTES: Final = 6
"""Section 5.1: the topic has one byte, the payload six."""

EMQTT_DELAY_MS: Final = {
    "end-to-end": {"plain": 9.13, "asynchronous": 6.84, "synchronous": 8.49},
    "publish-completion": {"plain": 6.87, "asynchronous": 7.53, "synchronous": 8.20},
    "broker-subscriber": {"plain": 1.72, "asynchronous": 1.48, "synchronous": 0.85},
}
"""Sections 5.2, 5.3 and 5.4: averages over all numbers of subscribers."""
EMQTT_DELAY_AT: Final = {
    "end-to-end": "section 5.2",
    "publish-completion": "section 5.3",
    "broker-subscriber": "section 5.4",
}
EMQTT_MESSAGES: Final = {"plain": 18, "asynchronous": 9, "synchronous": 9}
"""Section 3.1, figures 1 and 3: packets exchanged to confirm one query at one subscriber."""

EMQTT_PUBLISH_BYTES_QOS2: Final = 12
EMQTT_PUBLISH_BYTES: Final = {0: 14, 1: 16, 2: 18, 3: 20, 4: 22, 5: 24, 10: 34, 20: 54, 40: 94, 80: 174}
"""Table 3: PUBLISH of QoS 3 by number of subscriber identifiers, each one UTF-16 digit."""

EMQTT_BOUND: Final = {"asynchronous": 0.75, "synchronous": 0.93}
"""Section 5.2: 6.84 and 8.49 of 9.13 ms."""

# --- RFC ---

RFC_SUBSCRIBERS: Final = 100
RFC_PUBLISHERS: Final = (20, 50, 100, 150, 180, 200)
"""Table 2; 200 is in figure 6 (d) only."""
RFC_RATE: Final = 10.0
"""Table 2: messages per second of each publisher, all on one topic."""
RFC_PAYLOAD_BYTES: Final = 100
RFC_DURATION_S: Final = 10.0
"""Section 3.3: publishers send for ten seconds."""
RFC_PERIODS: Final = ((5.0, 0.3), (2.5, 0.3), (1.25, 0.3), (0.0, 0.1))
"""Table 3: seconds, and the share of the subscribers that ask for them; 0 is no period."""
RFC_PERIOD_UNIT_S: Final = 0.01
"""Section 3.3."""
RFC_REDUCTION: Final = 5.0
"""Section 3.3, figure 6: the standard broker writes about five times as much."""
RFC_REDUCTION_PUBLISHERS: Final = 180
RFC_TIME_STANDARD_S: Final = 15.0
RFC_TIME_RFC_S: Final = 12.0
"""Section 3.3: delivering what ten seconds brought took more than 15 s without periods, less than 12 s with."""

# --- MQTT+ ---

MQTTPLUS_TOPIC: Final = "numeric/polimi/deib/room1/"
MQTTPLUS_IMAGE_TOPIC: Final = "image/polimi/deib/room1/"
"""Section 4.1.1 and 4.1.2; the last level is the sensor."""
MQTTPLUS_SENSOR_BYTES: Final = 8
"""W: the level that names a sensor."""
MQTTPLUS_PUBLISH_BYTES: Final = 44
"""P: a PUBLISH with its header, topic and number."""
MQTTPLUS_OPERATOR: Final = "$AVG$QUARTERHOURLYAVG"
"""O is 21: its length."""
MQTTPLUS_RATE: Final = 1 / 20
"""λ: messages per second of a sensor."""
MQTTPLUS_WINDOW_S: Final = 900
"""1/λA: the quarter of an hour."""
MQTTPLUS_IMAGE_RATIO: Final = 100.0
"""Section 4.1.2: the size of an image over that of a number, I/P."""
MQTTPLUS_RAM_INCREASE: Final = 0.02
"""Section 4.1.1: aggregation takes 1 to 2 % more memory."""

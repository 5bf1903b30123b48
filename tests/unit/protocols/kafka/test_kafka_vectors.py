"""Goal: frames that independent implementations produced are read and written byte for byte.

Method: each vector is a whole frame in hexadecimal, made with kio 0.6.5; record batches with
kafka-python's builder, confirmed by aiokafka's. It is decoded to the message beside it and encoded
from it.
"""

from __future__ import annotations

import pytest

from dragoman.framing import Scratch
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import (
    ClientConnection,
    ServerConnection,
    encode_api_versions_fallback,
)

TOPIC_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
BATCH = bytes.fromhex(
    "00000000000000000000003e00000000025e93538d0000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000118000000026b02760202680278"
)

REQUESTS = {
    "ApiVersions v3": (
        "000000110012000300000001000163000274023100",
        (18, 3, 1, "c"),
        m.ApiVersionsRequest(client_software_name="t", client_software_version="1"),
    ),
    "ApiVersions v0, null client id": (
        "0000000a0012000000000001ffff",
        (18, 0, 1, None),
        m.ApiVersionsRequest(),
    ),
    "Metadata v12": (
        "000000230003000c00000002000163000200000000000000000000000000000000026100010000",
        (3, 12, 2, "c"),
        m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name="a")], allow_auto_topic_creation=True
        ),
    ),
    "Produce v9": (
        "0000006900000009000000030001630000ffff0000753002026102000000004b" + BATCH.hex() + "000000",
        (0, 9, 3, "c"),
        m.ProduceRequest(
            acks=-1,
            timeout_ms=30000,
            topic_data=[
                m.ProduceRequestTopic(
                    name="a",
                    partition_data=[m.ProduceRequestPartition(index=0, records=BATCH)],
                )
            ],
        ),
    ),
    "FindCoordinator v2": (
        "0000000f000a00020000000500016300016700",
        (10, 2, 5, "c"),
        m.FindCoordinatorRequest(key="g", key_type=0),
    ),
}

RESPONSES = {
    "ApiVersions v3, header without tags": (
        "0000001a000000010000030012000000040000030000000d000000000000",
        (3, 1),
        m.ApiVersionsResponse(
            api_keys=[
                m.ApiVersionsResponseApiKey(api_key=18, min_version=0, max_version=4),
                m.ApiVersionsResponseApiKey(api_key=3, min_version=0, max_version=13),
            ]
        ),
    ),
    "Metadata v12": (
        "000000540000000200000000000200000001026800002384000003636c0000000102000002610011223344"
        "5566778899aabbccddeeff0002000000000000000000010000000002000000010200000001010080000000"
        "0000",
        (12, 2),
        m.MetadataResponse(
            brokers=[m.MetadataResponseBroker(node_id=1, host="h", port=9092)],
            cluster_id="cl",
            controller_id=1,
            topics=[
                m.MetadataResponseTopic(
                    name="a",
                    topic_id=TOPIC_ID,
                    partitions=[
                        m.MetadataResponsePartition(
                            leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
                        )
                    ],
                )
            ],
        ),
    ),
    "Produce v9": (
        "000000300000000300020261020000000000000000000000000000ffffffffffffffff0000000000000000"
        "010000000000000000",
        (9, 3),
        m.ProduceResponse(
            responses=[
                m.ProduceResponseTopic(
                    name="a",
                    partition_responses=[
                        m.ProduceResponsePartition(base_offset=0, log_start_offset=0)
                    ],
                )
            ]
        ),
    ),
    "Fetch v12, no records": (
        "0000003a0000000400000000000000000000000202610200000000000000000000000000010000000000000"
        "001000000000000000000ffffffff01000000",
        (12, 4),
        m.FetchResponse(
            responses=[
                m.FetchResponseTopic(
                    topic="a",
                    partitions=[
                        m.FetchResponsePartition(
                            high_watermark=1,
                            last_stable_offset=1,
                            log_start_offset=0,
                            aborted_transactions=None,
                            records=b"",
                        )
                    ],
                )
            ]
        ),
    ),
}


ASKING = {
    m.ApiVersionsResponse: m.ApiVersionsRequest(),
    m.MetadataResponse: m.MetadataRequest(),
    m.ProduceResponse: m.ProduceRequest(acks=-1),
    m.FetchResponse: m.FetchRequest(),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_read(name: str) -> None:
    text, header, message = REQUESTS[name]
    server = ServerConnection(1 << 20, Scratch())
    (request,) = server.receive_data(bytes.fromhex(text))
    assert (
        request.api_key,
        request.version,
        request.correlation_id,
        request.client_id,
    ) == header
    assert request.decode() == message


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_written(name: str) -> None:
    text, (_, version, correlation_id, client_id), message = REQUESTS[name]
    frame = codec.encode_request(message, version, correlation_id, client_id)
    assert codec.join(frame).hex() == text


@pytest.mark.parametrize("name", RESPONSES)
def test_response_is_written(name: str) -> None:
    text, (version, correlation_id), message = RESPONSES[name]
    frame = codec.encode_response(message, version, correlation_id)
    assert codec.join(frame).hex() == text


@pytest.mark.parametrize("name", RESPONSES)
def test_response_is_read(name: str) -> None:
    text, (version, correlation_id), message = RESPONSES[name]
    client = ClientConnection("c", 1 << 20, Scratch(), first_correlation_id=correlation_id)
    client.send(ASKING[type(message)], version)
    (reply,) = client.receive_data(bytes.fromhex(text))
    assert reply.correlation_id == correlation_id
    assert reply.message == message


FALLBACK = "0000001000000001002300000001001200000004"


def test_api_versions_fallback_is_written() -> None:
    served = [m.ApiVersionsResponseApiKey(api_key=18, min_version=0, max_version=4)]
    assert codec.join(encode_api_versions_fallback(1, served)).hex() == FALLBACK


def test_consumer_subscription() -> None:
    message = m.ConsumerProtocolSubscription(topics=["a"])
    data = bytes.fromhex("000100000001000161ffffffff00000000")
    assert codec.encode_versioned(message, 1) == data
    assert codec.decode_versioned(m.ConsumerProtocolSubscription, data) == message


def test_consumer_assignment() -> None:
    topic = m.ConsumerProtocolAssignmentTopic(topic="a", partitions=[0, 1])
    message = m.ConsumerProtocolAssignment(assigned_partitions=[topic])
    data = bytes.fromhex("000000000001000161000000020000000000000001ffffffff")
    assert codec.encode_versioned(message, 0) == data
    assert codec.decode_versioned(m.ConsumerProtocolAssignment, data) == message

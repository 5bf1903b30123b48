"""The byte vectors of the mlog specification, as the original's codec wrote them."""

from __future__ import annotations

from dragoman.protocols.mlog import messages as m

#: Frames of requests and replies with the messages they stand for, in JSON.
JSON_FRAMES: list[tuple[str, m.Message]] = [
    (
        "00020000002e7b22546f706963223a226f7264657273222c2256616c7565223a22614756736247383d222c2241636b73223a317d",
        m.Produce(topic="orders", value=b"hello", acks=1),
    ),
    (
        "0002000000377b22546f706963223a22615c7530303363625c75303033655c753030323663222c2256616c7565223a6e756c6c2c2241636b73223a307d",
        m.Produce(topic="a<b>&c"),
    ),
    ("00030000000d7b224f6666736574223a34327d", m.ProduceResp(offset=42)),
    (
        "0004000000357b22546f706963223a226f7264657273222c2256616c756573223a5b2259513d3d222c22222c6e756c6c5d2c2241636b73223a327d",
        m.ProduceBatch(topic="orders", values=[b"a", b"", None], acks=2),
    ),
    (
        "0005000000297b22426173654f6666736574223a312c224c6173744f6666736574223a322c22436f756e74223a327d",
        m.ProduceBatchResp(base_offset=1, last_offset=2, count=2),
    ),
    (
        "00060000003a7b22546f706963223a226f7264657273222c224964223a226331222c224f6666736574223a372c225265706c6963614e6f64654944223a22227d",
        m.Fetch(topic="orders", id="c1", offset=7),
    ),
    (
        "0007000000297b22456e747279223a7b224f6666736574223a372c2256616c7565223a22614756736247383d227d7d",
        m.FetchResp(entry=m.Entry(offset=7, value=b"hello")),
    ),
    ("00070000000e7b22456e747279223a6e756c6c7d", m.FetchResp()),
    (
        "00080000004e7b22546f706963223a226f7264657273222c224964223a226331222c224f6666736574223a372c224d6178436f756e74223a31302c225265706c6963614e6f64654944223a226e6f64652d32227d",
        m.FetchBatch(topic="orders", id="c1", offset=7, max_count=10, replica_node_id="node-2"),
    ),
    (
        "00090000002d7b22456e7472696573223a5b7b224f6666736574223a372c2256616c7565223a22614756736247383d227d5d7d",
        m.FetchBatchResp(entries=[m.Entry(offset=7, value=b"hello")]),
    ),
    ("0009000000107b22456e7472696573223a6e756c6c7d", m.FetchBatchResp()),
    (
        "000c000000277b22546f706963223a226f7264657273222c224964223a226331222c224f6666736574223a387d",
        m.CommitOffset(topic="orders", id="c1", offset=8),
    ),
    ("000d000000107b2253756363657373223a747275657d", m.CommitOffsetResp(success=True)),
    (
        "000e0000001c7b22546f706963223a226f7264657273222c224964223a226331227d",
        m.FetchOffset(topic="orders", id="c1"),
    ),
    ("000f0000000c7b224f6666736574223a387d", m.FetchOffsetResp(offset=8)),
    (
        "00100000003f7b22546f706963223a226f7264657273222c225265706c696361436f756e74223a322c2244657369676e617465644c65616465724e6f64654944223a22227d",
        m.CreateTopic(topic="orders", replica_count=2),
    ),
    (
        "0011000000377b22546f706963223a226f7264657273222c225265706c6963614e6f6465496473223a5b226e6f64652d32222c226e6f64652d33225d7d",
        m.CreateTopicResp(topic="orders", replica_node_ids=["node-2", "node-3"]),
    ),
    ("0012000000127b22546f706963223a226f7264657273227d", m.DeleteTopic(topic="orders")),
    ("0013000000127b22546f706963223a226f7264657273227d", m.DeleteTopicResp(topic="orders")),
    (
        "0014000000557b22636f6465223a342c226d657373616765223a2274686973206e6f6465206973206e6f742074686520746f706963206c65616465723b2070726f6475636520746f2074686520746f706963206c6561646572227d",
        m.RPCError(
            code=4,
            message="this node is not the topic leader; produce to the topic leader",
        ),
    ),
    ("0015000000127b22546f706963223a226f7264657273227d", m.FindTopicLeader(topic="orders")),
    (
        "00160000001f7b224c656164657241646472223a223132372e302e302e313a39303934227d",
        m.FindTopicLeaderResp(leader_addr="127.0.0.1:9094"),
    ),
    ("0017000000027b7d", m.FindRaftLeader()),
    (
        "0018000000237b22526166744c656164657241646472223a223132372e302e302e313a39303934227d",
        m.FindRaftLeaderResp(raft_leader_addr="127.0.0.1:9094"),
    ),
    ("0019000000027b7d", m.ListTopics()),
    (
        "001a0000007c7b22546f70696373223a5b7b224e616d65223a226f7264657273222c224c65616465724e6f64654944223a226e6f64652d31222c224c656164657245706f6368223a312c225265706c69636173223a5b7b224e6f64654944223a226e6f64652d32222c224973495352223a747275652c224c454f223a357d5d7d5d7d",
        m.ListTopicsResp(
            topics=[
                m.TopicInfo(
                    name="orders",
                    leader_node_id="node-1",
                    leader_epoch=1,
                    replicas=[m.ReplicaInfo(node_id="node-2", is_isr=True, leo=5)],
                )
            ]
        ),
    ),
    (
        "001b000000367b22546f706963223a226f7264657273222c225265706c6963614e6f64654944223a226e6f64652d32222c22497372223a747275657d",
        m.ApplyIsrUpdateEvent(topic="orders", replica_node_id="node-2", isr=True),
    ),
    ("001c000000027b7d", m.ApplyIsrUpdateEventResp()),
    (
        "00000000003d7b22546f706963223a2274222c224f6666736574223a332c22426174636853697a65223a3130302c225265706c6963614e6f64654944223a226e32227d",
        m.ReplicateStream(topic="t", offset=3, batch_size=100, replica_node_id="n2"),
    ),
    (
        "00010000003e7b22546f706963223a2274222c225261774368756e6b223a6e756c6c2c22456e644f6653747265616d223a747275652c224c65616465724c454f223a307d",
        m.ReplicateResp(topic="t", end_of_stream=True),
    ),
]
PROTOBUF_FRAMES: list[tuple[str, m.Message]] = [
    (
        "0002000000110a066f7264657273120568656c6c6f1801",
        m.Produce(topic="orders", value=b"hello", acks=1),
    ),
    ("000300000002082a", m.ProduceResp(offset=42)),
    ("000300000000", m.ProduceResp(offset=0)),
]
REPLICATION_BATCH = (
    "000000000000000500000023000000002357d7be000000000100000000000000050000000568656c6c6f"
    "000000000000000600000006776f726c6421"
)
METADATA_EVENTS = [
    '{"event_type":0,"data":{"topic":"orders","replica_count":2,"leader_id":"node-1","leader_epoch":1,"replicas":["node-2","node-3"]}}',
    '{"event_type":1,"data":{"topic":"orders"}}',
    '{"event_type":2,"data":{"topic":"orders","leader_id":"node-2","leader_epoch":2}}',
    '{"event_type":3,"data":{"topic":"orders","replica_id":"node-3","isr":false}}',
    '{"event_type":4,"data":{"node_id":"node-2","addr":"127.0.0.1:9095","rpc_addr":"127.0.0.1:9097"}}',
    '{"event_type":5,"data":{"node_id":"node-2"}}',
    '{"event_type":6,"data":{"node_id":"node-2","is_healthy":true}}',
]

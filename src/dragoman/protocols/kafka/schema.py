"""Kafka's messages as data: names, types and versions as in Apache Kafka 4.3, and two requests of
Dragoman with API keys far above Kafka's (32000 and 32001; `handlers/staged_writes.py`).

One API is three lines: key, name, valid versions and first flexible version; then the request (`Q`),
then the response (`R`). Structures without an API key have `-` for a key and one line (`D`).

Left out, because Dragoman does not serve them: share groups, streams groups, delegation tokens, and
messages between brokers and controllers.

Notation. Fields are in wire order, separated by `; `, each as `Name:type` and attributes:

    i8 i16 i32 i64 u16 f64 bool uuid    fixed width
    str bytes records                   length first; compact in flexible versions
    str16                               string with a 16-bit length in flexible versions too
    [T]                                 array
    Name{...}                           structure; becomes the class <message><Name>
    v5+  v0-12                          versions that have it; absent: all of the enclosing structure
    null  null2+                        may be null (in these versions)
    =x                                  default; `=null` also says that it may be null
    tag0                                not in line but in the tagged section, under this number
    ~                                   may be dropped silently when the version lacks the field

An open range (`5+`) ends where the enclosing structure's ends. Without `=x` the default is zero, the
empty string, the empty array or null records. `notation.py` reads this table; `messages.py`
makes classes of it, and `generate.py` the stub that describes them.
"""

# The table is data, one message per line, and reads best unwrapped.
# ruff: noqa: E501

from __future__ import annotations

from typing import Final

TABLE: Final = """\
- RequestHeader 1-2 flex 2
D RequestApiKey:i16; RequestApiVersion:i16; CorrelationId:i32; ClientId:str16 null
- ResponseHeader 0-1 flex 1
D CorrelationId:i32
- ConsumerProtocolSubscription 0-3 flex none
D Topics:[str]; UserData:bytes =null; OwnedPartitions:[Topic{Topic:str; Partitions:[i32]}] v1+ ~; GenerationId:i32 v2+ =-1 ~; RackId:str v3+ =null ~
- ConsumerProtocolAssignment 0-3 flex none
D AssignedPartitions:[Topic{Topic:str; Partitions:[i32]}]; UserData:bytes =null
0 Produce 3-13 flex 9
Q TransactionalId:str =null; Acks:i16; TimeoutMs:i32; TopicData:[Topic{Name:str v3-12 ~; TopicId:uuid v13+ ~; PartitionData:[Partition{Index:i32; Records:records null}]}]
R Responses:[Topic{Name:str v3-12 ~; TopicId:uuid v13+ ~; PartitionResponses:[Partition{Index:i32; ErrorCode:i16; BaseOffset:i64; LogAppendTimeMs:i64 =-1 ~; LogStartOffset:i64 v5+ =-1 ~; RecordErrors:[RecordError{BatchIndex:i32; BatchIndexErrorMessage:str =null}] v8+ ~; ErrorMessage:str v8+ =null ~; CurrentLeader:CurrentLeader{LeaderId:i32 =-1; LeaderEpoch:i32 =-1} v10+ tag0}]}]; ThrottleTimeMs:i32 ~; NodeEndpoints:[NodeEndpoint{NodeId:i32; Host:str; Port:i32; Rack:str =null}] v10+ tag0
1 Fetch 4-18 flex 12
Q ClusterId:str v12+ tag0 =null ~; ReplicaId:i32 v4-14 =-1; ReplicaState:ReplicaState{ReplicaId:i32 =-1; ReplicaEpoch:i64 =-1} v15+ tag1; MaxWaitMs:i32; MinBytes:i32; MaxBytes:i32 =2147483647 ~; IsolationLevel:i8 ~; SessionId:i32 v7+ ~; SessionEpoch:i32 v7+ =-1 ~; Topics:[Topic{Topic:str v4-12 ~; TopicId:uuid v13+ ~; Partitions:[Partition{Partition:i32; CurrentLeaderEpoch:i32 v9+ =-1 ~; FetchOffset:i64; LastFetchedEpoch:i32 v12+ =-1; LogStartOffset:i64 v5+ =-1 ~; PartitionMaxBytes:i32; ReplicaDirectoryId:uuid v17+ tag0 ~; HighWatermark:i64 v18+ tag1 =9223372036854775807 ~}]}]; ForgottenTopicsData:[ForgottenTopic{Topic:str v7-12 ~; TopicId:uuid v13+ ~; Partitions:[i32]}] v7+; RackId:str v11+ ~
R ThrottleTimeMs:i32 ~; ErrorCode:i16 v7+ ~; SessionId:i32 v7+; Responses:[Topic{Topic:str v4-12 ~; TopicId:uuid v13+ ~; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16; HighWatermark:i64; LastStableOffset:i64 =-1 ~; LogStartOffset:i64 v5+ =-1 ~; DivergingEpoch:DivergingEpoch{Epoch:i32 =-1; EndOffset:i64 =-1} v12+ tag0; CurrentLeader:CurrentLeader{LeaderId:i32 =-1; LeaderEpoch:i32 =-1} v12+ tag1; SnapshotId:SnapshotId{EndOffset:i64 =-1; Epoch:i32 =-1} v12+ tag2; AbortedTransactions:[AbortedTransaction{ProducerId:i64; FirstOffset:i64}] null ~; PreferredReadReplica:i32 v11+ =-1; Records:records null}]}]; NodeEndpoints:[NodeEndpoint{NodeId:i32; Host:str; Port:i32; Rack:str =null}] v16+ tag0
2 ListOffsets 1-11 flex 6
Q ReplicaId:i32; IsolationLevel:i8 v2+; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; CurrentLeaderEpoch:i32 v4+ =-1 ~; Timestamp:i64}]}]; TimeoutMs:i32 v10+ ~
R ThrottleTimeMs:i32 v2+ ~; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16; Timestamp:i64 =-1; Offset:i64 =-1; LeaderEpoch:i32 v4+ =-1}]}]
3 Metadata 0-13 flex 9
Q Topics:[Topic{TopicId:uuid v10+ ~; Name:str null10+}] null1+; AllowAutoTopicCreation:bool v4+ =true; IncludeClusterAuthorizedOperations:bool v8-10; IncludeTopicAuthorizedOperations:bool v8+
R ThrottleTimeMs:i32 v3+ ~; Brokers:[Broker{NodeId:i32; Host:str; Port:i32; Rack:str v1+ =null ~}]; ClusterId:str v2+ =null ~; ControllerId:i32 v1+ =-1 ~; Topics:[Topic{ErrorCode:i16; Name:str null12+; TopicId:uuid v10+ ~; IsInternal:bool v1+ ~; Partitions:[Partition{ErrorCode:i16; PartitionIndex:i32; LeaderId:i32; LeaderEpoch:i32 v7+ =-1 ~; ReplicaNodes:[i32]; IsrNodes:[i32]; OfflineReplicas:[i32] v5+ ~}]; TopicAuthorizedOperations:i32 v8+ =-2147483648}]; ClusterAuthorizedOperations:i32 v8-10 =-2147483648; ErrorCode:i16 v13+ ~
8 OffsetCommit 2-10 flex 8
Q GroupId:str; GenerationIdOrMemberEpoch:i32 =-1 ~; MemberId:str ~; GroupInstanceId:str v7+ =null; RetentionTimeMs:i64 v2-4 =-1 ~; Topics:[Topic{Name:str v2-9 ~; TopicId:uuid v10+ ~; Partitions:[Partition{PartitionIndex:i32; CommittedOffset:i64; CommittedLeaderEpoch:i32 v6+ =-1 ~; CommittedMetadata:str null}]}]
R ThrottleTimeMs:i32 v3+ ~; Topics:[Topic{Name:str v2-9 ~; TopicId:uuid v10+ ~; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16}]}]
9 OffsetFetch 1-10 flex 6
Q GroupId:str v1-7; Topics:[Topic{Name:str; PartitionIndexes:[i32]}] v1-7 null2+; Groups:[Group{GroupId:str; MemberId:str v9+ =null ~; MemberEpoch:i32 v9+ =-1 ~; Topics:[GroupTopic{Name:str v8-9 ~; TopicId:uuid v10+ ~; PartitionIndexes:[i32]}] null}] v8+; RequireStable:bool v7+
R ThrottleTimeMs:i32 v3+ ~; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; CommittedOffset:i64; CommittedLeaderEpoch:i32 v5+ =-1 ~; Metadata:str null; ErrorCode:i16}]}] v1-7; ErrorCode:i16 v2-7 ~; Groups:[Group{GroupId:str; Topics:[GroupTopic{Name:str v8-9 ~; TopicId:uuid v10+ ~; Partitions:[GroupPartition{PartitionIndex:i32; CommittedOffset:i64; CommittedLeaderEpoch:i32 =-1 ~; Metadata:str null; ErrorCode:i16}]}]; ErrorCode:i16}] v8+
10 FindCoordinator 0-6 flex 3
Q Key:str v0-3; KeyType:i8 v1+; CoordinatorKeys:[str] v4+
R ThrottleTimeMs:i32 v1+ ~; ErrorCode:i16 v0-3; ErrorMessage:str v1-3 null ~; NodeId:i32 v0-3; Host:str v0-3; Port:i32 v0-3; Coordinators:[Coordinator{Key:str; NodeId:i32; Host:str; Port:i32; ErrorCode:i16; ErrorMessage:str null ~}] v4+
11 JoinGroup 0-9 flex 6
Q GroupId:str; SessionTimeoutMs:i32; RebalanceTimeoutMs:i32 v1+ =-1 ~; MemberId:str; GroupInstanceId:str v5+ =null; ProtocolType:str; Protocols:[Protocol{Name:str; Metadata:bytes}]; Reason:str v8+ =null ~
R ThrottleTimeMs:i32 v2+ ~; ErrorCode:i16; GenerationId:i32 =-1; ProtocolType:str v7+ =null ~; ProtocolName:str null7+; Leader:str; SkipAssignment:bool v9+; MemberId:str; Members:[Member{MemberId:str; GroupInstanceId:str v5+ =null ~; Metadata:bytes}]
12 Heartbeat 0-4 flex 4
Q GroupId:str; GenerationId:i32; MemberId:str; GroupInstanceId:str v3+ =null
R ThrottleTimeMs:i32 v1+ ~; ErrorCode:i16
13 LeaveGroup 0-5 flex 4
Q GroupId:str; MemberId:str v0-2; Members:[Member{MemberId:str; GroupInstanceId:str =null; Reason:str v5+ =null ~}] v3+
R ThrottleTimeMs:i32 v1+ ~; ErrorCode:i16; Members:[Member{MemberId:str; GroupInstanceId:str null; ErrorCode:i16}] v3+
14 SyncGroup 0-5 flex 4
Q GroupId:str; GenerationId:i32; MemberId:str; GroupInstanceId:str v3+ =null; ProtocolType:str v5+ =null ~; ProtocolName:str v5+ =null ~; Assignments:[Assignment{MemberId:str; Assignment:bytes}]
R ThrottleTimeMs:i32 v1+ ~; ErrorCode:i16; ProtocolType:str v5+ =null ~; ProtocolName:str v5+ =null ~; Assignment:bytes
15 DescribeGroups 0-6 flex 5
Q Groups:[str]; IncludeAuthorizedOperations:bool v3+
R ThrottleTimeMs:i32 v1+ ~; Groups:[Group{ErrorCode:i16; ErrorMessage:str v6+ =null; GroupId:str; GroupState:str; ProtocolType:str; ProtocolData:str; Members:[Member{MemberId:str; GroupInstanceId:str v4+ =null ~; ClientId:str; ClientHost:str; MemberMetadata:bytes; MemberAssignment:bytes}]; AuthorizedOperations:i32 v3+ =-2147483648}]
16 ListGroups 0-5 flex 3
Q StatesFilter:[str] v4+; TypesFilter:[str] v5+
R ThrottleTimeMs:i32 v1+ ~; ErrorCode:i16; Groups:[Group{GroupId:str; ProtocolType:str; GroupState:str v4+ ~; GroupType:str v5+ ~}]
17 SaslHandshake 0-1 flex none
Q Mechanism:str
R ErrorCode:i16; Mechanisms:[str]
18 ApiVersions 0-4 flex 3
Q ClientSoftwareName:str v3+ ~; ClientSoftwareVersion:str v3+ ~
R ErrorCode:i16; ApiKeys:[ApiKey{ApiKey:i16; MinVersion:i16; MaxVersion:i16}]; ThrottleTimeMs:i32 v1+ ~; SupportedFeatures:[SupportedFeature{Name:str; MinVersion:i16; MaxVersion:i16}] v3+ tag0 ~; FinalizedFeaturesEpoch:i64 v3+ tag1 =-1 ~; FinalizedFeatures:[FinalizedFeature{Name:str; MaxVersionLevel:i16; MinVersionLevel:i16}] v3+ tag2 ~; ZkMigrationReady:bool v3+ tag3 ~
19 CreateTopics 2-7 flex 5
Q Topics:[Topic{Name:str; NumPartitions:i32; ReplicationFactor:i16; Assignments:[Assignment{PartitionIndex:i32; BrokerIds:[i32]}]; Configs:[Config{Name:str; Value:str null}]}]; TimeoutMs:i32 =60000; ValidateOnly:bool
R ThrottleTimeMs:i32 ~; Topics:[Topic{Name:str; TopicId:uuid v7+ ~; ErrorCode:i16; ErrorMessage:str null ~; TopicConfigErrorCode:i16 v5+ tag0 ~; NumPartitions:i32 v5+ =-1 ~; ReplicationFactor:i16 v5+ =-1 ~; Configs:[Config{Name:str; Value:str null; ReadOnly:bool; ConfigSource:i8 =-1 ~; IsSensitive:bool}] v5+ null ~}]
20 DeleteTopics 1-6 flex 4
Q Topics:[Topic{Name:str =null; TopicId:uuid}] v6+; TopicNames:[str] v1-5 ~; TimeoutMs:i32
R ThrottleTimeMs:i32 ~; Responses:[Topic{Name:str null6+; TopicId:uuid v6+ ~; ErrorCode:i16; ErrorMessage:str v5+ =null ~}]
21 DeleteRecords 0-2 flex 2
Q Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; Offset:i64}]}]; TimeoutMs:i32
R ThrottleTimeMs:i32; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; LowWatermark:i64; ErrorCode:i16}]}]
22 InitProducerId 0-6 flex 2
Q TransactionalId:str null; TransactionTimeoutMs:i32; ProducerId:i64 v3+ =-1; ProducerEpoch:i16 v3+ =-1; Enable2Pc:bool v6+; KeepPreparedTxn:bool v6+
R ThrottleTimeMs:i32 ~; ErrorCode:i16; ProducerId:i64 =-1; ProducerEpoch:i16; OngoingTxnProducerId:i64 v6+ =-1; OngoingTxnProducerEpoch:i16 v6+ =-1
23 OffsetForLeaderEpoch 2-4 flex 4
Q ReplicaId:i32 v3+ =-2 ~; Topics:[Topic{Topic:str; Partitions:[Partition{Partition:i32; CurrentLeaderEpoch:i32 =-1 ~; LeaderEpoch:i32}]}]
R ThrottleTimeMs:i32 ~; Topics:[Topic{Topic:str; Partitions:[Partition{ErrorCode:i16; Partition:i32; LeaderEpoch:i32 =-1 ~; EndOffset:i64 =-1}]}]
24 AddPartitionsToTxn 0-5 flex 3
Q Transactions:[Transaction{TransactionalId:str; ProducerId:i64; ProducerEpoch:i16; VerifyOnly:bool; Topics:[Topic{Name:str; Partitions:[i32]}]}] v4+; V3AndBelowTransactionalId:str v0-3; V3AndBelowProducerId:i64 v0-3; V3AndBelowProducerEpoch:i16 v0-3; V3AndBelowTopics:[Topic{Name:str; Partitions:[i32]}] v0-3
R ThrottleTimeMs:i32; ErrorCode:i16 v4+ ~; ResultsByTransaction:[Transaction{TransactionalId:str; TopicResults:[Topic{Name:str; ResultsByPartition:[Partition{PartitionIndex:i32; PartitionErrorCode:i16}]}]}] v4+; ResultsByTopicV3AndBelow:[Topic{Name:str; ResultsByPartition:[Partition{PartitionIndex:i32; PartitionErrorCode:i16}]}] v0-3
25 AddOffsetsToTxn 0-4 flex 3
Q TransactionalId:str; ProducerId:i64; ProducerEpoch:i16; GroupId:str
R ThrottleTimeMs:i32; ErrorCode:i16
26 EndTxn 0-5 flex 3
Q TransactionalId:str; ProducerId:i64; ProducerEpoch:i16; Committed:bool
R ThrottleTimeMs:i32; ErrorCode:i16; ProducerId:i64 v5+ =-1 ~; ProducerEpoch:i16 v5+ =-1 ~
27 WriteTxnMarkers 1-2 flex 1
Q Markers:[Marker{ProducerId:i64; ProducerEpoch:i16; TransactionResult:bool; Topics:[Topic{Name:str; PartitionIndexes:[i32]}]; CoordinatorEpoch:i32; TransactionVersion:i8 v2+ ~}]
R Markers:[Marker{ProducerId:i64; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16}]}]}]
28 TxnOffsetCommit 0-5 flex 3
Q TransactionalId:str; GroupId:str; ProducerId:i64; ProducerEpoch:i16; GenerationId:i32 v3+ =-1; MemberId:str v3+; GroupInstanceId:str v3+ =null; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; CommittedOffset:i64; CommittedLeaderEpoch:i32 v2+ =-1 ~; CommittedMetadata:str null}]}]
R ThrottleTimeMs:i32; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16}]}]
29 DescribeAcls 1-3 flex 2
Q ResourceTypeFilter:i8; ResourceNameFilter:str null; PatternTypeFilter:i8 =3; PrincipalFilter:str null; HostFilter:str null; Operation:i8; PermissionType:i8
R ThrottleTimeMs:i32; ErrorCode:i16; ErrorMessage:str null; Resources:[Resource{ResourceType:i8; ResourceName:str; PatternType:i8 =3; Acls:[Acl{Principal:str; Host:str; Operation:i8; PermissionType:i8}]}]
30 CreateAcls 1-3 flex 2
Q Creations:[Creation{ResourceType:i8; ResourceName:str; ResourcePatternType:i8 =3; Principal:str; Host:str; Operation:i8; PermissionType:i8}]
R ThrottleTimeMs:i32; Results:[Result{ErrorCode:i16; ErrorMessage:str null}]
31 DeleteAcls 1-3 flex 2
Q Filters:[Filter{ResourceTypeFilter:i8; ResourceNameFilter:str null; PatternTypeFilter:i8 =3; PrincipalFilter:str null; HostFilter:str null; Operation:i8; PermissionType:i8}]
R ThrottleTimeMs:i32; FilterResults:[FilterResult{ErrorCode:i16; ErrorMessage:str null; MatchingAcls:[MatchingAcl{ErrorCode:i16; ErrorMessage:str null; ResourceType:i8; ResourceName:str; PatternType:i8 =3; Principal:str; Host:str; Operation:i8; PermissionType:i8}]}]
32 DescribeConfigs 1-4 flex 4
Q Resources:[Resource{ResourceType:i8; ResourceName:str; ConfigurationKeys:[str] null}]; IncludeSynonyms:bool; IncludeDocumentation:bool v3+
R ThrottleTimeMs:i32; Results:[Resource{ErrorCode:i16; ErrorMessage:str null; ResourceType:i8; ResourceName:str; Configs:[Config{Name:str; Value:str null; ReadOnly:bool; ConfigSource:i8 =-1 ~; IsSensitive:bool; Synonyms:[Synonym{Name:str; Value:str null; Source:i8}] ~; ConfigType:i8 v3+ ~; Documentation:str v3+ null ~}]}]
33 AlterConfigs 0-2 flex 2
Q Resources:[Resource{ResourceType:i8; ResourceName:str; Configs:[Config{Name:str; Value:str null}]}]; ValidateOnly:bool
R ThrottleTimeMs:i32; Responses:[Resource{ErrorCode:i16; ErrorMessage:str null; ResourceType:i8; ResourceName:str}]
34 AlterReplicaLogDirs 1-2 flex 2
Q Dirs:[Dir{Path:str; Topics:[Topic{Name:str; Partitions:[i32]}]}]
R ThrottleTimeMs:i32; Results:[Topic{TopicName:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16}]}]
35 DescribeLogDirs 1-5 flex 2
Q Topics:[Topic{Topic:str; Partitions:[i32]}] null
R ThrottleTimeMs:i32; ErrorCode:i16 v3+ ~; Results:[Dir{ErrorCode:i16; LogDir:str; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; PartitionSize:i64; OffsetLag:i64; IsFutureKey:bool}]}]; TotalBytes:i64 v4+ =-1 ~; UsableBytes:i64 v4+ =-1 ~; IsCordoned:bool v5+ ~}]
36 SaslAuthenticate 0-2 flex 2
Q AuthBytes:bytes
R ErrorCode:i16; ErrorMessage:str null; AuthBytes:bytes; SessionLifetimeMs:i64 v1+ ~
37 CreatePartitions 0-3 flex 2
Q Topics:[Topic{Name:str; Count:i32; Assignments:[Assignment{BrokerIds:[i32]}] null}]; TimeoutMs:i32; ValidateOnly:bool
R ThrottleTimeMs:i32; Results:[Topic{Name:str; ErrorCode:i16; ErrorMessage:str =null}]
42 DeleteGroups 0-2 flex 2
Q GroupsNames:[str]
R ThrottleTimeMs:i32; Results:[Group{GroupId:str; ErrorCode:i16}]
43 ElectLeaders 0-2 flex 2
Q ElectionType:i8 v1+; TopicPartitions:[Topic{Topic:str; Partitions:[i32]}] null; TimeoutMs:i32 =60000
R ThrottleTimeMs:i32; ErrorCode:i16 v1+; ReplicaElectionResults:[Topic{Topic:str; PartitionResult:[Partition{PartitionId:i32; ErrorCode:i16; ErrorMessage:str null}]}]
44 IncrementalAlterConfigs 0-1 flex 1
Q Resources:[Resource{ResourceType:i8; ResourceName:str; Configs:[Config{Name:str; ConfigOperation:i8; Value:str null}]}]; ValidateOnly:bool
R ThrottleTimeMs:i32; Responses:[Resource{ErrorCode:i16; ErrorMessage:str null; ResourceType:i8; ResourceName:str}]
45 AlterPartitionReassignments 0-1 flex 0
Q TimeoutMs:i32 =60000; AllowReplicationFactorChange:bool v1+ =true; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; Replicas:[i32] =null}]}]
R ThrottleTimeMs:i32; AllowReplicationFactorChange:bool v1+ =true ~; ErrorCode:i16; ErrorMessage:str null; Responses:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16; ErrorMessage:str null}]}]
46 ListPartitionReassignments 0-0 flex 0
Q TimeoutMs:i32 =60000; Topics:[Topic{Name:str; PartitionIndexes:[i32]}] =null
R ThrottleTimeMs:i32; ErrorCode:i16; ErrorMessage:str null; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; Replicas:[i32]; AddingReplicas:[i32]; RemovingReplicas:[i32]}]}]
47 OffsetDelete 0-0 flex none
Q GroupId:str; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32}]}]
R ErrorCode:i16; ThrottleTimeMs:i32 ~; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16}]}]
48 DescribeClientQuotas 0-1 flex 1
Q Components:[Component{EntityType:str; MatchType:i8; Match:str null}]; Strict:bool
R ThrottleTimeMs:i32; ErrorCode:i16; ErrorMessage:str null; Entries:[Entry{Entity:[Entity{EntityType:str; EntityName:str null}]; Values:[Value{Key:str; Value:f64}]}] null
49 AlterClientQuotas 0-1 flex 1
Q Entries:[Entry{Entity:[Entity{EntityType:str; EntityName:str null}]; Ops:[Op{Key:str; Value:f64; Remove:bool}]}]; ValidateOnly:bool
R ThrottleTimeMs:i32; Entries:[Entry{ErrorCode:i16; ErrorMessage:str null; Entity:[Entity{EntityType:str; EntityName:str null}]}]
50 DescribeUserScramCredentials 0-0 flex 0
Q Users:[User{Name:str}] null
R ThrottleTimeMs:i32; ErrorCode:i16; ErrorMessage:str null; Results:[User{User:str; ErrorCode:i16; ErrorMessage:str null; CredentialInfos:[CredentialInfo{Mechanism:i8; Iterations:i32}]}]
51 AlterUserScramCredentials 0-0 flex 0
Q Deletions:[Deletion{Name:str; Mechanism:i8}]; Upsertions:[Upsertion{Name:str; Mechanism:i8; Iterations:i32; Salt:bytes; SaltedPassword:bytes}]
R ThrottleTimeMs:i32; Results:[User{User:str; ErrorCode:i16; ErrorMessage:str null}]
55 DescribeQuorum 0-2 flex 0
Q Topics:[Topic{TopicName:str; Partitions:[Partition{PartitionIndex:i32}]}]
R ErrorCode:i16; ErrorMessage:str v2+ null ~; Topics:[Topic{TopicName:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16; ErrorMessage:str v2+ null ~; LeaderId:i32; LeaderEpoch:i32; HighWatermark:i64; CurrentVoters:[Replica{ReplicaId:i32; ReplicaDirectoryId:uuid v2+; LogEndOffset:i64; LastFetchTimestamp:i64 v1+ =-1 ~; LastCaughtUpTimestamp:i64 v1+ =-1 ~}]; Observers:[Replica{ReplicaId:i32; ReplicaDirectoryId:uuid v2+; LogEndOffset:i64; LastFetchTimestamp:i64 v1+ =-1 ~; LastCaughtUpTimestamp:i64 v1+ =-1 ~}]}]}]; Nodes:[Node{NodeId:i32; Listeners:[Listener{Name:str; Host:str; Port:u16}]}] v2+
57 UpdateFeatures 0-2 flex 0
Q TimeoutMs:i32 =60000; FeatureUpdates:[FeatureUpdate{Feature:str; MaxVersionLevel:i16; AllowDowngrade:bool v0; UpgradeType:i8 v1+ =1}]; ValidateOnly:bool v1+
R ThrottleTimeMs:i32; ErrorCode:i16; ErrorMessage:str null; Results:[Feature{Feature:str; ErrorCode:i16; ErrorMessage:str null}] v0-1 ~
60 DescribeCluster 0-2 flex 0
Q IncludeClusterAuthorizedOperations:bool; EndpointType:i8 v1+ =1; IncludeFencedBrokers:bool v2+
R ThrottleTimeMs:i32; ErrorCode:i16; ErrorMessage:str =null; EndpointType:i8 v1+ =1; ClusterId:str; ControllerId:i32 =-1; Brokers:[Broker{BrokerId:i32; Host:str; Port:i32; Rack:str =null; IsFenced:bool v2+}]; ClusterAuthorizedOperations:i32 =-2147483648
61 DescribeProducers 0-0 flex 0
Q Topics:[Topic{Name:str; PartitionIndexes:[i32]}]
R ThrottleTimeMs:i32; Topics:[Topic{Name:str; Partitions:[Partition{PartitionIndex:i32; ErrorCode:i16; ErrorMessage:str =null; ActiveProducers:[ActiveProducer{ProducerId:i64; ProducerEpoch:i32; LastSequence:i32 =-1; LastTimestamp:i64 =-1; CoordinatorEpoch:i32; CurrentTxnStartOffset:i64 =-1}]}]}]
65 DescribeTransactions 0-0 flex 0
Q TransactionalIds:[str]
R ThrottleTimeMs:i32; TransactionStates:[Transaction{ErrorCode:i16; TransactionalId:str; TransactionState:str; TransactionTimeoutMs:i32; TransactionStartTimeMs:i64; ProducerId:i64; ProducerEpoch:i16; Topics:[Topic{Topic:str; Partitions:[i32]}]}]
66 ListTransactions 0-2 flex 0
Q StateFilters:[str]; ProducerIdFilters:[i64]; DurationFilter:i64 v1+ =-1; TransactionalIdPattern:str v2+ =null
R ThrottleTimeMs:i32; ErrorCode:i16; UnknownStateFilters:[str]; TransactionStates:[Transaction{TransactionalId:str; ProducerId:i64; TransactionState:str}]
68 ConsumerGroupHeartbeat 0-1 flex 0
Q GroupId:str; MemberId:str; MemberEpoch:i32; InstanceId:str =null; RackId:str =null; RebalanceTimeoutMs:i32 =-1; SubscribedTopicNames:[str] =null; SubscribedTopicRegex:str v1+ =null; ServerAssignor:str =null; TopicPartitions:[Topic{TopicId:uuid; Partitions:[i32]}] =null
R ThrottleTimeMs:i32; ErrorCode:i16; ErrorMessage:str =null; MemberId:str =null; MemberEpoch:i32; HeartbeatIntervalMs:i32; Assignment:Assignment{TopicPartitions:[Topic{TopicId:uuid; Partitions:[i32]}]} =null
69 ConsumerGroupDescribe 0-1 flex 0
Q GroupIds:[str]; IncludeAuthorizedOperations:bool
R ThrottleTimeMs:i32; Groups:[Group{ErrorCode:i16; ErrorMessage:str =null; GroupId:str; GroupState:str; GroupEpoch:i32; AssignmentEpoch:i32; AssignorName:str; Members:[Member{MemberId:str; InstanceId:str =null; RackId:str =null; MemberEpoch:i32; ClientId:str; ClientHost:str; SubscribedTopicNames:[str]; SubscribedTopicRegex:str =null; Assignment:Assignment{TopicPartitions:[Topic{TopicId:uuid; TopicName:str; Partitions:[i32]}]}; TargetAssignment:Assignment{TopicPartitions:[Topic{TopicId:uuid; TopicName:str; Partitions:[i32]}]}; MemberType:i8 v1+ =-1 ~}]; AuthorizedOperations:i32 =-2147483648}]
71 GetTelemetrySubscriptions 0-0 flex 0
Q ClientInstanceId:uuid
R ThrottleTimeMs:i32; ErrorCode:i16; ClientInstanceId:uuid; SubscriptionId:i32; AcceptedCompressionTypes:[i8]; PushIntervalMs:i32; TelemetryMaxBytes:i32; DeltaTemporality:bool; RequestedMetrics:[str]
72 PushTelemetry 0-0 flex 0
Q ClientInstanceId:uuid; SubscriptionId:i32; Terminating:bool; CompressionType:i8; Metrics:bytes
R ThrottleTimeMs:i32; ErrorCode:i16
74 ListConfigResources 0-1 flex 0
Q ResourceTypes:[i8] v1+
R ThrottleTimeMs:i32; ErrorCode:i16; ConfigResources:[Resource{ResourceName:str; ResourceType:i8 v1+ =16 ~}]
75 DescribeTopicPartitions 0-0 flex 0
Q Topics:[Topic{Name:str}]; ResponsePartitionLimit:i32 =2000; Cursor:Cursor{TopicName:str; PartitionIndex:i32} =null
R ThrottleTimeMs:i32 ~; Topics:[Topic{ErrorCode:i16; Name:str null; TopicId:uuid ~; IsInternal:bool ~; Partitions:[Partition{ErrorCode:i16; PartitionIndex:i32; LeaderId:i32; LeaderEpoch:i32 =-1 ~; ReplicaNodes:[i32]; IsrNodes:[i32]; EligibleLeaderReplicas:[i32] =null; LastKnownElr:[i32] =null; OfflineReplicas:[i32] ~}]; TopicAuthorizedOperations:i32 =-2147483648}]; NextCursor:Cursor{TopicName:str; PartitionIndex:i32} =null
32000 OpenStaging 0-0 flex 0
Q WriterId:str
R ThrottleTimeMs:i32 ~; ErrorCode:i16; ErrorMessage:str =null ~; Topic:str; Partition:i32 =-1; ProducerId:i64 =-1; ProducerEpoch:i16 =-1
32001 PublishStaged 0-0 flex 0
Q WriterId:str; QueryId:str; BatchId:i64; IsSingle:bool; Topics:[Topic{Name:str; Partitions:[Partition{Index:i32; Pieces:[Piece{StagingPartition:i32; FirstOffset:i64; NextOffset:i64; RecordCount:i64; Checksum:i64}]}]}]
R ThrottleTimeMs:i32 ~; ErrorCode:i16; ErrorMessage:str =null ~; WasPublishedBefore:bool
"""

"""Names of the protocol's requests, for error messages."""

from __future__ import annotations

_TABLE = """
00 Client
    authentication authenticationCustom addClusterViewListener createProxy destroyProxy
    addPartitionLostListener removePartitionLostListener getDistributedObjects
    addDistributedObjectListener removeDistributedObjectListener ping statistics deployClasses
    createProxies localBackupListener triggerPartitionAssignment addMigrationListener
    removeMigrationListener sendSchema fetchSchema sendAllSchemas tpcAuthentication
    addCPGroupViewListener
01 Map
    put get remove replace replaceIfSame containsKey containsValue removeIfSame delete flush tryRemove
    tryPut putTransient putIfAbsent set lock tryLock isLocked unlock addInterceptor removeInterceptor
    addEntryListenerToKeyWithPredicate addEntryListenerWithPredicate addEntryListenerToKey
    addEntryListener removeEntryListener addPartitionLostListener removePartitionLostListener
    getEntryView evict evictAll loadAll loadGivenKeys keySet getAll values entrySet keySetWithPredicate
    valuesWithPredicate entriesWithPredicate addIndex size isEmpty putAll clear executeOnKey submitToKey
    executeOnAllKeys executeWithPredicate executeOnKeys forceUnlock keySetWithPagingPredicate
    valuesWithPagingPredicate entriesWithPagingPredicate fetchKeys fetchEntries aggregate
    aggregateWithPredicate project projectWithPredicate fetchNearCacheInvalidationMetadata removeAll
    addNearCacheInvalidationListener fetchWithQuery eventJournalSubscribe eventJournalRead setTtl
    putWithMaxIdle putTransientWithMaxIdle putIfAbsentWithMaxIdle setWithMaxIdle replaceAll
    putAllWithMetadata
02 MultiMap
    put get remove keySet values entrySet containsKey containsValue containsEntry size clear valueCount
    addEntryListenerToKey addEntryListener removeEntryListener lock tryLock isLocked unlock forceUnlock
    removeEntry delete putAll
03 Queue
    offer put size remove poll take peek iterator drainTo drainToMaxSize contains containsAll
    compareAndRemoveAll compareAndRetainAll clear addAll addListener removeListener remainingCapacity
    isEmpty
04 Topic
    publish addMessageListener removeMessageListener publishAll
05 List
    size contains containsAll add remove addAll compareAndRemoveAll compareAndRetainAll clear getAll
    addListener removeListener isEmpty addAllWithIndex get set addWithIndex removeWithIndex lastIndexOf
    indexOf sub iterator listIterator
06 Set
    size contains containsAll add remove addAll compareAndRemoveAll compareAndRetainAll clear getAll
    addListener removeListener isEmpty
07 FencedLock
    lock tryLock unlock getLockOwnership
08 ExecutorService
    shutdown isShutdown cancelOnPartition cancelOnMember submitToPartition submitToMember
09 AtomicLong
    apply alter addAndGet compareAndSet get getAndAdd getAndSet
0a AtomicRef
    apply compareAndSet contains get set
0b CountDownLatch
    trySetCount await countDown getCount getRound
0c Semaphore
    init acquire release drain change availablePermits getSemaphoreType
0d ReplicatedMap
    put size isEmpty containsKey containsValue get remove putAll clear
    addEntryListenerToKeyWithPredicate addEntryListenerWithPredicate addEntryListenerToKey
    addEntryListener removeEntryListener keySet values entrySet addNearCacheEntryListener
    putAllWithMetadata fetchEntryViews endEntryViewIteration
0e TransactionalMap
    containsKey get getForUpdate size isEmpty put set putIfAbsent replace replaceIfSame remove delete
    removeIfSame keySet keySetWithPredicate values valuesWithPredicate containsValue
0f TransactionalMultiMap
    put get remove removeEntry valueCount size
10 TransactionalSet
    add remove size
11 TransactionalList
    add remove size
12 TransactionalQueue
    offer take poll peek size
13 Cache
    addEntryListener clear removeAllKeys removeAll containsKey createConfig destroy entryProcessor
    getAll getAndRemove getAndReplace getConfig get iterate listenerRegistration loadAll
    managementConfig putIfAbsent put removeEntryListener removeInvalidationListener remove replace size
    addPartitionLostListener removePartitionLostListener putAll iterateEntries
    addNearCacheInvalidationListener fetchNearCacheInvalidationMetadata eventJournalSubscribe
    eventJournalRead setExpiryPolicy
14 XATransaction
    clearRemote collectTransactions finalize commit create prepare rollback
15 Transaction
    commit create rollback
16 ContinuousQuery
    publisherCreateWithValue publisherCreate madePublishable addListener setReadCursor destroyCache
17 Ringbuffer
    size tailSequence headSequence capacity remainingCapacity add readOne addAll readMany
18 DurableExecutor
    shutdown isShutdown submitToPartition retrieveResult disposeResult retrieveAndDisposeResult
19 CardinalityEstimator
    add estimate
1a ScheduledExecutor
    shutdown submitToPartition submitToMember getAllScheduledFutures getStatsFromPartition
    getStatsFromMember getDelayFromPartition getDelayFromMember cancelFromPartition cancelFromMember
    isCancelledFromPartition isCancelledFromMember isDoneFromPartition isDoneFromMember
    getResultFromPartition getResultFromMember disposeFromPartition disposeFromMember
1b DynamicConfig
    addMultiMapConfig addRingbufferConfig addCardinalityEstimatorConfig addListConfig addSetConfig
    addReplicatedMapConfig addTopicConfig addExecutorConfig addDurableExecutorConfig
    addScheduledExecutorConfig addQueueConfig addMapConfig addReliableTopicConfig addCacheConfig
    addFlakeIdGeneratorConfig addPNCounterConfig addDataConnectionConfig addWanReplicationConfig
    addUserCodeNamespaceConfig addVectorCollectionConfig
1c FlakeIdGenerator
    newIdBatch
1d PNCounter
    get add getConfiguredReplicaCount
1e CPGroup
    createCPGroup destroyCPObject
1f CPSession
    createSession closeSession heartbeatSession generateThreadId
20 ManagementCenter
    readMetrics changeClusterState getMapConfig updateMapConfig getMemberConfig runGc getThreadDump
    shutdownMember promoteLiteMember getSystemProperties getTimedMemberState matchMCConfig applyMCConfig
    getClusterMetadata shutdownCluster changeClusterVersion runScript runConsoleCommand
    changeWanReplicationState clearWanQueues addWanBatchPublisherConfig wanSyncMap checkWanConsistency
    pollMCEvents getCPMembers promoteToCPMember removeCPMember resetCPSubsystem triggerPartialStart
    triggerForceStart triggerHotRestartBackup interruptHotRestartBackup resetQueueAgeStatistics
    reloadConfig updateConfig forceCloseCPSession demoteDataMember getConfigFileContent
    setDiagnosticsConfig getDiagnosticsConfig
21 Sql
    executeReserved fetchReserved close execute fetch mappingDdl
22 CPSubsystem
    addMembershipListener removeMembershipListener addGroupAvailabilityListener
    removeGroupAvailabilityListener getCPGroupIds getCPObjectInfos
23 CPMap
    get put set remove delete compareAndSet putIfAbsent
24 VectorCollection
    put putIfAbsent putAll get remove set delete searchNearVector optimize clear size
fd Experimental
    pipelineSubmit
fe Jet
    submitJob terminateJob getJobStatus getJobIds joinSubmittedJob - getJobSubmissionTime getJobConfig
    resumeJob exportSnapshot getJobSummaryList existsDistributedObject getJobMetrics
    getJobSuspensionCause getJobAndSqlSummaryList isJobUserCancelled uploadJobMetaData
    uploadJobMultipart addJobStatusListener removeJobStatusListener updateJobConfig
"""
"""Service id and name, then its requests in the order of their method ids, which begin at 1; `-`: unused id. As in
the Java client 5.6.
"""


def _read_table() -> tuple[dict[int, str], dict[int, str]]:
    services: dict[int, str] = {}
    requests: dict[int, str] = {}
    service = method = 0
    for line in _TABLE.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            service, method = int(words[0], 16), 0
            services[service] = words[1]
            continue
        for word in words:
            method += 1
            if word != "-":
                requests[service << 16 | method << 8] = f"{services[service]}.{word}"
    return services, requests


SERVICES, NAMES = _read_table()
"""Service id -> name, as in `Map`. Type of a request -> name, as in `Map.put`."""


def name_of(kind: int) -> str:
    known = NAMES.get(kind)
    if known is not None:
        return known
    number = f"message 0x{kind & 0xFFFF_FFFF:06x}"
    service = SERVICES.get(kind >> 16)
    return f"{service} {number}" if service else number

"""The data lane in C: the loop and the sink of `reference_lane`, straight from the read buffer into the table of entries.

What is in a table this reads, stores and packs itself, without an object for each request. For all else (no table yet, an
entry that has ended) it calls the lane's methods, as the reference does for everything. The updates of a change stream
are packed with their former values. What listeners and near caches need of a write is gathered, and reported once for
each buffer.
`build_lane.py` makes one module of this file and of the texts that both lanes have in common.
"""

import cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from holdfast.core.store.entry_table cimport EntryTable
from libc.string cimport memcmp, memcpy, memset
from slotted cimport MapState, PartitionCopy, Replica, UnsentPuts, UpdateCounter

from holdfast.core.model.operations import EventKind
from holdfast.core.model.records import NO_FORMER, NOTE_BYTES, PACKED_MOST, PAIR_BYTES, Change, Record
from holdfast.core.operations import conditions
from holdfast.observe import latency_histogram
from holdfast.core.model.map_counts import MapCounts
from holdfast.server.hazelcast import frame_parser, keyed_requests, reference_lane
from holdfast.server.hazelcast.keyed_requests import BATCH_ROWS, COUNTED, END_FRAME, LANE_ROWS, VALUE_FLAGS, VIEWS
from holdfast.server.hazelcast.keyed_requests import LaneAction, value_head

# -- names of C for the texts in common

ctypedef const unsigned char *Bytes

cdef struct RowFields:
    int number
    int head
    int counter
    int action
    int condition
    unsigned int key_flags
    unsigned int expected_flags
    bint used
    bint batch
    bint reads
    bint stores
    bint expects
    bint looks
    bint views
    bint ttl
    bint ttl_first
    bint answers_value
    bint shows

ctypedef const RowFields *Row
ctypedef (Py_ssize_t, Row, int, long long, long long, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) Parsed
ctypedef (Py_ssize_t, Row, int, Py_ssize_t, Py_ssize_t, Py_ssize_t) ParsedBatch

cdef int SHORTEST = frame_parser.SHORTEST
cdef int NAME_HEADER = frame_parser.NAME_HEADER
cdef int THREAD_AT = frame_parser.THREAD_AT
cdef int BATCH_HEAD = frame_parser.BATCH_HEAD
cdef int SHORTEST_BATCH = frame_parser.SHORTEST_BATCH
cdef int BATCH_KEYS = frame_parser.BATCH_KEYS
cdef int BATCH_BYTES = frame_parser.BATCH_BYTES
cdef int SHORTEST_DATA = frame_parser.SHORTEST_DATA
cdef int DATA_AT = frame_parser.DATA_AT
cdef int HASH_AT = frame_parser.HASH_AT
cdef int TYPE_BYTES = frame_parser.TYPE_BYTES
cdef int CORRELATION_AT = frame_parser.CORRELATION_AT
cdef long long DEFAULT_TIME = frame_parser.DEFAULT_TIME
cdef long long LONGEST_MS = frame_parser.LONGEST_MS
cdef int FIRST_BIT = latency_histogram.FIRST_BIT
cdef int LAST_BIT = latency_histogram.LAST_BIT
cdef int BUCKETS = latency_histogram.BUCKETS
cdef int READS_COUNTED = keyed_requests.READS_COUNTED
cdef int ALWAYS = conditions.ALWAYS
cdef int IF_ABSENT = conditions.IF_ABSENT
cdef int IF_PRESENT = conditions.IF_PRESENT
cdef int EVICT = LaneAction.EVICT
cdef int SET_TTL = LaneAction.SET_TTL
cdef Parsed NOTHING = (0, NULL, 0, 0, 0, 0, 0, 0, 0, 0)
cdef ParsedBatch NO_BATCH = (0, NULL, 0, 0, 0, 0)

cdef RowFields ROWS[128]
"""By the byte in which message types of maps differ; those of the general way are not used."""

cdef inline Row row_of(int kind) noexcept:
    cdef Row row = &ROWS[(kind >> 8) & 0x7F]
    return row if kind & ~0x7F00 == 0x010000 and row.used else NULL

cdef inline Row batch_row_of(int kind) noexcept:
    cdef Row row = &ROWS[(kind >> 8) & 0x7F]
    return row if kind & ~0x7F00 == 0x010000 and row.batch else NULL

cdef inline unsigned int word(Bytes data, Py_ssize_t at) noexcept:
    """Four bytes, the lowest first. C compilers make one load of it."""
    cdef unsigned int low = data[at] | (<unsigned int> data[at + 1] << 8)
    cdef unsigned int high = data[at + 2] | (<unsigned int> data[at + 3] << 8)
    return low | (high << 16)

cdef inline unsigned int half(Bytes data, Py_ssize_t at) noexcept:
    return data[at] | (<unsigned int> data[at + 1] << 8)

cdef inline long long long_word(Bytes data, Py_ssize_t at) noexcept:
    return word(data, at) | (<long long> word(data, at + 4) << 32)

cdef inline (int, unsigned int, int, int, int, unsigned int) head_of(Bytes data, Py_ssize_t at) noexcept:
    return (
        <int> word(data, at), half(data, at + 4), <int> word(data, at + 6), <int> word(data, at + 18),
        <int> word(data, at + 30), half(data, at + 34),
    )

cdef inline (int, unsigned int, int, int) batch_head_of(Bytes data, Py_ssize_t at) noexcept:
    return <int> word(data, at), half(data, at + 4), <int> word(data, at + 6), <int> word(data, at + 18)

cdef inline (int, unsigned int) frame_of(Bytes data, Py_ssize_t at) noexcept:
    return <int> word(data, at), half(data, at + 4)

cdef inline (long long,) time_of(Bytes data, Py_ssize_t at) noexcept:
    return (long_word(data, at),)

cdef inline (long long, int, unsigned int) ttl_and_name_of(Bytes data, Py_ssize_t at) noexcept:
    return long_word(data, at), <int> word(data, at + 8), half(data, at + 12)

cdef inline (long long, long long, int, unsigned int) times_and_name_of(Bytes data, Py_ssize_t at) noexcept:
    return long_word(data, at), long_word(data, at + 8), <int> word(data, at + 16), half(data, at + 20)

cdef inline (int, unsigned int, unsigned int) data_head_of(Bytes data, Py_ssize_t at) noexcept:
    return <int> word(data, at), half(data, at + 4), word(data, at + 10)

include "conditions.pxi"
include "frame_parser.pxi"
include "lane_tally.pxi"

# -- responses: templates, in which the correlation id and the value are missing

cdef list MISSING = [row.first + bytes(8) + row.missing for row in (*LANE_ROWS, *BATCH_ROWS)]
cdef list FOUND = [row.first + bytes(8) + row.found for row in (*LANE_ROWS, *BATCH_ROWS)]
cdef list VALUED = [value_head(row.first, bytes(8), 0, VALUE_FLAGS) for row in LANE_ROWS]
cdef int SIZE_AT = 19
"""Where the length of the value's frame begins in a response with a value."""
cdef int VALUE_AT = 29
cdef Py_ssize_t SMALL = reference_lane.SMALL
cdef Py_ssize_t BULK_BYTES = reference_lane.BULK_BYTES
cdef Py_ssize_t EXPECTED_BYTES = reference_lane.EXPECTED_BYTES
cdef Py_ssize_t BATCH_ANSWER_BYTES = reference_lane.BATCH_ANSWER_BYTES
cdef bytes ENDS_LIST = END_FRAME
cdef bytes VIEW_BEGINS = VIEWS.first + bytes(8)

cdef inline void put_word(unsigned char *to, unsigned int number) noexcept:
    to[0] = number & 0xFF
    to[1] = (number >> 8) & 0xFF
    to[2] = (number >> 16) & 0xFF
    to[3] = (number >> 24) & 0xFF

cdef inline void put_long(unsigned char *to, long long number) noexcept:
    put_word(to, <unsigned int> (number & 0xFFFFFFFF))
    put_word(to + 4, <unsigned int> ((number >> 32) & 0xFFFFFFFF))

cdef inline unsigned char *longer(bytearray out, Py_ssize_t size) except NULL:
    """Make the bytes longer by so many; returns where these begin."""
    cdef Py_ssize_t end = len(out)
    PyByteArray_Resize(out, end + size)
    return <unsigned char *> PyByteArray_AS_STRING(out) + end

cdef inline int answer_plainly(bytearray out, bytes template, Bytes request) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(template)
    cdef unsigned char *to = longer(out, size)
    memcpy(to, PyBytes_AS_STRING(template), size)
    memcpy(to + CORRELATION_AT, request + CORRELATION_AT, 8)
    return 0

cdef inline int answer_value(
    bytearray out, int number, Bytes request, Bytes value, Py_ssize_t size, bint copied
) except -1:
    """`copied`: the value follows here; otherwise it is sent from where it is."""
    cdef unsigned char *to = longer(out, VALUE_AT + (size if copied else 0))
    memcpy(to, PyBytes_AS_STRING(<bytes> VALUED[number]), VALUE_AT)
    memcpy(to + CORRELATION_AT, request + CORRELATION_AT, 8)
    put_word(to + SIZE_AT, <unsigned int> size + DATA_AT)
    if copied:
        memcpy(to + VALUE_AT, value, size)
    return 0

cdef inline int append_data(bytearray out, Bytes content, Py_ssize_t size) except -1:
    """A frame of `Data` without a hash word."""
    cdef unsigned char *to = longer(out, size + DATA_AT)
    put_word(to, <unsigned int> size + DATA_AT)
    memset(to + 4, 0, DATA_AT - 4)
    memcpy(to + DATA_AT, content, size)
    return 0

cdef inline Py_ssize_t room_of(Py_ssize_t size) noexcept:
    return size + DATA_AT if size + DATA_AT > SMALL else 0

# -- the sink

cdef struct Frame:
    Row row
    int partition
    long long ttl_ms
    long long max_idle_ms
    Bytes message
    Bytes key
    Bytes value
    Bytes expected
    Py_ssize_t key_size
    Py_ssize_t value_size
    Py_ssize_t expected_size

cdef enum:
    MOST_OPERATIONS = 32

cdef int OPERATIONS = len(COUNTED)

cdef Py_ssize_t GENERAL = reference_lane.GENERAL
cdef object UNDONE = object()
"""Result of `_store_in_table` when it has done nothing."""
cdef object ADDED_NUMBER = int(EventKind.ADDED)
cdef object UPDATED_NUMBER = int(EventKind.UPDATED)
cdef object REMOVED_NUMBER = int(EventKind.REMOVED)
cdef int SET_NUMBER = Change.SET
cdef int REMOVE_NUMBER = Change.REMOVE
cdef Py_ssize_t NOTE_SIZE = NOTE_BYTES
cdef Py_ssize_t NONE_FORMER = NO_FORMER
cdef object SET_CHANGE = Change.SET
cdef object REMOVE_CHANGE = Change.REMOVE
cdef Py_ssize_t LONG_VALUE = PACKED_MOST
cdef Py_ssize_t PAIR = PAIR_BYTES


cdef class PrimarySink:
    """As `reference_lane.PrimarySink`. The fields of a buffer and of a map are those of the one that is being served."""

    cdef object lane
    cdef bytearray out
    cdef bytearray unsealed
    cdef list bulk
    cdef LaneTally tally
    # forwarded requests: to other members, and from them
    cdef object forwards
    cdef list away
    cdef Py_ssize_t expected_bytes
    cdef readonly list departing
    cdef public object ids
    cdef public long long served
    # of the buffer
    cdef list serving
    cdef list puts
    cdef bint direct
    cdef bint confirms_reads
    cdef dict listening
    cdef list written
    cdef list leading
    cdef bytes apart
    cdef long long counts[MOST_OPERATIONS]
    cdef long long wall_ms
    # of the map
    cdef str name
    cdef bint reads_only
    cdef bint looked
    cdef bint leaves
    cdef bint listened
    cdef bint times_known
    cdef long long ttl_ms
    cdef long long max_idle_ms
    cdef long long reads

    def __init__(
        self,
        lane,
        bytearray out not None,
        bytearray unsealed not None,
        LaneTally tally=None,
        list bulk=None,
        forwards=None,
    ):
        self.lane = lane
        self.out = out
        self.unsealed = unsealed
        self.tally = tally
        self.bulk = bulk
        self.written = []
        self.name = ""
        self.forwards = forwards
        self.departing = []
        self.served = 0
        if forwards is not None:
            self.away = forwards.away
            self.expected_bytes = forwards.expected_bytes

    cdef int begin(self, bytes apart) except -1:
        lane = self.lane
        cdef int number
        self.serving = lane.serving
        self.leading = lane.leading
        self.puts = lane.open_puts
        self.direct = self.puts is not None
        self.listening = lane.listening
        self.confirms_reads = lane.confirms_reads
        self.apart = apart
        self.wall_ms = -1
        self.reads = 0
        for number in range(OPERATIONS):
            self.counts[number] = 0
        return 0

    cdef int enter(self, served) except -1:
        """The next requests are for this map."""
        self.report()
        self.count_reads()
        self.reads_only = type(served) is tuple
        self.name = served[0] if self.reads_only else served
        self.listened = len(self.listening) and self.name in self.listening
        self.times_known = self.looked = False
        return 0

    cdef int end(self) except -1:
        cdef int number
        self.report()
        self.count_reads()
        self.apart = None
        if self.tally is not None:
            for number in range(OPERATIONS):
                if self.counts[number]:
                    self.tally.counts[number] += self.counts[number]
        return 0

    cdef inline int report(self) except -1:
        """Report writes to observers before anything else is written."""
        if self.written:
            written, self.written = self.written, []
            self.lane.report(self.name, written)
        return 0

    cdef int count_reads(self) except -1:
        if self.reads and self.tally is not None:
            self.tally.read(self.name, self.reads)
        self.reads = 0
        return 0

    cdef Py_ssize_t serve(self, const Frame *frame, Py_ssize_t size) except -2:
        """Carry the message of this size out, or forward it."""
        cdef Py_ssize_t taken = self.take(frame)
        if taken < 0 and self.apart is None:
            taken = self.forward(frame, size, 1)
        if taken >= 0:
            self.served += 1
        return taken

    cdef Py_ssize_t forward(self, const Frame *frame, Py_ssize_t size, Py_ssize_t keys) except -2:
        """As `reference_lane.PrimarySink.forward`. `size`: of the message."""
        cdef bytearray frames, kinds
        cdef unsigned char *to
        cdef Py_ssize_t expected
        if self.away is None or frame.partition >= len(self.away) or self.leading[frame.partition] is not None:
            return GENERAL
        outgoing = self.away[frame.partition]
        if outgoing is None or (self.reads_only and not frame.row.reads):
            return GENERAL
        if not self.looked:
            self.leaves = not self.forwards.stays(self.name)
            self.looked = True
        if not self.leaves:
            return GENERAL
        frames, kinds = outgoing.frames, outgoing.kinds
        if not len(frames):
            self.departing.append(outgoing)
        memcpy(longer(frames, size), frame.message, size)
        to = longer(kinds, 1)
        to[0] = <unsigned char> frame.row.counter
        expected = self.expected_bytes if frame.row.shows else EXPECTED_BYTES
        outgoing.expected += expected
        if frame.row.reads:
            self.reads += keys
        return expected

    cdef Py_ssize_t take(self, const Frame *frame) except -2:
        cdef PartitionCopy copy
        if frame.partition >= len(self.serving):
            return GENERAL
        copy = self.serving[frame.partition]
        if frame.row.reads:
            if copy is None:
                copy = self.lane.leading[frame.partition]
                if copy is None:
                    return GENERAL
            self.counts[frame.row.counter] += 1
            self.reads += 1
            return self.view(frame, copy) if frame.row.views else self.read(frame, copy)
        if copy is None or self.reads_only:
            return GENERAL
        if copy.locks.closed and self.lane.locked(copy, self.name, key_of(frame)):
            return GENERAL
        self.counts[frame.row.counter] += 1
        if self.ids is not None:
            self.report()
            write = write_of(frame, self.apart)
            return self.answer(
                frame,
                self.ids.write(
                    self.served, LANE_ROWS[frame.row.number], copy, self.name, key_of(frame), write
                ),
            )
        if frame.row.looks:
            return self.write_if(frame, copy)
        return self.answer(frame, self.store(frame, copy) if frame.row.stores else self.remove(frame, copy))

    cdef inline Py_ssize_t answer(self, const Frame *frame, old) except -2:
        """Answer a write, which found this value."""
        if old is None:
            answer_plainly(self.unsealed, <bytes> MISSING[frame.row.number], frame.message)
        elif frame.row.answers_value:
            return self.answer_with(self.unsealed, frame, <bytes> old)
        else:
            answer_plainly(self.unsealed, <bytes> FOUND[frame.row.number], frame.message)
        return 0

    cdef inline Py_ssize_t answer_with(self, bytearray out, const Frame *frame, bytes value) except -2:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
        answer_value(out, frame.row.number, frame.message, <Bytes> PyBytes_AS_STRING(value), size, True)
        return room_of(size)

    # -- reads

    cdef inline Py_ssize_t read(self, const Frame *frame, PartitionCopy copy) except -2:
        cdef Replica held = (<dict> copy.maps).get(self.name)
        cdef MapState state
        cdef EntryTable table
        cdef bytearray out = self.out
        cdef Py_ssize_t size = 0
        cdef bint expires = False
        cdef Bytes found
        if held is None:
            return self.read_by_lane(frame, copy, None)
        state = held.state
        if type(state.entries) is not EntryTable:
            return self.read_by_lane(frame, copy, state)
        table = state.entries
        if table.some_end():
            if table.has_ended(frame.key, frame.key_size, self.lane.now_ns, self.puts is not None, &expires) or (
                expires and self.puts is None
            ):
                return self.read_by_lane(frame, copy, state)
            if expires:
                out = self.unsealed
        if self.confirms_reads and self.lane.confirmed(self.name):
            self.lane.rest_on(copy, self.name)
            out = self.unsealed
        found = table.look(frame.key, frame.key_size, &size)
        if found is NULL or not frame.row.answers_value:
            template = MISSING if found is NULL else FOUND
            answer_plainly(out, <bytes> (<list> template)[frame.row.number], frame.message)
            return 0
        if size >= BULK_BYTES and self.bulk is not None and out is self.out:
            answer_value(out, frame.row.number, frame.message, found, size, False)
            self.bulk.append((len(out), table[key_of(frame)]))
        else:
            answer_value(out, frame.row.number, frame.message, found, size, True)
        return room_of(size)

    cdef Py_ssize_t view(self, const Frame *frame, PartitionCopy copy) except -2:
        cdef Py_ssize_t size
        cdef unsigned char *to
        hash_word = hash_word_of(frame)
        self.report()
        rest, waits = reference_lane.entry_view(self.lane, copy, self.name, key_of(frame), hash_word)
        size = len(<bytes> rest)
        answer_plainly(self.unsealed if waits else self.out, VIEW_BEGINS, frame.message)
        to = longer(self.unsealed if waits else self.out, size)
        memcpy(to, PyBytes_AS_STRING(<bytes> rest), size)
        return size if size > SMALL else 0

    cdef Py_ssize_t read_by_lane(self, const Frame *frame, PartitionCopy copy, MapState state) except -2:
        """A read of an entry that is in no table, or that expires."""
        cdef bytearray out = self.out
        cdef bytes key = key_of(frame)
        found = None
        if state is not None and state.expiries and key in state.expiries:
            # This may remove the entry, so the response waits like that to a write.
            self.report()
            found = self.lane.read(copy, self.name, key)
            out = self.unsealed
        elif state is not None:
            found = state.entries.get(key)
        if self.confirms_reads and self.lane.confirmed(self.name):
            self.lane.rest_on(copy, self.name)
            out = self.unsealed
        if found is None or not frame.row.answers_value:
            template = MISSING if found is None else FOUND
            answer_plainly(out, <bytes> (<list> template)[frame.row.number], frame.message)
            return 0
        if len(<bytes> found) >= BULK_BYTES and self.bulk is not None and out is self.out:
            answer_value(out, frame.row.number, frame.message, NULL, len(<bytes> found), False)
            self.bulk.append((len(out), found))
            return room_of(len(<bytes> found))
        return self.answer_with(out, frame, <bytes> found)

    # -- batches

    cdef Py_ssize_t take_batch(self, Frame *frame, Bytes at, Py_ssize_t count) except -2:
        """`at`: the first key's frame; all that follows was checked."""
        cdef PartitionCopy copy
        cdef Py_ssize_t number
        cdef Bytes each = at
        if frame.partition >= len(self.serving):
            return GENERAL
        copy = self.serving[frame.partition]
        if frame.row.reads:
            if copy is None:
                copy = self.lane.leading[frame.partition]
            return GENERAL if copy is None else self.read_batch(frame, copy, at, count)
        if copy is None or self.reads_only:
            return GENERAL
        if copy.locks.closed:
            for number in range(count):
                each = step_entry(frame, each)
                if self.lane.locked(copy, self.name, key_of(frame)):
                    return GENERAL
        if self.ids is not None:
            self.report()
            entries = []
            for number in range(count):
                at = step_entry(frame, at)
                entries.append((key_of(frame), value_of(frame, None), hash_of(frame)))
            self.ids.write_batch(self.served, copy, self.name, entries)
        else:
            for number in range(count):
                at = step_entry(frame, at)
                self.store(frame, copy)
        self.counts[frame.row.counter] += 1
        answer_plainly(self.unsealed, <bytes> FOUND[frame.row.number], frame.message)
        return 0

    cdef Py_ssize_t read_batch(self, Frame *frame, PartitionCopy copy, Bytes at, Py_ssize_t count) except -2:
        cdef Replica held = (<dict> copy.maps).get(self.name)
        cdef MapState state = held.state if held is not None else None
        cdef bytearray out = self.out
        cdef Py_ssize_t number, size, begin, distinct = 0
        cdef set seen = set() if count > 1 else None
        if state is not None and state.expiries:
            out = self.unsealed
        if self.confirms_reads and self.lane.confirmed(self.name):
            out = self.unsealed
        begin = len(out)
        answer_plainly(out, <bytes> FOUND[frame.row.number], frame.message)
        size = len(out)
        for number in range(count):
            at = step_key(frame, at)
            if seen is not None:
                key = key_of(frame)
                if key in seen:
                    continue
                seen.add(key)
            distinct += 1
            if state is not None:
                self.append_entry(out, frame, copy, state)
            if len(out) - size > BATCH_ANSWER_BYTES:
                PyByteArray_Resize(out, begin)
                return GENERAL
        size = len(out) - size
        memcpy(longer(out, NAME_HEADER), PyBytes_AS_STRING(ENDS_LIST), NAME_HEADER)
        if self.confirms_reads and self.lane.confirmed(self.name):
            self.lane.rest_on(copy, self.name)
        self.counts[frame.row.counter] += 1
        self.reads += distinct
        return size if size > SMALL else 0

    cdef inline int append_entry(self, bytearray out, const Frame *frame, PartitionCopy copy, MapState state) except -1:
        """Key and value, if there is such an entry."""
        cdef EntryTable table
        cdef Py_ssize_t size = 0
        cdef bint ended, expires = False
        cdef Bytes value
        if type(state.entries) is EntryTable:
            table = state.entries
            ended = table.some_end() and table.has_ended(
                frame.key, frame.key_size, self.lane.now_ns, self.direct, &expires
            )
            if not ended and (self.direct or not expires):
                value = table.look(frame.key, frame.key_size, &size)
                if value is not NULL:
                    append_data(out, frame.key, frame.key_size)
                    append_data(out, value, size)
                return 0
        key = key_of(frame)
        if state.expiries and key in state.expiries:
            self.report()
            found = self.lane.read(copy, self.name, key)
        else:
            found = state.entries.get(key)
        if found is not None:
            append_data(out, frame.key, frame.key_size)
            append_data(out, <Bytes> PyBytes_AS_STRING(<bytes> found), PyBytes_GET_SIZE(<bytes> found))
        return 0

    # -- writes

    cdef inline object store(self, const Frame *frame, PartitionCopy copy):
        cdef int hash_word = hash_of(frame)
        if self.direct and not hash_word:
            old = self.store_in_table(frame, copy)
            if old is not UNDONE:
                return old
        self.report()
        key, value = key_of(frame), value_of(frame, self.apart)
        return self.lane.set(copy, self.name, key, value, frame.ttl_ms, frame.max_idle_ms, hash_word)

    cdef object store_in_table(self, const Frame *frame, PartitionCopy copy):
        """Store an entry in the table, and pack it to where it waits for the backups; one that expires becomes a record.
        Returns the old value if the response has it; `UNDONE`: nothing was done.
        """
        cdef Replica held = (<dict> copy.maps).get(self.name)
        cdef MapState state
        cdef UpdateCounter updates
        cdef UnsentPuts unsent = None
        cdef EntryTable table
        cdef long long ttl_ms, max_idle_ms, now_ns = 0
        cdef bint ending, counted, changes, packs, expires = False
        if held is None:
            return UNDONE
        state, updates = held.state, held.updates
        if type(state.entries) is not EntryTable or updates.hwm != updates.lwm:
            return UNDONE
        table = state.entries
        ttl_ms, max_idle_ms = self.times_of(frame)
        ending = ttl_ms != 0 or max_idle_ms != 0
        changes = held.changes != 0
        packs = held.recorded and (changes or not ending)
        if packs:
            unsent = held.unsent
            if unsent is None or frame.value_size >= LONG_VALUE or not may_pack(unsent, changes):
                return UNDONE
        if ending or table.some_end():
            now_ns = self.lane.now_ns
            if table.has_ended(frame.key, frame.key_size, now_ns, False, &expires):
                return UNDONE
        old = table.get(key_of(frame)) if frame.row.answers_value or self.listened else None
        counted = note(state, table, frame)
        if packs and changes:
            self.pack_set(frame, held, unsent, table, ttl_ms, max_idle_ms)
        elif packs:
            self.pack(frame, held, unsent)
        if ending or expires:
            table.put_ending(
                frame.key, frame.key_size, frame.value, frame.value_size, ttl_ms, max_idle_ms, now_ns, self.apart,
                counted,
            )
        else:
            table.put(frame.key, frame.key_size, frame.value, frame.value_size, self.apart, counted)
        number = updates.hwm + 1
        updates.lwm = updates.hwm = number
        if held.recorded and not packs:
            key, value = key_of(frame), value_of(frame, self.apart)
            self.lane.record(copy, held, Record(self.name, number, SET_CHANGE, key, value, ttl_ms, max_idle_ms))
        if self.listened:
            self.note_event(frame, held, old, number)
        return old

    cdef int note_event(self, const Frame *frame, Replica held, old, number) except -1:
        """The event of a stored entry, for `report`."""
        key = key_of(frame)
        kind = ADDED_NUMBER if old is None else UPDATED_NUMBER
        word = hash_in(held.state, key)
        self.written.append((kind, key, value_of(frame, self.apart), old, word, number, term_of(held)))
        return 0

    cdef Py_ssize_t write_if(self, const Frame *frame, PartitionCopy copy) except -2:
        """As `reference_lane.write_if`: the values are compared in the table."""
        cdef Replica held = (<dict> copy.maps).get(self.name) if self.direct else None
        cdef MapState state
        cdef EntryTable table
        cdef Bytes found
        cdef Py_ssize_t size = 0
        cdef bint present, same, expires = False
        if held is None:
            return self.write_if_by_lane(frame, copy)
        state = held.state
        if type(state.entries) is not EntryTable:
            return self.write_if_by_lane(frame, copy)
        table = state.entries
        if table.some_end() and table.has_ended(frame.key, frame.key_size, self.lane.now_ns, True, &expires):
            return self.write_if_by_lane(frame, copy)
        found = table.look(frame.key, frame.key_size, &size)
        present = found is not NULL
        same = (
            present and frame.row.expects and size == frame.expected_size
            and not memcmp(found, frame.expected, size)
        )
        if not takes_effect(frame.row.condition, present, same):
            if present and frame.row.answers_value:
                answer_value(self.unsealed, frame.row.number, frame.message, found, size, True)
            else:
                size = 0
                answer_plainly(self.unsealed, <bytes> MISSING[frame.row.number], frame.message)
            self.lane.rest_on(copy, self.name)
            return room_of(size)
        if frame.row.stores:
            old = self.store(frame, copy)
        elif frame.row.action == SET_TTL:
            self.report()
            self.lane.set_ttl(copy, self.name, key_of(frame), frame.ttl_ms)
        elif frame.row.action == EVICT and self.listened:
            self.report()
            self.lane.evict(copy, self.name, key_of(frame))
        else:
            self.remove(frame, copy)
        return self.answer(frame, old if frame.row.answers_value else True)

    cdef Py_ssize_t write_if_by_lane(self, const Frame *frame, PartitionCopy copy) except -2:
        self.report()
        write = write_of(frame, self.apart)
        return self.answer(
            frame,
            reference_lane.write_if(
                self.lane, LANE_ROWS[frame.row.number], copy, self.name, key_of(frame), write
            ),
        )

    cdef inline (long long, long long) times_of(self, const Frame *frame) except *:
        """Time to live and maximum idle time of what is stored: the request's, or the map's own."""
        if not self.times_known:
            self.ttl_ms, self.max_idle_ms = self.lane.lifetimes(self.name)
            self.times_known = True
        return (
            self.ttl_ms if frame.ttl_ms < 0 else frame.ttl_ms,
            self.max_idle_ms if frame.max_idle_ms < 0 else frame.max_idle_ms,
        )

    cdef inline int pack(self, const Frame *frame, Replica held, UnsentPuts unsent) except -1:
        cdef unsigned char *to = longer(unsent.sizes, PAIR)
        put_word(to, <unsigned int> frame.key_size)
        put_word(to + 4, <unsigned int> frame.value_size)
        to = longer(unsent.data, frame.key_size + frame.value_size)
        memcpy(to, frame.key, frame.key_size)
        memcpy(to + frame.key_size, frame.value, frame.value_size)
        self.opens(held, unsent)
        return 0

    cdef inline int pack_change(
        self, const Frame *frame, Replica held, UnsentPuts unsent, int change, Bytes former, Py_ssize_t former_size,
        long long ttl_ms, long long max_idle_ms,
    ) except -1:
        """As `records.Changes`. `former`: NULL: there was no value."""
        cdef Py_ssize_t value_size = frame.value_size if change == SET_NUMBER else 0
        cdef Py_ssize_t kept = 0 if former is NULL else former_size
        cdef unsigned char *to = longer(unsent.sizes, PAIR)
        if self.wall_ms < 0:
            self.wall_ms = self.lane.wall_ms()
        put_word(to, <unsigned int> frame.key_size)
        put_word(to + 4, <unsigned int> value_size)
        to = longer(unsent.notes, NOTE_SIZE)
        put_word(to, <unsigned int> change)
        put_word(to + 4, <unsigned int> (NONE_FORMER if former is NULL else former_size))
        put_long(to + 8, self.wall_ms)
        put_long(to + 16, ttl_ms)
        put_long(to + 24, max_idle_ms)
        to = longer(unsent.data, frame.key_size + value_size + kept)
        memcpy(to, frame.key, frame.key_size)
        memcpy(to + frame.key_size, frame.value, value_size)
        if kept:
            memcpy(to + frame.key_size + value_size, former, kept)
        self.opens(held, unsent)
        return 0

    cdef inline int pack_set(
        self, const Frame *frame, Replica held, UnsentPuts unsent, EntryTable table, long long ttl_ms,
        long long max_idle_ms,
    ) except -1:
        """Before the entry is stored: its former value is in the table."""
        cdef Py_ssize_t size = 0
        cdef Bytes former = table.look(frame.key, frame.key_size, &size)
        return self.pack_change(frame, held, unsent, SET_NUMBER, former, size, ttl_ms, max_idle_ms)

    cdef inline int opens(self, Replica held, UnsentPuts unsent) except -1:
        if not unsent.opened:
            unsent.opened = True
            self.puts.append(held)
        return 0

    cdef object remove(self, const Frame *frame, PartitionCopy copy):
        """`Lane.remove` of an ordinary entry; for any other it is called."""
        cdef Replica held = (<dict> copy.maps).get(self.name) if self.direct else None
        cdef MapState state
        cdef UpdateCounter updates
        cdef UnsentPuts unsent = None
        cdef bytes old, key = key_of(frame)
        if held is None:
            return self.remove_by_lane(copy, key)
        state, updates = held.state, held.updates
        if state.hashes or key not in state.entries or updates.hwm != updates.lwm:
            return self.remove_by_lane(copy, key)
        if held.recorded and held.changes:
            unsent = held.unsent
            if unsent is None or not may_pack(unsent, True):
                return self.remove_by_lane(copy, key)
        if state.expiries:
            if state.endings.ended(key, self.lane.now_ns, False):
                return self.remove_by_lane(copy, key)
            state.endings.drop(key)
        old = state.entries.pop(key)
        if state.touched is not None and key not in <dict> state.touched:
            (<dict> state.touched)[key] = old
        number = updates.hwm + 1
        updates.lwm = updates.hwm = number
        if unsent is not None:
            self.pack_change(
                frame, held, unsent, REMOVE_NUMBER, <Bytes> PyBytes_AS_STRING(old), PyBytes_GET_SIZE(old), 0, 0
            )
        elif held.recorded:
            self.lane.record(copy, held, Record(self.name, number, REMOVE_CHANGE, key))
        if self.listened:
            self.written.append((REMOVED_NUMBER, key, None, old, 0, number, term_of(held)))
        return old

    cdef object remove_by_lane(self, PartitionCopy copy, bytes key):
        self.report()
        return self.lane.remove(copy, self.name, key)


cdef inline Bytes step_key(Frame *frame, Bytes at) noexcept:
    """The key in this frame of a list; returns where the next frame begins."""
    cdef Py_ssize_t length = <int> word(at, 0)
    frame.key, frame.key_size = at + DATA_AT, length - DATA_AT
    return at + length


cdef inline Bytes step_entry(Frame *frame, Bytes at) noexcept:
    at = step_key(frame, at)
    cdef Py_ssize_t length = <int> word(at, 0)
    frame.value, frame.value_size = at + DATA_AT, length - DATA_AT
    return at + length


cdef inline bytes key_of(const Frame *frame):
    return (<const char *> frame.key)[:frame.key_size]


cdef bytes hash_word_of(const Frame *frame):
    return (<const char *> frame.key - (DATA_AT - HASH_AT))[:DATA_AT - HASH_AT]


cdef inline bytes value_of(const Frame *frame, bytes apart):
    return (<const char *> frame.value)[:frame.value_size] if apart is None else apart


cdef tuple write_of(const Frame *frame, bytes apart):
    """`reference_lane.EntryWrite`."""
    expected = (<const char *> frame.expected)[:frame.expected_size]
    if not frame.row.stores:
        return None, frame.ttl_ms, frame.max_idle_ms, 0, expected
    return value_of(frame, apart), frame.ttl_ms, frame.max_idle_ms, hash_of(frame), expected


cdef inline int hash_of(const Frame *frame) noexcept:
    """The partition-hash word in front of the stored key; the highest byte is the first."""
    cdef Bytes at = frame.key - (DATA_AT - HASH_AT)
    return <int> ((<unsigned int> at[0] << 24) | (<unsigned int> at[1] << 16) | (<unsigned int> at[2] << 8) | at[3])


cdef inline object hash_in(MapState state, bytes key):
    """The stored partition-hash word of a key."""
    return (<dict> state.hashes).get(key, 0) if state.hashes else 0


cdef inline object term_of(Replica held):
    lineage = <list> held.lineage
    return lineage[len(lineage) - 1][0] if lineage else 0


cdef inline bint may_pack(UnsentPuts unsent, bint changes) except -1:
    """Whether what is packed already is of the same kind; settings may have changed in the middle of a buffer."""
    return not len(unsent.sizes) or changes == (len(unsent.notes) > 0)


cdef bint note(MapState state, EntryTable table, const Frame *frame) except -1:
    """Note the entry's value before it changes, for observers. Returns whether the table has to count the change."""
    cdef dict touched
    cdef bint counted = state.counts
    if state.touched is None:
        return counted
    touched = state.touched
    if not touched and counted:
        return counted
    key = key_of(frame)
    if key in touched:
        return False
    if not counted:
        touched[key] = table.get(key)
    return counted


# -- the loop

cdef Py_ssize_t hand_over(sink, served, const Frame *frame, bytes apart) except -2:
    """For a sink in Python."""
    row, key = LANE_ROWS[frame.row.number], key_of(frame)
    correlation = (<const char *> frame.message)[CORRELATION_AT : CORRELATION_AT + 8]
    if frame.row.views:
        return sink.view(row, frame.partition, served, key, hash_word_of(frame), correlation)
    if frame.row.reads:
        return sink.read(row, frame.partition, served, key, correlation)
    return sink.write(row, frame.partition, served, key, write_of(frame, apart), correlation)


cdef Py_ssize_t serve_batch(
    bytes data, Py_ssize_t at, sink, dict names, tuple longest, Py_ssize_t *after
) except -2:
    """As `reference_lane.serve_batch`. `after`: where the next message begins."""
    cdef PrimarySink primary = sink if type(sink) is PrimarySink else None
    cdef Bytes raw = <Bytes> PyBytes_AS_STRING(data)
    cdef Py_ssize_t name_at, list_at, count, taken
    cdef Frame frame
    if primary is None:
        after[0], taken = reference_lane.serve_batch(data, at, sink, names, longest)
        return taken
    after[0], frame.row, frame.partition, name_at, list_at, count = parse_batch(
        raw, at, PyBytes_GET_SIZE(data), longest[0], longest[1]
    )
    if frame.row is NULL:
        return GENERAL
    served = names.get((<const char *> raw)[name_at:list_at])
    if served is None:
        return GENERAL
    primary.enter(served)
    frame.message = raw + at
    frame.ttl_ms = frame.max_idle_ms = DEFAULT_TIME
    taken = primary.take_batch(&frame, raw + list_at + NAME_HEADER, count)
    if taken < 0:
        taken = primary.forward(&frame, after[0] - at, count)
    if taken >= 0:
        primary.served += 1
    return taken


def serve_entries(
    bytes data not None,
    Py_ssize_t at,
    sink,
    dict names not None,
    tuple longest not None,
    Py_ssize_t room,
    bytes apart=None,
):
    """See `reference_lane.serve_entries`."""
    cdef PrimarySink primary = sink if type(sink) is PrimarySink else None
    cdef Bytes raw = <Bytes> PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t whole_end = end if apart is None else end + PyBytes_GET_SIZE(apart) - TYPE_BYTES
    cdef Py_ssize_t longest_key = longest[0], longest_value = longest[1]
    cdef Py_ssize_t after, name_at, key_at, key_end, value_at, expected_end, taken, named_at = 0, named_size = -1
    cdef Frame frame
    served = None
    if primary is not None:
        primary.begin(apart)
    while room >= 0:
        (
            after, frame.row, frame.partition, frame.ttl_ms, frame.max_idle_ms, name_at, key_at, key_end, value_at,
            expected_end,
        ) = parse(raw, at, end, whole_end, longest_key, longest_value)
        if frame.row is NULL:
            # The sink has another map now, perhaps.
            named_size = -1
            taken = serve_batch(data, at, sink, names, longest, &after)
            if taken < 0:
                break
            room -= taken
            at = after
            continue
        if named_size != key_at - name_at or memcmp(raw + named_at, raw + name_at, named_size):
            served = names.get((<const char *> raw)[name_at:key_at])
            if served is None:
                break
            named_at, named_size = name_at, key_at - name_at
            if primary is not None:
                primary.enter(served)
        frame.message = raw + at
        frame.key, frame.key_size = raw + key_at + DATA_AT, key_end - key_at - DATA_AT
        frame.value, frame.value_size = raw + value_at, after - value_at
        frame.expected, frame.expected_size = raw + key_end + DATA_AT, 0
        if frame.row.expects:
            frame.expected_size = expected_end - key_end - DATA_AT
        if primary is not None:
            taken = primary.serve(&frame, after - at)
        else:
            taken = hand_over(sink, served, &frame, apart)
        if taken < 0:
            break
        room -= taken
        at = after
    if primary is not None:
        primary.end()
    else:
        sink.end()
    return at


cdef int learn_rows() except -1:
    cdef RowFields *to
    assert OPERATIONS <= MOST_OPERATIONS
    for row in (*LANE_ROWS, *BATCH_ROWS):
        to = &ROWS[(<int> row.kind >> 8) & 0x7F]
        to.batch = row in BATCH_ROWS
        to.used = not to.batch
        to.number, to.head, to.counter, to.action = row.number, row.head, row.counter, row.action
        to.reads, to.stores, to.looks, to.condition = row.reads, row.stores, row.looks, row.condition
        to.views = row.views
        to.key_flags, to.expects, to.expected_flags = row.key_flags, row.expects, row.expected_flags
        to.ttl, to.ttl_first, to.answers_value = row.ttl, row.ttl_first, row.answers_value
        to.shows = row.shows
    return 0


learn_rows()

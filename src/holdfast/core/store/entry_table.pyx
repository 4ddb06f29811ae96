"""A table of the entries of a map in one partition: a dictionary of bytes to bytes in two thirds of the memory.

Compiled only. Plain Python has the dictionary, which is the reference: users of a table through `MapState.entries`
need not know which of the two it is. Compiled code (the data lane) reads and stores through pointers (`look`,
`put`, `discard`), without a key object or a value object.

`entry_mapping.py` has its structure and its rules (store/E-1 … E-9).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from collections.abc import ItemsView, KeysView, Mapping, MutableMapping, ValuesView

from holdfast.core.store.digest import RANGE_SEED
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.murmur3 cimport hash32, hash64_of_two

cdef extern from *:
    """
    #if SIZEOF_VOID_P != 8
    #error "the table packs pointers of 64 bits"
    #endif
    #if PY_VERSION_HEX >= 0x030E0000
    #define holdfast_hash(at, size) ((unsigned long long)Py_HashBuffer((at), (size)))
    #else
    #define holdfast_hash(at, size) ((unsigned long long)_Py_HashBytes((at), (size)))
    #endif
    #if defined(__GNUC__) || defined(__clang__)
    #define holdfast_soon(at) __builtin_prefetch((const void *)(at))
    #else
    #define holdfast_soon(at) ((void)(at))
    #endif
    """
    uint64_t BLOCK_BITS "0x0000FFFFFFFFFFF0ULL"
    uint64_t MARK_BITS "0xFFFF00000000000FULL"
    uint64_t secret_hash "holdfast_hash"(const void *at, Py_ssize_t size) noexcept
    void read_soon "holdfast_soon"(uint64_t at) noexcept nogil
    void *PyObject_Malloc(size_t size) noexcept
    void PyObject_Free(void *block) noexcept

cdef enum:
    LARGE_BYTES = 4096
    LONG = 0xFFFF
    HEAD = 8
    SMALL_BLOCK = 512
    SLOTS_LEAST = 4
    SLOTS_MOST = 1024
    DEPTH_MOST = 16
    AHEAD = 8
    AT_ONCE = 256
    TAKEN_BACK = 1 << 16
    FREED_LIKE_ONE = 1 << 11
    AS_WELL = 4
    SIZE_BITS = 0x0FFF
    IS_LARGE = 0x1000
    ENDS = 0x2000
    IDLES = 0x4000
    ENDING_BYTES = 20
    IDLING_BYTES = 44
    NOWHERE = 0xFFFFFFFF
    PACKED_OVERHEAD = 8

cdef extern from *:
    int64_t MS "1000000LL"
cdef int64_t NEVER = 0x7FFFFFFFFFFFFFFF
cdef int64_t LONGEST_MS = 1 << 62

cdef uint32_t OF_RANGES = RANGE_SEED

LARGE = LARGE_BYTES
"""Bytes from which on a value is an object of its own."""
SLOTS_MAX = SLOTS_MOST
"""Slots of a segment at which it is split instead of growing, if that helps."""


# -- blocks: u32 hash, u16 bytes of the key, u16 bytes of the value and what it has; then for a LONG key a u64 with its
# -- size, for a large value the reference; then the ending, if it expires; then the key, and a value that is not large


cdef inline Py_ssize_t key_size_of(const unsigned char *block) noexcept nogil:
    cdef Py_ssize_t size = (<const uint16_t *> (block + 4))[0]
    return size if size != LONG else <Py_ssize_t> (<const uint64_t *> (block + HEAD))[0]


cdef inline uint16_t form_of(const unsigned char *block) noexcept nogil:
    """ENDS, and IDLES, or 0."""
    return (<const uint16_t *> (block + 4))[1] & (ENDS | IDLES)


cdef inline Py_ssize_t ending_bytes(uint16_t form) noexcept nogil:
    return IDLING_BYTES if form & IDLES else ENDING_BYTES if form else 0


cdef inline Py_ssize_t ending_at(const unsigned char *block) noexcept nogil:
    cdef const uint16_t *sizes = <const uint16_t *> (block + 4)
    return HEAD + (8 if sizes[0] == LONG else 0) + (8 if sizes[1] & IS_LARGE else 0)


cdef inline Py_ssize_t key_at(const unsigned char *block) noexcept nogil:
    return ending_at(block) + ending_bytes(form_of(block))


cdef inline bint is_large(const unsigned char *block) noexcept nogil:
    return (<const uint16_t *> (block + 4))[1] & IS_LARGE


cdef inline PyObject **reference_at(unsigned char *block) noexcept nogil:
    return <PyObject **> (block + HEAD + (8 if (<const uint16_t *> (block + 4))[0] == LONG else 0))


cdef inline const unsigned char *value_in(unsigned char *block, Py_ssize_t *size) noexcept:
    cdef PyObject *whole
    if is_large(block):
        whole = reference_at(block)[0]
        size[0] = PyBytes_GET_SIZE(<object> whole)
        return <const unsigned char *> PyBytes_AS_STRING(<object> whole)
    size[0] = (<const uint16_t *> (block + 4))[1] & SIZE_BITS
    return block + key_at(block) + key_size_of(block)


cdef inline bytes key_object(unsigned char *block):
    return PyBytes_FromStringAndSize(<const char *> (block + key_at(block)), key_size_of(block))


cdef inline bytes value_object(unsigned char *block):
    cdef Py_ssize_t size = 0
    cdef const unsigned char *content
    if is_large(block):
        return <bytes> reference_at(block)[0]
    content = value_in(block, &size)
    return PyBytes_FromStringAndSize(<const char *> content, size)


cdef inline uint64_t digest_of(
    const unsigned char *key, Py_ssize_t key_size, const unsigned char *value, Py_ssize_t value_size
) noexcept nogil:
    """`digest.entry_digest`."""
    return hash64_of_two(key, key_size, value, value_size, <uint32_t> key_size)


cdef inline uint32_t range_of(const unsigned char *key, Py_ssize_t key_size) noexcept nogil:
    """`digest.range_of`: 0 .. 63."""
    return hash32(key, key_size, OF_RANGES) >> 26


cdef inline Py_ssize_t rounded(Py_ssize_t size) noexcept nogil:
    """Bytes to allocate: Python's allocator has blocks of 16, 32 … 512 bytes, and a value may grow into the rest."""
    return size if size > SMALL_BLOCK else (size + 15) & ~<Py_ssize_t> 15


cdef inline Py_ssize_t block_size(const unsigned char *block) noexcept nogil:
    """Bytes of the block itself."""
    cdef Py_ssize_t size = key_at(block) + key_size_of(block)
    return rounded(size if is_large(block) else size + ((<const uint16_t *> (block + 4))[1] & SIZE_BITS))


cdef inline void block_soon(unsigned char *block) noexcept nogil:
    """Prefetch the whole block, so that a copy does not fetch it line by line."""
    cdef Py_ssize_t at = 64, size = block_size(block)
    while at < size:
        read_soon(<uint64_t> block + at)
        at += 64


cdef unsigned char *new_block(
    uint32_t hashed,
    const unsigned char *key,
    Py_ssize_t key_size,
    const unsigned char *value,
    Py_ssize_t value_size,
    bytes whole,
    uint16_t form,
) except NULL:
    """`whole`: the value as an object, if there is one. `form`: whether it expires; the caller fills in the ending."""
    cdef bint large = value_size >= LARGE_BYTES
    cdef bint long_key = key_size >= LONG
    cdef Py_ssize_t begins = HEAD + (8 if long_key else 0) + (8 if large else 0) + ending_bytes(form)
    cdef unsigned char *block
    if large and whole is None:
        whole = PyBytes_FromStringAndSize(<const char *> value, value_size)
    block = <unsigned char *> PyObject_Malloc(rounded(begins + key_size + (0 if large else value_size)))
    if block is NULL:
        raise MemoryError()
    if (<uint64_t> block) & MARK_BITS:
        PyObject_Free(block)
        raise MemoryError("memory is not where the table can point to: set member.lane to 'python'")
    (<uint32_t *> block)[0] = hashed
    (<uint16_t *> (block + 4))[0] = LONG if long_key else <uint16_t> key_size
    (<uint16_t *> (block + 4))[1] = form | (IS_LARGE if large else <uint16_t> value_size)
    if long_key:
        (<uint64_t *> (block + HEAD))[0] = key_size
    memcpy(block + begins, key, key_size)
    if large:
        Py_INCREF(whole)
        reference_at(block)[0] = <PyObject *> whole
    else:
        memcpy(block + begins + key_size, value, value_size)
    return block


cdef inline void free_block(unsigned char *block) noexcept:
    cdef PyObject *whole = NULL
    if is_large(block):
        whole = reference_at(block)[0]
    PyObject_Free(block)
    if whole is not NULL:
        Py_DECREF(<object> whole)


cdef inline uint32_t word_of(const unsigned char *at) noexcept nogil:
    """Four bytes, the lowest first."""
    return at[0] | (<uint32_t> at[1] << 8) | (<uint32_t> at[2] << 16) | (<uint32_t> at[3] << 24)


cdef inline void put_word(unsigned char *to, uint32_t number) noexcept nogil:
    """Write four bytes, the lowest first."""
    to[0], to[1], to[2], to[3] = number & 0xFF, (number >> 8) & 0xFF, (number >> 16) & 0xFF, number >> 24


# -- endings: u32 place in the heap, then i64 each: when it was stored, the time to live; with a maximum idle time also
# -- that, when it was used, and its moment in the heap


cdef inline uint32_t place_of(const unsigned char *block) noexcept nogil:
    cdef uint32_t found
    memcpy(&found, block + ending_at(block), 4)
    return found


cdef inline void set_place(unsigned char *block, uint32_t at) noexcept nogil:
    memcpy(block + ending_at(block), &at, 4)


cdef inline int64_t number_of(const unsigned char *block, Py_ssize_t which) noexcept nogil:
    cdef int64_t found
    memcpy(&found, block + ending_at(block) + 4 + 8 * which, 8)
    return found


cdef inline void set_number(unsigned char *block, Py_ssize_t which, int64_t number) noexcept nogil:
    memcpy(block + ending_at(block) + 4 + 8 * which, &number, 8)


cdef inline int64_t after(int64_t since_ns, int64_t time_ms) noexcept nogil:
    if time_ms > (NEVER - (since_ns if since_ns > 0 else 0)) // MS:
        return NEVER
    return since_ns + time_ms * MS


cdef inline int64_t deadline_of(const unsigned char *block) noexcept nogil:
    cdef int64_t ttl_ms = number_of(block, 1), by_ttl = NEVER, by_idle
    if ttl_ms:
        by_ttl = after(number_of(block, 0), ttl_ms)
    if form_of(block) & IDLES:
        by_idle = after(number_of(block, 3), number_of(block, 2))
        if by_idle < by_ttl:
            return by_idle
    return by_ttl


cdef inline int64_t noted_of(const unsigned char *block) noexcept nogil:
    """Not later than the deadline."""
    return number_of(block, 4) if form_of(block) & IDLES else deadline_of(block)


cdef bint ends_before(const unsigned char *one, const unsigned char *other) noexcept nogil:
    cdef int64_t mine = noted_of(one), its = noted_of(other)
    cdef Py_ssize_t size, other_size
    cdef int found
    if mine != its:
        return mine < its
    size, other_size = key_size_of(one), key_size_of(other)
    found = memcmp(one + key_at(one), other + key_at(other), size if size < other_size else other_size)
    return found < 0 or (found == 0 and size < other_size)


cdef expiry_object(const unsigned char *block):
    cdef int64_t stored = number_of(block, 0)
    cdef bint idles = form_of(block) & IDLES
    return Expiry(
        number_of(block, 1),
        number_of(block, 2) if idles else 0,
        stored,
        number_of(block, 3) if idles else stored,
        noted_of(block),
    )


# -- slots


cdef inline unsigned char *block_of(uint64_t slot) noexcept nogil:
    return <unsigned char *> (slot & BLOCK_BITS)


cdef inline uint64_t mark_of(uint32_t hashed) noexcept nogil:
    return (<uint64_t> (hashed & 0xFFFF) << 48) | ((hashed >> 16) & 0xF)


cdef inline uint32_t home_of(uint64_t slot, uint32_t slots) noexcept nogil:
    """Its home in a segment, by the first 16 bits of its mark."""
    return <uint32_t> (((slot >> 48) * slots) >> 16)


# -- segments


cdef inline uint32_t most_used(uint32_t slots) noexcept nogil:
    """The most slots that may be filled: at most 13 of 16, and never all."""
    return slots - 1 - (slots * 3 >> 4)


cdef inline uint32_t slots_for(uint32_t used) noexcept nogil:
    """Slots with room for an eighth more entries."""
    cdef uint32_t wanted = used + (used >> 3) + 1
    cdef uint32_t slots = SLOTS_LEAST if wanted < SLOTS_LEAST else ((wanted + (wanted >> 2)) | 7) + 1
    while most_used(slots) < wanted:
        slots += 8
    return slots


cdef Segment *new_segment(uint32_t slots, uint32_t depth) except NULL:
    cdef Segment *segment = <Segment *> PyMem_RawMalloc(16 + 8 * <size_t> slots)
    if segment is NULL:
        raise MemoryError()
    segment.slots = slots
    segment.used = 0
    segment.depth = depth
    memset(&segment.at[0], 0, 8 * <size_t> slots)
    return segment


cdef inline void place(Segment *segment, uint64_t filled) noexcept nogil:
    """There is room, and the key is not there."""
    cdef uint32_t at = home_of(filled, segment.slots)
    while segment.at[at]:
        at += 1
        if at == segment.slots:
            at = 0
    segment.at[at] = filled
    segment.used += 1


cdef inline void vacate(Segment *segment, uint32_t at) noexcept nogil:
    """Empty this slot, and move back entries that would not be found behind a gap (store/E-4)."""
    cdef uint32_t slots = segment.slots
    cdef uint32_t gap = at, home
    cdef uint64_t slot
    while True:
        at += 1
        if at == slots:
            at = 0
        slot = segment.at[at]
        if not slot:
            break
        home = home_of(slot, slots)
        # It may stay if its home is behind the gap, on the way round to where it is.
        if (gap < home <= at) if gap <= at else (home > gap or home <= at):
            continue
        segment.at[gap] = slot
        gap = at
    segment.at[gap] = 0
    segment.used -= 1


cdef void move_all(Segment *source, Segment *to) noexcept nogil:
    cdef uint32_t at
    for at in range(source.slots):
        if source.at[at]:
            place(to, source.at[at])


# -- blocks of dropped tables: freed in small amounts, so that dropping a table does not take long


cdef struct Gone:
    Segment **directory
    Segment *only
    uint32_t depth
    Py_ssize_t place_at
    uint32_t at
    Gone *next


cdef Gone *first_gone = NULL
cdef Gone *last_gone = NULL
cdef Py_ssize_t who_free = 0


cdef void append_gone(Gone *gone) noexcept:
    global first_gone, last_gone
    if first_gone is NULL:
        first_gone = gone
    else:
        last_gone.next = gone
    last_gone = gone


cdef inline Py_ssize_t free_weighed(unsigned char *block) noexcept:
    """Free a block; returns how many small ones it counts for: the system takes back large pieces one by one."""
    cdef Py_ssize_t size = 0
    if is_large(block):
        size = len(<bytes> reference_at(block)[0])
    free_block(block)
    return size // FREED_LIKE_ONE if size >= TAKEN_BACK else 1


cdef Py_ssize_t free_entries(Gone *gone, Py_ssize_t most) noexcept:
    """Free so many entries, or fewer that cost as much; -1: all. Returns how many; fewer than that: there were no more,
    and the index is gone, too.
    """
    cdef Py_ssize_t freed = 0
    cdef Segment *segment
    while gone.place_at < <Py_ssize_t> 1 << gone.depth:
        segment = gone.directory[gone.place_at] if gone.depth else gone.only
        while gone.at < segment.slots:
            if 0 <= most <= freed:
                return freed
            if gone.at + AHEAD < segment.slots:
                read_soon(segment.at[gone.at + AHEAD] & BLOCK_BITS)
            gone.at += 1
            if segment.at[gone.at - 1]:
                freed += free_weighed(block_of(segment.at[gone.at - 1]))
        gone.at = 0
        gone.place_at += <Py_ssize_t> 1 << (gone.depth - segment.depth)
        PyMem_RawFree(segment)
    if gone.depth:
        PyMem_RawFree(gone.directory)
        gone.directory = NULL
    return freed


cdef bint free_some(Py_ssize_t most) noexcept:
    """Free so many entries of dropped tables; returns whether there are more."""
    global first_gone
    cdef Gone *gone = first_gone
    if gone is NULL:
        return False
    most -= free_entries(gone, most)
    if most > 0:
        first_gone = gone.next
        PyMem_RawFree(gone)
    return first_gone is not NULL


def free_later(Py_ssize_t most):
    """Free so many entries of dropped tables, or fewer that are as much work; returns whether there are more
    (store/E-9).
    """
    return free_some(most)


def begin_freeing():
    """Announce regular calls of `free_later`. Each caller has to call `end_freeing` later."""
    global who_free
    who_free += 1


def end_freeing():
    """End one announcement. After the last one, tables are freed at once."""
    global who_free
    who_free -= 1
    while not who_free and free_some(1 << 20):
        pass


cdef class EntryTable:
    """Maps keys to values, both bytes. `hash_mask`, for tests: the bits of a hash that are used."""

    def __cinit__(self, *, uint32_t hash_mask=0xFFFFFFFF):
        self._directory = NULL
        self._only = NULL
        self._count = 0
        self._version = 0
        self._depth = 0
        self._mask = hash_mask
        self._heap = NULL
        self._heaped = self._heap_room = self._ending = 0
        self._sums = NULL

    def __dealloc__(self):
        self._let_go()
        PyMem_RawFree(self._sums)

    # -- for compiled code

    cdef const unsigned char *look(
        self, const unsigned char *key, Py_ssize_t key_size, Py_ssize_t *value_size
    ) noexcept:
        """Address of the value, valid until the table changes; NULL: the key is absent."""
        cdef uint64_t *slot
        if not self._count:
            return NULL
        slot = self._find(key, key_size, self._hash(key, key_size))
        if slot is NULL:
            return NULL
        return value_in(block_of(slot[0]), value_size)

    cdef int put(
        self,
        const unsigned char *key,
        Py_ssize_t key_size,
        const unsigned char *value,
        Py_ssize_t value_size,
        bytes whole,
        bint counted,
    ) except -1:
        """Store copies of these. `whole`: the value as an object, or None if there is none. `counted`: the digests that
        are kept change now, if any are. Answers 1 if the key is new.
        """
        cdef uint32_t hashed = self._hash(key, key_size)
        cdef uint64_t *slot = self._find(key, key_size, hashed) if self._count else NULL
        cdef unsigned char *block
        if slot is not NULL:
            self._replace(slot, value, value_size, whole, counted)
            return 0
        if first_gone is not NULL:
            free_some(AS_WELL)
        block = new_block(hashed, key, key_size, value, value_size, whole, 0)
        self._insert_block(block, hashed)
        if counted:
            self._count_block(block)
        return 1

    cdef int put_ending(
        self,
        const unsigned char *key,
        Py_ssize_t key_size,
        const unsigned char *value,
        Py_ssize_t value_size,
        int64_t ttl_ms,
        int64_t max_idle_ms,
        int64_t now_ns,
        bytes whole,
        bint counted,
    ) except -1:
        """The same for an entry that expires so, counted from now; with both 0 it does not expire."""
        cdef uint32_t hashed = self._hash(key, key_size)
        cdef uint64_t *slot = self._find(key, key_size, hashed) if self._count else NULL
        cdef unsigned char *block
        if slot is not NULL:
            self._end(slot, ttl_ms, max_idle_ms, now_ns)
            self._replace(slot, value, value_size, whole, counted)
            return 0
        if not ttl_ms and not max_idle_ms:
            return self.put(key, key_size, value, value_size, whole, counted)
        self._reserve()
        if first_gone is not NULL:
            free_some(AS_WELL)
        block = new_block(
            hashed, key, key_size, value, value_size, whole, ENDS | IDLES if max_idle_ms else ENDS
        )
        self._insert_block(block, hashed)
        if counted:
            self._count_block(block)
        self._ending += 1
        set_place(block, NOWHERE)
        set_number(block, 0, now_ns)
        set_number(block, 1, ttl_ms)
        if max_idle_ms:
            set_number(block, 2, max_idle_ms)
            set_number(block, 3, now_ns)
            set_number(block, 4, deadline_of(block))
        self._push(block)
        return 1

    cdef bint some_end(self) noexcept:
        """Whether any entry expires."""
        return self._ending > 0

    cdef bint has_ended(
        self, const unsigned char *key, Py_ssize_t key_size, int64_t now_ns, bint touch, bint *ends
    ) noexcept:
        """Whether the entry has ended; if not, it counts as used now when `touch`. `ends`: whether it expires at all."""
        cdef uint64_t *slot
        cdef unsigned char *block
        ends[0] = False
        if not self._ending:
            return False
        slot = self._find(key, key_size, self._hash(key, key_size))
        if slot is NULL:
            return False
        block = block_of(slot[0])
        if not form_of(block):
            return False
        ends[0] = True
        if deadline_of(block) <= now_ns:
            return True
        if touch and form_of(block) & IDLES:
            set_number(block, 3, now_ns)
        return False

    cdef bint discard(self, const unsigned char *key, Py_ssize_t key_size) except -1:
        """Remove the entry; returns whether there was one."""
        cdef uint32_t hashed
        cdef uint64_t *slot
        if not self._count:
            return False
        hashed = self._hash(key, key_size)
        slot = self._find(key, key_size, hashed)
        if slot is NULL:
            return False
        self._take(slot, hashed)
        return True

    # -- for Python

    def put_all(self, bytes sizes not None, bytes data not None, dict touched, bint counts):
        """Store many, packed (`entry_mapping.PackedEntries`). Raises ValueError when the sizes are not those of what
        there is; then some are stored.
        """
        cdef const unsigned char *at_sizes = <const unsigned char *> PyBytes_AS_STRING(sizes)
        cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(data)
        cdef Py_ssize_t number, count = PyBytes_GET_SIZE(sizes) // 8, left = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t key_size, value_size
        cdef bytes key
        cdef bint counted
        for number in range(count):
            key_size = word_of(at_sizes + 8 * number)
            value_size = word_of(at_sizes + 8 * number + 4)
            if key_size + value_size > left:
                raise ValueError("packed entries that are longer than what there is")
            counted = counts
            if touched is not None and (touched or not counts):
                key = PyBytes_FromStringAndSize(<const char *> at, key_size)
                counted = counts and key not in touched
                if not counts and key not in touched:
                    touched[key] = self.get(key)
            if self._ending:
                self.put_ending(at, key_size, at + key_size, value_size, 0, 0, 0, None, counted)
            else:
                self.put(at, key_size, at + key_size, value_size, None, counted)
            at += key_size + value_size
            left -= key_size + value_size

    def pack(self, list keys not None, Py_ssize_t begin, Py_ssize_t limit, *, bint some):
        """Pack the entries of these keys, as many as fit (`entry_mapping.PackedEntries`)."""
        cdef Py_ssize_t at, count = 0, taken = 0, total = 0, size, value_size = 0, most
        cdef uint64_t *slot
        cdef unsigned char *block
        cdef unsigned char **blocks
        cdef unsigned char *to_sizes
        cdef unsigned char *to
        cdef const unsigned char *value
        cdef bint full = False
        cdef bytes sizes, data
        most = min(len(keys) - begin, max(limit, 0) // PACKED_OVERHEAD + 1)
        blocks = <unsigned char **> PyMem_RawMalloc(sizeof(unsigned char *) * <size_t> max(most, 1))
        if blocks is NULL:
            raise MemoryError()
        try:
            for at in range(begin, len(keys)):
                slot = self._slot(<bytes?> keys[at])
                if slot is not NULL:
                    block = block_of(slot[0])
                    if is_large(block) or form_of(block):
                        break
                    value_in(block, &value_size)
                    size = key_size_of(block) + value_size + PACKED_OVERHEAD
                    if total + size > limit and not (some and not count):
                        full = True
                        break
                    blocks[count] = block
                    count += 1
                    total += size
                taken += 1
            sizes = PyBytes_FromStringAndSize(NULL, 8 * count)
            data = PyBytes_FromStringAndSize(NULL, total - PACKED_OVERHEAD * count)
            to_sizes = <unsigned char *> PyBytes_AS_STRING(sizes)
            to = <unsigned char *> PyBytes_AS_STRING(data)
            for at in range(count):
                block = blocks[at]
                size = key_size_of(block)
                value = value_in(block, &value_size)
                put_word(to_sizes + 8 * at, <uint32_t> size)
                put_word(to_sizes + 8 * at + 4, <uint32_t> value_size)
                memcpy(to, block + key_at(block), size)
                memcpy(to + size, value, value_size)
                to += size + value_size
        finally:
            PyMem_RawFree(blocks)
        return sizes, data, taken, full

    def digests(self):
        """The digests of the 64 ranges (`entry_mapping.PackedEntries`)."""
        cdef uint64_t sums[64]
        cdef _Walk walk = _Walk(self)
        cdef unsigned char *block
        cdef const unsigned char *key
        cdef const unsigned char *value
        cdef Py_ssize_t size, value_size = 0
        memset(sums, 0, sizeof(sums))
        while (block := walk.next_block()) is not NULL:
            key = block + key_at(block)
            size = key_size_of(block)
            value = value_in(block, &value_size)
            sums[range_of(key, size)] += digest_of(key, size, value, value_size)
        return [sums[at] for at in range(64)]

    def keep_digests(self, sums):
        """Keep these digests, or none (`entry_mapping.PackedEntries`). Raises MemoryError."""
        cdef Py_ssize_t at
        if sums is None:
            PyMem_RawFree(self._sums)
            self._sums = NULL
            return
        if self._sums is NULL:
            self._sums = <uint64_t *> PyMem_RawMalloc(64 * sizeof(uint64_t))
            if self._sums is NULL:
                raise MemoryError()
        for at in range(64):
            self._sums[at] = sums[at]

    def kept_digests(self):
        """The kept digests; None: none are kept."""
        return None if self._sums is NULL else [self._sums[at] for at in range(64)]

    def absorb(self, dict touched not None):
        """Count changes that were not counted (`entry_mapping.PackedEntries`)."""
        cdef uint64_t *slot
        cdef const unsigned char *at
        cdef Py_ssize_t size
        if self._sums is NULL:
            return
        for key, old in touched.items():
            at = <const unsigned char *> PyBytes_AS_STRING(<bytes?> key)
            size = PyBytes_GET_SIZE(key)
            slot = self._slot(<bytes> key)
            if slot is not NULL:
                self._count_block(block_of(slot[0]))
            if old is not None:
                self._sums[range_of(at, size)] -= digest_of(
                    at, size, <const unsigned char *> PyBytes_AS_STRING(<bytes?> old), PyBytes_GET_SIZE(old)
                )

    def keys_in(self, bytes sizes not None, bytes data not None):
        """The keys of packed entries (`entry_mapping.PackedEntries`). Raises ValueError when the sizes are not right."""
        return PackedKeys(sizes, data)

    def packing(self):
        """Packs all entries, one chunk after the other (`entry_mapping.Packing`)."""
        return TablePacking(self)

    def sample(self, uint32_t begin, Py_ssize_t count):
        """So many different keys, or all if there are fewer, from the slots behind those of the hash `begin`."""
        cdef list found = []
        cdef Segment *segment
        cdef Py_ssize_t place_at, first_place
        cdef uint32_t at, first_at, end
        if not self._count or count <= 0:
            return found
        place_at = <Py_ssize_t> (begin >> (32 - self._depth)) if self._depth else 0
        segment = self._directory[place_at]
        place_at &= ~((<Py_ssize_t> 1 << (self._depth - segment.depth)) - 1)
        first_place = place_at
        at = first_at = home_of(mark_of(begin), segment.slots)
        end = segment.slots
        while True:
            while at < end:
                if segment.at[at]:
                    found.append(key_object(block_of(segment.at[at])))
                    if len(found) == count:
                        return found
                at += 1
            if end == first_at and place_at == first_place:
                return found
            place_at += <Py_ssize_t> 1 << (self._depth - segment.depth)
            if place_at == <Py_ssize_t> 1 << self._depth:
                place_at = 0
            segment = self._directory[place_at]
            at = 0
            end = first_at if place_at == first_place else segment.slots

    def endings(self):
        """Views of the endings: to read and to change them."""
        found = TableEndings(self)
        return found, found

    # -- inside

    cdef int _insert_block(self, unsigned char *block, uint32_t hashed) except -1:
        """A block of a new key."""
        try:
            self._insert(<uint64_t> block | mark_of(hashed), hashed)
        except MemoryError:
            free_block(block)
            raise
        return 0

    cdef inline void _count_block(self, unsigned char *block) noexcept:
        """Count a new entry in the digests."""
        cdef Py_ssize_t size = key_size_of(block), value_size = 0
        cdef const unsigned char *key = block + key_at(block)
        cdef const unsigned char *value = value_in(block, &value_size)
        if self._sums is not NULL:
            self._sums[range_of(key, size)] += digest_of(key, size, value, value_size)

    cdef inline int _replace(
        self, uint64_t *slot, const unsigned char *value, Py_ssize_t value_size, bytes whole, bint counted
    ) except -1:
        """Give the entry of this slot another value."""
        cdef unsigned char *block = block_of(slot[0])
        cdef Py_ssize_t size, old_size = 0
        cdef const unsigned char *key
        cdef const unsigned char *old
        cdef uint64_t change
        cdef uint32_t place
        if not counted or self._sums is NULL:
            return self._overwrite(slot, value, value_size, whole)
        size, key = key_size_of(block), block + key_at(block)
        old = value_in(block, &old_size)
        if whole is not None:
            # The object may be referenced by the table alone.
            value, value_size = <const unsigned char *> PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole)
        change = digest_of(key, size, value, value_size) - digest_of(key, size, old, old_size)
        place = range_of(key, size)
        self._overwrite(slot, value, value_size, whole)
        self._sums[place] += change
        return 0

    cdef inline uint32_t _hash(self, const unsigned char *key, Py_ssize_t key_size) noexcept:
        return <uint32_t> secret_hash(key, key_size) & self._mask

    cdef inline uint64_t *_find(
        self, const unsigned char *key, Py_ssize_t key_size, uint32_t hashed
    ) noexcept:
        """The slot of the key, in a table that is not empty; NULL: the key is absent."""
        cdef Segment *segment = self._directory[<uint64_t> hashed >> (32 - self._depth)]
        cdef uint64_t mark = mark_of(hashed), slot
        cdef uint32_t slots = segment.slots
        cdef uint32_t at = home_of(mark, slots)
        cdef unsigned char *block
        while True:
            slot = segment.at[at]
            if not slot:
                return NULL
            if slot & MARK_BITS == mark:
                block = block_of(slot)
                if (
                    (<uint32_t *> block)[0] == hashed
                    and key_size_of(block) == key_size
                    and not memcmp(block + key_at(block), key, key_size)
                ):
                    return &segment.at[at]
            at += 1
            if at == slots:
                at = 0

    cdef int _overwrite(
        self, uint64_t *slot, const unsigned char *value, Py_ssize_t value_size, bytes whole
    ) except -1:
        """Reuse the block if it has exactly the right size."""
        cdef unsigned char *block = block_of(slot[0])
        cdef unsigned char *fresh
        cdef PyObject *former
        cdef Py_ssize_t begins
        cdef bint large = value_size >= LARGE_BYTES
        if large and is_large(block):
            if whole is None:
                whole = PyBytes_FromStringAndSize(<const char *> value, value_size)
            former = reference_at(block)[0]
            Py_INCREF(whole)
            reference_at(block)[0] = <PyObject *> whole
            Py_DECREF(<object> former)
            return 0
        begins = key_at(block) + key_size_of(block)
        if not large and not is_large(block):
            if block_size(block) == rounded(begins + value_size):
                (<uint16_t *> (block + 4))[1] = form_of(block) | <uint16_t> value_size
                memcpy(block + begins, value, value_size)
                return 0
        fresh = new_block(
            (<uint32_t *> block)[0],
            block + key_at(block),
            key_size_of(block),
            value,
            value_size,
            whole,
            form_of(block),
        )
        if form_of(block):
            memcpy(fresh + ending_at(fresh), block + ending_at(block), ending_bytes(form_of(block)))
            if place_of(block) != NOWHERE:
                self._heap[place_of(block)] = fresh
        slot[0] = <uint64_t> fresh | (slot[0] & MARK_BITS)
        free_block(block)
        return 0

    cdef int _insert(self, uint64_t filled, uint32_t hashed) except -1:
        """Put the block of an absent key into its segment, which may have to grow."""
        cdef Segment *segment
        cdef Segment *larger
        if self._directory is NULL:
            self._only = new_segment(SLOTS_LEAST, 0)
            self._directory = &self._only
        segment = self._directory[<uint64_t> hashed >> (32 - self._depth)]
        while segment.used >= most_used(segment.slots):
            if segment.slots + (segment.slots >> 2) > SLOTS_MOST and self._may_split(segment):
                self._split(segment, hashed)
            else:
                larger = new_segment((segment.slots + (segment.slots >> 2) + 7) & 0xFFFFFFF8, segment.depth)
                move_all(segment, larger)
                self._place_at(hashed, larger)
                PyMem_RawFree(segment)
            segment = self._directory[<uint64_t> hashed >> (32 - self._depth)]
        place(segment, filled)
        self._count += 1
        self._version += 1
        return 0

    cdef void _place_at(self, uint64_t hashed, Segment *segment) noexcept:
        """Set the segment in all places of the directory that begin like this hash."""
        cdef Py_ssize_t count = <Py_ssize_t> 1 << (self._depth - segment.depth)
        cdef Py_ssize_t first = (hashed >> (32 - segment.depth)) * count, at
        for at in range(first, first + count):
            self._directory[at] = segment

    cdef bint _may_split(self, Segment *segment) noexcept:
        """Whether the directory may grow for it, if it has to (store/E-5)."""
        if segment.depth < self._depth:
            return True
        return self._depth < DEPTH_MOST and (<Py_ssize_t> 2 << self._depth) <= self._count // 128

    cdef int _split(self, Segment *segment, uint32_t hashed) except -1:
        """Split by the next bit of the hashes. `hashed`: a hash of the segment."""
        cdef uint32_t depth = segment.depth + 1, at, ones = 0
        cdef uint32_t bit = <uint32_t> 1 << (32 - depth)
        cdef Segment **places
        cdef Segment *left
        cdef Segment *right
        cdef Py_ssize_t first
        for at in range(segment.slots):
            if at + AHEAD < segment.slots:
                read_soon(segment.at[at + AHEAD] & BLOCK_BITS)
            if segment.at[at] and (<uint32_t *> block_of(segment.at[at]))[0] & bit:
                ones += 1
        left = new_segment(slots_for(segment.used - ones), depth)
        try:
            right = new_segment(slots_for(ones), depth)
        except MemoryError:
            PyMem_RawFree(left)
            raise
        if segment.depth == self._depth:
            places = <Segment **> PyMem_RawMalloc(sizeof(Segment *) << depth)
            if places is NULL:
                PyMem_RawFree(left)
                PyMem_RawFree(right)
                raise MemoryError()
            for first in range(<Py_ssize_t> 1 << self._depth):
                places[2 * first] = places[2 * first + 1] = self._directory[first]
            if self._depth:
                PyMem_RawFree(self._directory)
            self._directory = places
            self._depth += 1
        for at in range(segment.slots):
            if segment.at[at]:
                place(
                    right if (<uint32_t *> block_of(segment.at[at]))[0] & bit else left, segment.at[at]
                )
        self._place_at(hashed & ~bit, left)
        self._place_at(hashed | bit, right)
        PyMem_RawFree(segment)
        return 0

    cdef int _take(self, uint64_t *slot, uint32_t hashed) except -1:
        """Remove the entry of this slot."""
        cdef Segment *segment = self._directory[<uint64_t> hashed >> (32 - self._depth)]
        cdef unsigned char *block = block_of(slot[0])
        vacate(segment, <uint32_t> (slot - &segment.at[0]))
        if form_of(block):
            self._unheap(block)
            self._ending -= 1
        self._count -= 1
        self._version += 1
        free_block(block)
        if not self._count:
            self._let_go()
        elif segment.slots > SLOTS_LEAST and segment.used * 3 < segment.slots:
            self._tighten(segment, hashed)
        return 0

    cdef int _tighten(self, Segment *segment, uint32_t hashed) except -1:
        """A segment with many empty slots shrinks, and is merged with its neighbour if both are small. If there is no
        memory for that it stays as it is.
        """
        cdef Segment *smaller
        cdef uint32_t slots = slots_for(segment.used)
        try:
            if slots < segment.slots:
                smaller = new_segment(slots, segment.depth)
                move_all(segment, smaller)
                self._place_at(hashed, smaller)
                PyMem_RawFree(segment)
            while self._merge(hashed):
                pass
        except MemoryError:
            pass
        return 0

    cdef int _merge(self, uint32_t hashed) except -1:
        """Merge the segment of this hash with the one that it was split from; returns whether that was done."""
        cdef Segment *one = self._directory[<uint64_t> hashed >> (32 - self._depth)]
        cdef Segment *other
        cdef Segment *both
        cdef uint32_t bit
        if not one.depth:
            return 0
        bit = <uint32_t> 1 << (32 - one.depth)
        other = self._directory[<uint64_t> (hashed ^ bit) >> (32 - self._depth)]
        if other.depth != one.depth or one.used + other.used > most_used(SLOTS_MOST) >> 1:
            return 0
        both = new_segment(slots_for(one.used + other.used), one.depth - 1)
        move_all(one, both)
        move_all(other, both)
        self._place_at(hashed, both)
        PyMem_RawFree(one)
        PyMem_RawFree(other)
        self._halve()
        return 1

    cdef void _halve(self) noexcept:
        """Shrink the directory while no segment needs its last bit."""
        cdef Segment **places = self._directory
        cdef Py_ssize_t at, half
        while self._depth:
            half = <Py_ssize_t> 1 << (self._depth - 1)
            for at in range(half):
                if places[2 * at] is not places[2 * at + 1]:
                    return
            for at in range(half):
                places[at] = places[2 * at]
            self._depth -= 1
            if not self._depth:
                self._only = places[0]
                self._directory = &self._only
                PyMem_RawFree(places)
                return
            places = <Segment **> PyMem_RawRealloc(places, sizeof(Segment *) * half)
            if places is NULL:
                return  # the directory stays larger than necessary
            self._directory = places

    cdef void _let_go(self) noexcept:
        """Free everything; many entries are freed later, in small amounts (store/E-9)."""
        cdef Gone *gone
        cdef Gone here
        cdef Py_ssize_t most = AT_ONCE if who_free else -1
        PyMem_RawFree(self._heap)
        self._heap = NULL
        self._heaped = self._heap_room = self._ending = 0
        if self._directory is NULL:
            return
        here.directory, here.only, here.depth = self._directory, self._only, self._depth
        here.place_at = here.at = 0
        here.next = NULL
        # Freeing may run other code, which must find an empty table.
        self._directory, self._only, self._depth, self._count = NULL, NULL, 0, 0
        self._version += 1
        if free_entries(&here, most) < most or most < 0:
            return
        gone = <Gone *> PyMem_RawMalloc(sizeof(Gone))
        if gone is NULL:
            free_entries(&here, -1)
            return
        gone[0] = here
        append_gone(gone)

    # -- the endings: a heap of blocks, each with its place in the heap (or NOWHERE, when it was found to have ended)

    cdef int _reserve(self) except -1:
        """Make room for one more."""
        cdef uint32_t room
        cdef unsigned char **fresh
        if self._ending < self._heap_room:
            return 0
        room = self._ending + (self._ending >> 3) + 4
        fresh = <unsigned char **> PyMem_RawRealloc(self._heap, sizeof(unsigned char *) * <size_t> room)
        if fresh is NULL:
            raise MemoryError()
        self._heap, self._heap_room = fresh, room
        return 0

    cdef void _push(self, unsigned char *block) noexcept:
        """Add a block; there is room."""
        self._heap[self._heaped] = block
        set_place(block, self._heaped)
        self._heaped += 1
        self._settle(self._heaped - 1)

    cdef void _settle(self, uint32_t at) noexcept:
        """Sift the block at this place; all others are in order."""
        cdef unsigned char **heap = self._heap
        cdef unsigned char *block = heap[at]
        cdef uint32_t other, child, last
        while at:
            other = (at - 1) >> 2
            if not ends_before(block, heap[other]):
                break
            heap[at] = heap[other]
            set_place(heap[at], at)
            at = other
        while (child := (at << 2) + 1) < self._heaped:
            last = child + 4 if child + 4 < self._heaped else self._heaped
            for other in range(child, last):
                read_soon(<uint64_t> heap[other])
            other = child
            for child in range(child + 1, last):
                if ends_before(heap[child], heap[other]):
                    other = child
            if not ends_before(heap[other], block):
                break
            heap[at] = heap[other]
            set_place(heap[at], at)
            at = other
        heap[at] = block
        set_place(block, at)

    cdef void _unheap(self, unsigned char *block) noexcept:
        """Remove the block from the heap, if it is there."""
        cdef uint32_t at = place_of(block)
        cdef unsigned char **smaller
        if at == NOWHERE:
            return
        set_place(block, NOWHERE)
        self._heaped -= 1
        if at < self._heaped:
            self._heap[at] = self._heap[self._heaped]
            self._settle(at)
        if self._heaped + 8 < self._heap_room >> 1 and self._ending < self._heap_room >> 1:
            smaller = <unsigned char **> PyMem_RawRealloc(
                self._heap, sizeof(unsigned char *) * <size_t> (self._heap_room >> 1)
            )
            if smaller is not NULL:
                self._heap, self._heap_room = smaller, self._heap_room >> 1

    cdef unsigned char *_reshape(self, uint64_t *slot, uint16_t form) except NULL:
        """Give the block another form; the caller fills in the ending, except its place."""
        cdef unsigned char *block = block_of(slot[0])
        cdef unsigned char *fresh
        cdef Py_ssize_t size = 0
        cdef const unsigned char *value = value_in(block, &size)
        whole = <bytes> reference_at(block)[0] if is_large(block) else None
        if form and not form_of(block):
            self._reserve()
        fresh = new_block(
            (<uint32_t *> block)[0], block + key_at(block), key_size_of(block), value, size, whole, form
        )
        if form and form_of(block):
            set_place(fresh, place_of(block))
            if place_of(block) != NOWHERE:
                self._heap[place_of(block)] = fresh
        elif form:
            set_place(fresh, NOWHERE)
            self._ending += 1
        else:
            self._unheap(block)
            self._ending -= 1
        slot[0] = <uint64_t> fresh | (slot[0] & MARK_BITS)
        free_block(block)
        return fresh

    cdef int _end(self, uint64_t *slot, int64_t ttl_ms, int64_t max_idle_ms, int64_t now_ns) except -1:
        """Set the expiry of this slot's entry, counted from now; with both 0 it does not expire."""
        cdef unsigned char *block = block_of(slot[0])
        cdef uint16_t form = ENDS | IDLES if max_idle_ms else ENDS if ttl_ms else 0
        cdef int64_t noted = NEVER, deadline
        if form_of(block) and place_of(block) != NOWHERE:
            noted = noted_of(block)
        if form_of(block) != form:
            block = self._reshape(slot, form)
        if not form:
            return 0
        set_number(block, 0, now_ns)
        set_number(block, 1, ttl_ms)
        if max_idle_ms:
            set_number(block, 2, max_idle_ms)
            set_number(block, 3, now_ns)
            deadline = deadline_of(block)
            set_number(block, 4, noted if noted < deadline else deadline)
        if place_of(block) == NOWHERE:
            self._push(block)
        else:
            self._settle(place_of(block))
        return 0

    # -- as a dictionary

    def __len__(self):
        return self._count

    def __contains__(self, bytes key not None):
        cdef Py_ssize_t size = 0
        return self.look(<const unsigned char *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), &size) is not NULL

    cdef inline uint64_t *_slot(self, bytes key):
        cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(key)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
        return self._find(at, size, self._hash(at, size)) if self._count else NULL

    def get(self, bytes key not None, default=None):
        """The value, or the default."""
        cdef uint64_t *slot = self._slot(key)
        return default if slot is NULL else value_object(block_of(slot[0]))

    def __getitem__(self, bytes key not None):
        cdef uint64_t *slot = self._slot(key)
        if slot is NULL:
            raise KeyError(key)
        return value_object(block_of(slot[0]))

    def __setitem__(self, bytes key not None, bytes value not None):
        self.put(
            <const unsigned char *> PyBytes_AS_STRING(key),
            PyBytes_GET_SIZE(key),
            <const unsigned char *> PyBytes_AS_STRING(value),
            PyBytes_GET_SIZE(value),
            value,
            False,
        )

    def __delitem__(self, bytes key not None):
        if not self.discard(<const unsigned char *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)):
            raise KeyError(key)

    def pop(self, bytes key not None, *default):
        """Remove the entry; returns its value, or the default. Raises KeyError without either."""
        cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(key)
        cdef uint64_t *slot = self._slot(key)
        if slot is NULL:
            if not default:
                raise KeyError(key)
            return default[0]
        value = value_object(block_of(slot[0]))
        self._take(slot, self._hash(at, PyBytes_GET_SIZE(key)))
        return value

    def update(self, others=()):
        """Store these: a mapping, or pairs of key and value."""
        pairs = others.items() if hasattr(others, "keys") else others
        for key, value in pairs:
            self[key] = value

    def clear(self):
        """Remove everything."""
        self._let_go()

    def copy(self):
        """A copy. Values that are objects of their own are shared."""
        cdef EntryTable other = EntryTable(hash_mask=self._mask)
        cdef _Walk walk = _Walk(self)
        cdef unsigned char *block
        cdef const unsigned char *value
        cdef Py_ssize_t size = 0
        while (block := walk.next_block()) is not NULL:
            value = value_in(block, &size)
            whole = <bytes> reference_at(block)[0] if is_large(block) else None
            other.put(block + key_at(block), key_size_of(block), value, size, whole, False)
        return other

    def __iter__(self):
        return _KeyWalk(self)

    def keys(self):
        """A view of the keys."""
        return _Keys(self)

    def values(self):
        """A view of the values."""
        return _Values(self)

    def items(self):
        """A view of the entries."""
        return _Items(self)

    def __eq__(self, other):
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(other) != self._count:
            return False
        return all(other.get(key) == value for key, value in self.items())

    def __repr__(self):
        return f"EntryTable({dict(self)!r})"

    def __sizeof__(self):
        """Bytes of the index and of all blocks, with values that are objects of their own; without what allocators add."""
        cdef Py_ssize_t size = object.__sizeof__(self), place_at = 0
        cdef Segment *segment
        cdef _Walk walk = _Walk(self)
        cdef unsigned char *block
        size += sizeof(unsigned char *) * <Py_ssize_t> self._heap_room
        if self._directory is not NULL:
            if self._depth:
                size += sizeof(Segment *) << self._depth
            while place_at < <Py_ssize_t> 1 << self._depth:
                segment = self._directory[place_at]
                size += 16 + 8 * <Py_ssize_t> segment.slots
                place_at += <Py_ssize_t> 1 << (self._depth - segment.depth)
        while (block := walk.next_block()) is not NULL:
            size += block_size(block)
            if is_large(block):
                size += (<object> reference_at(block)[0]).__sizeof__()
        return size

    def shape(self):
        """For tests and measurements: the slots and the entries of each segment, and the places of the directory."""
        cdef list found = []
        cdef Py_ssize_t place_at = 0
        cdef Segment *segment
        if self._directory is NULL:
            return found, 0
        while place_at < <Py_ssize_t> 1 << self._depth:
            segment = self._directory[place_at]
            found.append((segment.slots, segment.used))
            place_at += <Py_ssize_t> 1 << (self._depth - segment.depth)
        return found, 1 << self._depth


cdef class _Walk:
    """Iterates over all entries, segment by segment."""

    cdef EntryTable _table
    cdef uint64_t _version
    cdef Py_ssize_t _place_at
    cdef uint32_t _at
    cdef Py_ssize_t _left

    def __cinit__(self, EntryTable table not None):
        self._table = table
        self._version = table._version
        self._place_at = 0
        self._at = 0
        self._left = table._count

    cdef unsigned char *next_block(self) except? NULL:
        """The next one; NULL after the last."""
        cdef EntryTable table = self._table
        cdef Segment *segment
        cdef uint64_t slot
        if not self._left:
            return NULL
        if self._version != table._version:
            self._left = 0
            raise RuntimeError("entries have come or gone during the iteration")
        while True:
            segment = table._directory[self._place_at]
            while self._at < segment.slots:
                slot = segment.at[self._at]
                # Blocks are scattered in memory: prefetch the ones that come soon.
                if self._at + AHEAD < segment.slots:
                    read_soon(segment.at[self._at + AHEAD] & BLOCK_BITS)
                self._at += 1
                if slot:
                    self._left -= 1
                    return block_of(slot)
            self._at = 0
            self._place_at += <Py_ssize_t> 1 << (table._depth - segment.depth)

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self._left


cdef class _KeyWalk(_Walk):
    def __next__(self):
        cdef unsigned char *block = self.next_block()
        if block is NULL:
            raise StopIteration
        return key_object(block)


cdef class _ValueWalk(_Walk):
    def __next__(self):
        cdef unsigned char *block = self.next_block()
        if block is NULL:
            raise StopIteration
        return value_object(block)


cdef class _ItemWalk(_Walk):
    def __next__(self):
        cdef unsigned char *block = self.next_block()
        if block is NULL:
            raise StopIteration
        return key_object(block), value_object(block)


cdef class PackedKeys:
    """Keys in one piece of memory, each after its size; for membership tests and iteration, like a list of keys."""

    cdef bytes _content
    cdef Py_ssize_t _count

    def __cinit__(self, bytes sizes not None, bytes data not None):
        cdef const unsigned char *at_sizes = <const unsigned char *> PyBytes_AS_STRING(sizes)
        cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(data)
        cdef Py_ssize_t number, count = PyBytes_GET_SIZE(sizes) // 8, left = PyBytes_GET_SIZE(data), total = 0
        cdef Py_ssize_t key_size, size
        cdef unsigned char *to
        for number in range(count):
            key_size = word_of(at_sizes + 8 * number)
            size = key_size + word_of(at_sizes + 8 * number + 4)
            if size > left:
                raise ValueError("packed entries that are longer than what there is")
            left -= size
            total += 4 + key_size
        self._count = count
        self._content = PyBytes_FromStringAndSize(NULL, total)
        to = <unsigned char *> PyBytes_AS_STRING(self._content)
        for number in range(count):
            key_size = word_of(at_sizes + 8 * number)
            put_word(to, <uint32_t> key_size)
            memcpy(to + 4, at, key_size)
            to += 4 + key_size
            at += key_size + word_of(at_sizes + 8 * number + 4)

    def __len__(self):
        return self._count

    def __contains__(self, bytes key not None):
        cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(self._content)
        cdef const char *wanted = PyBytes_AS_STRING(key)
        cdef Py_ssize_t number, size, wanted_size = PyBytes_GET_SIZE(key)
        for number in range(self._count):
            size = word_of(at)
            if size == wanted_size and not memcmp(at + 4, wanted, size):
                return True
            at += 4 + size
        return False

    def __iter__(self):
        cdef Py_ssize_t number, size, at = 0
        for number in range(self._count):
            size = word_of(<const unsigned char *> PyBytes_AS_STRING(self._content) + at)
            yield self._content[at + 4 : at + 4 + size]
            at += 4 + size


cdef class TablePacking:
    """Packs all entries in the order of the index, while entries come and go (store/E-8)."""

    cdef EntryTable _table
    cdef uint64_t _next
    """The lowest hash that was not reached."""
    cdef uint32_t *_hashes
    """Hashes of the entries in the present segment, without those that several entries have."""
    cdef Py_ssize_t _room
    cdef Py_ssize_t _held
    cdef Py_ssize_t _taken
    cdef list _apart

    def __cinit__(self, EntryTable table not None):
        self._table = table
        self._next = 0
        self._hashes = NULL
        self._room = self._held = self._taken = 0
        self._apart = []

    def __dealloc__(self):
        PyMem_RawFree(self._hashes)

    cdef bint _more(self) except -1:
        """Collect the entries of the next segment; False: there is none, or no entry is left."""
        cdef EntryTable table = self._table
        cdef Segment *segment
        cdef uint32_t at, before, hashed
        cdef uint64_t slot, span
        cdef uint32_t *fresh
        cdef bint alone
        self._held = self._taken = 0
        if self._next >> 32 or table._directory is NULL:
            self._next = <uint64_t> 1 << 32
            return False
        segment = table._directory[self._next >> (32 - table._depth)]
        if segment.used > self._room:
            fresh = <uint32_t *> PyMem_RawRealloc(self._hashes, sizeof(uint32_t) * <size_t> segment.used)
            if fresh is NULL:
                raise MemoryError()
            self._hashes, self._room = fresh, segment.used
        for at in range(segment.slots):
            if at + AHEAD < segment.slots:
                read_soon(segment.at[at + AHEAD] & BLOCK_BITS)
            slot = segment.at[at]
            if not slot:
                continue
            hashed = (<uint32_t *> block_of(slot))[0]
            if hashed < self._next:
                continue
            alone = True
            before = home_of(slot, segment.slots)
            while before != at:
                if (
                    segment.at[before] & MARK_BITS == slot & MARK_BITS
                    and (<uint32_t *> block_of(segment.at[before]))[0] == hashed
                ):
                    alone = False
                    break
                before += 1
                if before == segment.slots:
                    before = 0
            if alone:
                self._hashes[self._held] = hashed
                self._held += 1
        # The segment has all hashes that begin like this one.
        span = <uint64_t> 1 << (32 - segment.depth)
        self._next = (self._next // span + 1) * span
        return True

    cdef unsigned char *_look(self, uint32_t hashed, bint soon, bint *several) noexcept:
        """The block of an entry with this hash; NULL: there is none. `soon`: only fetch it. `several`: it is not the
        only one.
        """
        cdef EntryTable table = self._table
        cdef Segment *segment
        cdef uint64_t mark = mark_of(hashed), slot
        cdef uint32_t at
        cdef unsigned char *found = NULL
        several[0] = False
        if table._directory is NULL:
            return NULL
        segment = table._directory[<uint64_t> hashed >> (32 - table._depth)]
        at = home_of(mark, segment.slots)
        while slot := segment.at[at]:
            if slot & MARK_BITS == mark:
                if soon:
                    read_soon(slot & BLOCK_BITS)
                elif (<uint32_t *> block_of(slot))[0] == hashed:
                    if found is not NULL:
                        several[0] = True
                        return found
                    found = block_of(slot)
            at += 1
            if at == segment.slots:
                at = 0
        return found

    cdef int _put_apart(self, uint32_t hashed) except -1:
        """Set all entries with this hash apart."""
        cdef EntryTable table = self._table
        cdef Segment *segment = table._directory[<uint64_t> hashed >> (32 - table._depth)]
        cdef uint64_t slot
        cdef uint32_t at = home_of(mark_of(hashed), segment.slots)
        while slot := segment.at[at]:
            if (<uint32_t *> block_of(slot))[0] == hashed:
                self._apart.append(key_object(block_of(slot)))
            at += 1
            if at == segment.slots:
                at = 0
        return 0

    def pack(self, Py_ssize_t limit, *, bint some):
        """Pack the next entries (`entry_mapping.Packing`)."""
        cdef Py_ssize_t at, count = 0, total = 0, size, value_size = 0, room = 64, apart = 0, came
        cdef unsigned char *block
        cdef unsigned char **blocks
        cdef unsigned char **more
        cdef unsigned char *to_sizes
        cdef unsigned char *to
        cdef const unsigned char *value
        cdef bint full = False, several = False
        cdef bytes sizes, data
        blocks = <unsigned char **> PyMem_RawMalloc(sizeof(unsigned char *) * <size_t> room)
        if blocks is NULL:
            raise MemoryError()
        try:
            while not full and total + apart < max(limit, 1):
                if self._taken == self._held and not self._more():
                    break
                while self._taken < self._held and total + apart < max(limit, 1):
                    if self._taken + AHEAD < self._held:
                        self._look(self._hashes[self._taken + AHEAD], True, &several)
                    block = self._look(self._hashes[self._taken], False, &several)
                    if block is NULL:
                        self._taken += 1
                        continue
                    if several or is_large(block) or form_of(block):
                        came = len(self._apart)
                        self._put_apart(self._hashes[self._taken])
                        apart += LARGE_BYTES * (len(self._apart) - came)
                        self._taken += 1
                        continue
                    value_in(block, &value_size)
                    size = key_size_of(block) + value_size + PACKED_OVERHEAD
                    if total + size > limit and not (some and not count):
                        full = True
                        break
                    if count == room:
                        more = <unsigned char **> PyMem_RawRealloc(blocks, sizeof(unsigned char *) * <size_t> (2 * room))
                        if more is NULL:
                            raise MemoryError()
                        blocks, room = more, 2 * room
                    blocks[count] = block
                    count += 1
                    total += size
                    self._taken += 1
            sizes = PyBytes_FromStringAndSize(NULL, 8 * count)
            data = PyBytes_FromStringAndSize(NULL, total - PACKED_OVERHEAD * count)
            to_sizes = <unsigned char *> PyBytes_AS_STRING(sizes)
            to = <unsigned char *> PyBytes_AS_STRING(data)
            for at in range(count):
                if at + 2 < count:
                    block_soon(blocks[at + 2])
                block = blocks[at]
                size = key_size_of(block)
                value = value_in(block, &value_size)
                put_word(to_sizes + 8 * at, <uint32_t> size)
                put_word(to_sizes + 8 * at + 4, <uint32_t> value_size)
                memcpy(to, block + key_at(block), size)
                memcpy(to + size, value, value_size)
                to += size + value_size
        finally:
            PyMem_RawFree(blocks)
        return sizes, data, full

    @property
    def ended(self):
        """Whether all entries have been reached."""
        return self._taken == self._held and self._next >> 32

    def apart(self):
        """Hand over the keys of those that could not be packed."""
        cdef list found = self._apart
        self._apart = []
        return found

    def rest(self):
        """Hand over the keys of all that were not packed, and end."""
        while True:
            while self._taken < self._held:
                if self._table._directory is not NULL:
                    self._put_apart(self._hashes[self._taken])
                self._taken += 1
            if not self._more():
                return self.apart()


class _Keys(KeysView):
    def __iter__(self):
        return _KeyWalk(self._mapping)


class _Values(ValuesView):
    def __iter__(self):
        return _ValueWalk(self._mapping)


class _Items(ItemsView):
    def __iter__(self):
        return _ItemWalk(self._mapping)


cdef class _EndingWalk(_Walk):
    """Iterates over entries that expire: keys, with or without their endings."""

    cdef bint _whole

    def __next__(self):
        cdef unsigned char *block
        while (block := self.next_block()) is not NULL:
            if form_of(block):
                return (key_object(block), expiry_object(block)) if self._whole else key_object(block)
        raise StopIteration


class _EndingItems(ItemsView):
    def __iter__(self):
        return self._mapping.walk(True)


cdef class TableEndings:
    """The endings of a table's entries. Implements `expiry.Endings`, and is a mapping of keys to what they are now."""

    cdef EntryTable _table

    def __cinit__(self, EntryTable table not None):
        self._table = table

    cdef inline uint64_t *_slot(self, bytes key):
        """The block; NULL: the key is absent, or does not expire."""
        cdef uint64_t *slot
        if not self._table._ending:
            return NULL
        slot = self._table._slot(key)
        return slot if slot is not NULL and form_of(block_of(slot[0])) else NULL

    # -- as a mapping

    def __len__(self):
        return self._table._ending

    def __contains__(self, bytes key not None):
        return self._slot(key) is not NULL

    def get(self, bytes key not None, default=None):
        cdef uint64_t *slot = self._slot(key)
        return default if slot is NULL else expiry_object(block_of(slot[0]))

    def __getitem__(self, bytes key not None):
        cdef uint64_t *slot = self._slot(key)
        if slot is NULL:
            raise KeyError(key)
        return expiry_object(block_of(slot[0]))

    def walk(self, bint whole):
        """Iterate over keys; `whole`: with their endings."""
        cdef _EndingWalk found
        if not self._table._ending:
            return iter(())
        found = _EndingWalk(self._table)
        found._whole = whole
        return found

    def __iter__(self):
        return self.walk(False)

    def keys(self):
        return KeysView(self)

    def values(self):
        return ValuesView(self)

    def items(self):
        return _EndingItems(self)

    def __eq__(self, other):
        return dict(self.items()) == dict(other.items()) if isinstance(other, Mapping) else NotImplemented

    # -- to be changed

    def set(self, bytes key not None, ttl_ms, max_idle_ms, int64_t now_ns):
        """Set the expiry, counted from now. Raises KeyError if the entry is absent."""
        cdef uint64_t *slot = self._table._slot(key)
        if slot is NULL:
            raise KeyError(key)
        self._table._end(slot, min(ttl_ms, LONGEST_MS), min(max_idle_ms, LONGEST_MS), now_ns)

    def drop(self, bytes key not None):
        """Remove the expiry."""
        cdef uint64_t *slot = self._slot(key)
        if slot is not NULL:
            self._table._reshape(slot, 0)

    def clear(self):
        """Nothing to do: endings go with the entries."""

    def use(self, keys, int64_t now_ns):
        """These entries count as used now."""
        cdef uint64_t *slot
        for key in keys:
            slot = self._slot(key)
            if slot is not NULL and form_of(block_of(slot[0])) & IDLES:
                set_number(block_of(slot[0]), 3, now_ns)

    def ended(self, bytes key not None, int64_t now_ns, bint touch):
        """Whether the entry has ended; if not, it counts as used now when `touch`."""
        cdef bint ends = False
        return self._table.has_ended(
            <const unsigned char *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), now_ns, touch, &ends
        )

    def due(self, int64_t now_ns, Py_ssize_t limit):
        """Keys of ended entries, of up to `limit` that are looked at, and how many were."""
        cdef EntryTable table = self._table
        cdef unsigned char *block
        cdef list found = []
        cdef Py_ssize_t looked = 0
        while looked < limit and table._heaped and noted_of(table._heap[0]) <= now_ns:
            looked += 1
            block = table._heap[0]
            if noted_of(block) < deadline_of(block):
                set_number(block, 4, deadline_of(block))
                table._settle(0)
                continue
            found.append(key_object(block))
            table._unheap(block)
        return found, looked

    def tidy(self, now_ns, limit):
        """Nothing to do: removed entries leave no endings."""

    def all_used(self, int64_t now_ns):
        """Count every entry with a maximum idle time as used now."""
        cdef EntryTable table = self._table
        cdef unsigned char *block
        cdef _Walk walk
        if not table._ending:
            return
        walk = _Walk(table)
        table._heaped = 0
        while (block := walk.next_block()) is not NULL:
            if not form_of(block):
                continue
            if form_of(block) & IDLES:
                set_number(block, 3, now_ns)
                set_number(block, 4, deadline_of(block))
            table._push(block)

    def start_from(self, base):
        """Take over the endings of another copy, whose entries are here."""
        cdef unsigned char *block
        for key, expiry in base.items():
            self.set(key, expiry.ttl_ms, expiry.max_idle_ms, expiry.stored_ns)
            block = block_of(self._slot(key)[0])
            if form_of(block) & IDLES:
                set_number(block, 3, expiry.accessed_ns)

    @property
    def first_ns(self):
        """No entry ends before this moment; None: none does."""
        return noted_of(self._table._heap[0]) if self._table._heaped else None


MutableMapping.register(EntryTable)
Mapping.register(TableEndings)

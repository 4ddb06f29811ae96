# What other compiled modules may call of the table without any object between: see `entry_table.pyx`.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t


cdef struct Segment:
    uint32_t slots
    uint32_t used
    uint32_t depth
    uint32_t spare
    uint64_t at[1]


cdef class EntryTable:
    cdef Segment **_directory
    cdef Segment *_only
    cdef Py_ssize_t _count
    cdef uint64_t _version
    cdef uint32_t _depth
    cdef uint32_t _mask
    cdef unsigned char **_heap
    cdef uint32_t _heaped
    cdef uint32_t _heap_room
    cdef uint32_t _ending
    cdef uint64_t *_sums

    cdef bint some_end(self) noexcept
    cdef bint has_ended(
        self, const unsigned char *key, Py_ssize_t key_size, int64_t now_ns, bint touch, bint *ends
    ) noexcept
    cdef const unsigned char *look(
        self, const unsigned char *key, Py_ssize_t key_size, Py_ssize_t *value_size
    ) noexcept
    cdef int put(
        self,
        const unsigned char *key,
        Py_ssize_t key_size,
        const unsigned char *value,
        Py_ssize_t value_size,
        bytes whole,
        bint counted,
    ) except -1
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
    ) except -1
    cdef bint discard(self, const unsigned char *key, Py_ssize_t key_size) except -1

    cdef void _count_block(self, unsigned char *block) noexcept
    cdef int _replace(
        self, uint64_t *slot, const unsigned char *value, Py_ssize_t value_size, bytes whole, bint counted
    ) except -1
    cdef uint32_t _hash(self, const unsigned char *key, Py_ssize_t key_size) noexcept
    cdef uint64_t *_find(self, const unsigned char *key, Py_ssize_t key_size, uint32_t hashed) noexcept
    cdef int _overwrite(
        self, uint64_t *slot, const unsigned char *value, Py_ssize_t value_size, bytes whole
    ) except -1
    cdef int _insert(self, uint64_t filled, uint32_t hashed) except -1
    cdef void _place_at(self, uint64_t hashed, Segment *segment) noexcept
    cdef uint64_t *_slot(self, bytes key)
    cdef bint _may_split(self, Segment *segment) noexcept
    cdef int _split(self, Segment *segment, uint32_t hashed) except -1
    cdef int _tighten(self, Segment *segment, uint32_t hashed) except -1
    cdef int _merge(self, uint32_t hashed) except -1
    cdef void _halve(self) noexcept
    cdef int _take(self, uint64_t *slot, uint32_t hashed) except -1
    cdef void _let_go(self) noexcept
    cdef int _insert_block(self, unsigned char *block, uint32_t hashed) except -1
    cdef int _reserve(self) except -1
    cdef int _end(self, uint64_t *slot, int64_t ttl_ms, int64_t max_idle_ms, int64_t now_ns) except -1
    cdef unsigned char *_reshape(self, uint64_t *slot, uint16_t form) except NULL
    cdef void _settle(self, uint32_t at) noexcept
    cdef void _push(self, unsigned char *block) noexcept
    cdef void _unheap(self, unsigned char *block) noexcept

# MurmurHash3 of bytes that are not an object: what `mmh3` says of the same (`core/store/digest.py`), which can only be
# asked through objects. A test holds the two together.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "words are read with their lowest byte first"
    #endif
    #define holdfast_left32(x, r) (((x) << (r)) | ((x) >> (32 - (r))))
    #define holdfast_left64(x, r) (((x) << (r)) | ((x) >> (64 - (r))))
    """
    uint32_t left32 "holdfast_left32"(uint32_t x, int r) noexcept nogil
    uint64_t left64 "holdfast_left64"(uint64_t x, int r) noexcept nogil
    uint64_t C1 "0x87C37B91114253D5ULL"
    uint64_t C2 "0x4CF5AD432745937FULL"
    uint64_t F1 "0xFF51AFD7ED558CCDULL"
    uint64_t F2 "0xC4CEB9FE1A85EC53ULL"


cdef inline uint64_t _first(uint64_t word) noexcept nogil:
    return left64(word * C1, 31) * C2


cdef inline uint64_t _second(uint64_t word) noexcept nogil:
    return left64(word * C2, 33) * C1


cdef inline void _block(uint64_t *state, const unsigned char *at) noexcept nogil:
    cdef uint64_t words[2]
    memcpy(words, at, 16)
    state[0] = (left64(state[0] ^ _first(words[0]), 27) + state[1]) * 5 + 0x52DCE729
    state[1] = (left64(state[1] ^ _second(words[1]), 31) + state[0]) * 5 + 0x38495AB5


cdef inline uint64_t _final(uint64_t word) noexcept nogil:
    word = (word ^ (word >> 33)) * F1
    word = (word ^ (word >> 33)) * F2
    return word ^ (word >> 33)


cdef inline uint64_t hash64_of_two(
    const unsigned char *one, Py_ssize_t size, const unsigned char *other, Py_ssize_t other_size, uint32_t seed
) noexcept nogil:
    """The first half of the 128 bits (x64) of two pieces as if they were one."""
    cdef uint64_t state[2]
    cdef uint64_t last[2]
    cdef Py_ssize_t whole = size + other_size, rest, taken
    cdef unsigned char *tail = <unsigned char *> last
    state[0] = state[1] = seed
    while size >= 16:
        _block(state, one)
        one += 16
        size -= 16
    rest = size
    last[0] = last[1] = 0
    memcpy(tail, one, <size_t> rest)
    if rest:
        taken = min(16 - rest, other_size)
        memcpy(tail + rest, other, <size_t> taken)
        other += taken
        other_size -= taken
        rest += taken
        if rest == 16:
            _block(state, tail)
            rest = 0
            last[0] = last[1] = 0
    while other_size >= 16:
        _block(state, other)
        other += 16
        other_size -= 16
    if other_size:
        memcpy(tail, other, <size_t> other_size)
    state[1] ^= _second(last[1])
    state[0] ^= _first(last[0])
    state[0] ^= <uint64_t> whole
    state[1] ^= <uint64_t> whole
    state[0] += state[1]
    state[1] += state[0]
    return _final(state[0]) + _final(state[1])


cdef inline uint32_t hash32(const unsigned char *at, Py_ssize_t size, uint32_t seed) noexcept nogil:
    """The 32 bits (x86)."""
    cdef uint32_t state = seed, word, whole = <uint32_t> size
    while size >= 4:
        memcpy(&word, at, 4)
        state = left32(state ^ (left32(word * <uint32_t> 0xCC9E2D51, 15) * <uint32_t> 0x1B873593), 13)
        state = state * 5 + <uint32_t> 0xE6546B64
        at += 4
        size -= 4
    word = 0
    memcpy(&word, at, <size_t> size)
    state ^= left32(word * <uint32_t> 0xCC9E2D51, 15) * <uint32_t> 0x1B873593
    state ^= whole
    state = (state ^ (state >> 16)) * <uint32_t> 0x85EBCA6B
    state = (state ^ (state >> 13)) * <uint32_t> 0xC2B2AE35
    return state ^ (state >> 16)

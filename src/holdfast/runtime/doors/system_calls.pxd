# What `system_calls.py` says, for C. The room for events is a bytearray here, and the set of descriptors its number.

cdef extern from *:
    """
    #include <errno.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>

    static Py_ssize_t holdfast_receive(int fd, PyObject *room, Py_ssize_t start, Py_ssize_t end) {
        Py_ssize_t count = recv(fd, PyByteArray_AS_STRING(room) + start, (size_t)(end - start), MSG_DONTWAIT);
        return count < 0 ? -(Py_ssize_t)errno : count;
    }

    /* The value itself: nobody else has seen it before it is full. */
    static PyObject *holdfast_new_value(Py_ssize_t size, PyObject *beginning) {
        PyObject *room = PyBytes_FromStringAndSize(NULL, size);
        if (room != NULL)
            memcpy(PyBytes_AS_STRING(room), PyBytes_AS_STRING(beginning), (size_t)PyBytes_GET_SIZE(beginning));
        return room;
    }

    static Py_ssize_t holdfast_receive_value(int fd, PyObject *room, Py_ssize_t start, Py_ssize_t end) {
        Py_ssize_t count = recv(fd, PyBytes_AS_STRING(room) + start, (size_t)(end - start), MSG_DONTWAIT);
        return count < 0 ? -(Py_ssize_t)errno : count;
    }

    static PyObject *holdfast_whole_value(PyObject *room) {
        Py_INCREF(room);
        return room;
    }

    static PyObject *holdfast_taken(PyObject *room, Py_ssize_t size) {
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(room), size);
    }

    static Py_ssize_t holdfast_send(int fd, PyObject *data, Py_ssize_t start, Py_ssize_t end) {
        const char *from = PyBytes_Check(data) ? PyBytes_AS_STRING(data) : PyByteArray_AS_STRING(data);
        Py_ssize_t count = send(fd, from + start, (size_t)(end - start), MSG_DONTWAIT | MSG_NOSIGNAL);
        return count < 0 ? -(Py_ssize_t)errno : count;
    }

    #define HOLDFAST_PIECES_MOST 64
    static Py_ssize_t holdfast_send_pieces(int fd, PyObject *pieces, Py_ssize_t start) {
        struct iovec parts[HOLDFAST_PIECES_MOST];
        struct msghdr all;
        Py_ssize_t number, count = PyList_GET_SIZE(pieces);
        if (count > HOLDFAST_PIECES_MOST) count = HOLDFAST_PIECES_MOST;
        for (number = 0; number < count; number++) {
            PyObject *piece = PyList_GET_ITEM(pieces, number);
            int fixed = PyBytes_Check(piece);
            parts[number].iov_base = fixed ? PyBytes_AS_STRING(piece) : PyByteArray_AS_STRING(piece);
            parts[number].iov_len = (size_t)(fixed ? PyBytes_GET_SIZE(piece) : PyByteArray_GET_SIZE(piece));
        }
        parts[0].iov_base = (char *)parts[0].iov_base + start;
        parts[0].iov_len -= (size_t)start;
        memset(&all, 0, sizeof all);
        all.msg_iov = parts;
        all.msg_iovlen = (size_t)count;
        count = sendmsg(fd, &all, MSG_DONTWAIT | MSG_NOSIGNAL);
        return count < 0 ? -(Py_ssize_t)errno : count;
    }

    static int holdfast_wait(int fd, PyObject *room, int most) {
        int count = epoll_wait(fd, (struct epoll_event *)PyByteArray_AS_STRING(room), most, 0);
        return count < 0 ? -errno : count;
    }

    static int holdfast_ready_fd(PyObject *room, int number) {
        struct epoll_event one;
        memcpy(&one, PyByteArray_AS_STRING(room) + number * sizeof one, sizeof one);
        return one.data.fd;
    }

    static unsigned int holdfast_ready_kinds(PyObject *room, int number) {
        struct epoll_event one;
        memcpy(&one, PyByteArray_AS_STRING(room) + number * sizeof one, sizeof one);
        return one.events;
    }
    #define HOLDFAST_READY_BYTES ((int)sizeof(struct epoll_event))
    """
    Py_ssize_t receive "holdfast_receive"(int fd, bytearray room, Py_ssize_t start, Py_ssize_t end)
    object new_value "holdfast_new_value"(Py_ssize_t size, bytes beginning)
    Py_ssize_t receive_value "holdfast_receive_value"(int fd, object room, Py_ssize_t start, Py_ssize_t end)
    bytes whole_value "holdfast_whole_value"(object room)
    bytes taken "holdfast_taken"(bytearray room, Py_ssize_t size)
    Py_ssize_t send "holdfast_send"(int fd, object data, Py_ssize_t start, Py_ssize_t end)
    Py_ssize_t send_pieces "holdfast_send_pieces"(int fd, list pieces, Py_ssize_t start)
    int wait "holdfast_wait"(int fd, bytearray room, int most)
    int ready_fd "holdfast_ready_fd"(bytearray room, int number)
    unsigned int ready_kinds "holdfast_ready_kinds"(bytearray room, int number)
    int READY_BYTES "HOLDFAST_READY_BYTES"

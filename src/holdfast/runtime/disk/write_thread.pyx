"""A thread that writes and syncs files, and never holds the interpreter's lock.

A thread of Python needs that lock before and after each system call. While the event loop is busy it gets it late, so
the disk idles. Example: a block is submitted, and then the loop answers 25 clients. A Python thread begins to write
when the loop waits for events again; this one begins at once, and the sync runs while clients are answered.

Jobs are done in the order of `submit`, and `finished` returns them in that order (runtime/W-1). After a failed sync, or a
failed write that is not for lack of room, no later job is done: it fails with the same error (runtime/W-2).
"""

from collections import deque

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <sys/eventfd.h>
    #include <time.h>
    #include <unistd.h>

    typedef struct holdfast_job {
        struct holdfast_job *next;
        const char *data;   /* NULL: no write */
        size_t size;
        long long offset, took_ns;
        int fd, syncs, error, in_sync;
    } holdfast_job;

    typedef struct {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t more;
        holdfast_job *first, *last, *done_first, *done_last;
        int events, ending, failed;
    } holdfast_writer;

    static long long holdfast_now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
    }

    static int holdfast_no_room(int error) {
        return error == ENOSPC || error == EDQUOT || error == EFBIG;
    }

    static void holdfast_do(holdfast_job *job) {
        const char *from = job->data;
        size_t left = from == NULL ? 0 : job->size;
        off_t at = (off_t)job->offset;
        while (left) {
            ssize_t count = pwrite(job->fd, from, left > (1u << 30) ? (1u << 30) : left, at);
            if (count < 0) {
                if (errno == EINTR) continue;
                job->error = errno;
                return;
            }
            from += count; at += count; left -= (size_t)count;
        }
        if (!job->syncs) return;
        job->in_sync = 1;
        while (fdatasync(job->fd) < 0) {
            if (errno == EINTR) continue;
            job->error = errno;
            return;
        }
    }

    static void holdfast_append(holdfast_job **first, holdfast_job **last, holdfast_job *job) {
        job->next = NULL;
        if (*last == NULL) *first = job; else (*last)->next = job;
        *last = job;
    }

    static holdfast_job *holdfast_pop(holdfast_job **first, holdfast_job **last) {
        holdfast_job *job = *first;
        if (job != NULL && (*first = job->next) == NULL) *last = NULL;
        return job;
    }

    static void *holdfast_work(void *of) {
        holdfast_writer *writer = (holdfast_writer *)of;
        const uint64_t one = 1;
        pthread_mutex_lock(&writer->lock);
        for (;;) {
            holdfast_job *job;
            long long began_ns;
            while (writer->first == NULL && !writer->ending) pthread_cond_wait(&writer->more, &writer->lock);
            job = holdfast_pop(&writer->first, &writer->last);
            if (job == NULL) break;
            job->error = writer->failed;
            pthread_mutex_unlock(&writer->lock);
            began_ns = holdfast_now_ns();
            if (!job->error) holdfast_do(job);
            job->took_ns = holdfast_now_ns() - began_ns;
            pthread_mutex_lock(&writer->lock);
            if (job->error && !writer->failed && (job->in_sync || !holdfast_no_room(job->error)))
                writer->failed = job->error;
            holdfast_append(&writer->done_first, &writer->done_last, job);
            pthread_mutex_unlock(&writer->lock);
            if (write(writer->events, &one, sizeof one) < 0) { /* It is readable already. */ }
            pthread_mutex_lock(&writer->lock);
        }
        pthread_mutex_unlock(&writer->lock);
        return NULL;
    }

    /* Signals are for the main thread. */
    static int holdfast_start(holdfast_writer *writer) {
        sigset_t all, before;
        int error;
        if ((writer->events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) return errno;
        pthread_mutex_init(&writer->lock, NULL);
        pthread_cond_init(&writer->more, NULL);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&writer->thread, NULL, holdfast_work, writer);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error) close(writer->events);
        return error;
    }

    static int holdfast_submit(holdfast_writer *writer, int fd, PyObject *data, long long offset, int syncs) {
        holdfast_job *job = (holdfast_job *)calloc(1, sizeof *job);
        if (job == NULL) return 0;
        job->fd = fd;
        if (data != Py_None) {
            job->data = PyBytes_AS_STRING(data);
            job->size = (size_t)PyBytes_GET_SIZE(data);
        }
        job->offset = offset;
        job->syncs = syncs;
        pthread_mutex_lock(&writer->lock);
        holdfast_append(&writer->first, &writer->last, job);
        /* Not with the lock: the thread would wake up only to wait for it. */
        pthread_mutex_unlock(&writer->lock);
        pthread_cond_signal(&writer->more);
        return 1;
    }

    static holdfast_job *holdfast_finished(holdfast_writer *writer) {
        holdfast_job *job;
        pthread_mutex_lock(&writer->lock);
        job = holdfast_pop(&writer->done_first, &writer->done_last);
        pthread_mutex_unlock(&writer->lock);
        return job;
    }

    static holdfast_job *holdfast_rest(holdfast_writer *writer) {
        return holdfast_pop(&writer->done_first, &writer->done_last);
    }

    static void holdfast_quiet(holdfast_writer *writer) {
        uint64_t count;
        if (read(writer->events, &count, sizeof count) < 0) { /* Nothing is there. */ }
    }

    static void holdfast_fail(holdfast_writer *writer, int error) {
        pthread_mutex_lock(&writer->lock);
        if (!writer->failed) writer->failed = error;
        pthread_mutex_unlock(&writer->lock);
    }

    static int holdfast_failed(holdfast_writer *writer) {
        int error;
        pthread_mutex_lock(&writer->lock);
        error = writer->failed;
        pthread_mutex_unlock(&writer->lock);
        return error;
    }

    static void holdfast_end(holdfast_writer *writer) {
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&writer->lock);
        writer->ending = 1;
        pthread_cond_signal(&writer->more);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
        Py_END_ALLOW_THREADS
        pthread_mutex_destroy(&writer->lock);
        pthread_cond_destroy(&writer->more);
        close(writer->events);
    }
    """
    ctypedef struct Job "holdfast_job":
        int error
        int in_sync
        long long took_ns
    ctypedef struct Writer "holdfast_writer":
        int events
        int failed
    int begin "holdfast_start"(Writer *writer)
    int add "holdfast_submit"(Writer *writer, int fd, object data, long long offset, int syncs)
    Job *next_finished "holdfast_finished"(Writer *writer)
    Job *next_finished_unlocked "holdfast_rest"(Writer *writer)
    void read_events "holdfast_quiet"(Writer *writer)
    void set_failed "holdfast_fail"(Writer *writer, int error)
    int get_failed "holdfast_failed"(Writer *writer)
    void end "holdfast_end"(Writer *writer)
    void free_job "free"(Job *job)


cdef class WriteThread:
    cdef Writer writer
    cdef bint running
    cdef object held

    def __init__(self):
        """Raises OSError if the thread cannot be started."""
        self.held = deque()
        cdef int error = begin(&self.writer)
        if error:
            raise OSError(error, "no thread for the journal")
        self.running = True

    def __dealloc__(self):
        if self.running:
            end(&self.writer)
            self.drop()

    def fileno(self):
        """Readable when jobs have finished."""
        return self.writer.events

    def submit(self, int fd, data, long long offset, bint syncs):
        """Write these bytes (None: none), and then sync the file if `syncs`."""
        assert self.running and (data is None or type(data) is bytes)
        if not add(&self.writer, fd, data, offset, syncs):
            raise MemoryError
        self.held.append(data)

    def finished(self):
        """The jobs that have finished since the last call: error number (0: none), whether the sync failed, and how long
        it took, in ns.
        """
        cdef Job *job
        found = []
        read_events(&self.writer)
        while True:
            job = next_finished(&self.writer)
            if job == NULL:
                return found
            found.append((job.error, bool(job.error and job.in_sync), job.took_ns))
            free_job(job)
            self.held.popleft()

    def fail(self, int error):
        """Do no later job."""
        if self.running:
            set_failed(&self.writer, error)

    @property
    def failed(self):
        """The error after which no job is done; 0: none."""
        # Threads of Python may still ask after `close`, when the lock is gone.
        return get_failed(&self.writer) if self.running else self.writer.failed

    def close(self):
        """Finish all jobs, and end the thread."""
        if self.running:
            self.running = False
            end(&self.writer)
            self.drop()

    cdef drop(self):
        cdef Job *job = next_finished_unlocked(&self.writer)
        while job != NULL:
            free_job(job)
            job = next_finished_unlocked(&self.writer)
        self.held.clear()

"""Python's multiprocessing forks: workers that inherited an open store, through the C API by ctypes.

Usage: python_fork_test.py LIBTENUTO_SO
"""
import ctypes
import multiprocessing
import os
import sys
import tempfile

OK, BUSY, FORKED = 0, 6, 17
CHILD_SECONDS = 60

lib = ctypes.CDLL(sys.argv[1])
lib.tenuto_default_collection.restype = ctypes.c_void_p
lib.tenuto_default_collection.argtypes = [ctypes.c_void_p]
lib.tenuto_put.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                           ctypes.c_size_t, ctypes.c_int]
lib.tenuto_get.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
                           ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]
lib.tenuto_free.argtypes = [ctypes.c_void_p]
lib.tenuto_store_close.argtypes = [ctypes.c_void_p]


class Store:
    """As a binding would have it: closed when it is collected, at the latest at exit."""

    def __init__(self, path):
        self.handle = ctypes.c_void_p()
        self.status = lib.tenuto_store_open(path.encode(), None, ctypes.byref(self.handle), None)
        if self.status == OK:
            self.all = lib.tenuto_default_collection(self.handle)

    def put(self, key, value):
        return lib.tenuto_put(self.all, key, len(key), value, len(value), 0)

    def get(self, key):
        value, size = ctypes.c_void_p(), ctypes.c_size_t()
        status = lib.tenuto_get(self.all, key, len(key), ctypes.byref(value), ctypes.byref(size))
        found = ctypes.string_at(value, size.value) if status == OK else None
        lib.tenuto_free(value)
        return status, found

    def close(self):
        handle, self.handle = self.handle, None
        return lib.tenuto_store_close(handle) if handle else OK

    def __del__(self):
        self.close()


store = None


def work(n):
    key = b"child %d" % n
    return store.put(key, b"x"), store.get(b"parent")[0]


def close_it(_):
    return store.close()


def main():
    global store
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "p.tnt")
        store = Store(path)
        assert store.status == OK
        assert store.put(b"parent", b"before") == OK
        with fork.Pool(3) as pool:
            answers = pool.map_async(work, range(20)).get(CHILD_SECONDS)
            assert answers == [(FORKED, FORKED)] * 20, answers
            assert store.put(b"parent", b"meanwhile") == OK
        with fork.Pool(1) as pool:
            assert pool.map_async(close_it, [0]).get(CHILD_SECONDS) == [FORKED]
        # One that ends as a program does: finalizers, then exit.
        child = fork.Process(target=lambda: None)
        child.start()
        child.join(CHILD_SECONDS)
        assert child.exitcode == 0, child.exitcode
        assert store.put(b"parent", b"after") == OK
        assert store.close() == OK
        store = Store(path)
        assert store.status == OK
        assert store.get(b"parent") == (OK, b"after")
        assert store.close() == OK


if __name__ == "__main__":
    main()

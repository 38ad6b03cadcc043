"""Who runs the operations of a group of torch.distributed, and when: part of the backend "sgd" (sgd_launch_ddp.py)."""

import queue
import threading

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import sgd_launch_collective as collective
from sgd_launch_collective import CollectiveError

PATIENCE_US = 2_000  # Of waiting inside an asynchronous call; then a thread takes over.


def milliseconds(timeout):
    return int(timeout.total_seconds() * 1000)


class Work(c10d.Work):
    """An operation that is done, or that a thread is on. Its result is a list of tensors."""

    def __init__(self, results):
        super().__init__()
        self._results = results
        self._event = self._future = self._error = None

    def hand_over(self):
        """To a thread, which will call complete()."""
        self._event = threading.Event()
        self._end = torch.futures.Future()
        # Of a future's own set_exception() C++ code knows nothing: it takes the exception for the result.
        self._future = self._end.then(self._outcome)

    def _outcome(self, _):
        if self._error is not None:
            raise self._error
        return self._results

    def complete(self, error):
        self._error = error
        self._end.set_result(None)
        self._event.set()

    def wait(self, timeout=None):
        if self._event is not None:
            seconds = timeout.total_seconds() if timeout is not None else 0
            if not self._event.wait(seconds if seconds > 0 else None):
                raise dist.DistBackendError(f"the operation was not done after {seconds:g} s")
            self._outcome(None)
        return True

    def get_future(self):
        if self._future is None:
            self._future = torch.futures.Future()
            self._future.set_result(self._results)
        return self._future

    def result(self):
        return self._results


class Task:
    """One operation: its request, the tensors that it points to, and what follows it."""

    __slots__ = ("request", "tensors", "after", "timeout_ms", "work", "is_started")
    blocks = False  # Whether start() waits for others, whatever it is told.

    def __init__(self, request, tensors, after, timeout_ms, work):
        self.request, self.tensors, self.after, self.timeout_ms, self.work = request, tensors, after, timeout_ms, work
        self.is_started = False

    def start(self, group, microseconds):
        group.set_timeout(self.timeout_ms)
        self.is_started = True
        return group.start(self.request, microseconds)

    def end(self):
        for target, source in self.after:
            target.copy_(source)


class Engine:
    """Runs the operations of a group in the order of their calls: in the calling thread as long as nobody else is
    waited for, else in a thread of the group. `make_group` is called in that thread, if there is no group yet."""

    def __init__(self, group, make_group=None):
        self.group = group
        self._make_group = make_group
        self._lock = threading.Lock()
        self._tasks = queue.SimpleQueue()
        self._pending = 0  # Tasks that the thread has.
        self._thread = None
        self._is_closed = False

    def run(self, task, is_async):
        with self._lock:
            if self._is_closed:
                raise dist.DistBackendError("the process group has been destroyed")
            is_here = self._pending == 0 and self.group is not None and not (is_async and task.blocks)
            if is_here and self._run_here(task, is_async):
                return
            task.work.hand_over()
            self._pending += 1
            self._tasks.put(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="sgd-collective", daemon=True)
                self._thread.start()
        if not is_async:
            task.work.wait()

    def _run_here(self, task, is_async):
        group = self.group
        try:
            if not task.start(group, PATIENCE_US if is_async else collective.SLICE_US):
                if is_async:
                    return False
                group.finish()
            task.end()
            return True
        except CollectiveError as error:
            raise dist.DistBackendError(str(error)) from None
        except BaseException as error:
            group.abort(f"rank {group.rank} left it by {type(error).__name__}")
            raise

    def _serve(self):
        torch.set_grad_enabled(False)
        while (task := self._tasks.get()) is not None:
            error = None
            try:
                if self.group is None:
                    self.group = self._make_group()
                if task.is_started or not task.start(self.group, collective.SLICE_US):
                    self.group.finish()
                task.end()
            except CollectiveError as failure:
                error = dist.DistBackendError(str(failure))
            except BaseException as failure:
                self.abort(f"a rank left it by {type(failure).__name__}")
                error = failure
            with self._lock:
                self._pending -= 1
            task.work.complete(error)

    def abort(self, reason):
        if self.group is not None:
            self.group.abort(reason)

    def close(self):
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._pending:
                self.abort("a rank has destroyed the group")
            self._tasks.put(None)
        if self._thread is not None:
            self._thread.join()
        if self.group is not None:
            self.group.close()

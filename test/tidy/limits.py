"""Which test reaches each written limit (every constant k...Max), so that a limit is never only written.

A test is "FILE: WORDS", and the words stand in that file: the name of a test, or what it expects. "shape: ..." says why a
constant is no limit to what comes from outside, so that nothing can be answered when it is reached. "untested: ..." says what
a test would need; their number may only fall.
"""

import re

from source import Finding, cpp_files

UNTESTED_MAX = 21

_NET, _BOOKS, _UNIT, _COMMON, _CORE, _STORE, _WORKER = ("test/unit/launcher/membership_test.cpp", "test/unit/launcher/membership_limits_test.cpp", "test/unit/launcher/", "test/unit/common/",
                                                "test/unit/core/", "test/unit/store/", "test/unit/worker/")

TESTS = {
    "common/checkpoint/manifest.cpp kDepthMax": _COMMON + "limits_test.cpp: manifest: depth and size",
    "common/checkpoint/manifest.hpp kManifestBytesMax": _COMMON + "limits_test.cpp: manifest: depth and size",
    "common/data/csv_record.hpp kCsvRecordBytesMax": "test/unit/worker_data/csv_dataset_test.cpp: kCsvRecordBytesMax",
    "common/data/file_list.hpp kSamplesMax": _COMMON + "data_formats_test.cpp: kSamplesMax",
    "common/data/npy.hpp kNpyHeaderBytesMax": _COMMON + "data_formats_test.cpp: kNpyHeaderBytesMax",
    "common/data/npy.hpp kNpyDimensionsMax": _COMMON + "data_formats_test.cpp: 9 dimensions, at most 8",
    "common/data/idx.cpp kDimensionsMax": _COMMON + "idx_test.cpp: 5 dimensions",
    "common/data/idx.cpp kHeaderBytesMax": "shape: what four dimensions take",
    "common/data/idx.hpp kIdxBytesMax": _COMMON + "idx_test.cpp: claims more than",
    "common/job/data_facts.hpp kSampleNumbersMax": _COMMON + "job_dataset_test.cpp: must have at most 16777216 numbers a sample",
    "common/job/check_reports.hpp kListedWorkersMax": _COMMON + "job_reports_test.cpp: kListedWorkersMax",
    "common/job/load.cpp kTrainingFailuresMax": "shape: a default",
    "common/job/load.cpp kCommandFailuresMax": "shape: a default",
    "common/job/load.cpp kNameBytesMax": _COMMON + "limits_test.cpp: job: a name",
    "common/job/load.hpp kJobFileBytesMax": "test/integration/bad_input_test.py: larger than 1024 KiB",
    "common/job/load.hpp kResolvedBytesMax": _COMMON + "job_errors_test.cpp: bytes with its defaults; at most 49152",
    "common/json/reader.hpp kDepthMax": _COMMON + "reader_test.cpp: nesting is bounded while reading",
    "common/json/key_index.cpp kHomesMax": "shape: how many places an error names",
    "common/json/suggest.cpp kWordBytesMax": _COMMON + "limits_test.cpp: suggestions: a long word",
    "common/json/words.cpp kShownBytesMax": "shape: how much of a value an error shows",
    "common/messages/codec.hpp kDepthMax": _COMMON + "messages_test.cpp: nesting is bounded before anything is built",
    "common/messages/frame.cpp kKeptBytesMax": "shape: what an empty buffer keeps",
    "common/messages/frame.hpp kJsonFrameBytesMax": _COMMON + "frame_test.cpp: the largest ones pass",
    "common/messages/frame.hpp kChunkFrameBytesMax": _COMMON + "frame_test.cpp: the largest ones pass",
    "common/messages/frame.hpp kPartFrameBytesMax": _COMMON + "frame_test.cpp: parts have a limit together",
    "common/messages/frame.hpp kMessageBytesMax": _COMMON + "frame_test.cpp: parts have a limit together",
    "common/messages/hello.hpp kProtocolMax": "shape: the newest version",
    "common/messages/keeper.hpp kConsoleLineBytesMax": _UNIT + "keeper_output_test.cpp: 24 MB without a newline",
    "common/messages/keeper.hpp kTailLineBytesMax": _UNIT + "keeper_output_test.cpp: kTailLineBytesMax",
    "common/messages/link.cpp kLineDepthMax": _COMMON + "messages_test.cpp: nesting is bounded before anything is built",
    "common/messages/link.hpp kLineBytesMax": _COMMON + "messages_test.cpp: link: a line over the limit is refused",
    "common/messages/transfer.cpp kShownBytesMax": "shape: how much of a name an error shows",
    "common/messages/transfer.hpp kChunkBytesMax": _UNIT + "transfer_down_test.cpp: who breaks the protocol is shown out",
    "common/messages/transfer.hpp kPartBytesMax": _COMMON + "limits_test.cpp: transfer: names",
    "common/messages/transfer.hpp kPartsMax": _COMMON + "limits_test.cpp: transfer: names",
    "common/messages/transfer.hpp kPathsMax": "untested: a thousand checkpoints to keep in one message",
    "launcher/agent/agent_journal.hpp kBytesMax": "untested: a journal of 256 MiB",
    "launcher/agent/file_fetcher.cpp kFilesMax": "untested: a listing of 10,001 files, from a coordinator that lies",
    "launcher/agent/file_fetcher.hpp kDamagedChunksMax": "untested: a thousand damaged chunks of one file",
    "launcher/agent/file_fetcher.hpp kAttemptsMax": "untested: a checkpoint that is damaged each time that it is fetched",
    "launcher/agent/file_sender.hpp kReadsMax": "shape: how many chunks are read ahead",
    "launcher/agent/file_sender.hpp kQueriesMax": "shape: how many files are asked for at once",
    "launcher/agent/file_sender.hpp kEndingsMax": "shape: how many ends are told at once",
    "launcher/agent/file_sender.hpp kAttemptsMax": "untested: a checkpoint that is damaged each time that it is sent",
    "launcher/agent/local_stream.hpp kQueueBytesMax": "untested: a rank that reads nothing",
    "launcher/agent/spool.cpp kRemotesMax": _UNIT + "transfer_down_test.cpp: limit kRemotesMax",
    "launcher/agent/worker_server.hpp kStrangersMax": _UNIT + "worker_server_test.cpp: links that have not said hello have a limit",
    "launcher/agent/worker_server.hpp kKeptBytesMax": _UNIT + "worker_server_test.cpp: what a rank does not acknowledge has a limit",
    "launcher/callbacks/csv_file.hpp kColumnsMax": _UNIT + "callback_files_test.cpp: there are more than 1024 metrics",
    "launcher/callbacks/csv_file.hpp kHeldRowsBytesMax": _UNIT + "callback_files_test.cpp: Rows beyond kHeldRowsBytesMax",
    "launcher/callbacks/event_file.hpp kHeldBytesMax": _UNIT + "callback_files_test.cpp: EventFile::kHeldBytesMax",
    "launcher/callbacks/exec_guard.cpp kToldBytesMax": "shape: how much of its words a guard tells",
    "launcher/callbacks/feed.hpp kPauseMax": "shape: how long is waited before a write is tried again",
    "launcher/callbacks/results_file.hpp kHeldBytesMax": _UNIT + "callback_files_test.cpp: ResultsFile::kHeldBytesMax",
    "launcher/cli/png_plot.hpp kPngPanelsMax": _UNIT + "plot_test.cpp: kPngPanelsMax",
    "launcher/cli/report_printer.hpp kWaitingBytesMax": "test/integration/callbacks_test.py: Limit kWaitingBytesMax",
    "launcher/cli/control_client.cpp kAnswerBytesMax": "untested: a launcher whose answer is over 16 MiB",
    "launcher/cli/join_verb.cpp kTokenBytesMax": "test/integration/bad_input_test.py: not a join token",
    "launcher/cli/local_run_control.cpp kSlotsMax": "test/integration/control_test.py: slots must be",
    "launcher/cli/log_lines.hpp kLogLineBytesMax": _UNIT + "log_lines_test.cpp: kLogLineBytesMax",
    "launcher/cli/run_fetch.cpp kSilenceMax": "shape: a deadline",
    "launcher/cli/token_verb.cpp kTtlMax": "test/integration/bad_input_test.py: expected a time from 1s to 168h",
    "launcher/coordinator/account_asks.hpp kAsksMax": _UNIT + "account_asks_test.cpp: limit kAsksMax",
    "launcher/coordinator/audit_log.hpp kFileBytesMax": _STORE + "audit_log_test.cpp: In place of kFileBytesMax",
    "launcher/coordinator/audit_log.hpp kFilesMax": _STORE + "audit_log_test.cpp: kFilesMax",
    "launcher/coordinator/client_desk.hpp kClientsMax": _UNIT + "client_desk_test.cpp: In place of kClientsMax",
    "launcher/coordinator/client_desk.hpp kTurnedAwayMax": _UNIT + "client_desk_test.cpp: kTurnedAwayMax",
    "launcher/coordinator/client_desk.hpp kUnansweredMax": _UNIT + "client_desk_test.cpp: kUnansweredMax",
    "launcher/coordinator/client_desk.hpp kFollowersMax": _UNIT + "client_desk_test.cpp: kFollowersMax",
    "launcher/coordinator/control_server.cpp kSilenceMax": "shape: a deadline",
    "launcher/coordinator/control_server.hpp kControlLineBytesMax": _UNIT + "control_server_test.cpp: limit kControlLineBytesMax",
    "launcher/coordinator/coordinator_shell.cpp kBytesMax": "shape: what of a summary is kept in a run's row",
    "launcher/coordinator/file_desk.cpp kFilesMax": "shape: what is remembered of files that were begun anew",
    "launcher/coordinator/file_desk.hpp kRefusalsMax": _UNIT + "transfer_down_test.cpp: kRefusalsMax",
    "launcher/coordinator/file_desk.hpp kRequestsMax": _UNIT + "transfer_down_test.cpp: kRequestsMax",
    "launcher/coordinator/file_desk.hpp kSettledMax": _UNIT + "transfer_up_test.cpp: kSettledMax",
    "launcher/coordinator/run_access.hpp kRunsMax": "shape: runs whose nodes are read again when they are asked for",
    "launcher/coordinator/run_follower.hpp kPartBytesMax": "shape: what is sent at once",
    "launcher/coordinator/run_follower.hpp kReadBytesMax": "shape: how much is read at once",
    "launcher/coordinator/run_follower.hpp kReadFilesMax": "shape: how many files are read at once",
    "launcher/coordinator/run_records.hpp kWaitingMax": _STORE + "shell_parts_test.cpp: too many lines wait to be written",
    "launcher/coordinator/run_service.hpp kTextsMax": _STORE + "shell_parts_test.cpp: In place of kAskedMax",
    "launcher/coordinator/run_service.cpp kNamedMax": "shape: how many names an error has",
    "launcher/coordinator/run_service_views.cpp kNamedMax": "shape: how many names an error has",
    "launcher/coordinator/run_service.cpp kBytesMax": "shape: what of a refusal is kept in the audit log",
    "launcher/coordinator/run_service_runs.cpp kRowsMax": "untested: more than 2,000 runs on one disk",
    "launcher/core/coordinator.hpp kLostMax": _CORE + "coordinator_test.cpp: kLostMax",
    "launcher/core/coordinator.hpp kStandingsMax": _CORE + "limits_test.cpp: limit kStandingsMax",
    "launcher/core/exchange.hpp kKeysMax": _CORE + "exchange_test.cpp: kKeysMax",
    "launcher/core/exchange.hpp kKeyBytesMax": _CORE + "exchange_test.cpp: kKeyBytesMax",
    "launcher/core/exchange.hpp kValueBytesMax": _CORE + "exchange_test.cpp: kValueBytesMax",
    "launcher/core/exchange.hpp kBytesMax": _CORE + "exchange_test.cpp: have a limit together, whose breach names both sizes",
    "launcher/core/fact_text.hpp kFactTextBytesMax": "shape: what of a message a fact carries",
    "launcher/callbacks/save_queue.hpp kWaitingMax": _UNIT + "after_save_test.cpp: kWaitingMax",
    "launcher/core/kept_checkpoints.hpp kScoresMax": _CORE + "kept_checkpoints_test.cpp: scores have a limit",
    "launcher/core/node_run.hpp kForkServersMax": "untested: a third fork server that dies under ranks",
    "launcher/core/outbox.hpp kResendMax": "shape: how long is waited before a fact is sent again",
    "launcher/core/outbox.hpp kRunBytesMax": _CORE + "agent_window_test.cpp: a full run holds up no other run's facts",
    "launcher/core/outbox.hpp kRunFactsMax": _CORE + "agent_window_test.cpp: small facts are counted too",
    "launcher/core/queue.cpp kNamedMax": "shape: how many nodes a reason names",
    "launcher/core/report_reducer.hpp kPendingMax": _CORE + "report_reducer_test.cpp: a rank that runs far ahead is stopped by a limit",
    "launcher/core/retry_budget.hpp kDelayMax": _CORE + "retry_budget_test.cpp: a delay has a limit",
    "launcher/core/run_machine.hpp kMismatchesMax": "shape: how many keys that ranks lack are told of",
    "launcher/core/run_machine.hpp kAheadMax": "untested: a node that claims a generation a thousand ahead",
    "launcher/core/run_machine.hpp kCheckpointsMax": "shape: how many checkpoints a start may choose from",
    "launcher/http/metrics_text.hpp kLabelsMax": _UNIT + "metrics_text_test.cpp: labels are bounded",
    "launcher/http/probe_server.cpp kDrainBytesMax": "untested: a request that goes on for 256 KiB after its refusal",
    "launcher/http/request_reader.hpp kHeaderBytesMax": _UNIT + "probe_server_test.cpp: oversize requests are answered",
    "launcher/http/request_reader.hpp kHeaderFieldsMax": _UNIT + "probe_server_test.cpp: oversize requests are answered",
    "launcher/keeper/agent_link.cpp kPartsMax": _UNIT + "keeper_agents_test.cpp: As many pieces as one read can be cut into",
    "launcher/keeper/agent_link.cpp kReceivesMax": "shape: how long one agent is read before others have their turn",
    "launcher/keeper/agent_link.hpp kAgentQueueBytesMax": _UNIT + "keeper_agents_test.cpp: limit kAgentQueueBytesMax",
    "launcher/keeper/agent_link.hpp kKeptBytesMax": _UNIT + "keeper_agents_test.cpp: limit kKeptBytesMax",
    "launcher/cli/plugin_types.cpp kOutputBytesMax": "shape: how much of a worker's answer is read; what is cut is no JSON",
    "launcher/keeper/fork_server_process.hpp kForkMessageBytesMax": _UNIT + "keeper_fork_server_test.cpp: kForkMessageBytesMax",
    "launcher/keeper/fork_server_process.hpp kForkRequestsMax": _UNIT + "keeper_fork_server_test.cpp: limit kForkRequestsMax",
    "launcher/keeper/tail.cpp kReadMax": "shape: what the last lines of a file can take",
    "launcher/net/attempt_limit.hpp kPeersMax": _NET + ": remembers a bounded number of peers",
    "launcher/net/ca.cpp kCommonNameMax": "shape: X.520's own; the whole name is elsewhere",
    "launcher/net/certificate.hpp kPemBytesMax": _BOOKS + ": limit kPemBytesMax",
    "launcher/net/dialer.cpp kDoublingsMax": "shape: a wait that has its limit already",
    "launcher/net/dialer.hpp kWaitMax": _UNIT + "link_test.cpp: waits double up to a limit",
    "launcher/net/door.hpp kStrangersMax": _UNIT + "connection_test.cpp: one address has a quarter of the places",
    "launcher/net/door.hpp kStrangersOfOneMax": _UNIT + "connection_test.cpp: one address has a quarter of the places",
    "launcher/net/door.hpp kLineMax": _UNIT + "connection_test.cpp: limit kLineMax",
    "launcher/net/identity_files.cpp kRevokedBytesMax": _BOOKS + ": limit kEntriesMax",
    "launcher/net/identity_files.hpp kEntriesMax": _BOOKS + ": limit kEntriesMax",
    "launcher/net/issued_log.hpp kFileBytesMax": "untested: a log of 16 MiB of certificates",
    "launcher/net/join_desk.hpp kVisitorsMax": _NET + ": limit kVisitorsMax",
    "launcher/net/join_token.cpp kTextBytesMax": _NET + ": std::string(10'000, 'a')",
    "launcher/net/peer_identity.hpp kNameBytesMax": _NET + ": a URI is a role and a name, and nothing else",
    "launcher/net/tls_context.cpp kCertificateBytesMax": "untested: a chain of certificates of more than 16 KiB",
    "launcher/net/token_book.cpp kFileBytesMax": _BOOKS + ": limit kTokensMax",
    "launcher/net/token_book.hpp kTokensMax": _BOOKS + ": limit kTokensMax",
    "launcher/process/account.cpp kGroupsMax": "shape: the kernel's own",
    "launcher/process/account_lookup.hpp kPendingMax": _UNIT + "accounts_test.cpp: kPendingMax",
    "launcher/process/cpu_set.cpp kWordsMax": "shape: more cores than Linux can be built for",
    "launcher/process/daemon_log.hpp kMessageBytesMax": _UNIT + "daemon_log_test.cpp: kMessageBytesMax",
    "launcher/process/daemon_log.hpp kKeysMax": _UNIT + "daemon_log_test.cpp: keys beyond the limit share one",
    "launcher/process/library_folders.cpp kElfTableBytesMax": _UNIT + "library_folders_test.cpp: limit kElfTableBytesMax",
    "launcher/process/process_tree.cpp kStatBytesMax": "shape: a line of the kernel's",
    "launcher/process/process_tree.cpp kLevelsMax": "shape: a tree that changes while it is read",
    "launcher/process/process_tree.cpp kChildrenBytesMax": "shape: a line of the kernel's",
    "launcher/process/tree_killer.cpp kPolledMax": "shape: how many ends are waited for at once",
    "launcher/process/strays.cpp kEnvironmentBytesMax": "untested: a process whose environment is over 4 MiB",
    "launcher/process/runtime_dir.cpp kBaseBytesMax": "untested: a runtime directory with a long path",
    "launcher/process/unix_socket.hpp kSocketPathBytesMax": _UNIT + "process_files_test.cpp: are possible",
    "launcher/process/unix_socket.hpp kDescriptorsMax": "shape: what our own messages carry",
    "launcher/storage/file_thread.hpp kAskedMax": _STORE + "shell_parts_test.cpp: In place of kAskedMax",
    "launcher/storage/disk_reserve.cpp kKeptFreeMax": "shape: how much room is left to others",
    "launcher/storage/event_store.hpp kQueueMax": _STORE + "event_store_test.cpp: it takes what is appended even when it is full",
    "launcher/storage/event_store.hpp kQueueBytesMax": "untested: 64 MiB of events that wait for the disk",
    "launcher/storage/event_store.hpp kRetryMax": "shape: how long is waited before a write is tried again",
    "launcher/storage/store_reader.cpp kMax": "shape: how much of an error is shown",
    "launcher/storage/store_tables.hpp kDropMax": "shape: how many rows one commit takes away",
    "worker/data/decoded_image.hpp kImagePixelsMax": "test/unit/worker_data/image_decoder_test.cpp: expected at most 67108864 in all",
    "worker/data/decoded_image.hpp kImageSideMax": "test/unit/worker_data/image_decoder_test.cpp: expected at most 65535 a side",
    "worker/data/image_decoder.hpp kImageFileBytesMax": "test/unit/worker_data/image_decoder_test.cpp: expected an image of at most 268435456",
    "worker/data/jpeg_decoder.cpp kJpegScansMax": "test/unit/worker_data/image_decoder_test.cpp: more than 100 scans",
    "worker/data/png_decoder.cpp kPngSideMax": "shape: the format's own; kImagePixelsMax bounds both sides",
    "worker/data/png_decoder.cpp kPngChunkBytesMax": "shape: what is not passed over has 768 bytes at most",
    "worker/torch/engine_reports.cpp kResultBytesMax": "test/integration/plugin_test.py: at most 65536 can be",
    "worker/torch/own_dataset.cpp kSamplesMax": "test/unit/worker_torch/worker_plugin.py: 1 to 4294967295 can be",
    "worker/collective/limits.hpp kGatherBytesMax": _WORKER + "limits_test.cpp: limit kGatherBytesMax",
    "worker/collective/shm_region.hpp kLocalRanksMax": _WORKER + "limits_test.cpp: limit kLocalRanksMax",
    "worker/torch/warm_up.cpp kHeavyBatchMax": "shape: how much of a batch warms up",
    "worker/torch/engine.cpp kPendingBatchesMax": "test/unit/worker_torch/worker_plugin.py: for 1000 batches there have been",
    "worker/plugin/load_plugins.cpp kTagBytesMax": "test/unit/worker_torch/worker_plugin.py: A tag that is too long",
    "worker/core/memory_checkpoint.cpp kAreasBytesMax": "shape: what kTextBytesMax allows, three times",
    "worker/core/memory_checkpoint.hpp kTextBytesMax": _WORKER + "memory_checkpoint_test.cpp: kTextBytesMax",
    "worker/core/memory_checkpoint.cpp kAreasBytesMax": "shape: beyond it an area's place is damage",
    "worker/core/safetensors_read.cpp kHeaderBytesMax": _WORKER + "safetensors_test.cpp: its header would have",
    "worker/core/safetensors_read.cpp kDimensionsMax": _WORKER + "safetensors_test.cpp: no usable shape",
    "worker/core/safetensors_read.cpp kDepthMax": _WORKER + "safetensors_test.cpp: nested too deep",
    "worker/measure/limits.hpp kListedClassesMax": "test/unit/worker_measure/metrics_by_hand_test.cpp: kListedClassesMax",
    "worker/measure/limits.hpp kMatrixClassesMax": "test/unit/worker_measure/metrics_by_hand_test.cpp: kMatrixClassesMax",
    "worker/link/client.hpp kOutboxBytesMax": "test/unit/worker_link/client_test.cpp: loses nothing up to the outbox's limit",
    "worker/link/client.hpp kExchangeKeysMax": "test/unit/worker_link/client_test.cpp: limit kExchangeKeysMax",
    "worker/link/client.hpp kKeptBytesMax": "untested: a rank that says 32 MiB without an agent",
    "worker/link/socket.cpp kDescriptorsMax": "shape: what our own messages carry",
    "worker/torch/operator_save.hpp kStateJsonBytesMax": "test/unit/worker_torch/operator_save_test.cpp: limits kStateJsonBytesMax",
    "worker/torch/error_report.cpp kMessageBytesMax": "shape: what of an exception is told",
    "worker/torch/error_report.cpp kBacktraceBytesMax": "shape: what of a backtrace is told",
    "worker/torch/relu_max_pool.cpp kChannelsMax": "shape: how many a quick way takes",
    "worker/torch/fork_server.cpp kPacketBytesMax": _UNIT + "keeper_fork_server_test.cpp: kForkMessageBytesMax",
    "worker/torch/warm_up.cpp kWarmUpBatchMax": "shape: what a first step is tried with",
    "worker/torch/stack_trace.cpp kFramesMax": "shape: how deep a stack is shown",
    "worker/torch/stack_trace.cpp kPathBytesMax": "shape: how long a path is shown",
}

_JOINED = re.compile(r'"\s*\n\s*"')  # A text in several lines.
_CONSTANT = re.compile(r"\bconstexpr\s+[\w:<> ]*?\b(k\w*Max)\s*[={]")


def limits_have_tests(tree):
    """Each written limit names the test that reaches it, in test/tidy/limits.py."""
    return _missing(tree, TESTS)


def _missing(tree, tests):
    found, seen = [], set()
    for path, text in cpp_files(tree, "common", "launcher", "worker"):
        for number, line in enumerate(text.split("\n"), 1):
            for name in _CONSTANT.findall(line):
                seen.add(f"{path} {name}")
                test = tests.get(f"{path} {name}")
                if test is None:
                    found.append(Finding(path, number, f"{name} is a limit without a test: name one in test/tidy/limits.py"))
                elif not test.startswith(("shape: ", "untested: ")):
                    file, words = test.split(": ", 1)
                    if words not in _JOINED.sub("", tree.get(file, "")):
                        found.append(Finding(path, number, f"{name}: {file} has no \"{words}\", which test/tidy/limits.py names"))
    if seen:
        found += [Finding("test/tidy/limits.py", 1, f"{name} is no constant any more") for name in sorted(set(tests) - seen)
                  if name.split(" ")[0] in tree or len(tree) > 40]
        untested = sum(test.startswith("untested: ") for test in tests.values())
        if untested > UNTESTED_MAX:
            found.append(Finding("test/tidy/limits.py", 1, f"{untested} limits are untested, and {UNTESTED_MAX} may be"))
    return found

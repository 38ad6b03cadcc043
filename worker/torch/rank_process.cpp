#include "worker/torch/rank_process.hpp"
#include "worker/torch/clock.hpp"
#include "worker/torch/error_report.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/function_run.hpp"
#include "worker/torch/lost_file.hpp"
#include "worker/torch/operator_run.hpp"
#include "worker/torch/stack_trace.hpp"
#include "worker/torch/worker_job.hpp"

#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include <ATen/Parallel.h>

#include "common/exit_codes.hpp"
#include "worker/collective/factory.hpp"
#include "worker/collective/watched_collective.hpp"
#include "worker/link/client.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/device_library.hpp"

namespace sgd::worker {
namespace {

constexpr Duration kAssignmentDeadline = std::chrono::seconds(60);
constexpr Duration kFlushDeadline = std::chrono::seconds(5);
constexpr Duration kExchangeMargin = std::chrono::seconds(5);

/// Whether the ranks of this node have a core each. This process sees only its own share; the keeper above it
/// has the whole set.
bool has_exclusive_cores(const link::Assignment& assignment) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(::getppid(), sizeof allowed, &allowed) != 0) return false;
  return CPU_COUNT(&allowed) >= assignment.local_world_size * std::max(assignment.cpus, 1);
}

std::vector<std::string> exchange_text(LinkClient& link, const std::string& key, const std::string& value,
                                       Duration deadline) {
  Result<std::vector<nlohmann::json>> values = link.exchange(key, value, deadline);
  if (!values) throw CollectiveError(values.error().message);
  std::vector<std::string> texts;
  for (const nlohmann::json& one : values.value()) texts.push_back(one.get<std::string>());
  return texts;
}

std::unique_ptr<Collective> form_group(LinkClient& link, const ReceivedAssignment& received, const job::JobSpec& job,
                                       std::size_t gradient_count, DeviceGradients* on_device) {
  const link::Assignment& assignment = received.assignment;
  CollectiveSetup setup;
  setup.rank = assignment.rank;
  setup.world_size = assignment.world_size;
  setup.local_rank = assignment.local_rank;
  setup.local_world_size = assignment.local_world_size;
  setup.node_rank = assignment.node_rank;
  setup.node_count = assignment.node_count;
  setup.generation = assignment.generation;
  setup.region_fd = received.shared_region.get();
  setup.gradient_count = gradient_count;
  setup.backend = job.training->backend;
  setup.device = on_device;
  if (!assignment.bind_address.empty()) setup.bind_address = assignment.bind_address;
  setup.stall_timeout = job.heartbeat.stall_timeout;
  setup.exclusive_cores = has_exclusive_cores(assignment);
  const Duration deadline = setup.stall_timeout + kExchangeMargin;
  setup.exchange = [&link, deadline](const std::string& key, const std::string& value) {
    return exchange_text(link, key, value, deadline);
  };
  std::unique_ptr<Collective> collective = std::make_unique<WatchedCollective>(make_collective(setup), link.progress());
  link.on_abort([raw = collective.get()] { raw->abort(); });
  return collective;
}

Outcome run(const EngineSetup& setup) {
  if (const TrainingFunction* function = find_function(*setup.job.training)) return FunctionRun(setup, *function).run();
  const std::unique_ptr<TrainingOperator> training_operator = make_operator(*setup.job.training);
  return OperatorRun(setup, *training_operator).run();
}

/// One assignment from group to last barrier; everything it made is gone when it returns.
int train(LinkClient& link, const ReceivedAssignment& received, const Preloaded& preloaded, TimePoint assigned) {
  const StackTracing stack_tracing(received.assignment.run_dir, received.assignment.generation,
                                   received.assignment.rank, link.progress());
  const job::JobSpec job = read_worker_job(received.assignment.config);
  if (wants_gpu(job)) open_device_library();
  at::set_num_threads(std::max(received.assignment.cpus, 1));
  // It is of this thread, and of those that it starts from here on: loaders and the pool of LibTorch.
  (void)at::globalContext().setFlushDenormal(job.training->flush_denormal);
  const bool is_same = preloaded.dataset && preloaded.dataset_settings == data_settings(*job.training) &&
                       preloaded.model_settings == job.training->model && preloaded.seed == job.training->seed;
  const std::shared_ptr<const Dataset> dataset = is_same ? preloaded.dataset : make_dataset(*job.training);
  const EngineSetup setup{job,
                          received.assignment,
                          link,
                          dataset.get(),
                          [&link, &received, &job](std::size_t gradient_count, DeviceGradients* on_device) {
                            return form_group(link, received, job, gradient_count, on_device);
                          },
                          is_same ? preloaded.model : nullptr,
                          received.memory_checkpoint.get(),
                          assigned,
                          Device::of(job, received.assignment.local_rank)};
  return run(setup) == Outcome::kDone ? worker_exit::kDone : worker_exit::kStopped;
}

int connect_and_train(const Preloaded& preloaded, const char* path, const char* token) {
  const char* wait_s = std::getenv("SGD_AGENT_WAIT");
  const Duration agent_wait = from_seconds(wait_s == nullptr ? 0.0 : std::strtod(wait_s, nullptr));
  Result<std::unique_ptr<LinkClient>> connected =
      LinkClient::connect(path, token, LinkClient::kConnectDeadline, agent_wait);
  if (!connected) {
    std::fprintf(stderr, "sgd-worker: %s\n", connected.error().message.c_str());
    return worker_exit::kEnvironment;
  }
  const std::unique_ptr<LinkClient> link = std::move(connected).value();
  ReportTarget target;
  target.link = link.get();
  int code = worker_exit::kDone;
  try {
    Result<ReceivedAssignment> received = link->next_assignment(kAssignmentDeadline);
    if (!received) throw EnvironmentError(received.error().message);
    const TimePoint assigned = time_now();
    target.run_dir = received.value().assignment.run_dir;
    target.rank = received.value().assignment.rank;
    code = train(*link, received.value(), preloaded, assigned);
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    report(failure, target);
    code = failure.exit_code;
  }
  link->finish(kFlushDeadline);
  return code;
}

}  // namespace

void ignore_signals() {
  ignore_stack_signal();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void prepare_process() {
  // Activations of several megabytes come and go with every batch. By default glibc maps and unmaps each of
  // them, and every page faults anew: 15 % of a convolutional network's step.
  constexpr int kNeverMapBelow = 1 << 30;
  ::mallopt(M_MMAP_THRESHOLD, kNeverMapBelow);
  ::mallopt(M_TRIM_THRESHOLD, kNeverMapBelow);
  ::mallopt(M_TOP_PAD, 64 << 20);
  // LibTorch asks for huge pages for tensors from 2 MiB on: with pages of 4 KiB the first step of a large model, and
  // the end of its process, take a third longer. Set by the user, it stays.
  (void)::setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
  ignore_signals();
  explain_lost_files();
}

int run_rank(const Preloaded& preloaded) {
  const char* path = std::getenv("SGD_LINK");
  const char* token = std::getenv("SGD_TOKEN");
  if (path == nullptr || token == nullptr) {
    std::fputs(
        "sgd-worker: this program is started by sgd-launch, which sets SGD_LINK and SGD_TOKEN.\n"
        "To train: sgd-launch run job.json\n",
        stderr);
    return worker_exit::kConfiguration;
  }
  const int code = connect_and_train(preloaded, path, token);
  std::fflush(nullptr);
  return code;
}

}  // namespace sgd::worker

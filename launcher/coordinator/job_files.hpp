#pragma once
// The files that clients bring for their jobs, until a run keeps them: a store for each owner, so that nobody is given,
// or told of, another's by its hash, and nobody's room is another's.
//
//   {"type":"request","request":"files","files":[{"sha256":H,"bytes":N}, ...]}
//        -> {"ok":true,"missing":[{"sha256":H,"have":O}, ...]}, or refused: more than the owner may have
//   {"type":"put","id":7,"sha256":H,"offset":O,"bytes":N,"last":true}, then a chunk frame with the bytes, if there are
//   any
//        -> {"ok":true,"have":O+N}, or refused: then from "have" on once more, or not at all
//
// What is whole is proven by its hash; a submission names that of its set (shipping::FileSet).

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "launcher/coordinator/client_service.hpp"
#include "launcher/coordinator/requester.hpp"
#include "launcher/shipping/file_store.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::coordinator {

class JobFiles {
 public:
  /// Owners whose files are looked at at a time, each on a thread of its own: nobody waits for another's.
  static constexpr std::size_t kOwnersMax = 64;
  static constexpr Duration kDiskLimit = std::chrono::seconds(10);
  static constexpr Duration kProofLimit = std::chrono::minutes(5);  ///< The hash of a large file takes its time.

  /// `folder` is made when somebody brings something; on the disk of the runs.
  JobFiles(boost::asio::io_context& io, std::string folder, const shipping::FileStore::Limits& limits)
      : io_(io), stores_(std::make_shared<Stores>(std::move(folder), limits)) {}

  /// Answers a request "files".
  void look(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  void put(const Requester& who, const ClientService::Put& put, std::string bytes, const ClientService::Reply& reply);
  /// On any thread.
  [[nodiscard]] Result<std::shared_ptr<shipping::FileStore>> store_of(const Requester& who) { return stores_->of(who); }
  shipping::FileStore::Limits& limits() { return stores_->limits; }

 private:
  /// With each thread, which may be in a call that does not return when everything else is gone.
  struct Stores {
    Stores(std::string in, const shipping::FileStore::Limits& of_one) : folder(std::move(in)), limits(of_one) {}
    [[nodiscard]] Result<std::shared_ptr<shipping::FileStore>> of(const Requester& who);

    std::string folder;
    shipping::FileStore::Limits limits;  ///< Of one owner.
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<shipping::FileStore>> by_name;  ///< By the folder's name.
  };
  struct Owner {
    std::unique_ptr<storage::FileThread> thread;
    std::shared_ptr<std::size_t> asked = std::make_shared<std::size_t>(0);  ///< Without an answer.
  };
  template <class Work, class Done>
  void ask(const Requester& who, Duration limit, const ClientService::Reply& reply, Work work, Done done);

  boost::asio::io_context& io_;
  std::shared_ptr<Stores> stores_;
  std::map<std::string, Owner> owners_;
};

}  // namespace sgd::coordinator

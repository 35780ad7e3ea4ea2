// ps-lite (github.com/dmlc/ps-lite) as a parameter server that adds what is pushed. Built outside of
// the repository, from a checkout of ps-lite in $P and Debian's libzmq3-dev and protobuf-compiler, in
// the repository's root:
//
//   protoc -I $P/src --cpp_out=$P/src meta.proto
//   g++ -O3 -march=native -std=c++17 -DDMLC_USE_GLOG=0 -I $P/include -I $P/src \
//     bench/training/peers/ps-lite-peer.cc $P/src/{customer,postoffice,van}.cc $P/src/meta.pb.cc \
//     -o $P/ps-lite-peer -lzmq -lprotobuf -lpthread
//
// `ps-lite-peer BYTES MESSAGE_BYTES`, with ps-lite's own DMLC_* variables. The worker prints "ready 0",
// reads "push" or "pull" from its input, does it and prints "done NUMBER MILLISECONDS".

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

static void Handle(const ps::KVMeta& meta, const ps::KVPairs<float>& data,
                   ps::KVServer<float>* server) {
  static std::unordered_map<ps::Key, ps::SArray<float>> store;
  const ps::Key key = data.keys[0];
  ps::KVPairs<float> reply;
  if (meta.push) {
    auto& sums = store[key];
    if (sums.empty()) sums.resize(data.vals.size(), 0);
    float* to = sums.data();
    const float* part = data.vals.data();
    for (size_t i = 0; i < data.vals.size(); i++) to[i] += part[i];
  } else {
    reply.keys = data.keys;
    reply.vals = store[key];
    reply.lens = {static_cast<int>(reply.vals.size())};
  }
  server->Response(meta, reply);
}

static void Work(size_t bytes, size_t message_bytes) {
  ps::KVWorker<float> worker(0, 0);
  const size_t step = message_bytes / 4;
  std::vector<ps::SArray<float>> parts, into;
  std::vector<ps::SArray<ps::Key>> keys;
  std::vector<ps::SArray<int>> lengths;
  for (size_t at = 0; at < bytes / 4; at += step) {
    const size_t count = std::min(step, bytes / 4 - at);
    parts.emplace_back(count, 0.5f);
    into.emplace_back(count, 0.0f);
    keys.push_back({static_cast<ps::Key>(keys.size())});
    lengths.push_back({static_cast<int>(count)});
  }
  printf("ready 0\n");
  fflush(stdout);
  std::string command;
  for (int number = 1; std::getline(std::cin, command); number++) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<int> pending;
    for (size_t i = 0; i < keys.size(); i++) {
      pending.push_back(command == "push" ? worker.ZPush(keys[i], parts[i], lengths[i])
                                          : worker.ZPull(keys[i], &into[i], &lengths[i]));
    }
    for (int one : pending) worker.Wait(one);
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    printf("done %d %f\n", number, ms.count());
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: ps-lite-peer BYTES MESSAGE_BYTES\n");
    return 2;
  }
  ps::Start(0);
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle(Handle);
    ps::RegisterExitCallback([server]() { delete server; });
  }
  if (ps::IsWorker()) Work(strtoull(argv[1], nullptr, 10), strtoull(argv[2], nullptr, 10));
  ps::Finalize(0, true);
  return 0;
}

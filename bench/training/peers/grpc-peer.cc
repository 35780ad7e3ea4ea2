// gRPC C++ as a parameter server: messages of 1 MiB of our protobuf type, added by the thread that
// reads them. Built outside of the repository, from Debian's libgrpc++-dev, protobuf-compiler and
// protobuf-compiler-grpc, in the repository's root:
//
//   B=/tmp/peers/grpc; mkdir -p $B
//   protoc -I proto -I bench/training/peers --cpp_out=$B --grpc_out=$B \
//     --plugin=protoc-gen-grpc=$(which grpc_cpp_plugin) data-plane.proto parameters.proto
//   g++ -O3 -march=native -std=c++20 -I $B bench/training/peers/grpc-peer.cc $B/*.cc \
//     -o $B/grpc-peer -lgrpc++ -lgrpc -lgpr -lprotobuf -labsl_synchronization -lpthread
//
// `grpc-peer serve BYTES` prints "ready HOST:PORT". `grpc-peer drive BYTES HOST:PORT` reads "push" or
// "pull" from its input, does it and prints "done NUMBER MILLISECONDS".

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "data-plane.grpc.pb.h"

using heddle::bench::DataPlane;
using heddle::v1::ParameterChunk;
using heddle::v1::ShardId;

constexpr size_t kChunkBytes = 1 << 20;

static void Send(const std::vector<float>& values, size_t bytes, auto* stream) {
  const char* data = reinterpret_cast<const char*>(values.data());
  ParameterChunk chunk;
  for (size_t at = 0; at < bytes; at += kChunkBytes) {
    chunk.set_offset(at);
    chunk.set_data(data + at, std::min(kChunkBytes, bytes - at));
    if (!stream->Write(chunk)) break;
  }
}

class Service final : public DataPlane::Service {
 public:
  explicit Service(size_t bytes) : bytes_(bytes), sums_(bytes / 4, 1.0f) {}

  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<ParameterChunk>* reader,
                    ShardId*) override {
    ParameterChunk chunk;
    while (reader->Read(&chunk)) {
      const size_t count = chunk.data().size() / 4;
      const float* part = reinterpret_cast<const float*>(chunk.data().data());
      float* sums = sums_.data() + chunk.offset() / 4;
      for (size_t i = 0; i < count; i++) sums[i] += part[i];
    }
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext*, const ShardId*,
                    grpc::ServerWriter<ParameterChunk>* writer) override {
    Send(sums_, bytes_, writer);
    return grpc::Status::OK;
  }

 private:
  const size_t bytes_;
  std::vector<float> sums_;
};

static int Serve(size_t bytes) {
  Service service(bytes);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  auto server = builder.BuildAndStart();
  printf("ready 127.0.0.1:%d\n", port);
  fflush(stdout);
  server->Wait();
  return 0;
}

static bool Push(DataPlane::Stub* stub, const std::vector<float>& part, size_t bytes) {
  grpc::ClientContext context;
  ShardId reply;
  auto writer = stub->Push(&context, &reply);
  Send(part, bytes, writer.get());
  writer->WritesDone();
  return writer->Finish().ok();
}

static bool Pull(DataPlane::Stub* stub, std::vector<float>* into, size_t bytes) {
  grpc::ClientContext context;
  auto reader = stub->Pull(&context, ShardId());
  ParameterChunk chunk;
  size_t got = 0;
  char* to = reinterpret_cast<char*>(into->data());
  while (reader->Read(&chunk)) {
    memcpy(to + chunk.offset(), chunk.data().data(), chunk.data().size());
    got += chunk.data().size();
  }
  return reader->Finish().ok() && got == bytes;
}

static int Drive(size_t bytes, const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  auto channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  auto stub = DataPlane::NewStub(channel);
  std::vector<float> part(bytes / 4, 0.5f), into(bytes / 4);
  std::string command;
  for (int number = 1; std::getline(std::cin, command); number++) {
    const auto begin = std::chrono::steady_clock::now();
    const bool good = command == "push" ? Push(stub.get(), part, bytes)
                                        : Pull(stub.get(), &into, bytes);
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    if (!good) return 1;
    printf("done %d %f\n", number, ms.count());
    fflush(stdout);
  }
  return 0;
}

int main(int argc, char** argv) {
  const size_t bytes = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
  if (argc == 3 && !strcmp(argv[1], "serve")) return Serve(bytes);
  if (argc == 4 && !strcmp(argv[1], "drive")) return Drive(bytes, argv[3]);
  fprintf(stderr, "usage: grpc-peer serve BYTES | grpc-peer drive BYTES HOST:PORT\n");
  return 2;
}

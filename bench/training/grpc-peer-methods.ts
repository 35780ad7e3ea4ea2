import { shardMethods } from "@heddle/parameters/shard-methods";

const { requestSerialize, requestDeserialize } = shardMethods.status;
const { responseSerialize, responseDeserialize } = shardMethods.pull;

/** Plain calls over the same protobuf messages as ours. */
export const peerMethods = {
  push: {
    path: "/bench/Push",
    requestStream: true,
    responseStream: false,
    requestSerialize: responseSerialize,
    requestDeserialize: responseDeserialize,
    responseSerialize: requestSerialize,
    responseDeserialize: requestDeserialize,
  },
  pull: {
    path: "/bench/Pull",
    requestStream: false,
    responseStream: true,
    requestSerialize,
    requestDeserialize,
    responseSerialize,
    responseDeserialize,
  },
};

import type { ChannelOptions } from "@grpc/grpc-js";

/** The maximum message size: prompts of 128k tokens with room to spare. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

/** Keepalive of an idle connection: the interval, and the timeout of an answer. */
const KEEPALIVE_TIME_MS = 10_000;
const KEEPALIVE_TIMEOUT_MS = 5_000;

/** Disables grpc-js's own statistics, which cost time per message and are not read. */
const withoutStatistics: ChannelOptions = { "grpc.enable_channelz": 0 };

/** Client options of every connection between nodes. */
export const clientChannelOptions: ChannelOptions = {
  ...withoutStatistics,
  "grpc.keepalive_time_ms": KEEPALIVE_TIME_MS,
  "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
  "grpc.keepalive_permit_without_calls": 1,
  "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
  "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
  // Callers reconnect themselves: the channel must not wait in its own backoff for two minutes.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.min_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1_000,
  "grpc.use_local_subchannel_pool": 1,
  "grpc.enable_retries": 0,
  // A proxy from the environment is for traffic out of the cluster; grpc-js would use it for
  // 127.0.0.1.
  "grpc.enable_http_proxy": 0,
};

/**
 * Added for receivers of large streams: the default HTTP/2 window of 64 KiB costs a round trip
 * each. A stream with a slow reader buffers as much.
 */
export const bulkChannelOptions: ChannelOptions = {
  "grpc-node.flow_control_window": 4 * 1024 * 1024,
};

/** Options of every server of a node. */
export const serverChannelOptions: ChannelOptions = {
  ...withoutStatistics,
  "grpc.keepalive_time_ms": KEEPALIVE_TIME_MS,
  "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
  "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
  "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
};

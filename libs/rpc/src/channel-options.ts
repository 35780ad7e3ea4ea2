import type { ChannelOptions } from "@grpc/grpc-js";

/** The largest message either side takes: prompts of 128k tokens with room to spare. */
const maxMessageBytes = 64 * 1024 * 1024;

/** How often an idle connection is probed, and how long an answer may take. */
const keepaliveTimeMs = 10_000;
const keepaliveTimeoutMs = 5_000;

/** Nobody asks grpc-js for its own statistics, which it would keep for every message. */
const withoutStatistics: ChannelOptions = { "grpc.enable_channelz": 0 };

/** Options of every connection between nodes, for the side that dials. */
export const clientChannelOptions: ChannelOptions = {
  ...withoutStatistics,
  "grpc.keepalive_time_ms": keepaliveTimeMs,
  "grpc.keepalive_timeout_ms": keepaliveTimeoutMs,
  "grpc.keepalive_permit_without_calls": 1,
  "grpc.max_receive_message_length": maxMessageBytes,
  "grpc.max_send_message_length": maxMessageBytes,
  // Reconnecting is ours: the channel must not sit in a back-off of its own for two minutes.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.min_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1_000,
  "grpc.use_local_subchannel_pool": 1,
  "grpc.enable_retries": 0,
  // A proxy of the environment is for the way out of the cluster; grpc-js would take it to 127.0.0.1.
  "grpc.enable_http_proxy": 0,
};

/**
 * Besides those, for a side that takes streams of megabytes: HTTP/2 lets 64 KiB be under way, each of
 * which would cost a round trip. A stream buffers as much where its reader is slow.
 */
export const bulkChannelOptions: ChannelOptions = {
  "grpc-node.flow_control_window": 4 * 1024 * 1024,
};

/** Options of every server of a node. */
export const serverChannelOptions: ChannelOptions = {
  ...withoutStatistics,
  "grpc.keepalive_time_ms": keepaliveTimeMs,
  "grpc.keepalive_timeout_ms": keepaliveTimeoutMs,
  "grpc.max_receive_message_length": maxMessageBytes,
  "grpc.max_send_message_length": maxMessageBytes,
};

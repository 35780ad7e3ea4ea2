import { Server, ServerCredentials } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { serverChannelOptions } from "./channel-options.ts";
import { type NodeCredentials, requireCaller } from "./credentials.ts";

export interface BoundServer {
  readonly server: Server;
  /** host:port, with the port that the system chose where 0 was asked for. */
  readonly address: string;
}

/** A server whose every call is of a node that may make it. Rejects where the port is taken. */
export function bindServer(options: {
  readonly host: string;
  readonly port: number;
  readonly credentials: NodeCredentials;
  /** Hears of each call that is refused for who makes it. */
  readonly onRefused?: (() => void) | undefined;
}): Promise<BoundServer> {
  const server = new Server({
    ...serverChannelOptions,
    interceptors: [requireCaller(options.credentials, options.onRefused)],
  });
  const wanted = `${options.host}:${options.port}`;
  const credentials =
    options.credentials.tls?.serverCredentials() ?? ServerCredentials.createInsecure();
  return new Promise((resolve, reject) => {
    server.bindAsync(wanted, credentials, (error, port) => {
      if (!error) return resolve({ server, address: `${options.host}:${port}` });
      const message = `cannot listen for gRPC on ${wanted}: ${error.message}; choose another --grpc-port`;
      reject(new AppError("unavailable", message, { cause: error }));
    });
  });
}

/** Ends a server: calls may finish for `graceMs`, then they are cut. */
export function closeServer(server: Server, graceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, graceMs);
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

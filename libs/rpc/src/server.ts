import { createServer, type Server as NetServer, type Socket } from "node:net";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { serverChannelOptions } from "./channel-options.ts";
import { type NodeCredentials, requireCaller } from "./credentials.ts";
import type { TicketVerifier } from "./job-ticket.ts";
import type { FollowedCluster } from "./node/followed-cluster.ts";
import type { NodeClaim } from "./pki/node-name.ts";
import { checkDialler } from "./token/handshake.ts";

/** Connections at once whose other side has yet to say who it is; more are cut. */
const MAX_HANDSHAKES = 1_024;

export interface BoundServer {
  readonly server: Server;
  /** host:port, with the port that the system chose where 0 was asked for. */
  readonly address: string;
}

interface BindOptions {
  readonly host: string;
  readonly port: number;
  readonly credentials: NodeCredentials;
  /** Hears of each call that is refused for who makes it. */
  readonly onRefused?: (() => void) | undefined;
  /** Where tasks of jobs may call too. */
  readonly tickets?: TicketVerifier | undefined;
  /** Of a node: which cluster it works for. */
  readonly followed?: FollowedCluster | undefined;
  /** Of a server that is no node: it has a key of its own, which its callers know by the certificate. */
  readonly key?: { readonly certificate: string; readonly privateKey: string } | undefined;
}

/** A server whose every call is of a node that may make it. Rejects where the port is taken. */
export async function bindServer(options: BindOptions): Promise<BoundServer> {
  const { host, credentials, onRefused, tickets, followed, key } = options;
  const gate = new TokenGate(credentials, onRefused);
  const server = new NodeServer(gate, {
    ...serverChannelOptions,
    interceptors: [
      requireCaller(credentials, {
        ...{ onRefused, tickets, followed, takesBearer: key !== undefined },
        claimOf: (peer) => gate.claimOf(peer),
      }),
    ],
  });
  try {
    const tls = tlsCredentials(options);
    const port = await (tls ? bindTls(server, options, tls) : gate.listen(options, server));
    return { server, address: `${host}:${port}` };
  } catch (cause) {
    const why = `cannot listen for gRPC on ${host}:${options.port}: ${(cause as Error).message}`;
    throw new AppError("unavailable", `${why}; choose another --grpc-port`, { cause });
  }
}

function tlsCredentials({ credentials, key }: BindOptions): ServerCredentials | undefined {
  if (!key) return credentials.tls?.serverCredentials();
  const pair = {
    cert_chain: Buffer.from(key.certificate),
    private_key: Buffer.from(key.privateKey),
  };
  return ServerCredentials.createSsl(null, [pair], false);
}

function bindTls(
  server: Server,
  { host, port }: BindOptions,
  credentials: ServerCredentials,
): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(`${host}:${port}`, credentials, (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
}

/** A gRPC server that ends its gate with itself. */
class NodeServer extends Server {
  readonly #gate: TokenGate;

  constructor(gate: TokenGate, ...options: ConstructorParameters<typeof Server>) {
    super(...options);
    this.#gate = gate;
  }

  override tryShutdown(callback: (error?: Error) => void): void {
    this.#gate.close();
    super.tryShutdown(callback);
  }

  override forceShutdown(): void {
    this.#gate.close();
    super.forceShutdown();
  }
}

/** Takes plain connections, and hands them on to gRPC when the other side has shown who it is. */
class TokenGate {
  readonly #credentials: NodeCredentials;
  readonly #onRefused: (() => void) | undefined;
  /** By the address at the other end of the connection. */
  readonly #claims = new Map<string, NodeClaim>();
  readonly #pending = new Set<Socket>();
  #listener: NetServer | undefined;

  constructor(credentials: NodeCredentials, onRefused: (() => void) | undefined) {
    this.#credentials = credentials;
    this.#onRefused = onRefused;
  }

  claimOf(peer: string): NodeClaim | undefined {
    return this.#claims.get(peer);
  }

  listen({ host, port }: BindOptions, server: Server): Promise<number> {
    const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
    const listener = createServer({ noDelay: true }, (socket) => {
      void this.#admit(socket, () => injector.injectConnection(socket));
    });
    this.#listener = listener;
    return new Promise((resolve, reject) => {
      listener.once("error", reject);
      listener.listen(port, host.replace(/^\[|\]$/g, ""), () => {
        const address = listener.address();
        resolve(typeof address === "object" && address ? address.port : port);
      });
    });
  }

  close(): void {
    this.#listener?.close();
    for (const socket of this.#pending) socket.destroy();
  }

  async #admit(socket: Socket, admit: () => void): Promise<void> {
    // The reader of the connection meets errors; one in between must not end the process.
    socket.on("error", () => undefined);
    if (this.#pending.size >= MAX_HANDSHAKES) return void socket.destroy();
    this.#pending.add(socket);
    try {
      const claim = await checkDialler(socket, this.#credentials);
      const peer = `${socket.remoteAddress}:${socket.remotePort}`;
      if (claim) {
        this.#claims.set(peer, claim);
        socket.once("close", () => this.#claims.delete(peer));
      }
      if (!socket.destroyed) admit();
    } catch {
      this.#onRefused?.();
      socket.destroySoon();
    } finally {
      this.#pending.delete(socket);
    }
  }
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

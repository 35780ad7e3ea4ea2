import { createServer, type Server as NetServer, type Socket } from "node:net";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { NodeClaim } from "@heddle/pki/node-name";
import { serverChannelOptions } from "./channel-options.ts";
import {
  type IsRevoked,
  type NodeCredentials,
  requireCaller,
  revokedError,
} from "./credentials.ts";
import type { FollowedCluster } from "./followed-cluster.ts";
import type { TicketVerifier } from "./job-ticket.ts";
import { OpenCalls } from "./open-calls.ts";
import { checkDialler } from "./token/handshake.ts";

/** Bound on unauthenticated connections; further ones are cut. */
const MAX_HANDSHAKES = 1_024;

export interface BoundServer {
  readonly server: Server;
  /** host:port, with the system's choice for port 0. */
  readonly address: string;
  /** Ends the open calls of nodes whose certificates were revoked since. */
  endRevoked(): void;
}

interface BindOptions {
  readonly host: string;
  readonly port: number;
  readonly credentials: NodeCredentials;
  /** Called for each call that is refused for its caller. */
  readonly onRefused?: (() => void) | undefined;
  /** For methods that tasks of jobs may call. */
  readonly tickets?: TicketVerifier | undefined;
  /** The cluster that a node follows. */
  readonly followed?: FollowedCluster | undefined;
  readonly isRevoked?: IsRevoked | undefined;
  /** The own key of a server that is no node; callers know it by the certificate. */
  readonly key?: { readonly certificate: string; readonly privateKey: string } | undefined;
}

/** A server that authorizes every call. Rejects if the port is in use. */
export async function bindServer(options: BindOptions): Promise<BoundServer> {
  const { host, credentials, onRefused, tickets, followed, isRevoked, key } = options;
  const open = new OpenCalls();
  const gate = new TokenGate(credentials, onRefused);
  const server = new NodeServer(gate, {
    ...serverChannelOptions,
    interceptors: [
      requireCaller(credentials, {
        onRefused,
        tickets,
        followed,
        isRevoked,
        open,
        takesBearer: key !== undefined,
        claimOf: (peer) => gate.claimOf(peer),
      }),
    ],
  });
  try {
    const tls = tlsCredentials(options);
    const port = await (tls ? bindTls(server, options, tls) : gate.listen(options, server));
    const errorOf: Parameters<OpenCalls["end"]>[0] = (node, shown) =>
      isRevoked?.(node, shown) ? revokedError(node) : undefined;
    return { server, address: `${host}:${port}`, endRevoked: () => open.end(errorOf) };
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

/** A gRPC server that closes its gate with itself. */
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

/** Accepts plain connections, and passes them on to gRPC after the handshake. */
class TokenGate {
  readonly #credentials: NodeCredentials;
  readonly #onRefused: (() => void) | undefined;
  /** Keyed by the connection's remote address. */
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
    // Errors are handled by the connection's reader; without this listener one before it would end
    // the process.
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

/** Stops a server: calls may finish for `graceMs`, then they are cut. */
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

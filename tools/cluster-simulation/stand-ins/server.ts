import {
  type Metadata,
  type ServerInterceptor,
  type StatusObject,
  status,
  type UntypedHandleCall,
} from "@grpc/grpc-js";
import type { NodeClaim } from "@heddle/pki/node-name";
import { type NodeCredentials, requireCaller } from "@heddle/rpc/credentials";
import type { FollowedCluster } from "@heddle/rpc/followed-cluster";
import type { TicketVerifier } from "@heddle/rpc/job-ticket";
import { taskSessionMethod } from "@heddle/rpc/proto";
import type { Listener, SimulatedConnection } from "../network.ts";
import {
  type ClientCall,
  type ClientTransport,
  type Method,
  plainStatus,
  ServerCall,
} from "../rpc-call.ts";
import { here, type SimulatedProcess } from "../simulated-process.ts";
import { worldOf } from "../world.ts";

interface BindOptions {
  readonly host: string;
  readonly port: number;
  readonly credentials: NodeCredentials;
  readonly onRefused?: (() => void) | undefined;
  readonly tickets?: TicketVerifier | undefined;
  readonly followed?: FollowedCluster | undefined;
}

/** Who calls. */
interface Caller {
  readonly metadata: Metadata;
  readonly claim: NodeClaim | undefined;
}

const servers = new WeakMap<SimulatedConnection, SimulatedServer>();

/** The product's gRPC server, on the simulated network. */
export async function bindServer(options: BindOptions) {
  const process = here();
  if (!process) throw new Error("a server of no simulated process");
  const { network } = worldOf(process);
  const address = `${process.machine}:${options.port || network.freePort()}`;
  const server = new SimulatedServer(process, address, options);
  network.listen(address, server);
  return { server, address };
}

export function closeServer(server: SimulatedServer, graceMs: number): Promise<void> {
  server.tryShutdown(() => undefined);
  return new Promise((resolve) => {
    setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, graceMs);
  });
}

class SimulatedServer implements Listener {
  readonly process: SimulatedProcess;
  readonly #address: string;
  readonly #interceptor: ServerInterceptor;
  readonly #claims = new Map<string, NodeClaim>();
  readonly #methods = new Map<string, { method: Method; handler: UntypedHandleCall }>();
  readonly #connections = new Set<SimulatedConnection>();
  readonly #calls = new Map<SimulatedConnection, Set<ServerCall>>();

  constructor(process: SimulatedProcess, address: string, options: BindOptions) {
    this.process = process;
    this.#address = address;
    const { credentials, onRefused, tickets, followed } = options;
    this.#interceptor = requireCaller(credentials, {
      onRefused,
      tickets,
      followed,
      takesBearer: false,
      claimOf: (peer) => this.#claims.get(peer),
    });
  }

  addService(
    service: Readonly<Record<string, Method>>,
    handlers: Readonly<Record<string, UntypedHandleCall>>,
  ): void {
    for (const [name, method] of Object.entries(service)) {
      const handler = handlers[name];
      if (handler) this.#methods.set(method.path, { method, handler });
    }
  }

  onConnection(connection: SimulatedConnection): void {
    servers.set(connection, this);
    this.#connections.add(connection);
    this.#calls.set(connection, new Set());
    connection.server.onBroken = () => {
      this.#connections.delete(connection);
      const calls = this.#calls.get(connection) ?? [];
      this.#calls.delete(connection);
      for (const call of calls) call.cancel();
    };
  }

  tryShutdown(done: () => void): void {
    worldOf(this.process).network.unlisten(this.#address, this);
    done();
  }

  forceShutdown(): void {
    worldOf(this.process).network.unlisten(this.#address, this);
    for (const connection of this.#connections) connection.break();
  }

  /** Takes a call whose first bytes have arrived; returns it, or undefined where it was refused. */
  take(
    connection: SimulatedConnection,
    path: string,
    { metadata, claim }: Caller,
    client: () => ClientCall,
  ): ServerCall | undefined {
    const refuse = (end: StatusObject) => connection.send("client", () => client().finish(end));
    const found = this.#methods.get(path);
    if (!found) {
      refuse(plainStatus(status.UNIMPLEMENTED, `The server does not implement the method ${path}`));
      return undefined;
    }
    const peer = `${connection.client.process.name}:1`;
    if (claim) this.#claims.set(peer, claim);
    let accepted: ServerCall | undefined;
    const nextCall = {
      start: (listener: { onReceiveMetadata: (metadata: Metadata) => void }) =>
        listener.onReceiveMetadata(metadata),
      sendStatus: refuse,
      getPeer: () => peer,
    };
    const intercepting = this.#interceptor(
      { path } as Parameters<ServerInterceptor>[0],
      nextCall as unknown as Parameters<ServerInterceptor>[1],
    );
    intercepting.start({
      onReceiveMetadata: (checked) => {
        const watch = path === taskSessionMethod.path ? this.#followLease() : undefined;
        accepted = new ServerCall(found.method, checked, connection, client, watch);
      },
      onReceiveMessage: () => undefined,
      onReceiveHalfClose: () => undefined,
      onCancel: () => undefined,
    });
    if (!accepted) return undefined;
    const calls = this.#calls.get(connection);
    calls?.add(accepted);
    accepted.once("close", () => calls?.delete(accepted as ServerCall));
    return accepted;
  }

  #followLease() {
    const { leases, machines } = worldOf(this.process);
    const machine = machines.get(this.process.machine);
    return machine && leases.follow(machine.name, machine.clock);
  }

  /** Calls the handler, which for a call without a stream of requests has waited for its request. */
  handle(call: ServerCall): void {
    const found = this.#methods.get(call.getPath());
    if (!found) return;
    const { requestStream, responseStream } = found.method;
    const handler = found.handler as (...args: unknown[]) => void;
    const reply = (error: StatusObject | null, value: unknown) => {
      if (error) call.finish(error);
      else call.end(value);
    };
    if (requestStream || responseStream) handler(call);
    else handler(call, reply);
  }

  method(path: string): Method | undefined {
    return this.#methods.get(path)?.method;
  }
}

/** Opens a call on a connection; what the client sends goes through the result. */
export function accept(
  connection: SimulatedConnection,
  path: string,
  caller: Caller,
  client: () => ClientCall,
): ClientTransport {
  let call: ServerCall | undefined;
  const toServer = (deliver: (server: SimulatedServer) => void) =>
    connection.send("server", () => {
      const server = servers.get(connection);
      if (server) deliver(server);
    });
  toServer((server) => {
    call = server.take(connection, path, caller, client);
    if (call && server.method(path)?.requestStream) server.handle(call);
  });
  return {
    request: (bytes) =>
      toServer((server) => {
        if (!call) return;
        const method = server.method(path);
        if (method?.requestStream !== false) return call.takeBytes(bytes);
        call.request = method.requestDeserialize(bytes);
        server.handle(call);
      }),
    halfClose: () => toServer(() => call?.takeHalfClose()),
    cancel: () => toServer(() => call?.cancel()),
  };
}

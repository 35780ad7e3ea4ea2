import { Duplex } from "node:stream";
import { Metadata, type StatusObject, status } from "@grpc/grpc-js";
import type { LeaseSession } from "./lease-oracle.ts";
import type { SimulatedConnection } from "./network.ts";

/** The parts of a gRPC service definition that a call needs. */
export interface Method {
  readonly path: string;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
  readonly requestSerialize: (value: never) => Buffer;
  readonly requestDeserialize: (bytes: Buffer) => unknown;
  readonly responseSerialize: (value: never) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => unknown;
}

/** An error as grpc-js reports it. */
function serviceError({ code, details, metadata }: StatusObject): Error {
  const message = `${code} ${status[code]}: ${details}`;
  return Object.assign(new Error(message), { code, details, metadata });
}

export function plainStatus(code: status, details: string): StatusObject {
  return { code, details, metadata: new Metadata() };
}

/** As gRPC does it before the call returns: a serializer may use its memory again. */
function copied(bytes: Buffer): Buffer {
  return Buffer.from(bytes);
}

/** What a stream of a client does over its connection. */
export interface ClientTransport {
  request(bytes: Buffer): void;
  halfClose(): void;
  cancel(): void;
}

/** A client's stream of requests and replies, with the events of grpc-js. */
export class ClientCall extends Duplex {
  readonly #method: Method;
  #transport: ClientTransport | undefined;
  /** Requests from before the connection stood. */
  #waiting: Buffer[] = [];
  #isEnded = false;

  constructor(method: Method) {
    super({ objectMode: true, autoDestroy: false });
    this.#method = method;
  }

  connected(transport: ClientTransport): void {
    this.#transport = transport;
    for (const bytes of this.#waiting) transport.request(bytes);
    this.#waiting = [];
    if (this.writableFinished) transport.halfClose();
  }

  cancel(): void {
    this.#transport?.cancel();
    queueMicrotask(() => this.finish(plainStatus(status.CANCELLED, "Cancelled on client")));
  }

  takeMetadata(metadata: Metadata): void {
    if (!this.#isEnded) this.emit("metadata", metadata);
  }

  takeBytes(bytes: Buffer): void {
    if (!this.#isEnded) this.push(this.#method.responseDeserialize(bytes));
  }

  finish(end: StatusObject): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.push(null);
    if (end.code !== status.OK) this.emit("error", serviceError(end));
    this.emit("status", end);
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  override _write(value: never, _: unknown, done: () => void): void {
    const bytes = copied(this.#method.requestSerialize(value));
    if (this.#transport) this.#transport.request(bytes);
    else this.#waiting.push(bytes);
    done();
  }

  override _final(done: () => void): void {
    this.#transport?.halfClose();
    done();
  }

  override _read(): void {}
}

/** A server's side of a call, with the interface of all four kinds of grpc-js. */
export class ServerCall extends Duplex {
  readonly metadata: Metadata;
  /** The request of a call without a stream of requests. */
  request: unknown;
  cancelled = false;
  readonly #method: Method;
  readonly #connection: SimulatedConnection;
  readonly #client: () => ClientCall;
  /** Follows the messages of a session. */
  readonly #watch: LeaseSession | undefined;
  #isEnded = false;
  #hasSentMetadata = false;

  constructor(
    method: Method,
    metadata: Metadata,
    connection: SimulatedConnection,
    client: () => ClientCall,
    watch: LeaseSession | undefined,
  ) {
    super({ objectMode: true, autoDestroy: false });
    this.#watch = watch;
    this.metadata = metadata;
    this.#method = method;
    this.#connection = connection;
    this.#client = client;
    // What a handler emits as an error is the status of the call.
    this.on("error", (error: Error & Partial<StatusObject>) => {
      const { code = status.UNKNOWN, details = error.message, metadata: more } = error;
      this.finish({ code, details, metadata: more ?? new Metadata() });
    });
  }

  getPeer(): string {
    return `${this.#connection.client.process.name}:1`;
  }

  /** Without TLS. */
  getAuthContext(): Record<string, never> {
    return {};
  }

  getPath(): string {
    return this.#method.path;
  }

  getDeadline(): number {
    return Number.POSITIVE_INFINITY;
  }

  sendMetadata(metadata: Metadata): void {
    if (this.#hasSentMetadata) return;
    this.#hasSentMetadata = true;
    this.#connection.send("client", () => this.#client().takeMetadata(metadata));
  }

  takeBytes(bytes: Buffer): void {
    if (this.#isEnded || this.cancelled) return;
    const message = this.#method.requestDeserialize(bytes);
    this.#watch?.received(message as object);
    this.push(message);
  }

  takeHalfClose(): void {
    if (!this.#isEnded && !this.cancelled) this.push(null);
  }

  /** The client has cancelled the call, or is gone. */
  cancel(): void {
    if (this.#isEnded || this.cancelled) return;
    this.cancelled = true;
    this.emit("cancelled", "cancelled");
    this.push(null);
    this.destroy();
  }

  finish(end: StatusObject): void {
    if (this.#isEnded || this.cancelled) return;
    this.#isEnded = true;
    this.sendMetadata(new Metadata());
    this.#connection.send("client", () => this.#client().finish(end));
  }

  override _write(value: never, _: unknown, done: () => void): void {
    if (!this.#isEnded && !this.cancelled) {
      this.sendMetadata(new Metadata());
      this.#watch?.sent(value);
      const bytes = copied(this.#method.responseSerialize(value));
      this.#connection.send("client", () => this.#client().takeBytes(bytes));
    }
    done();
  }

  override _final(done: () => void): void {
    this.finish(plainStatus(status.OK, ""));
    done();
  }

  override _read(): void {}
}

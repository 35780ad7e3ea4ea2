import { Metadata, status } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { type CallerCredentials, callMetadata } from "@heddle/rpc/credentials";
import { fromStatus } from "@heddle/rpc/status";
import type { SimulatedConnection } from "../network.ts";
import { ClientCall, type Method, plainStatus } from "../rpc-call.ts";
import { here, type SimulatedProcess } from "../simulated-process.ts";
import { worldOf } from "../world.ts";
import { accept } from "./server.ts";

/** The product's connection to another node, over the simulated network. */
export class Peer {
  readonly address: string;
  readonly #own: CallerCredentials;
  readonly #process: SimulatedProcess;
  readonly #calls = new Set<ClientCall>();
  #connection: Promise<SimulatedConnection> | undefined;
  #isClosed = false;

  constructor(address: string, own: CallerCredentials) {
    const process = here();
    if (!process) throw new Error("a connection of no simulated process");
    this.address = address;
    this.#own = own;
    this.#process = process;
  }

  unary(
    method: Method,
    request: never,
    options: { readonly deadlineMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<unknown> {
    if (options.signal?.aborted) return Promise.reject(abandoned(method.path));
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const call = this.#call(method);
    const deadline = setTimeout(() => {
      call.cancel();
      reject(fromStatus(deadlineError(), this.address));
    }, options.deadlineMs);
    const onAbort = () => call.cancel();
    options.signal?.addEventListener("abort", onAbort, { once: true });
    const end = () => {
      clearTimeout(deadline);
      options.signal?.removeEventListener("abort", onAbort);
    };
    call.on("data", resolve);
    call.on("error", (error) => {
      end();
      reject(fromStatus(error, this.address));
    });
    call.on("end", end);
    call.end(request);
    return promise;
  }

  async *serverStream(method: Method, request: never, signal: AbortSignal) {
    if (signal.aborted) throw abandoned(method.path);
    const call = this.#call(method);
    const onAbort = () => call.cancel();
    signal.addEventListener("abort", onAbort, { once: true });
    call.end(request);
    try {
      for await (const reply of call) yield reply;
    } catch (error) {
      throw fromStatus(error, this.address);
    } finally {
      signal.removeEventListener("abort", onAbort);
      call.cancel();
    }
  }

  duplex(method: Method): ClientCall {
    return this.#call(method);
  }

  close(): void {
    this.#isClosed = true;
    for (const call of this.#calls) call.cancel();
    void this.#connection?.then(
      (connection) => connection.break(),
      () => undefined,
    );
  }

  #call(method: Method): ClientCall {
    const call = new ClientCall(method);
    this.#calls.add(call);
    call.once("status", () => this.#calls.delete(call));
    this.#connect().then(
      (connection) => this.#start(call, method, connection),
      (error: Error) => call.finish(plainStatus(status.UNAVAILABLE, error.message)),
    );
    return call;
  }

  #connect(): Promise<SimulatedConnection> {
    if (this.#isClosed) return Promise.reject(new Error("the connection was closed"));
    this.#connection ??= this.#open();
    return this.#connection;
  }

  async #open(): Promise<SimulatedConnection> {
    try {
      const connection = await worldOf(this.#process).network.connect(this.#process, this.address);
      connection.client.onBroken = () => this.#onBroken();
      if (this.#isClosed) connection.break();
      return connection;
    } catch (error) {
      this.#connection = undefined;
      throw error;
    }
  }

  #onBroken(): void {
    this.#connection = undefined;
    for (const call of [...this.#calls]) {
      call.finish(plainStatus(status.UNAVAILABLE, "the connection broke"));
    }
  }

  #start(call: ClientCall, method: Method, connection: SimulatedConnection): void {
    if (call.isEnded) return;
    if (connection.isBroken) {
      call.finish(plainStatus(status.UNAVAILABLE, "the connection broke"));
      return;
    }
    const metadata: Metadata = callMetadata(this.#own);
    const claim = "node" in this.#own ? this.#own.node : undefined;
    call.connected(accept(connection, method.path, { metadata, claim }, () => call));
  }
}

function deadlineError() {
  return Object.assign(new Error("Deadline exceeded"), {
    code: status.DEADLINE_EXCEEDED,
    details: "Deadline exceeded",
    metadata: new Metadata(),
  });
}

function abandoned(path: string): AppError {
  return new AppError("cancelled", `the call ${path} was cancelled before it was sent`);
}

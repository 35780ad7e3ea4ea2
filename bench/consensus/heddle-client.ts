import type { ClientDuplexStream } from "@grpc/grpc-js";
import { Peer } from "@heddle/rpc/peer";
import type { KvClient, MemberView } from "./kv-client.ts";
import { decodeReplies, encodeRequests, type KvRequest } from "./kv-frames.ts";
import { kvAskMethod, kvStreamMethod } from "./kv-service.ts";

/** The credentials of the benchmark's members. */
export const benchCredentials = { clusterToken: "a-token-for-benchmarks-only" };
const NO_BYTES = new Uint8Array(0);

interface Waiter {
  resolve(): void;
  reject(error: Error): void;
}

/** A client of one of our members: requests of one turn go out in one frame of one stream. */
export class HeddleClient implements KvClient {
  readonly #peer: Peer;
  readonly #stream: ClientDuplexStream<Buffer, Buffer>;
  readonly #open = new Map<number, Waiter>();
  #outgoing: KvRequest[] = [];
  #nextId = 1;
  #ended: Error | undefined;

  constructor(address: string) {
    this.#peer = new Peer(address, benchCredentials);
    this.#stream = this.#peer.duplex(kvStreamMethod);
    this.#stream.on("data", (frame: Buffer) => this.#receive(frame));
    this.#stream.on("error", (error) => this.#fail(error));
    this.#stream.on("end", () => this.#fail(new Error("the stream ended")));
  }

  put(key: string, value: Uint8Array): Promise<void> {
    return this.#request("put", key, value);
  }

  read(key: string): Promise<void> {
    return this.#request("read", key, NO_BYTES);
  }

  close(): void {
    this.#stream.cancel();
    this.#peer.close();
  }

  #request(op: KvRequest["op"], key: string, value: Uint8Array): Promise<void> {
    if (this.#ended) return Promise.reject(this.#ended);
    const id = this.#nextId++;
    this.#outgoing.push({ id, op, key, value });
    if (this.#outgoing.length === 1) queueMicrotask(() => this.#flush());
    return new Promise((resolve, reject) => this.#open.set(id, { resolve, reject }));
  }

  #flush(): void {
    const requests = this.#outgoing;
    this.#outgoing = [];
    if (!this.#ended) this.#stream.write(encodeRequests(requests));
  }

  #receive(frame: Buffer): void {
    for (const { id, error } of decodeReplies(frame)) {
      const waiter = this.#open.get(id);
      this.#open.delete(id);
      if (error === undefined) waiter?.resolve();
      else waiter?.reject(new Error(error));
    }
  }

  #fail(error: Error): void {
    this.#ended = error;
    for (const waiter of this.#open.values()) waiter.reject(error);
    this.#open.clear();
  }
}

/** Asks a member for its status; `transfer ID` first transfers leadership. */
export async function queryMember(
  address: string,
  question: string,
): Promise<
  MemberView & { readonly id: number; readonly commit: number; readonly applied: number }
> {
  const peer = new Peer(address, benchCredentials);
  try {
    const reply = await peer.unary(kvAskMethod, Buffer.from(question), { deadlineMs: 2_000 });
    return JSON.parse(reply.toString());
  } finally {
    peer.close();
  }
}

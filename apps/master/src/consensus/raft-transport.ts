import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { ServerDuplexStream, ServerReadableStream } from "@grpc/grpc-js";
import { Backoff } from "@heddle/base/backoff";
import { AppError } from "@heddle/base/errors";
import type { Member, OutgoingSnapshot, Transport } from "@heddle/consensus/ports";
import type { MemberProgress__Output } from "@heddle/contracts/generated/heddle/v1/MemberProgress";
import type { RaftFrame, RaftFrame__Output } from "@heddle/contracts/generated/heddle/v1/RaftFrame";
import type { RaftHello, RaftHello__Output } from "@heddle/contracts/generated/heddle/v1/RaftHello";
import type {
  SnapshotPart,
  SnapshotPart__Output,
} from "@heddle/contracts/generated/heddle/v1/SnapshotPart";
import type { SnapshotReply } from "@heddle/contracts/generated/heddle/v1/SnapshotReply";
import type { Message } from "@heddle/raft/message";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { exchangeMethod, installSnapshotMethod, progressMethod } from "@heddle/rpc/proto";
import { fromStatus, toStatus } from "@heddle/rpc/status";
import type { SnapshotMeta } from "@heddle/storage/snapshot-store";
import type { FullIdentity } from "./identity.ts";
import { PeerLink } from "./peer-link.ts";
import { decodeMessage, decodeSnapshotHead, encodeMessage } from "./raft-codec.ts";

const reconnect = { baseMs: 50, maxMs: 1_000 };
/** About 3 s with the delays above. */
const warnAfterAttempts = 8;
/** A snapshot that takes longer is given up and begun again. */
const snapshotDeadlineMs = 120_000;
/** A stream on which no hello comes in this time is cut. */
const helloTimeoutMs = 5_000;
const progressDeadlineMs = 1_000;

export type ExchangeStream = ServerDuplexStream<RaftFrame__Output, RaftFrame>;
export type SnapshotStream = ServerReadableStream<SnapshotPart__Output, SnapshotReply>;

/** Where what arrives goes: the replica. */
export interface RaftReceiver {
  receive(messages: readonly Message[]): void;
  receiveSnapshot(
    message: Message,
    meta: SnapshotMeta,
    chunks: AsyncIterable<Uint8Array>,
  ): Promise<void>;
}

export interface RaftTransportOptions {
  readonly identity: FullIdentity;
  readonly credentials: NodeCredentials;
  /** host:port by name: where a member is now, whatever the group remembers of it. */
  readonly addresses: ReadonlyMap<string, string>;
  readonly log: NodeLog;
}

interface Remote {
  readonly link: PeerLink;
  /** The newest process of that member that has spoken to us. */
  incarnation: number;
  /** What dials it, where that is our part. */
  dialing: AbortController | undefined;
  address: string;
}

/** The other members over gRPC: one stream for each pair, dialled by the one with the lower id. */
export class RaftTransport implements Transport {
  readonly #options: RaftTransportOptions;
  readonly #remotes = new Map<number, Remote>();
  #members: readonly Member[] = [];
  #receiver: RaftReceiver | undefined;
  #closed = false;

  constructor(options: RaftTransportOptions) {
    this.#options = options;
  }

  /** Must be called before any stream is served. */
  receiveWith(receiver: RaftReceiver): void {
    this.#receiver = receiver;
  }

  /** True while a stream to the member stands. */
  isConnected(id: number): boolean {
    return this.#remotes.get(id)?.link.connected ?? false;
  }

  send(to: number, messages: readonly Message[]): boolean {
    return this.#remotes.get(to)?.link.send(messages) ?? false;
  }

  setMembers(members: readonly Member[]): void {
    this.#members = members;
    for (const [id, remote] of this.#remotes) {
      if (!members.some((member) => member.id === id)) this.#forget(id, remote);
    }
    for (const { id, name, address } of members) {
      const remote = this.#remote(id);
      remote.address = this.#options.addresses.get(name) ?? address;
      if (id > this.#options.identity.id && !remote.dialing && !this.#closed) {
        remote.dialing = new AbortController();
        void this.#dial(id, remote, remote.dialing.signal);
      }
    }
  }

  /** The other members, each with the address at which it is reached now. */
  membersNow(): readonly Member[] {
    return this.#members.map((member) => {
      return { ...member, address: this.#remotes.get(member.id)?.address ?? member.address };
    });
  }

  async sendSnapshot(to: number, snapshot: OutgoingSnapshot): Promise<void> {
    const remote = this.#remotes.get(to);
    if (!remote?.address)
      throw new AppError("unavailable", `the address of member ${to} is unknown`);
    const peer = new Peer(remote.address, this.#options.credentials);
    const parts = snapshotParts(this.#hello(to), snapshot);
    try {
      await peer.clientStream(installSnapshotMethod, parts, { deadlineMs: snapshotDeadlineMs });
    } finally {
      peer.close();
    }
  }

  /** How far each member is, from the leader; rejects where it does not answer soon. */
  async askProgress(leader: number): Promise<readonly MemberProgress__Output[]> {
    const remote = this.#remotes.get(leader);
    if (!remote?.address) throw new AppError("unavailable", "the leader's address is unknown");
    const peer = new Peer(remote.address, this.#options.credentials);
    try {
      const { members } = await peer.unary(progressMethod, {}, { deadlineMs: progressDeadlineMs });
      return members;
    } finally {
      peer.close();
    }
  }

  /** Serves Raft.Exchange: a stream that a member with a lower id has dialled. */
  serveExchange(stream: ExchangeStream): void {
    let remote: Remote | undefined;
    const unnamed = setTimeout(
      () => stream.emit("error", toStatus(new AppError("invalid_value", "no hello came"))),
      helloTimeoutMs,
    );
    const leave = () => {
      clearTimeout(unnamed);
      remote?.link.detach(stream);
    };
    stream.on("data", (frame: RaftFrame__Output) => {
      try {
        if (frame.hello && !remote) {
          clearTimeout(unnamed);
          remote = this.#welcome(frame.hello);
          stream.write({ hello: this.#hello(frame.hello.from) });
          remote.link.attach(stream);
        } else if (remote) this.#receive(frame);
      } catch (error) {
        leave();
        stream.emit("error", toStatus(error));
      }
    });
    stream.once("end", () => {
      leave();
      stream.end();
    });
    stream.once("cancelled", leave);
    stream.once("error", leave);
  }

  /** Serves Raft.InstallSnapshot; resolves when the snapshot is durable. */
  async serveSnapshot(stream: SnapshotStream): Promise<void> {
    const parts = (stream as AsyncIterable<SnapshotPart__Output>)[Symbol.asyncIterator]();
    const first = await parts.next();
    const head = first.done ? undefined : first.value.head;
    if (!head?.hello)
      throw new AppError("invalid_value", "a snapshot's stream begins with its head");
    this.#welcome(head.hello);
    const { message, meta } = decodeSnapshotHead(head);
    await this.#receiver?.receiveSnapshot(message, meta, checkedChunks(parts));
  }

  close(): void {
    this.#closed = true;
    for (const [id, remote] of this.#remotes) this.#forget(id, remote);
  }

  #remote(id: number): Remote {
    const known = this.#remotes.get(id);
    if (known) return known;
    const remote = { link: new PeerLink(), incarnation: 0, dialing: undefined, address: "" };
    this.#remotes.set(id, remote);
    return remote;
  }

  #forget(id: number, remote: Remote): void {
    this.#remotes.delete(id);
    remote.dialing?.abort();
    remote.link.detach();
  }

  #hello(to: number): RaftHello {
    const { cluster, id, incarnation } = this.#options.identity;
    return { cluster, from: id, to, incarnation };
  }

  /** Throws where the other side is not who may speak to us. */
  #welcome({ cluster, from, to, incarnation }: RaftHello__Output): Remote {
    const { identity } = this.#options;
    if (this.#closed) throw new AppError("unavailable", "this master is shutting down");
    if (cluster !== identity.cluster) {
      const message = `the master at the other end belongs to the cluster ${cluster}, this one to ${identity.cluster}`;
      throw new AppError("precondition_failed", message);
    }
    if (to !== identity.id || from === identity.id) {
      const message = `this is member ${identity.id}, and not ${to}, which member ${from} asked for`;
      throw new AppError("precondition_failed", message);
    }
    // A member that is new knows nobody; whom nobody knows yet has a higher id than all.
    const known = this.#members.some(({ id }) => id === from);
    const newest = Math.max(identity.id, ...this.#members.map(({ id }) => id));
    if (!known && this.#members.length > 0 && from < newest) {
      throw new AppError("precondition_failed", `member ${from} was removed from the group`);
    }
    const remote = this.#remote(from);
    if (incarnation < remote.incarnation) {
      const message = `a newer process of member ${from} is connected (start ${remote.incarnation}, this is ${incarnation})`;
      throw new AppError("precondition_failed", message);
    }
    remote.incarnation = incarnation;
    return remote;
  }

  #receive({ batch }: RaftFrame__Output): void {
    if (batch) this.#receiver?.receive(batch.messages.map(decodeMessage));
  }

  async #dial(id: number, remote: Remote, signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(reconnect);
    let attempts = 0;
    while (!signal.aborted) {
      const error = await this.#exchange(id, remote, signal, () => {
        backoff.reset();
        attempts = 0;
      });
      if (signal.aborted) return;
      // A master that starts or ends with the others is none to warn of.
      if (++attempts === warnAfterAttempts) {
        const fields = { member: id, address: remote.address, error: error.message };
        this.#options.log.warn(fields, "not connected to another master, retrying");
      }
      await delay(backoff.nextMs(), undefined, { signal }).catch(() => undefined);
    }
  }

  /** Opens the stream and resolves with the reason when it has ended. */
  #exchange(
    id: number,
    remote: Remote,
    signal: AbortSignal,
    onOpen: () => void,
  ): Promise<AppError> {
    const peer = new Peer(remote.address, this.#options.credentials);
    const stream = peer.duplex(exchangeMethod);
    const { promise, resolve } = Promise.withResolvers<AppError>();
    const onAbort = () => stream.cancel();
    const unanswered = setTimeout(onAbort, helloTimeoutMs);
    const end = (error: AppError) => {
      clearTimeout(unanswered);
      signal.removeEventListener("abort", onAbort);
      remote.link.detach(stream);
      peer.close();
      resolve(error);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    stream.on("error", (error) => end(fromStatus(error, remote.address)));
    stream.on("end", () => end(new AppError("unavailable", "the other master closed the stream")));
    stream.on("data", (frame: RaftFrame__Output) => {
      if (!frame.hello) return this.#receive(frame);
      clearTimeout(unanswered);
      try {
        this.#welcome(frame.hello);
      } catch (error) {
        stream.cancel();
        return end(fromStatus(error, remote.address));
      }
      remote.link.attach(stream);
      this.#options.log.info({ member: id, address: remote.address }, "connected to a master");
      return onOpen();
    });
    stream.write({ hello: this.#hello(id) });
    return promise;
  }
}

async function* snapshotParts(
  hello: RaftHello,
  { message, meta, chunks }: OutgoingSnapshot,
): AsyncGenerator<SnapshotPart, void> {
  const { index, term } = meta;
  const detail = Buffer.from(JSON.stringify(meta.detail));
  yield { head: { hello, message: encodeMessage(message), index, term, detail } };
  for await (const data of chunks) yield { chunk: { data, digest: sha256(data) } };
}

async function* checkedChunks(
  parts: AsyncIterator<SnapshotPart__Output>,
): AsyncGenerator<Uint8Array, void> {
  for (let next = await parts.next(); !next.done; next = await parts.next()) {
    const { chunk } = next.value;
    if (!chunk || !sha256(chunk.data).equals(chunk.digest)) {
      throw new AppError("invalid_value", "a piece of a snapshot does not match its checksum");
    }
    yield chunk.data;
  }
}

function sha256(data: Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}

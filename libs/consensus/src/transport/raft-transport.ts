import type { Server, Socket } from "node:net";
import { keepConnected } from "@heddle/base/async/keep-connected";
import { AppError, toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import type { Message, MessageType } from "@heddle/raft/core/message";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { SnapshotMeta } from "@heddle/storage/snapshot-store";
import type { FullIdentity } from "../member/identity.ts";
import type { Member, OutgoingSnapshot, Transport } from "../ports.ts";
import { FRAME_KINDS, frameOf, MAX_FRAME_BYTES } from "./frames.ts";
import {
  checkHello,
  checkProof,
  type Hello,
  helloFrame,
  readHello,
  refusalFrame,
  signedHello,
} from "./hello.ts";
import { decodeMessages } from "./message-codec.ts";
import { PeerLink } from "./peer-link.ts";
import { decodeSnapshotHead, snapshotChunks, writeSnapshot } from "./snapshot-frames.ts";
import { SocketFrames } from "./socket-frames.ts";
import { createPeerServer, dialPeer, type Endpoint, type PeerSocket } from "./sockets.ts";

const reconnect = { baseMs: 50, maxMs: 1_000 };
/** A connection that ends sooner counts as an attempt that failed. */
const STEADY_AFTER_MS = 2_000;
/** About 3 s with the delays above. */
const WARN_AFTER_ATTEMPTS = 8;
/** A snapshot that takes longer is given up and begun again. */
const SNAPSHOT_DEADLINE_MS = 120_000;
/** A connection on which no hello comes in this time is cut. */
const HELLO_TIMEOUT_MS = 5_000;
/** Each side sends something this often; after this many intervals without data the connection is closed. */
const PING_EVERY_MS = 1_000;
const MAX_SILENT_INTERVALS = 5;
/** What a timer can wait at most; 24 days. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Members of which the others are asked at once; who asks for more is no member. */
const MAX_LOOKUPS = 8;
const FORWARDED: ReadonlySet<MessageType> = new Set<MessageType>([
  ...(["MsgProp", "MsgReadIndex", "MsgTransferLeader"] as const),
]);

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
  readonly log: Log;
  /** Asks the member at an address (host:port of its gRPC server) where its transport listens. */
  readonly locate: (address: string, to: number) => Promise<Endpoint>;
  /** Asks the group for a member that is not known here yet. */
  readonly findMember: (id: number) => Promise<Member | undefined>;
  /** A connection was opened or closed. */
  readonly onConnections?: (() => void) | undefined;
}

interface Remote {
  readonly link: PeerLink;
  /** The newest process of that member that has spoken to us. */
  incarnation: number;
  /** What dials it, where that is our part. */
  dialing: AbortController | undefined;
  address: string;
}

/** A connection whose other side has said who it is. */
interface Conversation {
  readonly socket: Socket;
  readonly frames: SocketFrames;
  readonly hello: Hello;
  readonly remote: Remote;
}

/**
 * The other members over TCP or TLS: one connection for each pair, dialled by the one with the lower id,
 * and one for each snapshot.
 */
export class RaftTransport implements Transport {
  readonly #options: RaftTransportOptions;
  readonly #remotes = new Map<number, Remote>();
  readonly #sockets = new Set<Socket>();
  #members: readonly Member[] = [];
  #receiver: RaftReceiver | undefined;
  #server: Server | undefined;
  #closed = false;
  #lookups = 0;

  constructor(options: RaftTransportOptions) {
    const { tls, clusterToken } = options.credentials;
    if (!tls && clusterToken === "") throw new Error("without TLS masters need a cluster token");
    this.#options = options;
  }

  /** Takes connections from now on and hands on what they bring; resolves with the port. */
  listen({ host, port }: Endpoint, receiver: RaftReceiver): Promise<number> {
    this.#receiver = receiver;
    const server = createPeerServer(
      this.#options.credentials,
      (peer) => void this.#serve(peer),
      refuse,
    );
    // Before the handshake too, so that `close` ends them all.
    server.on("connection", (socket: Socket) => this.#track(socket));
    this.#server = server;
    return new Promise((resolve, reject) => {
      server.once("error", (cause) => {
        const message = `cannot listen for the other masters on ${host}:${port}: ${cause.message}; choose another --raft-port`;
        reject(new AppError("unavailable", message, { cause }));
      });
      server.listen(port, host, () => {
        const address = server.address();
        resolve(typeof address === "object" && address ? address.port : port);
      });
    });
  }

  /** The members that are connected. */
  get connected(): number[] {
    return [...this.#remotes].filter(([, { link }]) => link.connected).map(([id]) => id);
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

  async sendSnapshot(to: number, snapshot: OutgoingSnapshot): Promise<void> {
    const remote = this.#remotes.get(to);
    if (!remote?.address)
      throw new AppError("unavailable", `the address of member ${to} is unknown`);
    const { socket, frames } = await this.#connect(to, remote, "snapshot");
    const late = setTimeout(() => socket.destroy(), SNAPSHOT_DEADLINE_MS);
    try {
      await writeSnapshot(socket, snapshot);
      const { value, done } = await frames.next();
      // The other side says hello once more when all of it is on its disk.
      readHello(done ? undefined : value);
    } finally {
      clearTimeout(late);
      socket.destroy();
    }
  }

  close(): void {
    this.#closed = true;
    this.#server?.close();
    for (const [id, remote] of this.#remotes) this.#forget(id, remote);
    for (const socket of this.#sockets) socket.destroy();
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
    remote.link.finish();
  }

  #hello(to: number, purpose: Hello["purpose"], session: string | undefined): Hello {
    const { identity } = this.#options;
    const { cluster, id: from, incarnation } = identity;
    const hello = { format: 1 as const, cluster, from, to, incarnation, purpose };
    return session === undefined ? hello : signedHello(hello, session, identity);
  }

  /** Throws where the other side is not who may speak to us. */
  async #welcome(hello: Hello, { name, session }: PeerSocket): Promise<Remote> {
    checkHello(hello, this.#options.identity, this.#members, name);
    if (session !== undefined) checkProof(hello, await this.#member(hello.from, name), session);
    if (this.#closed) throw new AppError("unavailable", "this master is shutting down");
    const { from, incarnation } = hello;
    const remote = this.#remote(from);
    if (incarnation < remote.incarnation) {
      const message = `a newer process of member ${from} is connected (start ${remote.incarnation}, this is ${incarnation})`;
      throw new AppError("precondition_failed", message);
    }
    remote.incarnation = incarnation;
    return remote;
  }

  /**
   * Resolves with the member that the connection claims to be; the group must know it by that name.
   */
  async #member(id: number, shownName: string): Promise<Member> {
    const member = this.#members.find((known) => known.id === id) ?? (await this.#lookUp(id));
    if (member?.name === shownName) return member;
    const message = `the group has no member ${id} of the name ${shownName}: an administrator adds a master by heddle cluster add`;
    throw new AppError("permission_denied", message);
  }

  async #lookUp(id: number): Promise<Member | undefined> {
    if (this.#lookups >= MAX_LOOKUPS) throw new AppError("overloaded", "too many unknown members");
    this.#lookups++;
    try {
      return await this.#options.findMember(id);
    } finally {
      this.#lookups--;
    }
  }

  /** A connection that another master has dialled. */
  async #serve(peer: PeerSocket): Promise<void> {
    const { socket } = peer;
    try {
      const conversation = await this.#begin(peer);
      const { hello, frames } = conversation;
      const { from, purpose } = hello;
      socket.write(helloFrame(this.#hello(from, purpose, peer.session)));
      if (purpose === "messages") {
        await this.#converse(conversation);
        return;
      }
      const head = await frames.next();
      const { cluster } = this.#options.identity;
      const { message, meta } = decodeSnapshotHead(head.done ? undefined : head.value, cluster);
      checkSender(from, [message]);
      await this.#receiver?.receiveSnapshot(message, meta, snapshotChunks(frames));
      socket.end(helloFrame(this.#hello(from, purpose, peer.session)));
    } catch (error) {
      refuse(socket, toAppError(error));
    }
  }

  /** Reads the other side's hello; rejects, with the socket left as it is, where it may not speak. */
  async #begin(peer: PeerSocket): Promise<Conversation> {
    const { socket, validMs } = peer;
    this.#track(socket);
    const frames = new SocketFrames(socket);
    const unnamed = setTimeout(() => socket.destroy(), HELLO_TIMEOUT_MS);
    try {
      const { value, done } = await frames.next();
      const hello = readHello(done ? undefined : value);
      const remote = await this.#welcome(hello, peer);
      endAfter(socket, validMs);
      frames.reader.maxBytes = MAX_FRAME_BYTES;
      return { socket, frames, hello, remote };
    } finally {
      clearTimeout(unnamed);
    }
  }

  /** Keeps a connection in view until it is closed. */
  #track(socket: Socket): void {
    if (this.#sockets.has(socket)) return;
    this.#sockets.add(socket);
    // Errors reach the reader of the frames; a write's must not end the process meanwhile.
    socket.on("error", () => undefined);
    socket.once("close", () => this.#sockets.delete(socket));
  }

  /** Carries messages both ways until the connection ends; rejects with the reason. */
  async #converse({ socket, frames, hello, remote }: Conversation): Promise<void> {
    let silentIntervals = 0;
    const pings = setInterval(() => {
      if (++silentIntervals > MAX_SILENT_INTERVALS) socket.destroy();
      else if (socket.writableLength === 0) socket.write(frameOf(FRAME_KINDS.ping));
    }, PING_EVERY_MS);
    remote.link.attach(socket);
    this.#options.onConnections?.();
    try {
      await frames.forEach(({ kind, body }) => {
        silentIntervals = 0;
        if (kind === FRAME_KINDS.messages) this.#receive(hello.from, body);
      });
    } finally {
      clearInterval(pings);
      remote.link.detach(socket);
      socket.destroy();
      this.#options.onConnections?.();
    }
  }

  /** Throws for unreadable messages, which ends the connection; the error is logged. */
  #receive(from: number, body: Buffer): void {
    try {
      const messages = decodeMessages(body);
      checkSender(from, messages);
      this.#receiver?.receive(messages);
    } catch (error) {
      const fields = { member: from, error: toAppError(error).message };
      this.#options.log.error(
        fields,
        "cannot take what another master sent; its connection is cut",
      );
      throw error;
    }
  }

  async #dial(id: number, remote: Remote, signal: AbortSignal): Promise<void> {
    await keepConnected({
      backoff: reconnect,
      signal,
      connect: async (onSteady) => {
        let openedAtMs = Number.POSITIVE_INFINITY;
        const error = await this.#exchange(id, remote, signal, () => {
          openedAtMs = performance.now();
        });
        if (performance.now() - openedAtMs >= STEADY_AFTER_MS) onSteady();
        return error;
      },
      // A master that starts or ends with the others is none to warn of.
      onEnd: ({ message }, failures) => {
        if (failures !== WARN_AFTER_ATTEMPTS) return;
        const fields = { member: id, address: remote.address, error: message };
        this.#options.log.warn(fields, "no steady connection to another master, retrying");
      },
    });
  }

  /** Holds one connection and resolves with the reason when it has ended. */
  async #exchange(
    id: number,
    remote: Remote,
    signal: AbortSignal,
    onOpen: () => void,
  ): Promise<AppError> {
    try {
      const conversation = await this.#connect(id, remote, "messages");
      if (signal.aborted) {
        conversation.socket.destroy();
        return new AppError("unavailable", `member ${id} is no longer a member`);
      }
      this.#options.log.info({ member: id, address: remote.address }, "connected to a master");
      onOpen();
      await this.#converse(conversation);
      return new AppError("unavailable", "the other master closed the connection");
    } catch (error) {
      return toAppError(error);
    }
  }

  async #connect(to: number, remote: Remote, purpose: Hello["purpose"]): Promise<Conversation> {
    const { locate, credentials } = this.#options;
    const peer = await dialPeer(await locate(remote.address, to), credentials);
    const { socket } = peer;
    socket.write(helloFrame(this.#hello(to, purpose, peer.session)));
    try {
      return await this.#begin(peer);
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }
}

/** A member speaks for itself, but for what it forwards to the leader. */
function checkSender(member: number, messages: readonly Message[]): void {
  const other = messages.find(({ type, from }) => from !== member && !FORWARDED.has(type));
  if (!other) return;
  const message = `member ${member} has sent ${other.type} in the name of member ${other.from}`;
  throw new AppError("permission_denied", message);
}

/** No connection outlives the certificate that it was opened with; a new one shows the renewed one. */
function endAfter(socket: Socket, validMs: number): void {
  if (validMs === Infinity) return;
  const timer = setTimeout(() => socket.destroy(), Math.min(Math.max(validMs, 0), MAX_TIMER_MS));
  socket.once("close", () => clearTimeout(timer));
}

/** Sends the reason to the other side and ends the connection. */
function refuse(socket: Socket, error: AppError): void {
  if (!socket.writable) return void socket.destroy();
  socket.on("error", () => undefined);
  socket.setTimeout(HELLO_TIMEOUT_MS, () => socket.destroy());
  socket.end(refusalFrame(error));
}

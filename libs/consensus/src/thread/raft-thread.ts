import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { fromPlainCredentials } from "@heddle/rpc/plain-credentials";
import { dedicatedStorageFiles } from "@heddle/storage/storage-files";
import { askMember } from "../member/ask-member.ts";
import type { Member, Transport } from "../ports.ts";
import type { SnapshotFate } from "../replica/durable-log.ts";
import { RaftReplica } from "../replica/raft-replica.ts";
import { RaftTransport } from "../transport/raft-transport.ts";
import type { Endpoint } from "../transport/sockets.ts";
import { RemoteMachine } from "./remote-machine.ts";
import { ThreadCounter } from "./thread-counts.ts";
import {
  type FromThread,
  fromPlain,
  machineMs,
  type RaftThreadOptions,
  type ThreadCall,
  type ToThread,
  toPlain,
  unpackProposals,
} from "./thread-protocol.ts";
import { startTicks, type Ticks } from "./ticks.ts";

// The Raft replica, its log and its transport, in a thread of their own; the state machine is on
// the main thread. Whatever that one does, heartbeats leave in time and writes continue.

const TICK_MS = 50;
/** 100 ms between heartbeats, 700 to 1,400 ms of silence until an election. */
const HEARTBEAT_TICKS = 2;
const ELECTION_TICKS = 14;
/** 10 s: longer than any election that can succeed. */
const REQUEST_TICKS = 200;
/**
 * The thread posts its status at least this often, 1 s, so that the main thread detects a hang.
 */
const ALIVE_TICKS = 20;
/** A leader without followers handles this many ticks at once: nothing waits for them. */
const TICKS_A_WAKE_ALONE = 4;
const LOCATE_DEADLINE_MS = 2_000;

const FATES: Readonly<Record<SnapshotFate, string>> = {
  setAside: "its file is kept as *.snap.damaged, and this master continues without it",
  gone: "its file is gone, and this master continues without it",
  left: "its file is left as it is, since no other one can take its place",
};

/** The thread's end of the port: what comes up in one turn goes out as one list. */
class Outbox {
  readonly #port: MessagePort;
  #waiting: FromThread[] = [];
  readonly #nextFlush = new OncePerTurn(() => this.#flush(), queueMicrotask);
  /** Called before a list goes out. */
  beforeFlush: () => void = () => undefined;

  constructor(port: MessagePort) {
    this.#port = port;
  }

  post(message: FromThread): void {
    this.#waiting.push(message);
    this.#nextFlush.request();
  }

  #flush(): void {
    this.beforeFlush();
    const messages = this.#waiting;
    this.#waiting = [];
    this.#port.postMessage(messages, messages.flatMap(ownedBuffers));
  }
}

/** Packed commands fill a buffer of their own, which can move instead of being copied. */
function ownedBuffers(message: FromThread): ArrayBuffer[] {
  const isApply = message.kind === "task" && message.task.kind === "apply";
  return isApply ? [message.task.commands.buffer as ArrayBuffer] : [];
}

/** One replica, driven by what the main thread says. */
class RaftThread {
  readonly #options: RaftThreadOptions;
  readonly #outbox: Outbox;
  readonly #machine: RemoteMachine;
  readonly #transport: RaftTransport;
  readonly #credentials: NodeCredentials;
  readonly #counter = new ThreadCounter();
  /** The success of a proposal shows when the main thread applies it. */
  readonly #proposalWaiter = {
    resolve: () => undefined,
    reject: (error: AppError, proposal: number) => {
      this.#outbox.post({ kind: "rejected", proposal, error: toPlain(error) });
    },
  };
  #replica: RaftReplica<undefined> | undefined;
  #ticks: Ticks | undefined;
  /** True when the main thread's view of role, members or connections is out of date. */
  #statusChanged = true;
  #lastStatus = "";
  #ticksSinceStatus = 0;

  constructor(options: RaftThreadOptions, credentials: NodeCredentials, outbox: Outbox) {
    this.#options = options;
    this.#outbox = outbox;
    this.#credentials = credentials;
    this.#machine = new RemoteMachine((id, task) => outbox.post({ kind: "task", id, task }));
    this.#transport = new RaftTransport({
      identity: options.identity,
      credentials: this.#credentials,
      addresses: options.addresses,
      log: this.#log(),
      locate: (address) => this.#locate(address),
      findMember: (id) => this.#findMember(id),
      onConnections: () => this.#noteChange(),
    });
    outbox.beforeFlush = () => this.#postStatus(false);
  }

  async open(): Promise<void> {
    try {
      const { listen } = this.#options;
      this.#replica = await this.#openReplica();
      const port = await this.#transport.listen(listen, this.#replica);
      this.#ticks = startTicks(TICK_MS, (ticks) => this.#tick(ticks));
      // The owner may look at the state at once, and finds all that this member knows.
      await this.#replica.settle();
      this.#machine.handOver();
      this.#postStatus(true);
      this.#outbox.post({ kind: "opened", port });
    } catch (error) {
      this.#outbox.post({ kind: "openFailed", error: toPlain(toAppError(error)) });
    }
  }

  take(message: ToThread): void {
    switch (message.kind) {
      case "propose":
        this.#running.proposeAll(
          message.first,
          unpackProposals(message.proposals),
          this.#proposalWaiter,
        );
        break;
      case "transfer":
        this.#running.transferLeadership(message.to);
        break;
      case "call":
        this.#call(message.id, message.call);
        break;
      case "certificate":
        this.#credentials.tls?.update(message.material);
        break;
      case "applied":
        this.#machine.applied(message.bytes);
        break;
      case "done":
        this.#machine.answered(message.id, message.chunk);
        break;
      case "failed":
        this.#taskFailed(message.id, fromPlain(message.error));
        break;
      default:
        message satisfies never;
    }
  }

  #taskFailed(id: number, error: AppError): void {
    if (this.#machine.failed(id, error)) this.#onFatal(error);
  }

  #onFatal(error: AppError): void {
    this.#ticks?.stop();
    this.#outbox.post({ kind: "fatal", error: toPlain(error) });
  }

  get #running(): RaftReplica<undefined> {
    if (!this.#replica) throw new Error("the replica is used before it was opened");
    return this.#replica;
  }

  #openReplica(): Promise<RaftReplica<undefined>> {
    const { identity, directory, segmentBytes, snapshotEntries } = this.#options;
    const { id, cluster, incarnation, beginning } = identity;
    const log = this.#log();
    // A joining member knows the others from messages alone until their snapshot or log arrives.
    this.#transport.setMembers(beginning?.members.filter((member) => member.id !== id) ?? []);
    return RaftReplica.open<undefined>({
      id,
      incarnation,
      snapshotEntries,
      machine: this.#machine,
      storage: {
        files: this.#counter.measure(dedicatedStorageFiles(() => performance.now())),
        directory,
        owner: { cluster, node: String(id) },
        segmentBytes,
        onDamaged: ({ message: error }, fate) => {
          this.#counter.snapshotsDamaged++;
          this.#noteChange();
          log.error({ error }, `a snapshot cannot be read: ${FATES[fate]}`);
        },
      },
      transport: this.#watchedTransport(),
      random: Math.random,
      firstMembers: beginning?.kind === "first" ? beginning.members : undefined,
      isJoining: beginning !== undefined,
      electionTicks: ELECTION_TICKS,
      heartbeatTicks: HEARTBEAT_TICKS,
      requestTicks: REQUEST_TICKS,
      yieldToLoop: () => new Promise((resolve) => setImmediate(resolve)),
      onFatal: (error) => this.#onFatal(error),
      onRemoved: () => this.#outbox.post({ kind: "removed" }),
      trace: (event) => {
        if (event.kind !== "roleChanged") return;
        if (event.role === "candidate") this.#counter.elections++;
        this.#noteChange();
        log.info({ ...event }, "the role in the group changed");
      },
    });
  }

  /** The transport; it also notes changes of the members. */
  #watchedTransport(): Transport {
    return {
      send: (to, messages) => this.#transport.send(to, messages),
      sendSnapshot: (to, snapshot) => this.#transport.sendSnapshot(to, snapshot),
      setMembers: (members) => {
        this.#transport.setMembers(members);
        this.#noteChange();
      },
    };
  }

  #call(id: number, call: ThreadCall): void {
    this.#perform(call).then(
      () => {
        this.#statusChanged ||= call.kind !== "readBarrier";
        this.#machine.handOver();
        this.#outbox.post({ kind: "reply", id });
      },
      (error: unknown) => {
        this.#outbox.post({ kind: "reply", id, error: toPlain(toAppError(error)) });
      },
    );
  }

  async #perform(call: ThreadCall): Promise<void> {
    switch (call.kind) {
      case "readBarrier":
        return this.#running.readBarrier();
      case "refresh":
        // It may be that this process was stopped, and none of its timers has had its turn since.
        this.#ticks?.catchUp();
        return;
      case "takeSnapshot":
        return this.#running.takeSnapshot();
      case "renewLog":
        return this.#running.renewLog();
      case "changeMembers":
        return this.#running.changeMembers(call.changes, call.members);
      case "stop":
        this.#ticks?.stop();
        await this.#replica?.stop();
        return this.#transport.close();
      default:
        call satisfies never;
    }
  }

  #tick(ticks: number): void {
    this.#ticksSinceStatus += ticks;
    this.#running.tick(ticks);
    this.#postStatus(true);
  }

  #noteChange(): void {
    this.#statusChanged = true;
  }

  /** Posts the replica's status: at each tick after a change, else only where `always` is true. */
  #postStatus(always: boolean): void {
    if (!this.#replica || (!always && !this.#statusChanged)) return;
    // After a pause of the process mail may be read before the timers have their turn.
    this.#ticks?.catchUp();
    this.#statusChanged = false;
    const { connected } = this.#transport;
    const { nextMemberId, members: roster } = this.#replica;
    const counts = this.#counter.view();
    const status = { ...this.#replica.status(), nextMemberId, roster, connected, counts };
    const isAlone = status.isActiveLeader && status.members.length === 1;
    this.#ticks?.wakeEvery(isAlone ? TICKS_A_WAKE_ALONE : 1);
    const text = JSON.stringify(status);
    if (text === this.#lastStatus && this.#ticksSinceStatus < ALIVE_TICKS) return;
    this.#lastStatus = text;
    this.#ticksSinceStatus = 0;
    // What it counts as applied crosses over before it says so.
    this.#machine.handOver();
    this.#outbox.post({ kind: "status", status, atMs: machineMs() });
  }

  async #locate(address: string): Promise<Endpoint> {
    const { locateMethod } = await import("@heddle/rpc/proto");
    const { Peer } = await import("@heddle/rpc/peer");
    const peer = new Peer(address, this.#credentials);
    try {
      const { port } = await peer.unary(locateMethod, {}, { deadlineMs: LOCATE_DEADLINE_MS });
      return { host: address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, ""), port };
    } finally {
      peer.close();
    }
  }

  /** The member of that id as those say who are known here, or who were given as this master's peers. */
  async #findMember(id: number): Promise<Member | undefined> {
    const { identity, addresses } = this.#options;
    const { name, id: ownId } = identity;
    const others = new Map([...addresses].filter(([each]) => each !== name));
    for (const each of this.#replica?.members ?? []) {
      if (each.id !== ownId && !others.has(each.name)) others.set(each.name, each.address);
    }
    const own = { identity, credentials: this.#credentials };
    const asked = [...others.values()].map((address) => askMember(own, address));
    const known = (await Promise.all(asked)).flatMap((reply) => reply?.members ?? []);
    return known.find((each) => each.id === id);
  }

  #log(): Log {
    const at = (level: "info" | "warn" | "error") => (fields: object, message: string) =>
      this.#outbox.post({ kind: "log", level, fields: { ...fields }, message });
    return { info: at("info"), warn: at("warn"), error: at("error") };
  }
}

function credentialsOf({ credentials, identity }: RaftThreadOptions): Promise<NodeCredentials> {
  return fromPlainCredentials({ ...credentials, node: { role: "master", name: identity.name } });
}

if (!parentPort) throw new Error("raft-thread runs as a worker thread only");
const outbox = new Outbox(parentPort);
const options = workerData as RaftThreadOptions;
const thread = new RaftThread(options, await credentialsOf(options), outbox);
const inbox: ToThread[] = [];
/** What came while the disk wrote is one batch, and so the next write. */
const nextTake = new OncePerTurn(() => {
  for (const message of inbox.splice(0)) thread.take(message);
});
parentPort.on("message", (messages: readonly ToThread[]) => {
  inbox.push(...messages);
  nextTake.request();
});
await thread.open();

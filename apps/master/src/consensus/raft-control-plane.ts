import { AppError } from "@heddle/base/errors";
import { RaftReplica } from "@heddle/consensus/raft-replica";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { HashCheck } from "@heddle/control/hash-check";
import type { KeptAnswer } from "@heddle/control/idempotency";
import type { JobIndex } from "@heddle/control/jobs/job-index";
import type { LogCommand } from "@heddle/control/replicated-control";
import type { ControlState } from "@heddle/control/state";
import type { Logger } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { BoundServer } from "@heddle/rpc/server";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import type {
  ControlGroup,
  ControlPlane,
  GroupStatus,
  MemberProgress,
  Once,
  RaftCounts,
} from "../ports.ts";
import { ControlMachine, controlCommandOf, encodeLogCommand } from "./control-machine.ts";
import type { DirectoryLock } from "./directory-lock.ts";
import { Formation } from "./formation.ts";
import { type FullIdentity, isFull, startIdentity, writeIdentity } from "./identity.ts";
import { type Backup, takeBackup } from "./live-backup.ts";
import { memberChanges } from "./member-changes.ts";
import { RaftService } from "./raft-service.ts";
import { RaftTransport } from "./raft-transport.ts";
import { RemovalWatch } from "./removal-watch.ts";
import { ReplicaCounts } from "./replica-counts.ts";
import { startTicks, type Ticks } from "./ticks.ts";

export interface RaftControlPlaneOptions {
  /** The directory, which this process holds by `lock`; both are let go of at the end. */
  readonly directory: string;
  readonly lock: DirectoryLock;
  readonly name: string;
  /** host:port by name of all masters, this one's among them. */
  readonly peers: ReadonlyMap<string, string>;
  readonly credentials: NodeCredentials;
  readonly server: BoundServer;
  readonly logger: Logger;
  /** Called when this master must end: its disk failed, or its state differs from the others'. */
  readonly onFatal: (error: AppError) => void;
  /** Called when this master was removed from the group and has handed over what it led. */
  readonly onRemoved: (error: AppError) => void;
  /** Of the write-ahead log; 64 MiB. */
  readonly segmentBytes?: number | undefined;
  readonly snapshotEntries?: number | undefined;
  /** Commands between two comparisons of the masters' state hashes; 1,000. */
  readonly hashEveryCommands?: number | undefined;
}

const TICK_MS = 50;
/** 100 ms between heartbeats, 700 to 1,400 ms of silence until an election. */
const HEARTBEAT_TICKS = 2;
const ELECTION_TICKS = 14;
/** 10 s: longer than any election that can succeed. */
const REQUEST_TICKS = 200;
/** A removed leader tells the others what is committed, and hands over; two round trips suffice. */
const HAND_OVER_MS = 1_000;

/**
 * The control plane of a master in a group of one, three or more: a Raft replica whose state machine
 * is the control state. Reads come from this master's memory; changes go through the log.
 */
export class RaftControlPlane implements ControlPlane, ControlGroup {
  readonly #options: RaftControlPlaneOptions;
  readonly #identity: FullIdentity;
  readonly #listeners = new Set<(command: ControlCommand | undefined) => void>();
  readonly #hashCheck = new HashCheck();
  readonly #counts = new ReplicaCounts();
  readonly #machine: ControlMachine;
  readonly #transport: RaftTransport;
  #replica: RaftReplica<ControlReply> | undefined;
  #ticks: Ticks | undefined;
  #watch: RemovalWatch | undefined;
  #fault: AppError | undefined;

  private constructor(options: RaftControlPlaneOptions, identity: FullIdentity) {
    this.#options = options;
    this.#identity = identity;
    this.#machine = new ControlMachine(
      (entry) => this.#onEntry(entry),
      () => this.#counts.snapshotsTaken++,
    );
    const { credentials, peers: addresses, logger: log } = options;
    this.#transport = new RaftTransport({ identity, credentials, addresses, log });
  }

  /**
   * Finds or forms the group and recovers this master's state. Resolves when it takes part, with or
   * without a leader. Rejects where the directory is damaged, or another master's.
   */
  static async open(
    options: RaftControlPlaneOptions,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<RaftControlPlane> {
    const service = new RaftService(options.server.server);
    const started = await startIdentity(options.directory, options.name);
    const identity = isFull(started) ? started : await findGroup(options, started, service, signal);
    const plane = new RaftControlPlane(options, identity);
    await plane.#start(service);
    return plane;
  }

  get state(): ControlState {
    return this.#machine.control.state;
  }

  get jobs(): JobIndex {
    return this.#machine.control.jobs;
  }

  get appliedIndex(): number {
    return this.#machine.control.index;
  }

  get fault(): AppError | undefined {
    return this.#fault ?? this.#running.fault;
  }

  get group(): ControlGroup {
    return this;
  }

  propose(command: ControlCommand, once: Once = {}): Promise<ControlReply> {
    return this.#propose({ type: "control", command, ...once });
  }

  keptAnswer(id: string): KeptAnswer | undefined {
    return this.#machine.control.keptAnswer(id);
  }

  openSession(client: string): Promise<ControlReply> {
    return this.#propose({ type: "session.open", atMs: Date.now(), client });
  }

  keepSecret(name: string, value: string): Promise<ControlReply> {
    return this.#propose({ type: "secret.keep", atMs: Date.now(), name, value });
  }

  secret(name: string): string | undefined {
    return this.#machine.control.secret(name);
  }

  onApplied(listener: (command: ControlCommand | undefined) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  readBarrier(): Promise<void> {
    if (this.#fault) return Promise.reject(this.#fault);
    return this.#running.readBarrier();
  }

  status(): GroupStatus {
    const { id, ...rest } = this.#running.status();
    const connected = (member: number) => member === id || this.#transport.isConnected(member);
    return {
      ...rest,
      id,
      cluster: this.#identity.cluster,
      stateHash: this.#machine.control.hash,
      commands: this.#machine.control.commands,
      members: rest.members.map((member) => ({ ...member, connected: connected(member.id) })),
    };
  }

  async progress(): Promise<readonly MemberProgress[]> {
    const { leader, role } = this.#running.status();
    if (role === "leader") return this.#ownProgress();
    return leader === undefined ? [] : this.#transport.askProgress(leader);
  }

  #ownProgress(): MemberProgress[] {
    const { role, members } = this.#running.status();
    if (role !== "leader") throw new AppError("unavailable", "this master does not lead");
    return members.flatMap(({ id, match, active }) =>
      match === undefined ? [] : [{ id, match, active: active === true }],
    );
  }

  async transferLeadership(name: string | undefined): Promise<void> {
    const { members, leader } = this.status();
    const choices = members.filter(({ votes, id }) => votes && id !== leader);
    const target = name === undefined ? choices[0] : choices.find((member) => member.name === name);
    if (target) return this.#running.transferLeadership(target.id);
    const message = `Leadership can go to ${choices.map((member) => member.name).join(", ") || "nobody"}, not to ${name ?? "another master"}.`;
    throw new AppError("conflict", message);
  }

  takeSnapshot(): Promise<void> {
    return this.#running.takeSnapshot();
  }

  async takeBackup(isStale: boolean): Promise<Backup> {
    if (!isStale) await this.readBarrier();
    return takeBackup(this.#running, this.#options.directory);
  }

  counts(): RaftCounts {
    return this.#counts.view();
  }

  async removeMember(name: string): Promise<void> {
    const member = this.#running.members.find((known) => known.name === name);
    if (!member) throw new AppError("not_found", `No master has the name ${name}.`);
    if (this.#running.members.length === 1) {
      throw new AppError("conflict", "The only master cannot be removed.");
    }
    await this.#running.changeMembers([{ type: "removeNode", nodeId: member.id }]);
  }

  async close(): Promise<void> {
    this.#ticks?.stop();
    this.#watch?.stop();
    await this.#replica?.stop();
    this.#transport.close();
    await this.#options.lock.close();
  }

  get #running(): RaftReplica<ControlReply> {
    if (!this.#replica) throw new Error("the replica is used before it was opened");
    return this.#replica;
  }

  async #start(service: RaftService): Promise<void> {
    const { directory, segmentBytes, snapshotEntries, logger } = this.#options;
    const { id, cluster, incarnation, beginning } = this.#identity;
    // A joining member knows the others by hearsay until their snapshot or log comes.
    this.#transport.setMembers(beginning?.members.filter((member) => member.id !== id) ?? []);
    const replica = await RaftReplica.open<ControlReply>({
      id,
      incarnation,
      storage: {
        files: this.#counts.measure(nodeStorageFiles),
        directory,
        owner: { cluster, node: String(id) },
        segmentBytes,
        onDamaged: (error) => logger.error({ err: error }, "a snapshot is damaged"),
      },
      machine: this.#machine,
      transport: this.#transport,
      random: Math.random,
      firstMembers: beginning?.kind === "first" ? beginning.members : undefined,
      isJoining: beginning !== undefined,
      electionTicks: ELECTION_TICKS,
      heartbeatTicks: HEARTBEAT_TICKS,
      requestTicks: REQUEST_TICKS,
      snapshotEntries,
      yieldToLoop: () => new Promise((resolve) => setImmediate(resolve)),
      onFatal: (error) => this.#fail(error),
      onRemoved: () => this.#onRemoved(),
      trace: (event) => {
        if (event.kind !== "roleChanged") return;
        if (event.role === "candidate") this.#counts.elections++;
        logger.info({ ...event }, "the role in the group changed");
      },
    });
    this.#replica = replica;
    // From here on an empty log would be a lost one; a joining member may be empty once more.
    if (beginning?.kind === "first") {
      await writeIdentity(directory, { ...this.#identity, beginning: undefined });
    }
    this.#transport.receiveWith(replica);
    service.serve({
      transport: this.#transport,
      introduce: (from) => memberChanges(this.#identity, replica, from, logger),
      progress: () => this.#ownProgress(),
    });
    this.#ticks = startTicks(TICK_MS, (ticks) => replica.tick(ticks));
    this.#watch = new RemovalWatch({
      identity: this.#identity,
      credentials: this.#options.credentials,
      hasLeader: () => replica.status().leader !== undefined,
      others: () => this.#transport.membersNow(),
      onRemoved: () => this.#onRemoved(),
    });
  }

  /** From here on it takes no changes; the replica runs on for as long as its successor needs. */
  #onRemoved(): void {
    if (this.#fault) return;
    const message = `This master was removed from the group and ends. To have it join anew, empty ${this.#options.directory} and start it again.`;
    const error = new AppError("member_removed", message);
    this.#fault = error;
    setTimeout(() => this.#options.onRemoved(error), HAND_OVER_MS);
  }

  #propose(entry: LogCommand): Promise<ControlReply> {
    if (this.#fault) return Promise.reject(this.#fault);
    return this.#counts.proposal(this.#running.propose(encodeLogCommand(entry)));
  }

  #onEntry(entry: LogCommand | undefined): void {
    if (!entry && this.#replica) this.#counts.snapshotsInstalled++;
    const command = controlCommandOf(entry);
    if (command || !entry) for (const listener of this.#listeners) listener(command);
    if (entry?.type === "hash.report") this.#compareHash(entry);
    const { hashEveryCommands = 1_000 } = this.#options;
    if (entry && this.#machine.control.commands % hashEveryCommands === 0) this.#reportHash();
  }

  /** A report that is lost is made up for by the next one. */
  #reportHash(): void {
    const { id: node } = this.#identity;
    const { commands, hash } = this.#machine.control;
    // Not while the log is replayed at the start, when the replica is not open yet.
    this.#replica
      ?.propose(encodeLogCommand({ type: "hash.report", atMs: Date.now(), node, commands, hash }))
      .catch(() => undefined);
  }

  #compareHash(report: { node: number; commands: number; hash: string }): void {
    // While the log is replayed at the start, nobody knows yet what a majority is.
    if (!this.#replica) return;
    const voters = this.#replica.status().members.filter(({ votes }) => votes).length;
    const diverged = this.#hashCheck.report(report, voters);
    if (diverged.length === 0) return;
    this.#options.logger.error({ diverged, commands: report.commands }, "state hashes differ");
    if (!diverged.includes(this.#identity.id)) return;
    const message = `After ${report.commands} commands this master's state differs from that of a majority of the masters. Empty ${this.#options.directory} and start it again, and it takes over the others' state.`;
    this.#fail(new AppError("server_error", message));
  }

  #fail(error: AppError): void {
    if (this.#fault) return;
    this.#fault = error;
    this.#ticks?.stop();
    this.#options.onFatal(error);
  }
}

async function findGroup(
  options: RaftControlPlaneOptions,
  identity: Awaited<ReturnType<typeof startIdentity>>,
  service: RaftService,
  signal: AbortSignal,
): Promise<FullIdentity> {
  const { directory, peers, credentials, logger: log } = options;
  const formation = new Formation({ directory, identity, peers, credentials, log, signal });
  service.serve({ introduce: (from) => formation.introduce(from) });
  return formation.find();
}

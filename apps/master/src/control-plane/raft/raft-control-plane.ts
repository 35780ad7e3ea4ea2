import { setTimeout as delay } from "node:timers/promises";
import { AppError, toAppError } from "@heddle/base/errors";
import { NO_SECRET_KEYS, type SecretKeys } from "@heddle/base/secret-keys";
import type { Agreement } from "@heddle/consensus/member/agreement";
import type { DirectoryLock } from "@heddle/consensus/member/directory-lock";
import { type FullIdentity, isJoined, startIdentity } from "@heddle/consensus/member/identity";
import { IdentityMarks } from "@heddle/consensus/member/identity-marks";
import { memberChanges } from "@heddle/consensus/member/member-changes";
import { RemovalWatch } from "@heddle/consensus/member/removal-watch";
import type { Member } from "@heddle/consensus/ports";
import { noLeader } from "@heddle/consensus/proposals/pending-proposals";
import type { ThreadStatus } from "@heddle/consensus/thread/thread-protocol";
import { ThreadedReplica } from "@heddle/consensus/thread/threaded-replica";
import type { Introduction__Output } from "@heddle/contracts/generated/heddle/v1/Introduction";
import { NEWEST_VERSION, RECORDS_EVENTS } from "@heddle/control/cluster-version";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { HashCheck } from "@heddle/control/hash-check";
import { logCommand } from "@heddle/control/jobs/records/logged-command";
import type { LogCommand } from "@heddle/control/replicated-control";
import type { Logger } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { progressMethod } from "@heddle/rpc/proto";
import type { BoundServer } from "@heddle/rpc/server";
import type {
  Backup,
  ControlGroup,
  GroupRoster,
  GroupStatus,
  HashedStatus,
  MemberProgress,
  RaftCounts,
} from "../control-group.ts";
import type { ControlPlane, Once } from "../control-plane.ts";
import { keysOfNew, takeAudit } from "../event-log/audit-call.ts";
import type { EventLogWriter } from "../event-log/event-log-writer.ts";
import { RecordedMachine } from "../event-log/recorded-machine.ts";
import { checkLogFits } from "../state-memory.ts";
import { ControlMachine, controlCommandOf } from "./control-machine.ts";
import { admitMember, findMasters } from "./find-masters.ts";
import { takeBackup } from "./live-backup.ts";
import type { RaftService } from "./raft-service.ts";
import { ReplicaCounts } from "./replica-counts.ts";
import { startAgreements } from "./start-agreements.ts";

export interface RaftControlPlaneOptions {
  /** The directory, which this process holds by `lock`; both are let go of at the end. */
  readonly directory: string;
  readonly lock: DirectoryLock;
  readonly name: string;
  /** host:port by name of all masters, this one's among them. */
  readonly peers: ReadonlyMap<string, string>;
  readonly credentials: NodeCredentials;
  /** The join token with which a new master enters a group, read when it is needed. */
  readonly joinToken?: (() => string | undefined) | undefined;
  /** Keys that encrypt secrets before they are written; without them secrets are in clear. */
  readonly keys?: SecretKeys | undefined;
  readonly server: Pick<BoundServer, "address">;
  /** Serves on the server already: other masters call before this one has found its group. */
  readonly service: RaftService;
  /** Where the other masters' connections are taken, on the server's host; 0 for any free port. */
  readonly raftPort?: number | undefined;
  readonly logger: Logger;
  /** Called when this master must end: its disk failed, or its state differs from the others'. */
  readonly onFatal: (error: AppError) => void;
  /** Called when this master was removed from the group and has handed over what it led. */
  readonly onRemoved: (error: AppError) => void;
  /** The size of a segment of the write-ahead log; 64 MiB by default. */
  readonly segmentBytes?: number | undefined;
  readonly snapshotEntries?: number | undefined;
  /** Commands between two comparisons of the masters' state hashes; 1,000. */
  readonly hashEveryCommands?: number | undefined;
  /** The highest cluster version to support; tests of upgrades give an older one than this build's. */
  readonly newestVersion?: number | undefined;
}

/** Entries that identity.json records for the next start. */
const MARKED: ReadonlySet<string> = new Set(["version.raise", "secrets.key"]);
const PROGRESS_DEADLINE_MS = 1_000;
/** A removed leader sends the commit index and transfers leadership; two round trips suffice. */
const HAND_OVER_MS = 1_000;
/** How long a removed member waits until a remaining one confirms the removal; several elections. */
const MAX_LINGER_MS = 15_000;

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
  #replica: ThreadedReplica<ControlReply> | undefined;
  #watch: RemovalWatch | undefined;
  readonly #keys: SecretKeys;
  readonly #marks: IdentityMarks;
  #agreements: readonly Agreement[] = [];
  #fault: AppError | undefined;
  #isClosed = false;
  readonly #removed = Promise.withResolvers<void>();
  readonly #released = Promise.withResolvers<void>();

  readonly events: EventLogWriter | undefined;

  private constructor(
    options: RaftControlPlaneOptions,
    identity: FullIdentity,
    events: EventLogWriter | undefined,
  ) {
    this.#options = options;
    this.events = events;
    this.#identity = identity;
    const { directory, logger, newestVersion, keys = NO_SECRET_KEYS } = options;
    this.#keys = keys;
    this.#machine = new ControlMachine((entry) => this.#onEntry(entry), {
      newestVersion,
      keys,
      onSnapshot: () => this.#counts.snapshotsTaken++,
    });
    const { control } = this.#machine;
    this.#marks = new IdentityMarks({
      directory,
      identity,
      control,
      keys,
      log: logger,
      addEntry: () => this.#reportHash(),
      // Before its pepper a cluster has no secrets.
      holdsSecrets: () => control.secret("pepper") !== undefined,
      onError: (error) => this.#fail(toAppError(error)),
    });
  }

  /**
   * Finds or forms the group and recovers this master's state. Resolves when it takes part, with or
   * without a leader. Rejects where the directory is damaged, or another master's. `openEvents` opens
   * the event log of a cluster; without it no events are kept.
   */
  static async open(
    options: RaftControlPlaneOptions,
    signal: AbortSignal = new AbortController().signal,
    openEvents?: (cluster: string) => Promise<EventLogWriter>,
  ): Promise<RaftControlPlane> {
    const { directory, name, newestVersion = NEWEST_VERSION, keys, service } = options;
    await checkLogFits(directory);
    const started = await startIdentity(directory, name, { keys, newestVersion });
    const { peers, credentials, joinToken, logger: log } = options;
    const known = { directory, identity: started, peers, credentials, joinToken, log, keys };
    const identity = isJoined(started)
      ? started
      : await findMasters({ ...known, identity: started, signal, newestVersion }, service);
    const events = await openEvents?.(identity.cluster);
    const plane = new RaftControlPlane(options, identity, events);
    await plane.#start(service);
    return plane;
  }

  get state(): ControlPlane["state"] {
    return this.#machine.control.state;
  }

  get jobs(): ControlPlane["jobs"] {
    return this.#machine.control.jobs;
  }

  get documents(): ControlPlane["documents"] {
    return this.#machine.control.documents;
  }

  get appliedIndex(): number {
    return this.#machine.control.index;
  }

  get fault(): AppError | undefined {
    return this.#fault ?? this.#running.fault;
  }

  /** Resolves when this master was removed from its group and the others no longer need it. */
  get released(): Promise<void> {
    return this.#released.promise;
  }

  get group(): ControlGroup {
    return this;
  }

  async propose(command: ControlCommand, once: Once = {}): Promise<ControlReply> {
    const logged = logCommand(command, this.#machine.control.version);
    const records = this.events !== undefined && this.#machine.control.version >= RECORDS_EVENTS;
    const call = records ? takeAudit(command.type) : undefined;
    const audit = call && { audit: call.audit };
    const keys = keysOfNew(this.state, command, call?.audit);
    const made = this.#propose({ type: "control", command: logged, ...once, ...audit, ...keys });
    const reply = await made.catch((error: unknown) => {
      if (toAppError(error).code !== "outcome_unknown") call?.undo();
      throw error;
    });
    this.#counts.answered(command, reply);
    return reply;
  }

  get logTimeMs(): number {
    return this.#machine.control.logTimeMs;
  }

  keptAnswer(id: string): ReturnType<ControlPlane["keptAnswer"]> {
    return this.#machine.control.keptAnswer(id);
  }

  keepSecret(name: string, value: string): Promise<ControlReply> {
    return this.#propose({ type: "secret.keep", atMs: Date.now(), name, value });
  }

  secret(name: string): string | undefined {
    return this.#machine.control.secret(name);
  }

  /** Whether secrets may be given to the log: it is encrypted, or there is no key to do it with. */
  get takesSecrets(): boolean {
    return this.#keys.ids.length === 0 || this.#machine.control.secretsKey !== undefined;
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
    return this.#view(this.#running.status());
  }

  roster(): GroupRoster {
    return this.#running.status();
  }

  isAlone(): boolean {
    return this.#othersNow().length === 0;
  }

  async statusAfterPauses(): Promise<HashedStatus> {
    const status = this.#view(await this.#running.statusAfterPauses());
    return { ...status, stateHash: this.#machine.control.hash };
  }

  #view(status: ThreadStatus): GroupStatus {
    const { connected, roster: _, nextMemberId: __, counts: ___, ...rest } = status;
    const isConnected = (member: number) => member === rest.id || connected.includes(member);
    const wasRemoved = this.#fault?.code === "member_removed";
    return {
      ...rest,
      // A removed member no longer learns the leader and the commit index.
      leader: wasRemoved ? undefined : rest.leader,
      isBehind: rest.isBehind || wasRemoved,
      cluster: this.#identity.cluster,
      commands: this.#machine.control.commands,
      clusterVersion: this.#machine.control.version,
      supportedVersion: this.#machine.control.newest,
      members: rest.members.map((member) => ({ ...member, connected: isConnected(member.id) })),
    };
  }

  async progress(): Promise<readonly MemberProgress[]> {
    // The status that is kept here may be from before the election.
    await this.#running.refresh();
    const { leader, role } = this.#running.status();
    if (role === "leader") return this.#ownProgress();
    return leader === undefined ? [] : this.#askProgress(leader);
  }

  async #ownProgress(): Promise<MemberProgress[]> {
    await this.#running.refresh();
    const { role, members, connected } = this.#running.status();
    if (role !== "leader") throw new AppError("unavailable", "this master does not lead");
    // Before the first quorum check of a term, Raft does not know it: the connection decides.
    return members.flatMap(({ id, match, active = connected.includes(id), isBehind: behind }) =>
      match === undefined ? [] : [{ id, match, active, behind }],
    );
  }

  async #isActive(id: number): Promise<boolean> {
    if (id === this.#identity.id || this.#running.status().connected.includes(id)) return true;
    return (await this.progress()).some((member) => member.id === id && member.active);
  }

  async #askProgress(leader: number): Promise<readonly MemberProgress[]> {
    const { peers, credentials } = this.#options;
    const member = this.#running.members.find(({ id }) => id === leader);
    const address = member && (peers.get(member.name) ?? member.address);
    if (!address) throw new AppError("unavailable", "the leader's address is unknown");
    const peer = new Peer(address, credentials);
    try {
      const times = { deadlineMs: PROGRESS_DEADLINE_MS };
      return (await peer.unary(progressMethod, {}, times)).members;
    } finally {
      peer.close();
    }
  }

  async transferLeadership(name: string | undefined): Promise<void> {
    const { members, leader } = this.status();
    // Without a leader no member could carry the accepted request out.
    if (leader === undefined) throw noLeader();
    const choices = members.filter(({ votes, id }) => votes && id !== leader);
    const target = name === undefined ? choices[0] : choices.find((member) => member.name === name);
    if (target) return this.#running.transferLeadership(target.id);
    const names = choices.map((member) => member.name).join(", ");
    const message = names && `${name} cannot lead. The masters that can: ${names}.`;
    throw new AppError("conflict", message || "No other master votes in this group.");
  }

  takeSnapshot(): Promise<void> {
    return this.#running.takeSnapshot();
  }

  async takeBackup(isStale: boolean): Promise<Backup> {
    if (!isStale) await this.readBarrier();
    return takeBackup(this.#running, this.#options.directory);
  }

  counts(): RaftCounts {
    return this.#counts.view(this.#running.status().counts);
  }

  async removeMember(name: string): Promise<void> {
    const member = this.#running.members.findLast((known) => known.name === name);
    if (!member) throw new AppError("not_found", `No master has the name ${name}.`);
    if (this.#running.members.length === 1) {
      throw new AppError("conflict", "The only master cannot be removed.");
    }
    const changed = this.#running.changeMembers([{ type: "removeNode", nodeId: member.id }]);
    // A member may learn of its own removal from the others only, never by its log.
    const removed = this.#removed.promise;
    await (member.id === this.#identity.id
      ? Promise.race([changed.then(() => removed), removed])
      : changed);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#watch?.stop();
    for (const agreement of this.#agreements) agreement.stop();
    const settled = this.#marks.settle();
    await this.#replica?.stop();
    await settled;
    await this.events?.close();
    await this.#options.lock.close();
  }

  get #running(): ThreadedReplica<ControlReply> {
    if (!this.#replica) throw new Error("the replica is used before it was opened");
    return this.#replica;
  }

  async #start(service: RaftService): Promise<void> {
    const { directory, server, credentials, peers: addresses, logger } = this.#options;
    const { segmentBytes, snapshotEntries, raftPort = 0 } = this.#options;
    const host = server.address.slice(0, server.address.lastIndexOf(":"));
    const { replica, port } = await ThreadedReplica.open<ControlReply>({
      identity: this.#identity,
      directory,
      credentials,
      addresses,
      segmentBytes,
      snapshotEntries,
      listen: { host, port: raftPort },
      machine: this.events ? new RecordedMachine(this.#machine, this.events) : this.#machine,
      log: logger,
      onFatal: (error) => this.#fail(error),
      onRemoved: () => this.#onRemoved(),
    });
    this.#replica = replica;
    // From here on an empty log would be a lost one; a joining member may be empty once more.
    if (this.#identity.beginning?.kind === "first") {
      await this.#marks.store({ beginning: undefined });
    }
    const { control } = this.#machine;
    const context = () => ({
      log: logger,
      isActive: (id: number) => this.#isActive(id),
      admit: (from: Introduction__Output) => admitMember(this, from),
      control,
      secretsKeys: this.#keys.ids,
    });
    service.serve({
      port,
      introduce: (from) => memberChanges(this.#identity, replica, from, context()),
      progress: () => this.#ownProgress(),
    });
    const others = () => this.#othersNow();
    this.#watch = new RemovalWatch({
      identity: this.#identity,
      credentials,
      hasLeader: () => replica.status().leader !== undefined,
      others,
      onRemoved: () => this.#onRemoved(),
    });
    const isActiveLeader = () => replica.status().isActiveLeader;
    this.#agreements = startAgreements(
      { identity: this.#identity, credentials, log: logger, others, isActiveLeader },
      this.#machine,
      this.#keys,
      (entry) => this.#propose(entry),
    );
    this.#marks.begin(replica);
  }

  /** The other members, each with the address at which it is reached now. */
  #othersNow(): Member[] {
    const { members } = this.#running;
    // A joining member knows the others from messages alone until their snapshot or log arrives.
    const known = members.length > 0 ? members : (this.#identity.beginning?.members ?? []);
    return known
      .filter(({ id }) => id !== this.#identity.id)
      .map((member) => ({
        ...member,
        address: this.#options.peers.get(member.name) ?? member.address,
      }));
  }

  /** From here on it takes no changes; the replica runs on for as long as its successor needs. */
  #onRemoved(): void {
    if (this.#fault) return;
    const message = `This master was removed from the group and ends. To have it join again, empty ${this.#options.directory} and start it again.`;
    const error = new AppError("member_removed", message);
    this.#fault = error;
    this.#removed.resolve();
    void this.#awaitRelease().then(() => {
      this.#released.resolve();
      this.#options.onRemoved(error);
    });
  }

  /**
   * Where two members voted, the one that stays cannot be elected without this one's vote until it
   * has applied the removal. If this one ended before that, the group might never have a leader
   * again.
   */
  async #awaitRelease(): Promise<void> {
    const endMs = performance.now() + MAX_LINGER_MS;
    let isEnded = false;
    while (!isEnded) {
      await delay(HAND_OVER_MS);
      isEnded =
        this.#isClosed || performance.now() > endMs || (await this.#watch?.isConfirmed()) === true;
    }
  }

  #propose(entry: LogCommand): Promise<ControlReply> {
    if (this.#fault) return Promise.reject(this.#fault);
    return this.#counts.proposal(this.#running.propose(this.#machine.encode(entry)));
  }

  #onEntry(entry: LogCommand | undefined): void {
    if (entry) this.events?.take(this.#machine.control);
    else this.events?.restored(this.#machine.control);
    if (!entry || MARKED.has(entry.type)) this.#marks.note();
    if (!entry && this.#replica) this.#counts.snapshotsInstalled++;
    const command = controlCommandOf(entry);
    if (command || !entry) for (const listener of this.#listeners) listener(command);
    if (entry?.type === "hash.report") this.#compareHash(entry);
    const { hashEveryCommands = 1_000 } = this.#options;
    const isDue = entry && this.#machine.control.commands % hashEveryCommands === 0;
    // A report that is lost is made up for by the next one; there is none while the log is replayed.
    if (isDue && this.#replica) this.#reportHash().catch(() => undefined);
  }

  #reportHash(): Promise<ControlReply> {
    const { id: node } = this.#identity;
    const { commands, hash } = this.#machine.control;
    const report = { type: "hash.report", atMs: Date.now(), node, commands, hash } as const;
    return this.#running.propose(this.#machine.encode(report));
  }

  #compareHash(report: { node: number; commands: number; hash: string }): void {
    // While the log is replayed at the start, the majority is not known yet.
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
    this.#options.onFatal(error);
  }
}

import { randomUUID } from "node:crypto";
import type { Server } from "@grpc/grpc-js";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import type { Log } from "@heddle/observability/logger";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { Health } from "@heddle/rpc/health";
import { TicketVerifier } from "@heddle/rpc/job-ticket";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { nodeIdentity } from "./identity.ts";
import { Machine, type MachineOptions } from "./machine.ts";
import { Attachments } from "./masters/attachments.ts";
import { KnownMasters } from "./masters/known-masters.ts";
import type { RunningCredentials } from "./node-credentials.ts";
import type { NodeFlags } from "./node-flags.ts";
import { nodeNameFor, ownCredentials } from "./own-credentials.ts";

export interface NodeAgentOptions {
  readonly role: "worker" | "parameter-server";
  readonly flags: NodeFlags;
  /** The version of the program. */
  readonly version: string;
  readonly log: Log;
  readonly machine?: MachineOptions;
  /** Called for each call that the server refuses for its caller. */
  readonly onRefused?: (() => void) | undefined;
  /** Whether tasks of jobs may call with their ticket. */
  readonly takesTickets?: boolean;
}

/** What a node reports to the masters beside its machine. */
export interface ReportedState {
  registration(): Partial<Register>;
  /** The heartbeat for that master; an empty name matches no master. */
  heartbeat(masterName: string): Heartbeat;
}

interface Opened {
  readonly credentials: RunningCredentials;
  readonly machine: Machine;
  readonly server: Server;
  /** Where the server listens. */
  readonly bound: string;
  readonly followed: FollowedCluster;
  readonly masters: KnownMasters;
  readonly tickets: TicketVerifier;
}

const KINDS = { worker: "NODE_KIND_WORKER", "parameter-server": "NODE_KIND_PARAMETER_SERVER" };

/**
 * A node's part in the cluster: its identity, credentials, machine and gRPC server, and its
 * attachment to all masters. Nest calls its hooks at the end: it leaves the masters, then closes
 * the server.
 */
export class NodeAgent {
  readonly options: NodeAgentOptions;
  readonly nodeId: string;
  readonly name: string;
  /** host:port for the other nodes. */
  readonly address: string;
  readonly credentials: RunningCredentials;
  readonly machine: Machine;
  readonly server: Server;
  readonly followed: FollowedCluster;
  readonly masters: KnownMasters;
  readonly tickets: TicketVerifier;
  readonly health = new Health();
  #drainMs = 0;
  #attachments: Attachments | undefined;

  private constructor(options: NodeAgentOptions, nodeId: string, opened: Opened) {
    this.options = options;
    this.nodeId = nodeId;
    this.name = nodeNameFor(options.flags);
    this.credentials = opened.credentials;
    this.machine = opened.machine;
    this.server = opened.server;
    this.address = options.flags.advertise ?? opened.bound;
    this.followed = opened.followed;
    this.masters = opened.masters;
    this.tickets = opened.tickets;
  }

  /** Measures the machine and binds the server, which has no services yet. */
  static async open(options: NodeAgentOptions): Promise<NodeAgent> {
    const { flags, role, log, onRefused } = options;
    const { dataDirectory, grpcHost: host, grpcPort: port } = flags;
    const nodeId = nodeIdentity(dataDirectory);
    const followed = new FollowedCluster(dataDirectory);
    const staysHere = !(flags.tls || flags.isExposed);
    const masters = new KnownMasters({ given: flags.masters, staysHere, followed });
    const credentials = await ownCredentials(flags, role, masters, log);
    const machine = new Machine(dataDirectory, options.machine);
    await machine.start();
    const tickets = new TicketVerifier(credentials);
    const {
      server,
      address: bound,
      endRevoked,
    } = await bindServer({
      host,
      port,
      credentials,
      followed,
      onRefused,
      tickets: options.takesTickets ? tickets : undefined,
      isRevoked: (node, { valid_from: from }) => followed.revoked.has(node, Date.parse(from)),
    });
    followed.onRevoked(endRevoked);
    return new NodeAgent(options, nodeId, {
      credentials,
      machine,
      server,
      bound,
      followed,
      masters,
      tickets,
    });
  }

  /** The time that work may take to end after `stopServing`. */
  get drainMs(): number {
    return this.#drainMs;
  }

  get attachedMasters(): number {
    return this.#attachments?.attachedCount ?? 0;
  }

  /** Attaches to all masters: the server has its services. */
  attach(state: ReportedState): void {
    const { role, version, log } = this.options;
    const { nodeId, name, address, credentials, followed, machine, masters } = this;
    const incarnation = randomUUID();
    this.#attachments = new Attachments({
      masters,
      credentials,
      followed,
      log,
      heartbeat: (master) => state.heartbeat(master),
      register: () => ({
        nodeId,
        name,
        address,
        version,
        incarnation,
        kind: KINDS[role] as Register["kind"],
        hardware: machine.hardware(),
        ...state.registration(),
      }),
    });
  }

  /** Sends a heartbeat to each master within this turn of the event loop. */
  report(): void {
    this.#attachments?.report();
  }

  /** Registers with each master again: its registration has changed. */
  registerAgain(): void {
    this.#attachments?.registerAgain();
  }

  /** Reports to probes that the node ends; its work has this time to end. */
  stopServing(drainMs: number): void {
    this.#drainMs = drainMs;
    this.health.stopServing();
  }

  /** Leaves all masters; they send it nothing more. */
  async leave(): Promise<void> {
    this.machine.stop();
    await this.#attachments?.close();
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.leave();
  }

  async onApplicationShutdown(): Promise<void> {
    await closeServer(this.server, 0);
    this.credentials.close();
  }
}

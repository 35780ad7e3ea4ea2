import { createHmac, type KeyObject, timingSafeEqual } from "node:crypto";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import type { TaskRecord } from "@heddle/control/jobs/records/records";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { issueTicket } from "@heddle/rpc/job-ticket";

/** The lifetime of a ticket for a run without a time limit. */
const TICKET_MS = 90 * 24 * 3_600_000;
const TICKET_SLACK_MS = 3_600_000;
/** The tasks of a gang share a ticket: signing takes longer than dispatching. */
const REUSE_MS = 60_000;
const MAX_TICKETS = 256;

type TaskName = Pick<TaskRecord, "jobId" | "attempt" | "rank" | "incarnation">;
type VariablesOf = (spec: SubmitJob) => Record<string, string>;
type AttemptName = Pick<TaskRecord, "jobId" | "attempt">;

/** Secrets for tasks, derived from the masters' shared secret and this one's key. */
export class TaskSecrets {
  readonly #pepper: KeyObject;
  readonly #own: NodeCredentials;
  readonly #cluster: () => string;
  /** The variables of a job that are secrets of its project; throws where one does not decrypt. */
  readonly variables: VariablesOf;
  readonly #tickets = new Map<string, { readonly ticket: string; readonly issuedMs: number }>();

  /** `cluster` returns the cluster's id; empty for a master without a group. */
  constructor(
    pepper: KeyObject,
    own: NodeCredentials,
    cluster: () => string,
    variables: VariablesOf = () => ({}),
  ) {
    this.#pepper = pepper;
    this.#own = own;
    this.#cluster = cluster;
    this.variables = variables;
  }

  /** Equal on every master, so that a new leader continues a gang that is starting. */
  attemptToken({ jobId, attempt }: AttemptName): Buffer {
    return this.#mac(`job token ${jobId}/${attempt}`);
  }

  /** The parameter servers' ticket for the attempt; `runMs` 0: no time limit. */
  ticket({ jobId, attempt }: AttemptName, servers: readonly string[], runMs: number): string {
    const issuedUnixMs = Date.now();
    const cluster = this.#cluster();
    const key = JSON.stringify([jobId, attempt, servers, cluster]);
    const known = this.#tickets.get(key);
    if (known && issuedUnixMs - known.issuedMs < REUSE_MS) return known.ticket;
    const expiresUnixMs = issuedUnixMs + (runMs > 0 ? runMs + TICKET_SLACK_MS : TICKET_MS);
    const claims = { jobId, attempt, servers, issuedUnixMs, expiresUnixMs, cluster };
    const ticket = issueTicket(this.#own, claims);
    if (this.#tickets.size >= MAX_TICKETS) this.#tickets.clear();
    this.#tickets.set(key, { ticket, issuedMs: issuedUnixMs });
    return ticket;
  }

  /** Proves to any master, at any time, that the task was leased to the node. */
  logGrant({ jobId, attempt, rank, incarnation = 0 }: TaskName, nodeId: string): string {
    const task = JSON.stringify([jobId, attempt, rank, incarnation, nodeId]);
    return this.#mac(`log grant ${task}`).toString("hex");
  }

  isLogGrant(grant: string, task: TaskName, nodeId: string): boolean {
    const given = Buffer.from(grant);
    const expected = Buffer.from(this.logGrant(task, nodeId));
    return given.length === expected.length && timingSafeEqual(given, expected);
  }

  #mac(text: string): Buffer {
    return createHmac("sha256", this.#pepper).update(text).digest();
  }
}

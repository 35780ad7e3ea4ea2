import type { LeaseTask__Output } from "@heddle/contracts/generated/heddle/v1/LeaseTask";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskStatus } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { MemoryLog } from "./memory-log.ts";
import { LINES_VARIABLE, RUN_MS_VARIABLE, type TaskTimes } from "./settings.ts";

/** A task that only waits and prints lines; its statuses are those of a real one that succeeds. */
export class SimulatedTask {
  readonly id: TaskId__Output;
  readonly grant: string;
  readonly log = new MemoryLog();
  readonly #spec: LeaseTask__Output["spec"];
  readonly #cluster: string;
  readonly #onChange: () => void;
  #phase: "leased" | "running" | "exited" = "leased";
  #times: TaskTimes | undefined;
  #wasAsked = false;
  #end: NodeJS.Timeout | undefined;
  #printing: NodeJS.Timeout | undefined;

  constructor(lease: LeaseTask__Output, cluster: string, onChange: () => void) {
    if (!lease.task) throw new Error("a lease without a task");
    this.id = lease.task;
    this.grant = lease.logGrant;
    this.#spec = lease.spec;
    this.#cluster = cluster;
    this.#onChange = onChange;
  }

  /** Undefined until the start. */
  get times(): TaskTimes | undefined {
    return this.#times;
  }

  get isEnded(): boolean {
    return this.#phase === "exited";
  }

  start(): void {
    if (this.#phase !== "leased") return;
    this.#phase = "running";
    this.#times = { jobId: this.id.jobId, startedMs: now(), endedMs: undefined };
    this.log.append("started");
    this.#end = setTimeout(() => this.#exit(), this.#number(RUN_MS_VARIABLE, 1_000));
    const lines = this.#number(LINES_VARIABLE, 0);
    if (lines > 0) {
      this.#printing = setInterval(() => this.log.append(`printed ${now()}`), 1_000 / lines);
    }
    this.#onChange();
  }

  stop(): void {
    if (this.isEnded) return;
    this.#wasAsked = true;
    this.#exit();
  }

  status(): TaskStatus {
    const exit = {
      exitCode: 0,
      asked: this.#wasAsked,
      endedUnixMs: Math.round(this.#times?.endedMs ?? now()),
    };
    return {
      task: this.id,
      phase: this.#phase,
      rendezvous: "127.0.0.1:9",
      cluster: this.#cluster,
      ...(this.isEnded && { exit }),
    };
  }

  /** Ends without a status, as with its worker. */
  drop(): void {
    clearTimeout(this.#end);
    clearInterval(this.#printing);
  }

  #exit(): void {
    this.drop();
    this.#phase = "exited";
    if (this.#times) this.#times.endedMs = now();
    this.log.finish();
    this.#onChange();
  }

  #number(variable: string, otherwise: number): number {
    return Number(this.#spec?.environment[variable] ?? otherwise);
  }
}

/** With a fraction, and comparable between the processes of a machine. */
export function now(): number {
  return performance.timeOrigin + performance.now();
}

import type { SecretKeys } from "@heddle/base/secret-keys";
import { eventually } from "@heddle/base/testing/eventually";
import type { JobsCommand, TaskReportEntry } from "@heddle/control/jobs/records/commands";
import type { NodeOffer, TaskExitRecord } from "@heddle/control/jobs/records/records";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import { OrchestrationModule } from "../src/orchestration/orchestration.module.ts";
import { startTestMaster, type TestMaster } from "./test-master.ts";

const HOUR_MS = 3_600_000;

/** A master over real HTTP with the loops of jobs; the test reports for the workers. */
export class JobApi {
  readonly master: TestMaster;

  private constructor(master: TestMaster) {
    this.master = master;
  }

  static async start(keys?: SecretKeys): Promise<JobApi> {
    const jobTimes = { leaseMs: HOUR_MS, nodeLostMs: HOUR_MS, acknowledgeMs: HOUR_MS };
    return new JobApi(await startTestMaster({ jobTimes }, [OrchestrationModule], keys));
  }

  async close(): Promise<void> {
    await this.master.master.close();
  }

  /** The whole answer; `body` is undefined if it is empty. */
  async call(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
    key = this.master.adminKey,
  ) {
    const response = await fetch(`${this.master.url}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const parsed = text === "" ? undefined : (JSON.parse(text) as JobAnswer);
    return { status: response.status, headers: response.headers, body: parsed };
  }

  async submit(change: Record<string, unknown> = {}): Promise<string> {
    const { status, body } = await this.call("POST", "/jobs", { ...BODY, ...change });
    if (status !== 202) throw new Error(JSON.stringify(body));
    return body?.job_id ?? "";
  }

  propose(command: Record<string, unknown>) {
    return this.master.control.propose({ atMs: Date.now(), ...command } as unknown as JobsCommand);
  }

  join(id: string, change: Partial<NodeOffer> = {}) {
    return this.propose({ type: "node.join", offer: nodeOffer(id, change) });
  }

  /** Reports every task of the job in this phase, as its workers would. */
  async report(id: string, phase: TaskReportEntry["phase"], exit?: TaskExitRecord): Promise<void> {
    for (const task of [...this.master.control.state.tasks.values()]) {
      const { jobId, attempt, rank, nodeId } = task;
      if (jobId !== id) continue;
      const reports = [{ jobId, attempt, rank, phase, exit }];
      await this.propose({ type: "tasks.report", nodeId, reports });
    }
  }

  /** Waits until the loops have brought the job into a state. */
  reached(id: string, state: string): Promise<void> {
    return eventually(
      () => this.master.control.state.jobs.get(id)?.state === state,
      undefined,
      20_000,
    );
  }

  async run(id: string): Promise<void> {
    await this.reached(id, "scheduled");
    await this.report(id, "leased");
    await this.report(id, "running");
    await this.reached(id, "running");
  }
}

/** The members of answers that tests read; each route has some of them. */
export interface JobAnswer {
  readonly job_id?: string;
  readonly detail?: string;
  readonly errors?: readonly { readonly pointer: string }[];
  readonly data?: readonly {
    readonly name: string;
    readonly phase: string;
    readonly failure: unknown;
  }[];
  readonly next_cursor?: string | null;
  readonly failure?: { readonly reason: string; readonly message: string };
  readonly explanation?: { readonly blockers: unknown; readonly changes: readonly unknown[] };
  readonly never_fits?: unknown;
  readonly task_list?: unknown;
}

const BODY = { name: "job", command: "true", resources: { gpu_count: 1 } };

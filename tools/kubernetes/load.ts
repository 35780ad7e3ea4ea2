import { expect } from "vitest";
import { kubectl, untilFound } from "./kube-cluster.ts";
import type { ChartRelease } from "./release.ts";

const TIMEOUT_MS = 240_000;

/** Calls a model through the Service forever, with the retries that SDKs make by default. */
const CALLER = `
const counts = { answered: 0, lost: 0, retried: 0 };
const body = JSON.stringify({ model: "FamilyA-1-2B", max_tokens: 8, messages: [{ role: "user", content: "hello" }] });
const headers = { "content-type": "application/json", authorization: "Bearer " + process.env.KEY.trim() };
const wait = (ms) => new Promise((go) => setTimeout(go, ms));
async function call() {
  for (let tries = 0; ; tries++) {
    let fault;
    try {
      const reply = await fetch("http://heddle:80/api/v1/chat/completions", { method: "POST", headers, body, signal: AbortSignal.timeout(60_000) });
      const text = await reply.text();
      if (reply.ok) return void counts.answered++;
      fault = reply.status + " " + text.slice(0, 300);
      if (reply.status < 500 && ![408, 409, 429].includes(reply.status)) tries = 2;
    } catch (error) {
      fault = String(error.cause ?? error);
    }
    if (tries === 2) return void (counts.lost++, console.log(new Date().toISOString(), "lost", fault));
    counts.retried++;
    await wait(500 * 2 ** tries * (1 - Math.random() / 4));
  }
}
for (let lane = 0; lane < 3; lane++) (async () => { for (;;) { await call(); await wait(50); } })();
setInterval(() => console.log(JSON.stringify(counts)), 1_000);
`;

interface Counts {
  readonly answered: number;
  readonly lost: number;
  readonly retried: number;
}

interface Group {
  readonly leader: string | null;
  readonly cluster_version: number;
  readonly quorum: { readonly voters: number; readonly has_quorum: boolean };
}

/** Calls and jobs of a release, of which none may be lost while it changes. */
export class ReleaseLoad {
  readonly #release: ChartRelease;

  constructor(release: ChartRelease) {
    this.#release = release;
  }

  group(): Group {
    return JSON.parse(this.#release.heddle("cluster status --output json")) as Group;
  }

  /** Resolves with the leader of a group of this many masters. */
  groupOf(voters: number): Promise<string> {
    const poll = () => {
      const { quorum, leader } = this.group();
      return quorum.voters === voters && quorum.has_quorum && leader ? leader : undefined;
    };
    return untilFound(`a group of ${voters} masters`, poll, TIMEOUT_MS);
  }

  /** Begins the calls; resolves when they are answered. */
  async start(): Promise<void> {
    const { namespace } = this.#release;
    const key = { secretKeyRef: { name: "heddle-cluster", key: "bootstrap-key" } };
    const container = {
      name: "caller",
      image: "heddle/heddle:0.1.0",
      imagePullPolicy: "IfNotPresent",
      command: ["node", "--eval", CALLER],
      env: [{ name: "KEY", valueFrom: key }],
    };
    const spec = { restartPolicy: "Never", enableServiceLinks: false, containers: [container] };
    const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "caller", namespace }, spec };
    kubectl(["apply", "--filename", "-"], JSON.stringify(pod));
    await untilFound("answers", () => this.calls().answered > 10 || undefined, TIMEOUT_MS);
  }

  calls(): Counts {
    const lines = this.#release.kubectl("logs", "caller", "--tail=50").trim().split("\n");
    const counts = lines.findLast((line) => line.startsWith("{"));
    if (counts === undefined) throw new Error(`the caller says nothing: ${lines.join("\n")}`);
    return JSON.parse(counts) as Counts;
  }

  /** Resolves when a further call was answered. */
  async answers(): Promise<void> {
    const { answered } = this.calls();
    const poll = () => this.calls().answered > answered || undefined;
    await untilFound("answers", poll, TIMEOUT_MS);
  }

  /** Changes the release of three masters while calls and jobs run: none of them is lost. */
  async during(change: () => void | Promise<void>): Promise<void> {
    const before = this.calls();
    const ids = Array.from({ length: 3 }, (_, at) => {
      return this.#submit({
        name: `load-${before.answered}-${at}`,
        command: "sleep 20; echo done",
      });
    });
    await change();
    await this.groupOf(3);
    for (const id of ids) {
      const job = await untilFound(`the end of ${id}`, () => this.#ended(id), TIMEOUT_MS);
      expect(job).toBe("succeeded");
    }
    const after = this.calls();
    expect(this.#release.kubectl("logs", "caller")).not.toMatch(/ lost /);
    expect(after.lost).toBe(0);
    expect(after.answered).toBeGreaterThan(before.answered + 20);
    console.log(`calls while it changed: ${JSON.stringify(after)}, from ${JSON.stringify(before)}`);
  }

  #submit(spec: object): string {
    const text = this.#release.heddle("jobs submit - --output json", JSON.stringify(spec));
    return (JSON.parse(text) as { readonly job_id: string }).job_id;
  }

  #ended(id: string): string | undefined {
    const job = JSON.parse(this.#release.heddle(`jobs get ${id} --output json`)) as {
      readonly state: string;
      readonly ended_at: string | null;
    };
    return job.ended_at ? job.state : undefined;
  }
}

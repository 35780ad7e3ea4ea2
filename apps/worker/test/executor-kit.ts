import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@heddle/base/testing/until";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type LeaderSession, TestLeader, taskId } from "./test-leader.ts";

const timeout = 180_000;
const timeoutMs = 120_000;
/** Short enough to wait for its end. */
const SHORT_LEASE_MS = 4_000;

/** An executor that the cases of the port are tried on. */
export interface ExecutorUnderTest {
  readonly title: string;
  /** Why it cannot be tried here; undefined where it can. */
  readonly why: string | undefined;
  /** What chooses it, besides the command. */
  readonly spec: Partial<TaskSpec>;
  /** The worker's settings. */
  readonly settings: () => Readonly<Record<string, unknown>>;
  readonly environment: () => Readonly<Record<string, string>>;
  /** What it has of tasks of this worker, as containers or jobs. */
  remains(nodeId: string): readonly string[];
}

/** What every executor keeps, by a worker as it is. Programs need a shell, `sleep` and `echo`. */
export function executorCases(executor: ExecutorUnderTest): void {
  const { title, why } = executor;
  if (why !== undefined) console.log(`${title} are not tested: ${why}`);
  describe.skipIf(why !== undefined)(title, { timeout }, () => {
    const at = new Tried(executor);
    beforeAll(() => at.begin(), timeout);
    afterAll(() => at.leader.close(), timeout);
    endsOfPrograms(at);
    stops(at);
    restarts(at);
  });
}

/** An executor with its worker and a leader. */
class Tried {
  readonly executor: ExecutorUnderTest;
  readonly leader = new TestLeader();
  worker!: ChildProcess;
  session!: LeaderSession;

  constructor(executor: ExecutorUnderTest) {
    this.executor = executor;
  }

  get title(): string {
    return this.executor.title;
  }

  async begin(): Promise<void> {
    await this.leader.listen();
    this.worker = await this.startWorker();
    this.session = this.leader.open();
  }

  startWorker(of = this.leader): Promise<ChildProcess> {
    return of.startWorker(this.executor.settings(), this.executor.environment());
  }

  sh(line: string): Partial<TaskSpec> {
    return { ...this.executor.spec, command: ["/bin/sh", "-c", line] };
  }

  /** Like `session.start`, for executors that take long. */
  async start(spec: Partial<TaskSpec>, rank: number, by = this.session): Promise<void> {
    await by.lease(spec, taskId(rank));
    by.send({ start: { task: taskId(rank), peers: [] } });
    await by.reaches("running", taskId(rank), timeoutMs);
  }
}

/** Output, exit codes, and what is left. */
function endsOfPrograms(at: Tried): void {
  it.concurrent(`${at.title}: bytes, variables and exit code return as they are`, async () => {
    const lines = [
      "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done",
      `printf 'a\\000\\303\\251%s' "$GREETING"; echo oh >&2; echo again > /dev/stderr; exit 7`,
    ];
    const environment = { GREETING: `two\nlines "a" 'b' $c` };
    await at.start({ ...at.sh(lines.join("\n")), environment }, 0);
    const { exit } = await at.session.reaches("exited", taskId(0), timeoutMs);
    expect(exit).toMatchObject({ exitCode: 7, reason: "ExitCode" });
    await until("the log was received", () => at.leader.isComplete(0), timeoutMs);
    const counted = Array.from({ length: 5_000 }, (_, index) => `line ${index}\n`).join("");
    expect(at.leader.log(0)).toBe(`${counted}a\0é${environment.GREETING}`);
    await until("the other too", () => at.leader.isComplete(0, "stderr"), timeoutMs);
    expect(at.leader.log(0, "stderr")).toBe("oh\nagain\n");
  });

  it.concurrent(`${at.title}: a program that is not there is named`, async () => {
    await at.session.lease({ ...at.executor.spec, command: ["/no-program"] }, taskId(3));
    at.session.send({ start: { task: taskId(3), peers: [] } });
    const { exit } = await at.session.reaches("exited", taskId(3), timeoutMs);
    expect(exit?.reason).toBe("LaunchFailed");
    expect(exit?.message).toContain("/no-program");
  });

  it.concurrent(`${at.title}: what a program leaves running ends with it`, async () => {
    const line = "(while :; do echo on; sleep 0.1; done) & sleep 0.5; exit 3";
    await at.start(at.sh(line), 4);
    const { exit } = await at.session.reaches("exited", taskId(4), timeoutMs);
    expect(exit).toMatchObject({ exitCode: 3 });
    const { size } = statSync(stdoutOf(at.leader, 4));
    await delay(500);
    expect(statSync(stdoutOf(at.leader, 4)).size).toBe(size);
  });
}

/** What a stop does. */
function stops(at: Tried): void {
  it.concurrent(`${at.title}: a program that ignores SIGTERM ends after its grace`, async () => {
    await at.start(at.sh("trap '' TERM; echo up; while :; do sleep 0.2; done"), 1);
    await until("it is up", () => at.leader.log(1) === "up\n", timeoutMs);
    at.session.send({
      stop: { task: taskId(1), checkpoint: false, graceMs: 300, why: "cancelled" },
    });
    const { exit } = await at.session.reaches("exited", taskId(1), timeoutMs);
    expect(exit).toMatchObject({ signal: "SIGKILL", asked: true, reason: "" });
  });

  it.concurrent(`${at.title}: a stop asks for a checkpoint, then the program leaves`, async () => {
    const line =
      'trap \'echo {\\"checkpoint\\":\\"c2\\"} >> $HEDDLE_PROGRESS_FILE\' USR1; trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.1; done';
    await at.start(at.sh(line), 2);
    await until("it is up", () => at.leader.log(2) === "up\n", timeoutMs);
    at.session.send({
      stop: { task: taskId(2), checkpoint: true, graceMs: 60_000, why: "preempted" },
    });
    const { exit, progress } = await at.session.reaches("exited", taskId(2), timeoutMs);
    expect(exit).toMatchObject({ exitCode: 0, asked: true, reason: "" });
    expect(progress?.checkpoint).toBe("c2");
    await until("the log was received", () => at.leader.isComplete(2), timeoutMs);
    expect(at.leader.log(2)).toBe("up\nbye\n");
  });
}

/** A worker that is killed. */
function restarts(at: Tried): void {
  it(`${at.title}: a worker that is killed and starts again takes its tasks over`, async () => {
    await at.start(at.sh("i=0; while [ $i -lt 60 ]; do echo $i; i=$((i+1)); sleep 0.1; done"), 5);
    await until("there are lines", () => at.leader.log(5).includes("5\n"), timeoutMs);
    const ended = once(at.worker, "exit");
    at.worker.kill("SIGKILL");
    at.session.close();
    await ended;
    at.worker = await at.startWorker();
    at.session = at.leader.open(2);
    const { exit } = await at.session.reaches("exited", taskId(5), timeoutMs);
    expect(exit).toMatchObject({ exitCode: 0, reason: "" });
    await until("the log was received", () => at.leader.isComplete(5), timeoutMs);
    expect(at.leader.log(5)).toBe([...Array(60).keys(), ""].join("\n"));
    expect(at.executor.remains(at.leader.nodeId)).toEqual([]);
  });

  it(`${at.title}: a program ends with the lease of a worker that is killed`, async () => {
    const own = new TestLeader();
    onTestFinished(() => own.close());
    await own.listen();
    const killed = await at.startWorker(own);
    const early = own.open(1, SHORT_LEASE_MS);
    await at.start(at.sh("while :; do echo on; sleep 0.1; done"), 0, early);
    await until("there are lines", () => own.log() !== "", timeoutMs);
    const { nodeId } = own;
    killed.kill("SIGKILL");
    early.close();
    let size = -1;
    await until(
      "the program is silent",
      async () => {
        const before = size;
        ({ size } = statSync(stdoutOf(own, 0)));
        await delay(1_000);
        return before === size;
      },
      timeoutMs,
    );
    await at.startWorker(own);
    const { exit } = await own.open(2).reaches("exited", taskId(0), timeoutMs);
    expect(exit?.reason).toBe("NodeLost");
    await until("nothing is left", () => at.executor.remains(nodeId).length === 0, timeoutMs);
  });
}

function stdoutOf({ folder }: TestLeader, rank: number): string {
  return join(folder, `worker/jobs/job_A/1.${rank}/logs/stdout`);
}

import { execFileSync } from "node:child_process";
import { until } from "@heddle/base/testing/until";
import type { TaskSpec } from "@heddle/contracts/generated/heddle/v1/TaskSpec";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type LeaderSession, TestLeader, taskId } from "./test-leader.ts";

const timeout = 180_000;
const timeoutMs = 120_000;
/** Within it a step that was cancelled must end by its signal. */
const GRACE_MS = 20_000;

/** A block that the cases of the port are tried on. */
export interface BlockUnderTest {
  /** As workers report it: `PLUGIN/NAME@VERSION`. */
  readonly id: string;
  /** The plugin's file. */
  readonly plugin: string;
  /** The artifacts of its outputs. */
  readonly artifacts: readonly string[];
  /** The config of a step that is done soon. */
  readonly brief: object;
  /** The config of a step that yields a message, then runs until it is cancelled. */
  readonly long: object;
  /** A config that its schema refuses, and a part of the words for it. */
  readonly wrong: readonly [config: object, words: string];
  /**
   * The config of a step that yields a checkpoint, then a message, and is done at once when it
   * resumes.
   */
  readonly resumes?: object;
}

/** What every block keeps, as a task of a worker that has its plugin. */
export function blockCases(block: BlockUnderTest): void {
  describe(`block ${block.id}`, { timeout }, () => {
    const at = new Tried(block);
    beforeAll(() => at.begin(), timeout);
    afterAll(() => at.leader.close(), timeout);
    endsOfSteps(at);
    stopsOfSteps(at);
  });
}

class Tried {
  readonly block: BlockUnderTest;
  readonly leader = new TestLeader();
  session!: LeaderSession;
  #rank = 0;

  constructor(block: BlockUnderTest) {
    this.block = block;
  }

  async begin(): Promise<void> {
    await this.leader.listen();
    await this.leader.startWorker({ plugins: [this.block.plugin], isIsolationOptional: true });
    this.session = this.leader.open();
  }

  nextTask(jobId = "block-kit") {
    return { ...taskId(this.#rank++), jobId };
  }

  specOf(config: object, more: Partial<TaskSpec> = {}): Partial<TaskSpec> {
    return { executor: "block", algorithm: this.block.id, config: JSON.stringify(config), ...more };
  }

  /** How a step ends; its config may be refused before it begins. */
  async exitOf(spec: Partial<TaskSpec>, task = this.nextTask()) {
    await this.session.lease(spec, task);
    this.session.send({ start: { task, peers: [] } });
    return this.session.reaches("exited", task);
  }

  /** Starts a step, and resolves once it has yielded a message. */
  async begun(config: object, task = this.nextTask()) {
    const lines = this.session.progressLines.length;
    await this.session.start(this.specOf(config), task);
    const says = () =>
      this.session.progressLines.slice(lines).some((line) => /"message"/.test(line));
    await until("the step yields a message", says, timeoutMs);
    return task;
  }
}

/** Ends the processes of a worker's steps as the system does; the ids are of trainers alone. */
export function killSteps({ folder }: TestLeader): void {
  const text = execFileSync("ps", ["-wweo", "pid=,args="], { maxBuffer: 2 ** 26 }).toString();
  const isOwn = (line: string) => line.includes("block-main") && line.includes(folder);
  const pids = text
    .split("\n")
    .filter(isOwn)
    .map((line) => Number.parseInt(line, 10));
  expect(pids.length).toBeGreaterThan(0);
  for (const pid of pids) process.kill(pid, "SIGKILL");
}

function endsOfSteps(at: Tried): void {
  it("blocks: its worker offers it, and each step leaves the same outputs", async () => {
    const { id, brief, artifacts } = at.block;
    expect(at.leader.register?.algorithms).toContain(id);
    const left: object[] = [];
    for (let run = 0; run < 2; run++) {
      const { exit } = await at.exitOf(at.specOf(brief));
      expect(exit).toMatchObject({ exitCode: 0, reason: "" });
      const all = (exit?.artifacts ?? []).filter(({ name }) => artifacts.includes(name));
      left.push(all.map(({ name, sha256 }) => [name, sha256]).sort());
      expect(all.map(({ name }) => name).sort()).toEqual([...artifacts].sort());
    }
    expect(left[1]).toEqual(left[0]);
  });

  it("blocks: a config that its schema refuses is no step, and says why", async () => {
    const [config, words] = at.block.wrong;
    const { exit } = await at.exitOf(at.specOf(config));
    expect(exit?.reason).toBe("Unsatisfiable");
    expect(exit?.message).toContain(words);
  });
}

function stopsOfSteps(at: Tried): void {
  it("blocks: a cancelled step ends by its signal", async () => {
    const task = await at.begun(at.block.long);
    const stop = { checkpoint: false, graceMs: GRACE_MS, why: "cancelled" };
    at.session.send({ stop: { task, ...stop } });
    const { exit } = await at.session.reaches("exited", task);
    expect(exit).toMatchObject({ asked: true, exitCode: 143 });
  });

  const { resumes } = at.block;
  it.skipIf(resumes === undefined)("blocks: a killed step resumes at its checkpoint", async () => {
    const task = await at.begun(resumes ?? {}, at.nextTask("block-kit-resumes"));
    killSteps(at.leader);
    const { progress } = await at.session.reaches("exited", task);
    const resumeFrom = progress?.checkpoint ?? "";
    expect(resumeFrom).not.toBe("");
    const again = { ...task, attempt: 2 };
    const { exit } = await at.exitOf(at.specOf(resumes ?? {}, { resumeFrom }), again);
    expect(exit).toMatchObject({ exitCode: 0, reason: "" });
  });
}

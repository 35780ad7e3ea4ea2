/**
 * Writes the golden logs of the state machine's present version:
 *
 *     npm run golden:logs -- FILE
 *
 * Each line of the gzip file is one log of random commands. It has the hash of its replies, the hash of
 * the state and a snapshot at its end. A later version must replay it to the same. It never changes.
 */
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { type Random, seededRandom } from "@heddle/base/random";
import { NEWEST_VERSION } from "@heddle/control/cluster-version";
import type { ControlCommand } from "@heddle/control/command";
import { logCommand } from "@heddle/control/jobs/records/logged-command";
import { RandomCommands } from "@heddle/control/jobs/testing/random-commands";
import { modelOnDevice } from "@heddle/control/jobs/testing/specs";
import { type LogCommand, ReplicatedControl } from "@heddle/control/replicated-control";
import type { ApiKeyRecord, ControlState } from "@heddle/control/state";

const LOGS = 100;
const ENTRIES = 60;
const DAY_MS = 86_400_000;
const SETTINGS = ["max_concurrent_jobs", "no_such_setting", "job_spec_kib", "state_mib"];
/** A cluster's first entries: it begins with version 1. */
const RAISE: LogCommand = { type: "version.raise", atMs: 0, version: NEWEST_VERSION };

/** Draws entries of all kinds; the jobs' commands are those of the lifecycle's tests. */
class RandomEntries {
  readonly #random: Random;
  readonly #state: ControlState;
  readonly #jobs: RandomCommands;
  #atMs = 0;

  constructor(random: Random, state: ControlState) {
    this.#random = random;
    this.#state = state;
    this.#jobs = new RandomCommands(random, state);
  }

  next(): LogCommand {
    const drawn = this.#below(5) === 0 ? this.#catalogCommand() : this.#jobs.next();
    const command = logCommand(drawn, NEWEST_VERSION);
    this.#atMs = command.atMs;
    const atMs = this.#atMs;
    switch (this.#below(16)) {
      case 0:
      case 1:
        return { type: "secret.keep", atMs, name: `secret-${this.#below(4)}`, value: `v${atMs}` };
      case 2:
        return { type: "hash.report", atMs, node: 1, commands: this.#below(9), hash: "0" };
      case 3:
      case 4:
        return { type: "control", command, idempotency: this.#idempotency() };
      default:
        return { type: "control", command };
    }
  }

  #idempotency() {
    const fingerprint = `${this.#below(3)}`.repeat(64);
    return { id: `caller01:${this.#below(6)}`, fingerprint, answer: `told ${this.#below(5)}` };
  }

  #catalogCommand(): ControlCommand {
    const atMs = this.#atMs + this.#below(100);
    const id = this.#keyId();
    const key = this.#key();
    const expiresAtMs = atMs + this.#below(1_000) - 10;
    switch (this.#below(12)) {
      case 0:
      case 1:
        return { type: "key.create", atMs, key };
      case 2:
        return { type: "key.revoke", atMs, id };
      case 3:
        return { type: "key.rotate", atMs, id, key: { ...key, rotatedFrom: id }, expiresAtMs };
      case 4:
        return this.#registration(atMs);
      case 5:
        return { type: "model.remove", atMs, id: `n${this.#below(3)}` };
      case 6:
        return this.#setting(atMs);
      case 7:
        return this.#joinCommand(atMs);
      default:
        return this.#jobsCommand(atMs);
    }
  }

  #keyId(): string {
    return `key0000${this.#below(6)}`;
  }

  #key(): ApiKeyRecord {
    return {
      id: this.#keyId(),
      name: "n".repeat(this.#below(3)),
      hash: "ab".repeat(32),
      scopes: this.#below(2) === 0 ? ["*"] : ["jobs:create"],
      models: [],
      createdAtMs: this.#atMs,
      limits: { requestsPerMinute: this.#below(4) === 0 ? -1 : 5 },
      expiresAtMs: this.#below(4) === 0 ? this.#atMs + this.#below(2 * DAY_MS) : undefined,
    };
  }

  #registration(atMs: number): ControlCommand {
    const device = this.#below(2) === 0 ? "cpu" : "cuda:0";
    const replicas = this.#below(3) === 0 ? "every-worker" : this.#below(3);
    const made = modelOnDevice(`n${this.#below(3)}`, device, replicas, atMs);
    return { ...made, replaces: this.#below(3) === 0 } as ControlCommand;
  }

  #setting(atMs: number): ControlCommand {
    const name = SETTINGS[this.#below(SETTINGS.length)] as string;
    const ifVersion = this.#below(2) === 0 ? this.#below(3) : undefined;
    return { type: "setting.put", atMs, name, value: this.#below(20), ifVersion };
  }

  #joinCommand(atMs: number): ControlCommand {
    const id = `${this.#below(4)}`.repeat(64);
    const role = this.#below(2) === 0 ? "worker" : "master";
    if (this.#below(2) === 0) return { type: "join.use", atMs, id, role };
    const expiresAtMs = atMs + this.#below(2_000) - 100;
    return { type: "join.create", atMs, id, join: { role, expiresAtMs } };
  }

  /** What the lifecycle's tests do not draw. */
  #jobsCommand(atMs: number): ControlCommand {
    const jobs = [...this.#state.jobs.values()];
    const job = jobs[this.#below(jobs.length)];
    const place = [...this.#state.replicas.values()].at(0);
    if (place && this.#below(3) === 0) {
      const { deployment, nodeId } = place;
      return {
        type: "replica.fail",
        atMs,
        deployment,
        nodeId,
        code: "engine",
        message: "it broke",
      };
    }
    if (!job || this.#below(4) === 0) return this.#queueOrProject(atMs);
    const { id: jobId, attempt } = job;
    if (this.#below(5) === 0) {
      return { type: "job.registered", atMs, jobId, modelId: "trained", fault: undefined };
    }
    if (this.#below(4) === 0) {
      return { type: "job.request", atMs, jobId, request: "suspend", ifIndex: job.changedIndex };
    }
    const of = Math.max(1, attempt - this.#below(2));
    const progress = { atMs, attempt: of, step: this.#below(90), loss: this.#random() };
    const checkpoint = { name: `step-${this.#below(90)}`, attempt: of, atMs };
    return { type: "jobs.progress", atMs, entries: [{ jobId, attempt: of, progress, checkpoint }] };
  }

  #queueOrProject(atMs: number): ControlCommand {
    if (this.#below(2) === 0) {
      const maxLength = this.#below(2) === 0 ? this.#below(5) : undefined;
      return { type: "queue.set", atMs, queue: { name: "default", strategy: "spread", maxLength } };
    }
    const quota = { gpuHours: this.#below(30), queueLength: this.#below(9) };
    return { type: "project.set", atMs, name: "other", weight: 1 + this.#below(3), quota };
  }

  #below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }
}

function goldenLog(seed: number): string {
  const control = new ReplicatedControl();
  const draws = new RandomEntries(seededRandom(seed), control.state);
  const entries: LogCommand[] = [];
  const replies = createHash("sha256");
  for (let index = 1; index <= ENTRIES; index++) {
    const entry = index === 1 ? RAISE : (JSON.parse(JSON.stringify(draws.next())) as LogCommand);
    entries.push(entry);
    replies.update(`${JSON.stringify(control.apply(entry, index))}\n`);
  }
  const snapshot = [...control.snapshot()];
  return JSON.stringify({ entries, replies: replies.digest("hex"), hash: control.hash, snapshot });
}

const [file] = process.argv.slice(2);
if (file === undefined) {
  console.error("usage: npm run golden:logs -- FILE");
  process.exitCode = 2;
} else {
  const lines = Array.from({ length: LOGS }, (_, seed) => `${goldenLog(seed)}\n`);
  writeFileSync(file, gzipSync(lines.join(""), { level: 9 }));
}

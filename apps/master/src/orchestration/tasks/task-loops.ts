import type { Logger } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Inject, type OnApplicationBootstrap } from "@nestjs/common";
import { LOGGER } from "../../config/config.module.ts";
import { CREDENTIALS } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { ArtifactReader } from "../../task-output/artifact-reader.ts";
import { LeaderLoops } from "../leader-loops.ts";
import { ShardRelease } from "../training/shard-release.ts";
import { registerTrainedModels } from "../training/trained-models.ts";
import { CheckpointRelease } from "./checkpoint-release.ts";
import { LostWorkers } from "./lost-workers.ts";

const REGISTER_PAUSE_MS = 50;
const RELEASE_PAUSE_MS = 250;
/** Delay after a job's end, so that jobs that end together are handled together. */
const FORGET_PAUSE_MS = 1_000;
/** Commands that may change which jobs hold shards. */
const MOVES_SHARDS: ReadonlySet<string> = new Set([
  "plan.commit",
  "tasks.report",
  "jobs.confirmFailures",
  "job.request",
  "node.lost",
  "node.fenced",
  "server.lost",
  "clock.tick",
]);

/** The leader's loops for what tasks leave behind: models, checkpoints, shards, lost tasks. */
export class TaskLoops implements OnApplicationBootstrap {
  readonly #loops: LeaderLoops;
  readonly #control: ControlPlane;
  readonly #credentials: NodeCredentials;
  readonly #artifacts: ArtifactReader;
  readonly #log: Logger;

  constructor(
    @Inject(LeaderLoops) loops: LeaderLoops,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(CREDENTIALS) credentials: NodeCredentials,
    @Inject(ArtifactReader) artifacts: ArtifactReader,
    @Inject(LOGGER) log: Logger,
  ) {
    this.#loops = loops;
    this.#control = control;
    this.#credentials = credentials;
    this.#artifacts = artifacts;
    this.#log = log;
  }

  onApplicationBootstrap(): void {
    this.#registerModels();
    this.#releaseStorage();
    this.#releaseLostTasks();
  }

  #registerModels(): void {
    const parts = { control: this.#control, artifacts: this.#artifacts, log: this.#log };
    this.#loops.run({
      name: "registering models",
      pauseMs: REGISTER_PAUSE_MS,
      concerns: (command) => command === undefined || command.type === "tasks.report",
      step: () => registerTrainedModels({ ...parts, clock: this.#loops.clock }),
    });
  }

  /** Checkpoints are checked again when shards were freed, as at a job's end. */
  #releaseStorage(): void {
    const parts = { control: this.#control, credentials: this.#credentials, log: this.#log };
    const checkpoints = new CheckpointRelease(parts);
    const forgetting = this.#loops.run({
      name: "deleting checkpoints",
      pauseMs: FORGET_PAUSE_MS,
      concerns: (command) => command === undefined,
      step: () => checkpoints.step(this.#loops.clock.wallMs()),
    });
    const onFreed = () => forgetting.poke();
    const shards = new ShardRelease({ ...parts, onFreed, clock: this.#loops.clock });
    this.#loops.run({
      name: "freeing shards",
      pauseMs: RELEASE_PAUSE_MS,
      concerns: (command) => command === undefined || MOVES_SHARDS.has(command.type),
      step: () => shards.step(),
    });
  }

  #releaseLostTasks(): void {
    const parts = { control: this.#control, credentials: this.#credentials, log: this.#log };
    const lost = new LostWorkers({ ...parts, clock: this.#loops.clock });
    this.#loops.run({
      name: "releasing lost tasks",
      pauseMs: RELEASE_PAUSE_MS,
      concerns: (command) => command === undefined || MOVES_SHARDS.has(command.type),
      step: () => lost.step(),
    });
  }
}

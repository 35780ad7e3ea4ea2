import type { ControlReply } from "../../command.ts";
import { ProjectStorage } from "../../project-storage.ts";
import { JobIndex } from "../index/job-index.ts";
import type { JobsCommand } from "../records/commands.ts";
import type { ApplyContext } from "../records/lifecycle.ts";
import type { JobsState } from "../records/records.ts";
import { applyClockTick } from "./clock.ts";
import { quarantineDevice } from "./devices.ts";
import { fenceNodes } from "./fencing.ts";
import { JobsTransaction } from "./jobs-transaction.ts";
import {
  applyNodeJoin,
  drainNode,
  failReplica,
  loseNodes,
  readyReplica,
  releaseReplica,
  resumeNode,
  setServing,
} from "./node-changes.ts";
import { commitPlan } from "./plan-commit.ts";
import { setProject, setQueue } from "./quotas.ts";
import { noteModel } from "./registration.ts";
import { requestJob } from "./requests.ts";
import { joinServer, loseServers } from "./server-changes.ts";
import { claimStages, placeStages } from "./stage-places.ts";
import { submitJob } from "./submission.ts";
import { confirmFailures, reportProgress, reportTasks } from "./task-reports.ts";

/** The jobs' part of the replicated state and its index: the only code that changes either. */
export class JobsStateMachine {
  readonly state: JobsState;
  #index: JobIndex;

  constructor(state: JobsState, storage = new ProjectStorage()) {
    this.state = state;
    this.#index = new JobIndex(state, storage);
  }

  /** Read-only. */
  get index(): JobIndex {
    return this.#index;
  }

  /** Rebuilds the index after the whole state was replaced. */
  rebuild(): void {
    this.#index = new JobIndex(this.state, this.#index.storage);
  }

  /** Deterministic; a refused command changes nothing. */
  apply(command: JobsCommand, now: ApplyContext): ControlReply {
    const change = new JobsTransaction(this.state, this.#index, now);
    const reply = dispatch(change, command);
    if (reply.ok) change.finish();
    return reply;
  }
}

const COMMANDS: {
  readonly [T in JobsCommand["type"]]: (
    change: JobsTransaction,
    command: Extract<JobsCommand, { type: T }>,
  ) => ControlReply;
} = {
  "job.submit": submitJob,
  "job.request": requestJob,
  "plan.commit": commitPlan,
  "tasks.report": reportTasks,
  "jobs.confirmFailures": confirmFailures,
  "jobs.progress": reportProgress,
  "node.join": applyNodeJoin,
  "node.update": setServing,
  "replica.claim": claimStages,
  "replica.place": placeStages,
  "replica.ready": readyReplica,
  "replica.release": releaseReplica,
  "replica.fail": failReplica,
  "node.lost": loseNodes,
  "node.fenced": fenceNodes,
  "node.drain": drainNode,
  "node.resume": resumeNode,
  "node.quarantine": quarantineDevice,
  "job.registered": noteModel,
  "server.join": joinServer,
  "server.lost": loseServers,
  "project.set": setProject,
  "queue.set": setQueue,
  "clock.tick": applyClockTick,
};

function dispatch<T extends JobsCommand["type"]>(
  change: JobsTransaction,
  command: Extract<JobsCommand, { type: T }>,
): ControlReply {
  return COMMANDS[command.type as T](change, command);
}

/** Whether the command changes jobs or nodes. */
export function isJobsCommand(command: { readonly type: string }): command is JobsCommand {
  return Object.hasOwn(COMMANDS, command.type);
}

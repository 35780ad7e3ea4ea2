import { toAppError } from "@heddle/base/errors";
import type {
  CheckpointJobs,
  CheckpointJobs__Output,
} from "@heddle/contracts/generated/heddle/v1/CheckpointJobs";
import type {
  ForgetJobCheckpoints,
  ForgetJobCheckpoints__Output,
} from "@heddle/contracts/generated/heddle/v1/ForgetJobCheckpoints";
import type {
  ForgetJobReply,
  ForgetJobReply__Output,
} from "@heddle/contracts/generated/heddle/v1/ForgetJobReply";
import type {
  ListCheckpointJobs,
  ListCheckpointJobs__Output,
} from "@heddle/contracts/generated/heddle/v1/ListCheckpointJobs";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { forEachLimit } from "../for-each-limit.ts";

const listMethod = method<
  ListCheckpointJobs,
  ListCheckpointJobs__Output,
  CheckpointJobs,
  CheckpointJobs__Output
>(parameterShardsService, "ListCheckpointJobs");
const forgetMethod = method<
  ForgetJobCheckpoints,
  ForgetJobCheckpoints__Output,
  ForgetJobReply,
  ForgetJobReply__Output
>(parameterShardsService, "ForgetJob");
const callMs = 10_000;
/** Servers that are asked at once. */
const maxServers = 16;
/** Between two looks at all servers, for what was missed while one was away or another master led. */
const lookMs = 60_000;
/**
 * How long checkpoints of a job that the masters do not know are kept: one that has been forgotten
 * after its end, or one of a cluster that was set back by a backup.
 */
const unknownMs = 24 * 3_600_000;

export interface CheckpointReleaseOptions {
  readonly control: ControlPlane;
  readonly credentials: NodeCredentials;
  readonly log: NodeLog;
}

/**
 * The leader's step that has parameter servers delete the checkpoints of jobs that have ended for
 * good. It asks each server what it has, so that nothing is missed and nothing need be remembered. A
 * job that is suspended, waits or is retried has not ended, and keeps all of its checkpoints.
 */
export class CheckpointRelease {
  readonly #options: CheckpointReleaseOptions;

  constructor(options: CheckpointReleaseOptions) {
    this.#options = options;
  }

  /** Resolves with the wall-clock time of the next look. */
  async step(nowMs: number): Promise<number> {
    const { servers } = this.#options.control.state;
    const ready = [...servers.values()].filter(({ state }) => state === "ready");
    await forEachLimit(ready, maxServers, (server) => this.#look(server));
    return nowMs + lookMs;
  }

  async #look({ name, address }: { readonly name: string; readonly address: string }) {
    const { credentials, log } = this.#options;
    const peer = new Peer(address, credentials, "parameter-server");
    try {
      const { jobs } = await peer.unary(listMethod, {}, { deadlineMs: callMs });
      for (const { jobId, idleMs } of jobs) {
        if (!this.#isOver(jobId, idleMs)) continue;
        await peer.unary(forgetMethod, { jobId }, { deadlineMs: callMs });
        log.info({ server: name, job: jobId }, "the checkpoints of a job that is over are deleted");
      }
    } catch (error) {
      // It has them still at the next look.
      log.info(
        { server: name, error: toAppError(error).message },
        "checkpoints were not looked at",
      );
    } finally {
      peer.close();
    }
  }

  #isOver(jobId: string, idleMs: number): boolean {
    const job = this.#options.control.state.jobs.get(jobId);
    return job ? isTerminal(job.state) : idleMs > unknownMs;
  }
}

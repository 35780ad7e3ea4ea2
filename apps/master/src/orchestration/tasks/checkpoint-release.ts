import { forEachLimit } from "@heddle/base/async/for-each-limit";
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
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

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
const CALL_MS = 10_000;
/** Servers that are queried at once. */
const MAX_SERVERS = 16;
/** Interval between two full checks, for what was missed during an absence or another leader. */
const POLL_MS = 60_000;
/** Retention of checkpoints of unknown jobs: dropped after their end, or lost with a restore. */
const UNKNOWN_MS = 24 * 3_600_000;

export interface CheckpointReleaseOptions {
  readonly control: ControlPlane;
  readonly credentials: NodeCredentials;
  readonly log: Log;
}

/**
 * The leader's step that makes parameter servers delete the checkpoints of ended jobs. It lists
 * what each server has, so it needs no memory of its own. Suspended, queued and retrying jobs keep
 * theirs.
 */
export class CheckpointRelease {
  readonly #options: CheckpointReleaseOptions;

  constructor(options: CheckpointReleaseOptions) {
    this.#options = options;
  }

  /** Resolves with the wall-clock time of the next check. */
  async step(nowMs: number): Promise<number> {
    const { servers } = this.#options.control.state;
    const ready = [...servers.values()].filter(({ state }) => state === "ready");
    await forEachLimit(ready, MAX_SERVERS, (server) => this.#releaseOn(server));
    return nowMs + POLL_MS;
  }

  async #releaseOn({ name, address }: { readonly name: string; readonly address: string }) {
    const { credentials, log } = this.#options;
    const peer = new Peer(address, credentials, "parameter-server");
    try {
      const { jobs } = await peer.unary(listMethod, {}, { deadlineMs: CALL_MS });
      for (const { jobId, idleMs } of jobs) {
        if (!this.#isEnded(jobId, idleMs)) continue;
        await peer.unary(forgetMethod, { jobId }, { deadlineMs: CALL_MS });
        log.info(
          { server: name, job: jobId },
          "the checkpoints of a job that has ended are deleted",
        );
      }
    } catch (error) {
      // They are listed again at the next check.
      log.info(
        { server: name, error: toAppError(error).message },
        "checkpoints could not be checked",
      );
    } finally {
      peer.close();
    }
  }

  #isEnded(jobId: string, idleMs: number): boolean {
    const job = this.#options.control.state.jobs.get(jobId);
    return job ? isTerminal(job.state) : idleMs > UNKNOWN_MS;
  }
}

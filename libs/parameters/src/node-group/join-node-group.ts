import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import type { ParameterClient } from "@heddle/training/parameter-client";
import {
  connectParameters,
  type ParameterServerClient,
  type ParameterServerClientOptions,
} from "../parameter-server-client.ts";
import { NodeFollower } from "./node-follower.ts";
import type { NodeGroup } from "./node-group.ts";
import { NodeLeader } from "./node-leader.ts";

/**
 * A task's client of the parameters, and the node's client of the servers where this task leads.
 */
export interface NodeClient extends ParameterClient {
  readonly servers: ParameterServerClient | undefined;
  /** For the leading task: notifies the others that the job has ended, by `gone`. */
  dismiss(): Promise<void>;
  close(): Promise<void>;
}

const TIMEOUT_MS = 60_000;

/**
 * Joins a job through its node. The first task sums the parts of all tasks of the node, sends their
 * weighted mean once, and distributes the parameters. The node is the `rank`, and nodes are the
 * spec's `workers`. Within a node tasks run in step, whatever the consistency model is.
 */
export async function joinNodeGroup(
  options: ParameterServerClientOptions,
  group: NodeGroup,
): Promise<NodeClient> {
  if (group.member === 0) {
    const client = await connectParameters(options);
    return group.members === 1 ? soleTask(client) : NodeLeader.start(client, options, group);
  }
  // The leader may not listen yet.
  return await retry(() => NodeFollower.start(options, group), {
    backoff: { baseMs: 20, maxMs: 500 },
    deadlineMs: TIMEOUT_MS,
    signal: options.signal,
    isPassing: (error) => toAppError(error).code === "unavailable",
    lateError: (error) => {
      const { message } = toAppError(error);
      return new AppError(
        "unavailable",
        `the leading task of this node is unreachable: ${message}`,
      );
    },
  });
}

/** A task that is alone on its node has no parts to sum. */
function soleTask(client: ParameterServerClient): NodeClient {
  return {
    servers: client,
    pull: (into) => client.pull(into),
    push: (part, terms) => client.push(part, terms),
    dismiss: () => Promise.resolve(),
    close: () => client.close(),
  };
}

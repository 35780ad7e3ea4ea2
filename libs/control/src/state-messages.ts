import { STANDARD_TERMS } from "./cluster-version.ts";

/** Messages of replies and records that changed at STANDARD_TERMS; earlier logs replay to the earlier ones. */
interface StateMessages {
  readonly unexplainedExit: string;
  readonly unexplainedDeviceFault: string;
  readonly unconfirmedFailure: string;
  readonly shardsGone: string;
  serverRestarted(name: string): string;
  deviceHealthy(device: number): string;
  unreportedRank(exited: number | undefined): string;
  stoppedRank(rank: number, nodeId: string): string;
  pastTimeLimit(seconds: number): string;
  lossLoop(times: number, minutes: number, last: string): string;
  fullQueue(queue: string, length: number, limit: number): string;
  changedJob(id: string, index: number, expected: number): string;
  expiredRotation(id: string): string;
  existingSecret(name: string): string;
}

const PRESENT: StateMessages = {
  unexplainedExit: "it exited without a reported reason",
  unexplainedDeviceFault: "a task failed because of it",
  unconfirmedFailure:
    "it is confirmed once the nodes of the other ranks have reported, since one of them may be lost",
  shardsGone: "it restarted without the shards that it held",
  serverRestarted: (name) => `the parameter server ${name} restarted`,
  deviceHealthy: (device) => `device ${device} is healthy again`,
  unreportedRank: (exited) =>
    `after rank ${exited} exited, the node of another rank did not report before its lease expired`,
  stoppedRank: (rank, nodeId) =>
    `rank ${rank} was stopped on the node ${nodeId}, although the job had not ended`,
  pastTimeLimit: (seconds) => `it ran for ${seconds} s, which is its time limit`,
  lossLoop: (times, minutes, last) =>
    `its nodes were lost ${times} times in a row without a new step or checkpoint, or ${minutes} minutes of running, in between; the job may overload its nodes: give its tasks more memory or CPU, or place fewer tasks on a node; the last time: ${last}`,
  fullQueue: (queue, length, limit) =>
    `the queue ${queue} holds ${length} jobs, and its limit is ${limit}`,
  changedJob: (id, index, expected) =>
    `the job ${id} has changed at index ${index}, after ${expected}; read it again`,
  expiredRotation: (id) => `the key ${id} would expire before its rotation`,
  existingSecret: (name) => `the secret ${name} exists already`,
};

const EARLIER: StateMessages = {
  unexplainedExit: "it ended without a word",
  unexplainedDeviceFault: "a task ended for it",
  unconfirmedFailure:
    "it counts once the nodes of the other ranks are heard of, one of which may be lost",
  shardsGone: "it was started anew, without the shards that it held",
  serverRestarted: (name) => `the parameter server ${name} was started anew`,
  deviceHealthy: (device) => `device ${device} is well again`,
  unreportedRank: (exited) =>
    `after the end of rank ${exited}, the node of another was not heard of until its lease was over`,
  stoppedRank: (rank, nodeId) =>
    `rank ${rank} was ended on the node ${nodeId}, though the job was to go on`,
  pastTimeLimit: (seconds) => `it ran for ${seconds} s, which is its bound`,
  lossLoop: (times, minutes, last) =>
    `its nodes were lost ${times} times in a row without a new step or checkpoint, or ${minutes} minutes of running, in between; the job may be more than its nodes bear: give its tasks more memory or CPU, or fewer tasks to a node; the last time: ${last}`,
  fullQueue: (queue, length, limit) =>
    `the queue ${queue} holds ${length} jobs, and its bound is ${limit}`,
  changedJob: (id, index, expected) =>
    `the job ${id} has changed at index ${index}, after ${expected}; look at it again`,
  expiredRotation: (id) => `the end of the key ${id} lies before its rotation`,
  existingSecret: (name) => `the secret ${name} is kept already`,
};

export function messagesAt(version: number): StateMessages {
  return version >= STANDARD_TERMS ? PRESENT : EARLIER;
}

import type { NodeRole } from "@heddle/pki/node-name";

/**
 * `job`: a task with a ticket, or a server that shows it on the task's behalf; the service checks the
 * ticket's claims. Without TLS `TOKEN_HOLDERS` may call such methods too.
 */
export type Callers = "anyone" | readonly (NodeRole | "job")[];

/** Any holder of the cluster token can issue a ticket. */
export const TOKEN_HOLDERS: readonly NodeRole[] = ["worker", "parameter-server"];

/** Who may call each method of proto/; unlisted methods are for masters. */
export const CALLERS: Readonly<Record<string, Callers>> = {
  // Probes have no credentials; the answers only show that the process serves.
  "/grpc.health.v1.Health/Check": "anyone",
  "/grpc.health.v1.Health/Watch": "anyone",
  // Its request carries a join token, without which it is refused.
  "/heddle.v1.Enrollment/Join": "anyone",
  "/heddle.v1.Enrollment/Renew": ["master", "worker", "parameter-server"],
  "/heddle.v1.Cluster/Attach": ["worker", "parameter-server"],
  "/heddle.v1.Raft/Introduce": ["master"],
  "/heddle.v1.Raft/Progress": ["master"],
  "/heddle.v1.Raft/Locate": ["master"],
  "/heddle.v1.DocumentContents/Put": ["master"],
  "/heddle.v1.DocumentContents/Get": ["master"],
  "/heddle.v1.DocumentContents/Missing": ["master"],
  "/heddle.v1.EventEntries/Read": ["master"],
  "/heddle.v1.EventEntries/ReadHashes": ["master"],
  "/heddle.v1.RunningResponses/Follow": ["master"],
  "/heddle.v1.Divisions/Read": ["master"],
  "/heddle.v1.WorkerModels/Load": ["master"],
  "/heddle.v1.WorkerModels/Unload": ["master"],
  "/heddle.v1.WorkerModels/Pull": ["master"],
  "/heddle.v1.WorkerModels/PlanStages": ["master"],
  "/heddle.v1.WorkerModels/SizeModel": ["master"],
  // The service checks that the worker drives the stage.
  "/heddle.v1.WorkerStages/Join": ["worker"],
  // The caller knows the digest of the model's index from its master.
  "/heddle.v1.WorkerStages/ReadWeights": ["worker"],
  "/heddle.v1.WorkerInference/Session": ["master"],
  "/heddle.v1.WorkerTasks/Session": ["master"],
  "/heddle.v1.TaskLogs/Ship": ["worker"],
  "/heddle.v1.TaskLogs/Read": ["master"],
  // Workers call masters only, which check the artifact.
  "/heddle.v1.TaskArtifacts/Read": ["master", "worker"],
  "/heddle.v1.ParameterShards/Open": ["job"],
  "/heddle.v1.ParameterShards/Status": ["job"],
  "/heddle.v1.ParameterShards/Close": ["master", "job"],
  "/heddle.v1.ParameterShards/ChangeMember": ["job"],
  "/heddle.v1.ParameterShards/ReleaseWorker": ["master"],
  "/heddle.v1.ParameterShards/Checkpoint": ["job"],
  "/heddle.v1.ParameterShards/ListCheckpoints": ["job"],
  "/heddle.v1.ParameterShards/ListCheckpointJobs": ["master"],
  "/heddle.v1.ParameterShards/ForgetJob": ["master"],
  "/heddle.v1.ParameterShards/Restore": ["job"],
  "/heddle.v1.ParameterShards/Pull": ["job"],
  "/heddle.v1.ParameterShards/Push": ["job"],
  "/heddle.v1.ParameterShards/AddNorm": ["job"],
  "/heddle.v1.ParameterShards/Export": ["job"],
  "/heddle.v1.ParameterShards/Replicate": ["job"],
  // Served by tasks, under the attempt's token.
  "/heddle.v1.PartSource/Take": ["parameter-server"],
};

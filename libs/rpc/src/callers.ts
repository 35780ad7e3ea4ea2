import type { NodeRole } from "./pki/node-name.ts";

/**
 * `job`: a task of a job with a ticket; the service checks what the ticket is for. Without TLS a worker may
 * call there too, since whoever has the cluster token can issue a ticket.
 */
export type Callers = "anyone" | readonly (NodeRole | "job")[];

/** Who may call a method of proto/; one that is not here is for masters. */
export const CALLERS: Readonly<Record<string, Callers>> = {
  // Probes carry no credentials; the answers tell nothing but that the process serves.
  "/grpc.health.v1.Health/Check": "anyone",
  "/grpc.health.v1.Health/Watch": "anyone",
  // Its request carries a join token, and is refused without.
  "/heddle.v1.Enrollment/Join": "anyone",
  "/heddle.v1.Enrollment/Renew": ["master", "worker", "parameter-server"],
  "/heddle.v1.Cluster/Attach": ["worker", "parameter-server"],
  "/heddle.v1.Raft/Introduce": ["master"],
  "/heddle.v1.Raft/Progress": ["master"],
  "/heddle.v1.Raft/Locate": ["master"],
  "/heddle.v1.WorkerModels/Load": ["master"],
  "/heddle.v1.WorkerModels/Unload": ["master"],
  "/heddle.v1.WorkerModels/Pull": ["master"],
  "/heddle.v1.WorkerInference/Session": ["master"],
  "/heddle.v1.WorkerTasks/Session": ["master"],
  "/heddle.v1.TaskLogs/Ship": ["worker"],
  "/heddle.v1.TaskLogs/Read": ["master"],
  // A worker asks masters alone; what it may have is checked there.
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
  "/heddle.v1.ParameterShards/AddNorm": ["parameter-server", "job"],
  "/heddle.v1.ParameterShards/Export": ["parameter-server", "job"],
  "/heddle.v1.ParameterShards/Replicate": ["job"],
  // Served by tasks: under the attempt's token.
  "/heddle.v1.PartSource/Take": ["parameter-server"],
};

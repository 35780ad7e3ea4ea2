import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { DESCRIPTORS } from "@heddle/contracts/generated/descriptors";
import type {
  ArtifactChunk,
  ArtifactChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ArtifactChunk";
import type {
  ArtifactRange,
  ArtifactRange__Output,
} from "@heddle/contracts/generated/heddle/v1/ArtifactRange";
import type {
  AttachReply,
  AttachReply__Output,
} from "@heddle/contracts/generated/heddle/v1/AttachReply";
import type {
  Certificates,
  Certificates__Output,
} from "@heddle/contracts/generated/heddle/v1/Certificates";
import type {
  ContentChunk,
  ContentChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ContentChunk";
import type {
  ContentName,
  ContentName__Output,
} from "@heddle/contracts/generated/heddle/v1/ContentName";
import type {
  ContentStored,
  ContentStored__Output,
} from "@heddle/contracts/generated/heddle/v1/ContentStored";
import type {
  DivisionNotes,
  DivisionNotes__Output,
} from "@heddle/contracts/generated/heddle/v1/DivisionNotes";
import type {
  DivisionsRequest,
  DivisionsRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/DivisionsRequest";
import type {
  EventBytes,
  EventBytes__Output,
} from "@heddle/contracts/generated/heddle/v1/EventBytes";
import type {
  EventHashes,
  EventHashes__Output,
} from "@heddle/contracts/generated/heddle/v1/EventHashes";
import type {
  EventRange,
  EventRange__Output,
} from "@heddle/contracts/generated/heddle/v1/EventRange";
import type {
  InferenceCommand,
  InferenceCommand__Output,
} from "@heddle/contracts/generated/heddle/v1/InferenceCommand";
import type {
  InferenceEvents,
  InferenceEvents__Output,
} from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import type {
  Introduction,
  Introduction__Output,
} from "@heddle/contracts/generated/heddle/v1/Introduction";
import type {
  IntroductionReply,
  IntroductionReply__Output,
} from "@heddle/contracts/generated/heddle/v1/IntroductionReply";
import type {
  JoinRequest,
  JoinRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/JoinRequest";
import type { LoadReply, LoadReply__Output } from "@heddle/contracts/generated/heddle/v1/LoadReply";
import type {
  LoadRequest,
  LoadRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/LoadRequest";
import type {
  LocateReply,
  LocateReply__Output,
} from "@heddle/contracts/generated/heddle/v1/LocateReply";
import type {
  LocateRequest,
  LocateRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/LocateRequest";
import type { LogAck, LogAck__Output } from "@heddle/contracts/generated/heddle/v1/LogAck";
import type { LogChunk, LogChunk__Output } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import type { LogRange, LogRange__Output } from "@heddle/contracts/generated/heddle/v1/LogRange";
import type {
  MissingContents,
  MissingContents__Output,
} from "@heddle/contracts/generated/heddle/v1/MissingContents";
import type {
  MissingRequest,
  MissingRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/MissingRequest";
import type { ModelSize, ModelSize__Output } from "@heddle/contracts/generated/heddle/v1/ModelSize";
import type {
  NodeReport,
  NodeReport__Output,
} from "@heddle/contracts/generated/heddle/v1/NodeReport";
import type {
  ParameterChunk,
  ParameterChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import type {
  PlanStagesRequest,
  PlanStagesRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/PlanStagesRequest";
import type {
  ProgressReply,
  ProgressReply__Output,
} from "@heddle/contracts/generated/heddle/v1/ProgressReply";
import type {
  ProgressRequest,
  ProgressRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/ProgressRequest";
import type {
  PullProgress,
  PullProgress__Output,
} from "@heddle/contracts/generated/heddle/v1/PullProgress";
import type {
  PullRequest,
  PullRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/PullRequest";
import type {
  RenewRequest,
  RenewRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/RenewRequest";
import type {
  ResponseProgress,
  ResponseProgress__Output,
} from "@heddle/contracts/generated/heddle/v1/ResponseProgress";
import type {
  ResponseToFollow,
  ResponseToFollow__Output,
} from "@heddle/contracts/generated/heddle/v1/ResponseToFollow";
import type {
  SizeModelRequest,
  SizeModelRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/SizeModelRequest";
import type {
  StageBytes,
  StageBytes__Output,
} from "@heddle/contracts/generated/heddle/v1/StageBytes";
import type { StagePlan, StagePlan__Output } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type {
  TaskCommand,
  TaskCommand__Output,
} from "@heddle/contracts/generated/heddle/v1/TaskCommand";
import type {
  TaskReport,
  TaskReport__Output,
} from "@heddle/contracts/generated/heddle/v1/TaskReport";
import type {
  UnloadReply,
  UnloadReply__Output,
} from "@heddle/contracts/generated/heddle/v1/UnloadReply";
import type {
  UnloadRequest,
  UnloadRequest__Output,
} from "@heddle/contracts/generated/heddle/v1/UnloadRequest";
import type {
  WeightsBytes,
  WeightsBytes__Output,
} from "@heddle/contracts/generated/heddle/v1/WeightsBytes";
import type {
  WeightsRange,
  WeightsRange__Output,
} from "@heddle/contracts/generated/heddle/v1/WeightsRange";
import { decodeChunk, encodeChunk } from "./chunk-codec.ts";
import { servicesOf } from "./definitions/service-definitions.ts";
import { decodeEvents, encodeDeltas } from "./delta-frames.ts";

/** Every service of proto/*.proto for grpc-js, by its full name. */
export const services = servicesOf(DESCRIPTORS);

/** A method for both sides; `Out` types are decoded messages with all defaults. */
export interface RpcMethod<Req, ReqOut, Res, ResOut> {
  readonly path: string;
  readonly requestSerialize: (value: Req) => Buffer;
  readonly requestDeserialize: (bytes: Buffer) => ReqOut;
  readonly responseSerialize: (value: Res) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => ResOut;
}

export const clusterService = service("heddle.v1.Cluster");
export const raftService = service("heddle.v1.Raft");
export const workerModelsService = service("heddle.v1.WorkerModels");
export const workerStagesService = service("heddle.v1.WorkerStages");
export const workerInferenceService = service("heddle.v1.WorkerInference");
export const parameterShardsService = service("heddle.v1.ParameterShards");
export const partSourceService = service("heddle.v1.PartSource");
export const workerTasksService = service("heddle.v1.WorkerTasks");
export const taskArtifactsService = service("heddle.v1.TaskArtifacts");
export const taskLogsService = service("heddle.v1.TaskLogs");
export const enrollmentService = service("heddle.v1.Enrollment");
export const documentContentsService = service("heddle.v1.DocumentContents");
export const eventEntriesService = service("heddle.v1.EventEntries");
export const runningResponsesService = service("heddle.v1.RunningResponses");
export const divisionsService = service("heddle.v1.Divisions");
export const healthService = service("grpc.health.v1.Health");

export const attachMethod = method<
  NodeReport,
  NodeReport__Output,
  AttachReply,
  AttachReply__Output
>(clusterService, "Attach");
export const loadMethod = method<LoadRequest, LoadRequest__Output, LoadReply, LoadReply__Output>(
  workerModelsService,
  "Load",
);
export const unloadMethod = method<
  UnloadRequest,
  UnloadRequest__Output,
  UnloadReply,
  UnloadReply__Output
>(workerModelsService, "Unload");
export const pullMethod = method<
  PullRequest,
  PullRequest__Output,
  PullProgress,
  PullProgress__Output
>(workerModelsService, "Pull");
export const sizeModelMethod = method<
  SizeModelRequest,
  SizeModelRequest__Output,
  ModelSize,
  ModelSize__Output
>(workerModelsService, "SizeModel");
export const planStagesMethod = method<
  PlanStagesRequest,
  PlanStagesRequest__Output,
  StagePlan,
  StagePlan__Output
>(workerModelsService, "PlanStages");
export const joinStageMethod = method<
  StageBytes,
  StageBytes__Output,
  StageBytes,
  StageBytes__Output
>(workerStagesService, "Join");
export const readWeightsMethod = method<
  WeightsRange,
  WeightsRange__Output,
  WeightsBytes,
  WeightsBytes__Output
>(workerStagesService, "ReadWeights");
export const sessionMethod = withPlainDeltas(
  method<InferenceCommand, InferenceCommand__Output, InferenceEvents, InferenceEvents__Output>(
    workerInferenceService,
    "Session",
  ),
);
export const locateMethod = method<
  LocateRequest,
  LocateRequest__Output,
  LocateReply,
  LocateReply__Output
>(raftService, "Locate");
export const progressMethod = method<
  ProgressRequest,
  ProgressRequest__Output,
  ProgressReply,
  ProgressReply__Output
>(raftService, "Progress");
export const introduceMethod = method<
  Introduction,
  Introduction__Output,
  IntroductionReply,
  IntroductionReply__Output
>(raftService, "Introduce");

export const taskSessionMethod = method<
  TaskCommand,
  TaskCommand__Output,
  TaskReport,
  TaskReport__Output
>(workerTasksService, "Session");
export const shipLogsMethod = method<LogChunk, LogChunk__Output, LogAck, LogAck__Output>(
  taskLogsService,
  "Ship",
);
export const readLogMethod = method<LogRange, LogRange__Output, LogChunk, LogChunk__Output>(
  taskLogsService,
  "Read",
);
export const readArtifactMethod = method<
  ArtifactRange,
  ArtifactRange__Output,
  ArtifactChunk,
  ArtifactChunk__Output
>(taskArtifactsService, "Read");
export const putContentMethod = method<
  ContentChunk,
  ContentChunk__Output,
  ContentStored,
  ContentStored__Output
>(documentContentsService, "Put");
export const getContentMethod = method<
  ContentName,
  ContentName__Output,
  ContentChunk,
  ContentChunk__Output
>(documentContentsService, "Get");
export const missingContentsMethod = method<
  MissingRequest,
  MissingRequest__Output,
  MissingContents,
  MissingContents__Output
>(documentContentsService, "Missing");
export const readDivisionsMethod = method<
  DivisionsRequest,
  DivisionsRequest__Output,
  DivisionNotes,
  DivisionNotes__Output
>(divisionsService, "Read");
export const followResponseMethod = method<
  ResponseToFollow,
  ResponseToFollow__Output,
  ResponseProgress,
  ResponseProgress__Output
>(runningResponsesService, "Follow");
export const readEventsMethod = method<
  EventRange,
  EventRange__Output,
  EventBytes,
  EventBytes__Output
>(eventEntriesService, "Read");
export const readEventHashesMethod = method<
  EventRange,
  EventRange__Output,
  EventHashes,
  EventHashes__Output
>(eventEntriesService, "ReadHashes");
export const joinMethod = method<
  JoinRequest,
  JoinRequest__Output,
  Certificates,
  Certificates__Output
>(enrollmentService, "Join");
export const renewMethod = method<
  RenewRequest,
  RenewRequest__Output,
  Certificates,
  Certificates__Output
>(enrollmentService, "Renew");

function service(name: string): ServiceDefinition {
  const definition = services.get(name);
  if (!definition) throw new Error(`proto/ defines no service ${name}`);
  return definition;
}

/** Changes the definition itself, so that servers use the codec too. */
function withPlainDeltas<Req, ReqOut>(
  session: RpcMethod<Req, ReqOut, InferenceEvents, InferenceEvents__Output>,
): typeof session {
  const { responseSerialize, responseDeserialize } = session;
  return Object.assign(session, {
    responseSerialize: (frame: InferenceEvents) => encodeDeltas(frame) ?? responseSerialize(frame),
    responseDeserialize: (bytes: Buffer) => decodeEvents(bytes) ?? responseDeserialize(bytes),
  });
}

/**
 * Parameters are sent in megabyte messages, which protobuf's general code copies once more than
 * necessary.
 */
function withPlainChunks<Req, ReqOut>(
  stream: RpcMethod<Req, ReqOut, ParameterChunk, ParameterChunk__Output>,
): void {
  const { responseDeserialize } = stream;
  Object.assign(stream, {
    responseSerialize: encodeChunk,
    responseDeserialize: (bytes: Buffer) => decodeChunk(bytes) ?? responseDeserialize(bytes),
  });
}

for (const [definition, name] of [
  [parameterShardsService, "Pull"],
  [parameterShardsService, "Export"],
  [partSourceService, "Take"],
] as const) {
  withPlainChunks(method(definition, name));
}

/**
 * A method by name. tools/proto-types.ts generates its types from the same files, as its test
 * verifies.
 */
export function method<Req, ReqOut, Res, ResOut>(
  definition: ServiceDefinition,
  name: string,
): RpcMethod<Req, ReqOut, Res, ResOut> {
  const found = definition[name] as MethodDefinition<Req, Res> | undefined;
  if (!found) throw new Error(`proto/ defines no method ${name}`);
  return found as unknown as RpcMethod<Req, ReqOut, Res, ResOut>;
}

// Original file: proto/worker.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { InferenceCommand as _heddle_v1_InferenceCommand, InferenceCommand__Output as _heddle_v1_InferenceCommand__Output } from '../../heddle/v1/InferenceCommand.ts';
import type { InferenceEvents as _heddle_v1_InferenceEvents, InferenceEvents__Output as _heddle_v1_InferenceEvents__Output } from '../../heddle/v1/InferenceEvents.ts';

export interface WorkerInferenceDefinition {
  Session: MethodDefinition<_heddle_v1_InferenceCommand, _heddle_v1_InferenceEvents, _heddle_v1_InferenceCommand__Output, _heddle_v1_InferenceEvents__Output>
}

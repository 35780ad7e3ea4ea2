// Original file: proto/worker.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { StageBytes as _heddle_v1_StageBytes, StageBytes__Output as _heddle_v1_StageBytes__Output } from '../../heddle/v1/StageBytes.ts';

export interface WorkerStagesDefinition {
  Join: MethodDefinition<_heddle_v1_StageBytes, _heddle_v1_StageBytes, _heddle_v1_StageBytes__Output, _heddle_v1_StageBytes__Output>
}

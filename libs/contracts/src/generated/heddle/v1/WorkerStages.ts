// Original file: proto/worker.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { StageBytes as _heddle_v1_StageBytes, StageBytes__Output as _heddle_v1_StageBytes__Output } from '../../heddle/v1/StageBytes.ts';
import type { WeightsBytes as _heddle_v1_WeightsBytes, WeightsBytes__Output as _heddle_v1_WeightsBytes__Output } from '../../heddle/v1/WeightsBytes.ts';
import type { WeightsRange as _heddle_v1_WeightsRange, WeightsRange__Output as _heddle_v1_WeightsRange__Output } from '../../heddle/v1/WeightsRange.ts';

export interface WorkerStagesDefinition {
  Join: MethodDefinition<_heddle_v1_StageBytes, _heddle_v1_StageBytes, _heddle_v1_StageBytes__Output, _heddle_v1_StageBytes__Output>
  ReadWeights: MethodDefinition<_heddle_v1_WeightsRange, _heddle_v1_WeightsBytes, _heddle_v1_WeightsRange__Output, _heddle_v1_WeightsBytes__Output>
}

// Original file: proto/parameters.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { ParameterChunk as _heddle_v1_ParameterChunk, ParameterChunk__Output as _heddle_v1_ParameterChunk__Output } from '../../heddle/v1/ParameterChunk.ts';
import type { TakePart as _heddle_v1_TakePart, TakePart__Output as _heddle_v1_TakePart__Output } from '../../heddle/v1/TakePart.ts';

export interface PartSourceDefinition {
  Take: MethodDefinition<_heddle_v1_TakePart, _heddle_v1_ParameterChunk, _heddle_v1_TakePart__Output, _heddle_v1_ParameterChunk__Output>
}
